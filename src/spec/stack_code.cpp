// SPDX-License-Identifier: Apache-2.0
// Compiles expressions to stack code.
#include "spec/stack_code.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "spec/expression_functions.h"
#include "spec/spec_fields.h"

namespace attnjit::spec {
namespace {

unsigned float_flag(ExprType type) { return type == ExprType::kF32 ? kStackFloat : 0; }

std::uint32_t bits_of(ExprType type, const ExprValue& value) {
  return type == ExprType::kF32 ? std::bit_cast<std::uint32_t>(static_cast<float>(value.f))
                                : static_cast<std::uint32_t>(value.i);
}

class Compiler {
 public:
  Compiler(std::span<const ParamView> params, std::int32_t q_offsets, StackProgram& program)
      : params_(params), q_offsets_(q_offsets), program_(program) {}

  Status add(const Expression& expression, int& end) {
    expression_ = &expression;
    needs_.assign(expression.nodes.size(), 0);
    for (std::size_t i = 0; i < needs_.size(); ++i) needs_[i] = need_of(expression.nodes[i]);
    make(static_cast<std::int32_t>(needs_.size()) - 1, false);
    if (!problem_.empty()) {
      return make_error(ErrorCode::kUnsupported, problem_,
                        expression.kind == SnippetKind::kMask ? "mask" : "score_mod");
    }
    end = length_;
    return {};
  }

 private:
  using Index = std::int32_t;  // of a node

  const ExprNode& node(Index index) const { return expression_->nodes[index]; }

  /// Whether a node is an operand as it is.
  static bool is_leaf(const ExprNode& node) {
    return node.constant || (node.num_args == 0 && !is_total_row(node));
  }
  static bool is_total_row(const ExprNode& node) {
    return node.op == ExprOp::kCoord && node.coord == Coord::kTotalRow;
  }

  /// Values on the stack while a node is computed.
  int need_of(const ExprNode& node) const {
    if (node.num_args == 0 || node.constant) return 0;
    if (node.num_args == 3 || (node.num_args == 2 && is_element(node))) {
      int need = node.num_args - 1;
      for (int i = 0; i < node.num_args; ++i) need = std::max(need, needs_[node.args[i]] + i);
      return need;
    }
    if (node.num_args == 1) return needs_[node.args[0]];
    const int a = needs_[node.args[0]], b = needs_[node.args[1]];
    if (is_leaf(this->node(node.args[0])) || is_leaf(this->node(node.args[1]))) {
      return std::max(a, b);
    }
    return a == b ? a + 1 : std::max({a, b, 1});
  }

  void refuse(std::string problem) {
    if (problem_.empty()) problem_ = std::move(problem);
  }

  void emit(unsigned word, std::uint32_t literal = 0) {
    if (length_ == kStackInstructions) {
      return refuse(fmt::format("is longer than the {} instructions that a kernel interprets",
                                kStackInstructions));
    }
    depth_ += (word & kStackPush) != 0 ? 1 : 0;
    if (depth_ > kStackDepth) {
      return refuse(fmt::format("needs a deeper stack than the {} values of an interpreting kernel",
                                kStackDepth));
    }
    const unsigned op = word & 0xffU;
    depth_ -= (word >> kStackOperandShift & 0xfU) == kOperandStack ? 1 : 0;
    depth_ -= op == kStackSelect || op == kStackFma || op == kStackElement3 ? 1 : 0;
    program_.code.words[2 * length_] = word;
    program_.code.words[2 * length_ + 1] = literal;
    ++length_;
  }

  /// An instruction whose operand is a leaf.
  void emit_with(unsigned word, const ExprNode& leaf) {
    const auto with = [&](unsigned operand, unsigned place) {
      return word_with(word, operand, place);
    };
    if (leaf.constant) return emit(with(kOperandLiteral, 0), bits_of(leaf.type, leaf.value));
    switch (leaf.op) {
      case ExprOp::kCoord:
        if (leaf.coord == Coord::kKvIdx) return emit(with(kOperandKey, 0));
        return emit_coord(word, leaf.coord);
      case ExprOp::kScore:
        return emit(with(kOperandScore, 0));
      case ExprOp::kParam: {
        const ParamView& param = params_[leaf.param];
        return emit(with(kOperandLiteral, 0),
                    bits_of(leaf.type, {param.i32, static_cast<double>(param.f32)}));
      }
      default:
        return emit(with(kOperandLiteral, 0), bits_of(leaf.type, leaf.value));
    }
  }

  static unsigned word_with(unsigned word, unsigned operand, unsigned place) {
    return word | operand << kStackOperandShift | place << kStackPlaceShift;
  }
  void emit_coord(unsigned word, Coord coord) {
    emit(word_with(word, kOperandCoord, static_cast<unsigned>(coord)));
  }

  /// The rows before the sequence, and the one in it.
  void make_total_row(bool push) {
    emit_coord(kStackLoad | (push ? kStackPush : 0), Coord::kB);
    if (q_offsets_ > 0) {
      emit(kStackElement1 | number_of(StackProgram::kQOffsets) << kStackPlaceShift);
    } else {
      emit_coord(kStackMultiply, Coord::kQLen);
    }
    emit_coord(kStackAdd, Coord::kQRow);
  }

