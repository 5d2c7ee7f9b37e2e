// SPDX-License-Identifier: Apache-2.0
// Parses a snippet of the expression tier into a typed AST.
//
// Precedence climbing over the operators of C (C17 6.5). Types are settled as nodes are made: each
// conversion becomes a node, so later stages decide nothing.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "spec/expression.h"
#include "spec/expression_functions.h"
#include "spec/expression_lexer.h"
#include "spec/spec_fields.h"
#include "spec/text.h"

namespace attnjit::spec {
namespace {

constexpr int kFailed = -1;

/// The operator between two operands that a token is, or null.
const OperatorRow* find_binary(const Token& token) {
  if (token.kind != Token::Kind::kSign) return nullptr;
  for (const OperatorRow& row : expression_operators()) {
    if (row.sign == token.text) return &row;
  }
  return nullptr;
}

bool is_comparison(ExprOp op) { return op >= ExprOp::kLess && op <= ExprOp::kNotEqual; }

constexpr std::array<std::string_view, 4> kTypeNames{"bool", "int", "u32", "float"};

/// Recursive descent; every method gives the index of a node, or kFailed with `error_` set.
class Parser {
 public:
  Parser(std::string_view code, SnippetKind kind, std::span<const ParamSpec> params)
      : lexer_(code) {
    made_.kind = kind;
    made_.params.assign(params.begin(), params.end());
  }

  Result<Expression> run() {
    if (!advance()) return std::move(error_);
    if (token_.kind == Token::Kind::kEnd) {
      fail(token_, "the snippet is empty",
           made_.kind == SnippetKind::kMask ? "a mask is a boolean expression, e.g. kv_idx <= q_idx"
                                            : "a score modification is an expression, e.g. score");
      return std::move(error_);
    }
    int root = ternary();
    if (root == kFailed) return std::move(error_);
    if (token_.kind != Token::Kind::kEnd) {
      fail_unexpected("the end of the expression");
      return std::move(error_);
    }
    root = as_result(root);
    if (root == kFailed) return std::move(error_);
    return std::move(made_);
  }

 private:
  using Op = ExprOp;
  using Type = ExprType;

  /// Counts the brackets, calls and prefixes that are open, so that recursion is bounded.
  class Nesting {
   public:
    explicit Nesting(int& depth) : depth_(depth) { ++depth_; }
    ~Nesting() { --depth_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    int& depth_;
  };

  // --- errors and tokens -----------------------------------------------------------------------

  int fail(int line, int column, std::string message, std::string hint = {}) {
    error_ = snippet_error(line, column, std::move(message), std::move(hint));
    return kFailed;
  }
  int fail(const Token& token, std::string message, std::string hint = {}) {
    return fail(token.line, token.column, std::move(message), std::move(hint));
  }
  int fail_at(int node, std::string message, std::string hint = {}) {
    return fail(made_.nodes[node].line, made_.nodes[node].column, std::move(message),
                std::move(hint));
  }
  int fail_unexpected(std::string_view expected) {
    const std::string found = token_.kind == Token::Kind::kEnd
                                  ? "the snippet ends"
                                  : "there is `" + printable(token_.text) + "`";
    std::string hint;
    if (token_.is(",")) hint = "the comma operator is no part of an expression";
    return fail(token_, fmt::format("{} where {} is expected", found, expected), std::move(hint));
  }

  bool advance() {
    Result<Token> next = lexer_.next();
    if (!next) {
      error_ = std::move(next).error();
      return false;
    }
    token_ = *next;
    return true;
  }
  bool expect(std::string_view sign, std::string_view expected) {
    if (!token_.is(sign)) {
      fail_unexpected(expected);
      return false;
    }
    return advance();
  }
  bool too_deep() {
    if (depth_ <= kMaxExpressionNesting) return false;
    fail(token_, fmt::format("the expression is nested too deeply; allowed: {} levels",
                             kMaxExpressionNesting));
    return true;
  }

  // --- nodes -----------------------------------------------------------------------------------

  Type type_of(int node) const { return made_.nodes[node].type; }

