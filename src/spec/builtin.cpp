// SPDX-License-Identifier: Apache-2.0
// Recognises causal masks, masks that hide nothing, softcaps, and modifications that change
// nothing.
#include "spec/builtin.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "spec/expression_ranges.h"
#include "spec/kinds.h"
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

/// A node, and the number that it is multiplied by.
struct Scaled {
  const ExprNode* node;
  double factor = 1;
};

/// A node of floats as a number times a node that is no such product.
Scaled scaled(const Expression& expression, std::int32_t index) {
  const auto node_at = [&](std::int32_t at) {
    return &expression.nodes[static_cast<std::size_t>(at)];
  };
  Scaled found{node_at(index)};
  while (true) {
    const ExprNode& at = *found.node;
    const auto number = [&](std::size_t arg) -> const ExprNode* {
      const ExprNode* const node = node_at(at.args[arg]);
      return node->constant ? node : nullptr;
    };
    // NOTE: factors that are far from 1 may overflow f32 between one another.
    const double size = std::abs(found.factor);
    if (at.constant || at.type != ExprType::kF32 || !(size > 1e-18 && size < 1e18)) return found;
    if (at.op == ExprOp::kNegate) {
      found = {node_at(at.args[0]), -found.factor};
    } else if (at.op == ExprOp::kMultiply && number(0) != nullptr) {
      found = {node_at(at.args[1]), found.factor * number(0)->value.f};
    } else if (at.op == ExprOp::kMultiply && number(1) != nullptr) {
      found = {node_at(at.args[0]), found.factor * number(1)->value.f};
    } else if (at.op == ExprOp::kDivide && number(1) != nullptr) {
      found = {node_at(at.args[0]), found.factor / number(1)->value.f};
    } else {
      return found;
    }
  }
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

std::optional<ScoreModSpec> builtin_score_mod(const Expression& expression) {
  // What f32 rounds of a cap's reciprocal.
  constexpr double kRounded = 1e-6;
  // NOTE: the built-in one is right to 3e-7 of its cap, and tanh() to that of the score.
  constexpr double kMostCap = 1000;
  const auto root = static_cast<std::int32_t>(expression.nodes.size()) - 1;
  const Scaled outer = scaled(expression, root);
  if (outer.node->op == ExprOp::kScore && outer.factor == 1) return ScoreModSpec{};
  if (outer.node->op != ExprOp::kCall || outer.node->function != ExprFunction::kTanh) {
    return std::nullopt;
  }
  const Scaled inner = scaled(expression, outer.node->args[0]);
  // NOTE: not a number compares false.
  const bool inverse = std::abs(outer.factor * inner.factor - 1) <= kRounded;
  if (inner.node->op != ExprOp::kScore || !inverse) return std::nullopt;
  ScoreModSpec softcap;
  softcap.kind = ScoreModSpec::Kind::kSoftcap;
  softcap.cap = std::abs(outer.factor);
  softcap.constant = true;  // as it was in the expression
  const KindScalar<ScoreModSpec>& cap = row_of(softcap).scalars.front();
  if (!is_allowed(cap, softcap.cap) || softcap.cap > kMostCap) return std::nullopt;
  return softcap;
}

}  // namespace attnjit::spec
