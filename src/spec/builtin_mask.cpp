// SPDX-License-Identifier: Apache-2.0
// Recognises the causal mask, and expressions that hide nothing.
#include "spec/builtin_mask.h"

#include <algorithm>
#include <cstdint>
#include <limits>

#include "spec/expression_ranges.h"
#include "spec/triangle_values.h"

namespace attnjit::spec {
namespace {

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
  const std::optional<bool> seen = value_in(expression, Triangle::kSeen);
  const std::optional<bool> hidden = value_in(expression, Triangle::kHidden);
  if (seen == true && hidden == false) return MaskSpec::Kind::kCausal;
  if (seen == true && hidden == true) return MaskSpec::Kind::kNull;
  // Ranges know operations that linear forms do not.
  if (hides_nothing(expression)) return MaskSpec::Kind::kNull;
  return std::nullopt;
}

}  // namespace attnjit::spec