  int add(ExprNode node, const Token& at) {
    node.line = at.line;
    node.column = at.column;
    if (made_.nodes.size() >= static_cast<std::size_t>(kMaxExpressionNodes)) {
      return fail(at, fmt::format("the expression is too large; allowed: {} operations and names",
                                  kMaxExpressionNodes));
    }
    int height = 0;
    bool constant = node.num_args > 0;
    for (int i = 0; i < node.num_args; ++i) {
      const ExprNode& arg = made_.nodes[node.args[i]];
      height = std::max<int>(height, arg.height);
      constant &= arg.constant;
      node.uses_score |= arg.uses_score;
    }
    if (height >= kMaxExpressionHeight) {
      return fail(at,
                  fmt::format("the expression is too deep; allowed: {} operations on one another",
                              kMaxExpressionHeight));
    }
    node.height = static_cast<std::int16_t>(height + 1);
    const bool computed = !is_element(node);
    if (constant && computed) {
      std::array<ExprValue, 3> values;
      for (int i = 0; i < node.num_args; ++i) values[i] = made_.nodes[node.args[i]].value;
      node.value =
          apply(node, operand_type(node), std::span<const ExprValue>(values.data(), node.num_args));
      node.constant = true;
    }
    made_.nodes.push_back(node);
    return static_cast<int>(made_.nodes.size()) - 1;
  }

  Type operand_type(const ExprNode& node) const {
    return type_of(node.op == Op::kSelect ? node.args[1] : node.args[0]);
  }

  /// Fails where an argument did, of which the first that did has set the error.
  int make(Op op, Type type, std::initializer_list<int> args, const Token& at) {
    ExprNode node;
    node.op = op;
    node.type = type;
    for (const int arg : args) {
      if (arg == kFailed) return kFailed;
      node.args[node.num_args++] = arg;
    }
    return add(node, at);
  }

  int literal(Type type, ExprValue value, const Token& at) {
    ExprNode node;
    node.type = type;
    node.value = value;
    node.constant = true;
    return add(node, at);
  }

  /// C's conversion of a value to another scalar type.
  int convert(int node, Type type) {
    if (node == kFailed || type_of(node) == type) return node;
    Token at;
    at.line = made_.nodes[node].line;
    at.column = made_.nodes[node].column;
    static constexpr std::array kConversions{Op::kToBool, Op::kToI32, Op::kToU32, Op::kToF32};
    return make(kConversions.at(static_cast<std::size_t>(type)), type, {node}, at);
  }

  /// C's usual arithmetic conversions: bool becomes int; beside a u32, u32; beside a float, float.
  Type common(int a, int b) const { return std::max({type_of(a), type_of(b), Type::kI32}); }

  int as_result(int root) {
    if (made_.kind == SnippetKind::kMask) {
      if (type_of(root) == Type::kBool) return root;
      return fail_at(root, fmt::format("the mask is {}; allowed: bool", to_string(type_of(root))),
                     "compare it, e.g. (..) != 0");
    }
    if (type_of(root) == Type::kBool) {
      return fail_at(root, "the score modification is bool; allowed: float, int, u32",
                     "to hide keys use a mask; else choose a score with ?:");
    }
    return convert(root, Type::kF32);
  }

  // --- grammar ---------------------------------------------------------------------------------

  int ternary() {
    const Nesting nesting(depth_);
    if (too_deep()) return kFailed;
    const int condition = binary(1);
    if (condition == kFailed || !token_.is("?")) return condition;
    const Token at = token_;
    if (!advance()) return kFailed;
    const int when_true = ternary();
    if (when_true == kFailed) return kFailed;
    if (!expect(":", "`:` of the ?:")) return kFailed;
    const int when_false = ternary();
    if (when_false == kFailed) return kFailed;

    const Type type = type_of(when_true) == type_of(when_false) ? type_of(when_true)
                                                                : common(when_true, when_false);
    const int test = convert(condition, Type::kBool);
    const int a = test == kFailed ? kFailed : convert(when_true, type);
    return make(Op::kSelect, type, {test, a, a == kFailed ? kFailed : convert(when_false, type)},
                at);
  }

  int binary(int min_precedence) {
    int left = unary();
    int chained = 0;  // the precedence of the comparison that `left` is, without brackets
    while (left != kFailed) {
      const OperatorRow* row = find_binary(token_);
      if (row == nullptr || row->precedence < min_precedence) break;
      const Token at = token_;
      if (row->precedence == chained) {
        return fail(at,
                    fmt::format("`{}` compares the boolean of the comparison before it", at.text),
                    "write a < b && b < c, or put one comparison in brackets");
      }
      if (!advance()) return kFailed;
      const int right = binary(row->precedence + 1);
      if (right == kFailed) return kFailed;
      left = combine_operands(row->op, left, right, at);
      chained = is_comparison(row->op) ? row->precedence : 0;
    }
    return left;
  }

