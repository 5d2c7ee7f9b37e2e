// SPDX-License-Identifier: Apache-2.0
// Evaluates an expression on the CPU.
#include <array>
#include <utility>

#include "spec/expression.h"
#include "spec/expression_functions.h"

namespace attnjit::spec {
namespace {

std::int32_t coordinate(const Coordinates& at, Coord coord) {
  switch (coord) {
    case Coord::kB:
      return at.b;
    case Coord::kH:
      return at.h;
    case Coord::kKvH:
      return at.kv_h;
    case Coord::kQIdx:
      return at.q_idx;
    case Coord::kQRow:
      return at.q_row();
    case Coord::kKvIdx:
      return at.kv_idx;
    case Coord::kQLen:
      return at.q_len;
    case Coord::kKvLen:
      return at.kv_len;
  }
  return 0;
}

}  // namespace

ExprValue element_of(const ParamView& param, ParamSpec::Type type,
                     std::span<const std::int32_t> indices) {
  const std::int64_t row = indices[0];
  const std::int64_t column = indices.size() > 1 ? indices[1] : 0;
  const std::int64_t columns = indices.size() > 1 ? param.columns : 1;
  if (row < 0 || row >= param.rows || column < 0 || column >= columns) return {};
  const std::int64_t index = row * columns + column;
  ExprValue value;
  if (type == ParamSpec::Type::kF32Array) {
    value.f = static_cast<double>(param.f32_data[index]);
  } else {
    value.i = param.i32_data[index];
  }
  return value;
}

Evaluator::Evaluator(const Expression& expression, std::vector<ParamView> params)
    : expression_(expression), params_(std::move(params)), values_(expression.nodes.size()) {
  params_.resize(expression.params.size());
  for (std::size_t i = 0; i < values_.size(); ++i) values_[i] = expression.nodes[i].value;
}

ExprValue Evaluator::run(const Coordinates& at, double score) {
  for (std::size_t n = 0; n < values_.size(); ++n) {
    const ExprNode& node = expression_.nodes[n];
    if (node.constant) continue;
    std::array<ExprValue, 3> args;
    for (int i = 0; i < node.num_args; ++i) args[i] = values_[node.args[i]];
    ExprValue& value = values_[n];
    switch (node.op) {
      case ExprOp::kCoord:
        value.i = coordinate(at, node.coord);
        break;
      case ExprOp::kScore:
        value.f = score;
        break;
      case ExprOp::kParam:
        value.i = params_[node.param].i32;
        value.f = static_cast<double>(params_[node.param].f32);
        break;
      case ExprOp::kElement:
      case ExprOp::kMatrixElement: {
        const std::array<std::int32_t, 2> indices{args[0].i, args[1].i};
        value = element_of(params_[node.param], expression_.params[node.param].type,
                           std::span<const std::int32_t>(indices.data(), node.num_args));
        break;
      }
      default: {
        const ExprNode& typed = expression_.nodes[node.args[node.op == ExprOp::kSelect ? 1 : 0]];
        value = apply(node, typed.type, std::span<const ExprValue>(args.data(), node.num_args));
        break;
      }
    }
  }
  return values_.back();
}

}  // namespace attnjit::spec
