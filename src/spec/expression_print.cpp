// SPDX-License-Identifier: Apache-2.0
// Prints an expression as CUDA C++, from the AST alone.
#include <fmt/format.h>

#include <string>

#include "spec/expression.h"
#include "spec/expression_functions.h"
#include "spec/text.h"

namespace attnjit::spec {
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

  void print_prefix(std::string_view sign, const ExprNode& node) {
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
      case ExprOp::kSelect:
        out_ += '(';
        print(arg(node, 0));
        out_ += " ? ";
        print(arg(node, 1));
        out_ += " : ";
        print(arg(node, 2));
        out_ += ')';
        return;
      default:
        return print_operation(node);
    }
  }

  void print_operation(const ExprNode& node) {
    std::string_view text = find_operation(node)->cuda[node.type];
    // NOTE: the float expr_mul is a multiplication that the compiler may not contract with an
    // addition into an fma, so that what decides visibility rounds as it does in the reference.
    if (node.op == ExprOp::kMultiply && node.type == ExprType::kF32 && node.uses_score) text = "*";
    if (is_name_begin(text.front())) {
      print_call(text, node);
    } else if (node.num_args == 1) {
      print_prefix(text, node);
    } else {
      print_infix(text, node);
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