  int combine_operands(Op op, int left, int right, const Token& at) {
    switch (op) {
      case Op::kAnd:
      case Op::kOr:
        return with_operands(op, Type::kBool, Type::kBool, left, right, at);
      case Op::kBitAnd:
      case Op::kBitOr:
      case Op::kBitXor:
        if (type_of(left) == Type::kBool && type_of(right) == Type::kBool) {
          return make(op, Type::kBool, {left, right}, at);
        }
        [[fallthrough]];
      case Op::kShiftLeft:
      case Op::kShiftRight:
      case Op::kModulo:
        if (common(left, right) == Type::kF32) {
          return fail(at, fmt::format("`{}` of a float; allowed: int, u32", at.text),
                      op == Op::kModulo ? "cast with (int), or call fmod" : "cast with (int)");
        }
        break;
      default:
        break;
    }
    if (op == Op::kShiftLeft || op == Op::kShiftRight) {
      const ExprNode& count = made_.nodes[right];
      if (count.constant && (count.value.i < 0 || count.value.i > 31)) {
        return fail_at(right, fmt::format("a shift by {}; allowed: 0 to 31", count.value.i));
      }
      // As in C, the value is of the left operand's type, whatever counts.
      const Type shifted = common(left, left);
      return with_operands(op, shifted, shifted, left, right, at);
    }
    const Type type = common(left, right);
    if (op == Op::kDivide || op == Op::kModulo) {
      const ExprNode& divisor = made_.nodes[right];
      const bool zero = divisor.type == Type::kF32 ? divisor.value.f == 0 : divisor.value.i == 0;
      if (divisor.constant && zero) {
        return fail_at(right, fmt::format("`{}` by 0", at.text), "the divisor is the constant 0");
      }
    }
    return with_operands(op, is_comparison(op) ? Type::kBool : type, type, left, right, at);
  }

  int with_operands(Op op, Type type, Type operands, int left, int right, const Token& at) {
    const int a = convert(left, operands);
    return make(op, type, {a, a == kFailed ? kFailed : convert(right, operands)}, at);
  }

  int unary() {
    const Nesting nesting(depth_);
    if (too_deep()) return kFailed;
    const Token at = token_;
    if (at.kind != Token::Kind::kSign) return postfix();
    if (at.is("-")) {
      if (!advance()) return kFailed;
      if (token_.kind == Token::Kind::kInt && token_.int_value == 2147483648U) {
        if (!advance()) return kFailed;
        return literal(Type::kI32, {.i = INT32_MIN, .f = 0}, at);
      }
      int operand = unary();
      if (operand == kFailed) return kFailed;
      if (type_of(operand) == Type::kBool) operand = convert(operand, Type::kI32);
      return operand == kFailed ? kFailed : make(Op::kNegate, type_of(operand), {operand}, at);
    }
    if (at.is("+")) {
      if (!advance()) return kFailed;
      const int operand = unary();
      if (operand == kFailed || type_of(operand) != Type::kBool) return operand;
      return convert(operand, Type::kI32);
    }
    if (at.is("!")) {
      if (!advance()) return kFailed;
      return make(Op::kNot, Type::kBool, {convert(unary(), Type::kBool)}, at);
    }
    if (at.is("~")) {
      if (!advance()) return kFailed;
      const int operand = unary();
      if (operand == kFailed) return kFailed;
      const Type type = type_of(operand);
      if (type != Type::kI32 && type != Type::kU32) {
        return fail(at, fmt::format("`~` of a {}; allowed: int, u32", to_string(type)),
                    type == Type::kBool ? "to negate a bool write !" : "");
      }
      return make(Op::kBitNot, type, {operand}, at);
    }
    if (at.is("&") || at.is("&&")) {
      return fail(at, "`&` takes an address here, which is no part of an expression");
    }
    if (at.is("*")) {
      return fail(at, "`*` follows a pointer here, which is no part of an expression",
                  "an element of an array is p.name[i]");
    }
    return postfix();
  }

  /// A primary, which nothing may follow that C allows only after other things.
  int postfix() {
    const int node = primary();
    if (node == kFailed) return kFailed;
    if (token_.is("(")) return fail(token_, "a call of what is no function");
    if (token_.is("[")) {
      return fail(token_, "an index into what is no array",
                  "only array parameters p.name have elements: i32[] takes one index, i32[][] two, "
                  "i32[][][] three");
    }
    if (token_.is(".")) return fail(token_, "a member of what has none", "parameters are p.name");
    return node;
  }

