// SPDX-License-Identifier: Apache-2.0
// Evaluates an expression on the CPU.
#include <array>
#include <bit>
#include <utility>

#include "spec/expression.h"
#include "spec/expression_functions.h"
#include "spec/spec_fields.h"

namespace attnjit::spec {
namespace {

std::int32_t coordinate(const Coordinates& at, Coord coord) {
  // Of a row that is computed there is no member.
  static constexpr std::array kMembers{
      &Coordinates::b,     &Coordinates::h,      &Coordinates::kv_h,  &Coordinates::q_idx,
      &Coordinates::q_idx, &Coordinates::kv_idx, &Coordinates::q_len, &Coordinates::kv_len};
  if (coord == Coord::kQRow) return at.q_row();
  if (coord != Coord::kTotalRow) return at.*kMembers[static_cast<std::size_t>(coord)];
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(at.first_row) +
                                   static_cast<std::uint32_t>(at.q_row()));
}

}  // namespace

ExprValue element_of(const ParamView& param, ParamSpec::Type type,
                     std::span<const std::int32_t> indices) {
  using Extents = std::array<std::int64_t, 3>;
  const Extents extents = indices.size() == 1   ? Extents{param.rows}
                          : indices.size() == 2 ? Extents{param.rows, param.columns}
                                                : Extents{param.planes, param.rows, param.columns};
  std::int64_t index = 0;
  for (std::size_t i = 0; i < indices.size(); ++i) {
    if (indices[i] < 0 || indices[i] >= extents[i]) return {};
    index = index * extents[i] + indices[i];
  }
  ExprValue value;
  switch (shape_of(type).element) {
    case Dtype::kF32:
      value.f = static_cast<double>(param.f32_data[index]);
      break;
    case Dtype::kBf16:
      value.f = static_cast<double>(
          std::bit_cast<float>(static_cast<std::uint32_t>(param.bf16_data[index]) << 16));
      break;
    default:
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
      case ExprOp::kMatrixElement:
      case ExprOp::kCubeElement: {
        const std::array<std::int32_t, 3> indices{args[0].i, args[1].i, args[2].i};
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
