// SPDX-License-Identifier: Apache-2.0
// Prints an expression as CUDA C++, from the AST alone.
#include <fmt/format.h>

#include <string>

#include "spec/expression.h"
#include "spec/expression_functions.h"

namespace attnjit::spec {
namespace {

std::string_view sign_of(ExprOp op) {
  switch (op) {
    case ExprOp::kAdd:
      return "+";
    case ExprOp::kSubtract:
      return "-";
    case ExprOp::kMultiply:
      return "*";
    case ExprOp::kDivide:
      return "/";
    case ExprOp::kBitAnd:
      return "&";
    case ExprOp::kBitOr:
      return "|";
    case ExprOp::kBitXor:
      return "^";
    case ExprOp::kLess:
      return "<";
    case ExprOp::kLessEqual:
      return "<=";
    case ExprOp::kGreater:
      return ">";
    case ExprOp::kGreaterEqual:
      return ">=";
    case ExprOp::kEqual:
      return "==";
    case ExprOp::kNotEqual:
      return "!=";
    // NOTE: both sides are computed, which nobody sees: && and || become a branch for each score,
    // with which a mask of four tests took twice the instructions.
    case ExprOp::kAnd:
      return "&";
    case ExprOp::kOr:
      return "|";
    default:
      return "";
  }
}

/// The helper that stands for an operator whose meaning C leaves open; empty: the sign will do.
std::string_view helper_of(const ExprNode& node) {
  const bool real = node.type == ExprType::kF32;
  switch (node.op) {
    case ExprOp::kAdd:
      return real ? "" : "expr_add";
    case ExprOp::kSubtract:
      return real ? "" : "expr_sub";
    case ExprOp::kMultiply:
      // NOTE: the float expr_mul is a multiplication that the compiler may not contract with an
      // addition into an fma, so that what decides visibility rounds as it does in the reference.
      return real && node.uses_score ? "" : "expr_mul";
    case ExprOp::kDivide:
      return real ? "" : "expr_div";
    case ExprOp::kModulo:
      return "expr_mod";
    case ExprOp::kShiftLeft:
      return "expr_shl";
    case ExprOp::kShiftRight:
      return "expr_shr";
    default:
      return "";
  }
}

}  // namespace

std::string literal_text(ExprType type, const ExprValue& value) {
  if (type == ExprType::kBool) return value.i != 0 ? "true" : "false";
  if (type == ExprType::kF32) {
    // The shortest decimal that reads back as the same f32.
    const std::string digits = fmt::format("{}", static_cast<float>(value.f));
    const bool integer = digits.find_first_of(".e") == std::string::npos;
    return digits + (integer ? ".0f" : "f");
  }
  if (type == ExprType::kU32) return fmt::format("{}u", static_cast<std::uint32_t>(value.i));
  // NOTE: C has no literal of this value: 2147483648 is no int.
  return value.i == INT32_MIN ? "(-2147483647 - 1)" : fmt::format("{}", value.i);
}

namespace {

class Printer {
 public:
  explicit Printer(const Expression& expression) : expression_(expression) {}

  std::string run() {
    print(expression_.root());
    return std::move(out_);
  }

 private:
  const ExprNode& arg(const ExprNode& node, int i) const { return expression_.nodes[node.args[i]]; }

  void print_call(std::string_view name, const ExprNode& node, std::string_view first = {}) {
    out_ += name;
    out_ += '(';
    out_ += first;
    for (int i = 0; i < node.num_args; ++i) {
      if (i > 0 || !first.empty()) out_ += ", ";
      print(arg(node, i));
    }
    out_ += ')';
  }

  void print_infix(std::string_view sign, const ExprNode& node) {
    out_ += '(';
    print(arg(node, 0));
    out_ += fmt::format(" {} ", sign);
    print(arg(node, 1));
    out_ += ')';
  }

  void print_prefix(char sign, const ExprNode& node) {
    out_ += '(';
    out_ += sign;
    print(arg(node, 0));
    out_ += ')';
  }

  std::string param(const ExprNode& node) const {
    return "p." + expression_.params[node.param].name;
  }

  // Recursion is bounded by kMaxExpressionHeight.
  void print(const ExprNode& node) {
    switch (node.op) {
      case ExprOp::kLiteral:
        out_ += literal_text(node.type, node.value);
        return;
      case ExprOp::kCoord:
        out_ += coord_text("c", node.coord);
        return;
      case ExprOp::kScore:
        out_ += "score";
        return;
      case ExprOp::kParam:
        out_ += param(node);
        return;
      case ExprOp::kElement:
        return print_call("array_at", node, param(node));
      case ExprOp::kMatrixElement:
        return print_call("matrix_at", node, param(node));
      case ExprOp::kCubeElement:
        return print_call("cube_at", node, param(node));
      case ExprOp::kToBool:
        out_ += '(';
        print(arg(node, 0));
        out_ += arg(node, 0).type == ExprType::kF32 ? " != 0.0f)" : " != 0)";
        return;
      case ExprOp::kToI32:
        return print_call("to_i32", node);
      case ExprOp::kToU32:
        return print_call("to_u32", node);
      case ExprOp::kToF32:
        return print_call("to_f32", node);
      case ExprOp::kNot:
        return print_prefix('!', node);
      case ExprOp::kBitNot:
        return print_prefix('~', node);
      case ExprOp::kNegate:
        return node.type == ExprType::kF32 ? print_prefix('-', node) : print_call("expr_neg", node);
      case ExprOp::kBitAnd:
        return print_infix("&", node);
      case ExprOp::kBitOr:
        return print_infix("|", node);
      case ExprOp::kBitXor:
        return print_infix(node.type == ExprType::kBool ? "!=" : "^", node);
      case ExprOp::kSelect:
        out_ += '(';
        print(arg(node, 0));
        out_ += " ? ";
        print(arg(node, 1));
        out_ += " : ";
        print(arg(node, 2));
        out_ += ')';
        return;
      case ExprOp::kCall:
        return print_call(
            fmt::format("expr_{}",
                        expression_functions()[static_cast<std::size_t>(node.function)].name),
            node);
      default:
        break;
    }
    const std::string_view helper = helper_of(node);
    if (helper.empty()) {
      print_infix(sign_of(node.op), node);
    } else {
      print_call(helper, node);
    }
  }

  const Expression& expression_;
  std::string out_;
};

}  // namespace

std::string coord_text(std::string_view place, Coord coord) {
  const std::string_view name = coord_names()[static_cast<std::size_t>(coord)];
  // NOTE: where a sequence begins the launch's parameters say.
  if (coord == Coord::kTotalRow) return fmt::format("{}({}, p)", name, place);
  return fmt::format("{}.{}{}", place, name, coord == Coord::kQRow ? "()" : "");
}

std::string print_cuda(const Expression& expression) { return Printer(expression).run(); }

}  // namespace attnjit::spec