  int primary() {
    const Token at = token_;
    switch (at.kind) {
      case Token::Kind::kEnd:
        return fail_unexpected("a value");
      case Token::Kind::kInt:
        if (at.int_value == 2147483648U) {
          return fail(at, "the integer 2147483648 is out of range; allowed: up to 2147483647",
                      "integers are i32");
        }
        if (!advance()) return kFailed;
        return literal(Type::kI32, {.i = static_cast<std::int32_t>(at.int_value), .f = 0}, at);
      case Token::Kind::kFloat:
        if (!advance()) return kFailed;
        return literal(Type::kF32, {.i = 0, .f = at.float_value}, at);
      case Token::Kind::kName:
        return name();
      case Token::Kind::kSign:
        break;
    }
    if (!at.is("(")) return fail_unexpected("a value");
    if (!advance()) return kFailed;
    const std::optional<Type> type = from_string<Type>(token_.text);
    if (type && closes_next()) {
      if (!advance() || !advance()) return kFailed;
      return convert(unary(), *type);
    }
    const int node = ternary();
    if (node == kFailed || !expect(")", "`)`")) return kFailed;
    return node;
  }

  /// True where `)` comes after the current token: `(int)` is a cast, `(int(x) + 1)` is not.
  bool closes_next() const {
    Lexer ahead = lexer_;
    const Result<Token> next = ahead.next();
    return next && next->is(")");
  }

  int name() {
    const Token at = token_;
    if (!advance()) return kFailed;
    if (const std::optional<Type> type = from_string<Type>(at.text)) {
      if (!token_.is("(")) {
        return fail_unexpected(fmt::format("`(` of the cast to {}", at.text));
      }
      if (!advance()) return kFailed;
      const int node = ternary();
      if (node == kFailed || !expect(")", "`)` of the cast")) return kFailed;
      return convert(node, *type);
    }
    if (at.text == "true" || at.text == "false") {
      return literal(Type::kBool, {.i = at.text == "true", .f = 0}, at);
    }
    if (at.text == "p") return parameter(at);
    const std::span<const std::string_view> coords = coord_names();
    const auto coord = std::find(coords.begin(), coords.end(), at.text);
    if (coord != coords.end()) {
      ExprNode node;
      node.op = Op::kCoord;
      node.coord = static_cast<Coord>(coord - coords.begin());
      return add(node, at);
    }
    if (at.text == "score" && made_.kind == SnippetKind::kScoreMod) {
      ExprNode node;
      node.op = Op::kScore;
      node.type = Type::kF32;
      node.uses_score = true;
      return add(node, at);
    }
    if (const FunctionRow* row = find_function(at.text)) return call(*row, at);
    return fail(at, fmt::format("`{}` is no name that this expression sees", printable(at.text)),
                unknown_name_hint(at.text));
  }

  std::string unknown_name_hint(std::string_view name) const {
    if (name == "score") return "masks do not see the score; only score modifications do";
    std::vector<std::string_view> known(coord_names().begin(), coord_names().end());
    if (made_.kind == SnippetKind::kScoreMod) known.push_back("score");
    for (const ParamSpec& param : made_.params) {
      if (param.name == name) return fmt::format("a parameter is written p.{}", name);
    }
    const std::string word = fmt::format(" {} ", name);
    for (const auto& [words, hint] : kWords) {
      if (words.find(word) != std::string_view::npos) return std::string(hint);
    }
    std::vector<std::string_view> candidates = known;
    for (const FunctionRow& row : expression_functions()) candidates.push_back(row.name);
    const std::string_view best = closest(name, candidates);
    if (!best.empty()) return fmt::format("did you mean `{}`?", best);
    std::string hint = "it sees " + join(known);
    hint += made_.params.empty() ? "; parameters must be declared in params"
                                 : ", p.<name> of declared parameters, and the listed functions";
    return hint;
  }

