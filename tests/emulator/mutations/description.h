// SPDX-License-Identifier: Apache-2.0
// Description: a generated kernel that is damaged, in words: its spec, and the calls that reach
// what is in it.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "attnjit/spec.h"
#include "attnjit/tuning.h"
#include "subject.h"
#include "verify/problem.h"

namespace attnjit::emulator {

using Subjects = std::vector<std::unique_ptr<Subject>>;

/// NOTE: normal inputs: every key has a share in every row, so that no tile can be wrong unseen;
/// raised ones where O is to be rescaled.
inline constexpr verify::InputKind kNormal = verify::InputKind::kNormal;
inline constexpr verify::InputKind kRaised = verify::InputKind::kRaised;

/// One of a subject's problems.
struct Shape {
  std::vector<std::int64_t> q_lens, kv_lens;
  int sm_count;
  verify::InputKind input = kNormal;
  bool twice = false;  ///< a launch of the same comes before, and may still run
  int documents = 0;   ///< how long the documents are that p.doc tells apart; 0: p.doc is random
  int pairs = 2;       ///< that a merge merges
  /// Into which a launch that may choose splits the keys; nullopt: it chooses.
  std::optional<std::int32_t> partitions = {};
  bool asks = false;    ///< the device finds how long the sequences are, however few keys they have
  bool runs = false;    ///< .. and they must be dealt out in stream-K ranges
  bool joined = false;  ///< two CTAs have half of each part, and join these
  /// Blocks that the launch's map has bits of, at most; nullopt: all.
  std::optional<std::int32_t> bit_blocks = {};
  /// A launch that writes the inputs comes before, and may still run: of kernels that wait for it.
  bool written = false;
};

/// The problem behind a launch that writes its inputs.
inline Shape written(Shape shape) {
  shape.written = true;
  return shape;
}

/// The problem with its keys in so many partitions, which few SMs take one behind another.
inline Shape in_parts(int partitions, Shape shape) {
  shape.partitions = partitions;
  return shape;
}

/// The same, and two CTAs join each part.
inline Shape reduced(int partitions, Shape shape) {
  shape.joined = true;
  return in_parts(partitions, std::move(shape));
}

/// The problem whose map has bits of so many blocks, and says of others only that a part is seen.
inline Shape of_few_bits(std::int32_t bit_blocks, Shape shape) {
  shape.bit_blocks = bit_blocks;
  return shape;
}

/// The problem whose launch asks how long its sequences are; and where runs must be dealt out.
inline Shape asking(Shape shape) {
  shape.asks = true;
  return shape;
}
inline Shape in_ranges(Shape shape) {
  shape.runs = true;
  return asking(std::move(shape));
}

struct Description {
  const char* name;
  AttentionSpec spec;
  std::vector<Shape> shapes;
  Tuning tuning = {};
  PlanOptions options = {};
};

AttentionSpec spec_of(Arch arch, int qk_depth, int ov_depth, int heads, int group,
                      MaskSpec::Kind mask);

/// For sm_100a: a CTA walks the work tiles, also of uneven work.
Tuning persistent();
/// CTAs steal the work tiles of others that have not started.
Tuning taking_over();

/// For sm_100a: two CTAs multiply together, or each alone.
PlanOptions in_pairs(bool pair = true);

/// The spec, changed.
AttentionSpec with(AttentionSpec spec, const std::function<void(AttentionSpec&)>& change);

/// The subjects of some lists. Errors: kEnvironment where there is no NVRTC.
Result<Subjects> make_described(const std::vector<std::vector<Description>>& lists,
                                const Wanted& wanted);

}  // namespace attnjit::emulator
