// SPDX-License-Identifier: Apache-2.0
// A spec's mask and score modification in double precision, as the reference applies them.
//
// Thread rules: a MaskAndScoreMod is used by one thread at a time; making one is cheap.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attnjit/result.h"
#include "spec/expression.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// Keys [begin, end) outside which a query sees nothing for certain.
struct KeyRange {
  std::int64_t begin = 0, end = 0;
};

/// The slope of ALiBi for head h of `heads`: Press, Smith, Lewis, "Train short, test long", ICLR
/// 2022, with the authors' rule for head counts that are no power of two.
double alibi_slope(int h, int heads);

/// floor(a / b) for b > 0.
constexpr std::int64_t floor_divide(std::int64_t a, std::int64_t b) {
  return a / b - ((a % b != 0 && a < 0) ? 1 : 0);
}

/// The spec's mask and score modification with a problem's run-time values. A map that its launches
/// read says of which blocks the mask is asked.
/// @pre the Problem outlives it
class MaskAndScoreMod {
 public:
  /// Errors: kUnsupported for trusted code, which has no reference.
  static Result<MaskAndScoreMod> of(const Problem& problem);

  KeyRange visible_range(int q_idx, int kv_len) const { return range_(q_idx, kv_len); }
  bool visible(const spec::Coordinates& at) const { return visible_(at); }
  /// The modified score, a materialized mask's bias added.
  double modify(double score, const spec::Coordinates& at) const { return modify_(score, at); }

 private:
  std::function<KeyRange(int, int)> range_;
  std::function<bool(const spec::Coordinates&)> visible_;
  std::function<double(double, const spec::Coordinates&)> modify_;
};

}  // namespace attnjit::verify
