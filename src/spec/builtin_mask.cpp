// SPDX-License-Identifier: Apache-2.0
// Recognises the causal mask, and expressions that hide nothing.
#include "spec/builtin_mask.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "spec/expression_ranges.h"

namespace attnjit::spec {
namespace {

bool is_causal(const Expression& expression) {
  const ExprNode& root = expression.root();
  const auto is = [&](int arg, Coord coord) {
    const ExprNode& node = expression.nodes[root.args[arg]];
    return node.op == ExprOp::kCoord && node.coord == coord;
  };
  return (root.op == ExprOp::kLessEqual && is(0, Coord::kKvIdx) && is(1, Coord::kQIdx)) ||
         (root.op == ExprOp::kGreaterEqual && is(0, Coord::kQIdx) && is(1, Coord::kKvIdx));
}

/// Whether all that the expression reads is a position or a head: of these a tile knows every value
/// that they have in any launch.
bool reads_positions_alone(const Expression& expression) {
  return std::all_of(expression.nodes.begin(), expression.nodes.end(), [](const ExprNode& node) {
    if (node.num_args > 0) return node.param < 0;
    return node.op == ExprOp::kLiteral ||
           (node.op == ExprOp::kCoord &&
            (node.coord == Coord::kQIdx || node.coord == Coord::kH || node.coord == Coord::kKvIdx));
  });
}

bool hides_nothing(const Expression& expression) {
  if (!reads_positions_alone(expression)) return false;
  constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
  ScoreTile all;
  all.h = all.kv_idx = {0, kMax};
  all.q_idx = {std::numeric_limits<std::int32_t>::min(), kMax};
  return !RangeEvaluator(expression, {}).status(all).hidden;
}

}  // namespace

std::optional<MaskSpec::Kind> builtin_mask(const Expression& expression) {
  if (is_causal(expression)) return MaskSpec::Kind::kCausal;
  if (hides_nothing(expression)) return MaskSpec::Kind::kNull;
  return std::nullopt;
}

}  // namespace attnjit::spec