  /// Makes the accumulator a node's value; `push`: what it held is kept on the stack.
  /// NOTE: the recursion is bounded by kMaxExpressionHeight.
  void make(Index index, bool push) {
    const ExprNode& here = node(index);
    if (is_leaf(here)) return emit_with(kStackLoad | (push ? kStackPush : 0), here);
    if (is_total_row(here)) return make_total_row(push);
    if (is_element(here)) return make_element(here, push);
    const Operation& operation = *find_operation(here);
    if (here.num_args == 3) {
      make_operands(here, push);
      return emit(operation.stack[here.type] | float_flag(here.type) |
                  kOperandStack << kStackOperandShift);
    }
    const StackOp op = operation.stack[node(here.args[0]).type];
    if (here.num_args == 1) {
      make(here.args[0], push);
      if (op != kStackLoad) emit(op);
      return;
    }
    make_two(here.args[0], here.args[1], op, operation.exchanged, push);
  }

  /// All operands: the last in the accumulator, the others on the stack.
  void make_operands(const ExprNode& here, bool push) {
    for (int i = 0; i < here.num_args; ++i) make(here.args[i], push || i > 0);
  }

  /// `op` of the accumulator, which is node a, and the operand, which is node b; `exchanged`: the
  /// other way round. What needs more of the stack is computed first.
  void make_two(Index a, Index b, unsigned op, bool exchanged, bool push) {
    if (exchanged) std::swap(a, b);
    if (is_leaf(node(b))) {
      make(a, push);
      return emit_with(op, node(b));
    }
    if (is_leaf(node(a))) {
      make(b, push);
      return emit_with(op | kStackExchange, node(a));
    }
    const bool second_first = needs_[b] > needs_[a];
    make(second_first ? b : a, push);
    make(second_first ? a : b, true);
    emit(op | kOperandStack << kStackOperandShift | (second_first ? 0 : kStackExchange));
  }

  void make_element(const ExprNode& here, bool push) {
    const unsigned number = number_of(static_cast<std::uint32_t>(here.param));
    const bool bf16 = shape_of(expression_->params[here.param].type).element == Dtype::kBf16;
    const unsigned flags =
        number << kStackPlaceShift | (bf16 ? kStackBf16 : 0) | float_flag(here.type);
    switch (here.num_args) {
      case 1:
        make(here.args[0], push);
        return emit(kStackElement1 | flags);
      case 2:
        // NOTE: a leaf would be named in the bits that hold the array's number: both indices go
        // through the stack.
        make_operands(here, push);
        return emit(kStackElement2 | flags | kOperandStack << kStackOperandShift);
      default:
        make_operands(here, push);
        return emit(kStackElement3 | flags | kOperandStack << kStackOperandShift);
    }
  }

  /// The number of an array in the code; its extents are noted.
  unsigned number_of(std::uint32_t param) {
    std::vector<std::uint32_t>& arrays = program_.arrays;
    const auto known = std::find(arrays.begin(), arrays.end(), param);
    const auto number = static_cast<unsigned>(known - arrays.begin());
    if (known != arrays.end()) return number;
    if (arrays.size() == static_cast<std::size_t>(kStackArrays)) {
      refuse(fmt::format("names more than the {} arrays that a kernel interprets", kStackArrays));
      return 0;
    }
    arrays.push_back(param);
    if (param == StackProgram::kQOffsets) {
      program_.code.extents[number][0] = q_offsets_;
      return number;
    }
    const ParamView& view = params_[param];
    const int rank = shape_of(expression_->params[param].type).rank;
    const std::array<std::int64_t, 3> all{view.planes, view.rows, view.columns};
    const std::size_t first = rank == 3 ? 0 : 1;
    for (int i = 0; i < rank; ++i) {
      program_.code.extents[number][i] = static_cast<int>(std::clamp<std::int64_t>(
          all.at(first + static_cast<std::size_t>(i)), 0, std::numeric_limits<int>::max()));
    }
    return number;
  }

  std::span<const ParamView> params_;
  std::int32_t q_offsets_;
  StackProgram& program_;
  const Expression* expression_ = nullptr;
  std::vector<int> needs_;
  std::string problem_;
  int length_ = 0;
  int depth_ = 0;
};

}  // namespace

Result<StackProgram> compile_stack_code(const Expression* mask, const Expression* score_mod,
                                        std::span<const ParamView> params, std::int32_t q_offsets) {
  StackProgram program;
  Compiler compiler(params, q_offsets, program);
  if (mask != nullptr) {
    if (Status added = compiler.add(*mask, program.code.mask_end); !added) return added.error();
  }
  program.code.score_end = program.code.mask_end;
  if (score_mod != nullptr) {
    if (Status added = compiler.add(*score_mod, program.code.score_end); !added) {
      return added.error();
    }
  }
  return program;
}

}  // namespace attnjit::spec
