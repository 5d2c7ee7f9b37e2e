// SPDX-License-Identifier: Apache-2.0
// The tables of masks and score modifications.
#include "spec/kinds.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <limits>

#include "base/in_order.h"

namespace attnjit::spec {
namespace {

using M = MaskSpec::Kind;
using S = ScoreModSpec::Kind;

constexpr double kMaxI32 = std::numeric_limits<std::int32_t>::max();
// NOTE: the least normal number: softcap divides by it.
constexpr double kMinF32 = std::numeric_limits<float>::min();
constexpr double kMaxF32 = std::numeric_limits<float>::max();

constexpr KindScalar<MaskSpec> kWindow[] = {
    {{"window", 1, kMaxI32, 128, Beside::kUnbounded}, &MaskSpec::window},
    {{"window_right", 1, kMaxI32, 128, Beside::kUnboundedOrAbsent}, &MaskSpec::window_right}};
constexpr KindScalar<MaskSpec> kChunk[] = {{{"chunk", 1, kMaxI32, 128}, &MaskSpec::chunk}};

constexpr KindRow<MaskSpec> kMasks[] = {
    {.name = "null", .kind = M::kNull, .type = "NullMask", .expression = "true"},
    {.name = "causal", .kind = M::kCausal, .type = "CausalMask", .expression = "kv_idx <= q_idx"},
    {.name = "sliding_window",
     .kind = M::kSlidingWindow,
     .type = "TwoSidedWindowMask",
     .scalars = kWindow,
     .type_without = "SlidingWindowMask",
     .expression = "q_idx - kv_idx < {window} && kv_idx - q_idx <= {window_right}"},
    {.name = "chunked",
     .kind = M::kChunked,
     .type = "ChunkedMask",
     .scalars = kChunk,
     .expression = "q_idx >= 0 && q_idx / {chunk} == kv_idx / {chunk}"},
    {.name = "and",
     .kind = M::kAnd,
     .type = "AndMask",
     .holds = Holds::kOperands,
     .expression = "&&"},
    {.name = "or", .kind = M::kOr, .type = "OrMask", .holds = Holds::kOperands, .expression = "||"},
    {.name = "materialized",
     .kind = M::kMaterialized,
     .type = "MaterializedMask",
     .holds = Holds::kDtype},
    {.name = "custom", .kind = M::kCustom, .type = "CustomMask", .holds = Holds::kCode},
};

constexpr KindScalar<ScoreModSpec> kCap[] = {{{"cap", kMinF32, kMaxF32, 50}, &ScoreModSpec::cap}};

constexpr KindRow<ScoreModSpec> kScoreMods[] = {
    {"identity", S::kIdentity, "IdentityScoreMod"},
    {"alibi", S::kAlibi, "AlibiScoreMod", {}, Holds::kSlopes},
    {"softcap", S::kSoftcap, "SoftcapScoreMod", kCap},
    {"custom", S::kCustom, "CustomScoreMod", {}, Holds::kCode},
};

template <class Node>
constexpr bool is_sound(std::span<const KindRow<Node>> rows) {
  for (const KindRow<Node>& row : rows) {
    for (const KindScalar<Node>& scalar : row.scalars) {
      if (scalar.min <= 0 && scalar.max >= 0) return false;
      const bool last = &scalar == &row.scalars.back();
      if (scalar.may_be_absent() && (!last || row.type_without.empty())) return false;
    }
  }
  return in_order(rows, &KindRow<Node>::kind);
}
static_assert(is_sound<MaskSpec>(kMasks) && is_sound<ScoreModSpec>(kScoreMods),
              "a row for each kind, in the enum's order; a number's range holds no 0");

}  // namespace

template <>
std::span<const KindRow<MaskSpec>> kinds() {
  return kMasks;
}
template <>
std::span<const KindRow<ScoreModSpec>> kinds() {
  return kScoreMods;
}

std::string allowed(const ScalarTraits& scalar, bool is_integer) {
  if (is_integer) {
    const auto min = static_cast<std::int64_t>(scalar.min);
    if (scalar.beside == Beside::kUnboundedOrAbsent)
      return "an integer, 0 or more, or -1: no bound";
    if (scalar.beside == Beside::kUnbounded) {
      return fmt::format("an integer, {} or more, or -1: no bound", min);
    }
    if (scalar.max == kMaxI32) return fmt::format("an integer, {} or more", min);
    return fmt::format("an integer, {} to {}", min, static_cast<std::int64_t>(scalar.max));
  }
  if (scalar.min == kMinF32 && scalar.max == kMaxF32) {
    return "a number above 0 within the range of f32";
  }
  return fmt::format("a number, {} to {}", scalar.min, scalar.max);
}

bool is_allowed(const ScalarTraits& scalar, bool is_integer, double value) {
  if (scalar.beside != Beside::kNothing && value == -1) return true;
  // NOTE: written so that NaN is refused.
  if (!(value >= scalar.min && value <= scalar.max)) return false;
  return !is_integer || value == std::floor(value);
}

double kernel_value(const ScalarTraits& scalar, double value) {
  return scalar.beside != Beside::kNothing && value == -1 ? scalar.max : value;
}

}  // namespace attnjit::spec