  int parameter(const Token& at) {
    if (!expect(".", "`.` and a parameter's name")) return kFailed;
    if (token_.kind != Token::Kind::kName) return fail_unexpected("a parameter's name");
    const Token name = token_;
    const auto found =
        std::find_if(made_.params.begin(), made_.params.end(),
                     [&](const ParamSpec& param) { return param.name == name.text; });
    if (found == made_.params.end()) {
      std::vector<std::string_view> names;
      for (const ParamSpec& param : made_.params) names.push_back(param.name);
      const std::string_view best = closest(name.text, names);
      return fail(name, fmt::format("no parameter {} is declared", in_quotes(name.text)),
                  !best.empty()   ? fmt::format("did you mean `p.{}`?", best)
                  : names.empty() ? "declare it in params"
                                  : "declared are " + join(names));
    }
    if (!advance()) return kFailed;

    ExprNode node;
    node.param = static_cast<std::int32_t>(found - made_.params.begin());
    const ParamShape shape = shape_of(found->type);
    node.type = shape.element == Dtype::kI32   ? Type::kI32
                : shape.element == Dtype::kU32 ? Type::kU32
                                               : Type::kF32;
    static constexpr Op kOps[] = {Op::kParam, Op::kElement, Op::kMatrixElement, Op::kCubeElement};
    node.op = kOps[shape.rank];
    for (int i = 0; i < shape.rank; ++i) {
      if (!token_.is("[")) {
        static constexpr std::string_view kLacks[] = {"an index", "its second index",
                                                      "its third index"};
        static constexpr std::string_view kWritten[] = {"[i]", "[i][j]", "[i][j][k]"};
        return fail(
            token_,
            fmt::format("p.{} is {}, and lacks {}", name.text, to_string(found->type), kLacks[i]),
            fmt::format("write p.{}{}", name.text, kWritten[shape.rank - 1]));
      }
      if (!advance()) return kFailed;
      const Token first = token_;
      const int index = ternary();
      if (index == kFailed) return kFailed;
      if (type_of(index) == Type::kF32) {
        return fail(first, "the index is a float; allowed: int", "cast with (int)");
      }
      node.args[node.num_args++] = convert(index, Type::kI32);
      if (node.args[i] == kFailed || !expect("]", "`]`")) return kFailed;
    }
    return add(node, at);
  }

  int call(const FunctionRow& row, const Token& at) {
    if (!token_.is("(")) {
      return fail(at, fmt::format("`{}` is a function, and lacks its arguments", at.text),
                  row.arity == 1 ? fmt::format("write {}(x)", row.name) : "");
    }
    if (!advance()) return kFailed;
    ExprNode node;
    node.op = Op::kCall;
    node.function = row.function;
    node.type = row.polymorphic ? Type::kI32 : Type::kF32;
    for (int i = 0; i < row.arity; ++i) {
      if (i > 0 && !token_.is(",")) return wrong_arity(row, at);
      if (i > 0 && !advance()) return kFailed;
      if (token_.is(")")) return wrong_arity(row, at);
      const int arg = ternary();
      if (arg == kFailed) return kFailed;
      node.type = std::max(node.type, type_of(arg));
      node.args[node.num_args++] = arg;
    }
    if (token_.is(",")) return wrong_arity(row, at);
    if (!expect(")", fmt::format("`)` of {}", at.text))) return kFailed;
    for (int i = 0; i < row.arity; ++i) {
      node.args[i] = convert(node.args[i], node.type);
      if (node.args[i] == kFailed) return kFailed;
    }
    return add(node, at);
  }

  int wrong_arity(const FunctionRow& row, const Token& at) {
    return fail(
        at, fmt::format("`{}` has another number of arguments; allowed: {}", at.text, row.arity));
  }

  /// Words that expressions have no meaning for, and what to write instead.
  static constexpr std::string_view kStatement =
      "a snippet is one expression; a function body needs \"trusted\": true";
  static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {" return ", "a snippet is one expression: write it without return"},
      {" if else for while do switch goto ", kStatement},
      {" and ", "write &&"},
      {" or ", "write ||"},
      {" not ", "write !"},
      {" xor ", "write ^"},
      {" bitand ", "write &"},
      {" bitor ", "write |"},
      {" compl ", "write ~"},
      {" double unsigned long ", "the types are bool, int, u32 and float"},
      {" INFINITY inf ", "to hide keys use a mask"},
      {" batch ", "the batch entry is b"},
      {" head ", "the query head is h"},
      {" where ", "write condition ? a : b"}};

  Lexer lexer_;
  Token token_;
  Expression made_;
  Error error_;
  int depth_ = 0;
};

}  // namespace

std::span<const std::string_view> names_of(ExprType) { return kTypeNames; }

Result<Expression> parse_expression(std::string_view code, SnippetKind kind,
                                    std::span<const ParamSpec> params) {
  if (code.size() > kMaxExpressionLength) {
    return snippet_error(1, 1,
                         fmt::format("the snippet has {} bytes; allowed: up to {}", code.size(),
                                     kMaxExpressionLength));
  }
  return Parser(code, kind, params).run();
}

}  // namespace attnjit::spec
