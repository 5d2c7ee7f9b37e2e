// SPDX-License-Identifier: Apache-2.0
// The tensors of a launch: their shapes and strides, derived and checked in this one place for
// plan_launch and for the driver.
#pragma once

#include <cstdint>

#include "attnjit/launch.h"
#include "base/problems.h"
#include "spec/spec_facts.h"
#include "spec/triangle_values.h"

namespace attnjit {

/// Kernels compute row and key numbers, and a tile past them, in 32 bits.
inline constexpr std::int32_t kMaxLength = spec::kMostLength;

/// A row of K in the format dsv32, in which bytes count as elements.
inline constexpr int kDsv32RowBytes = 656;

/// Pairs of a merge.
inline constexpr std::int32_t kMaxPairs = 65535;

/// A tensor [batch, rows, heads, depth] of a launch. A ragged one has one batch of all rows; a page
/// of a paged K or V counts as a batch.
struct TensorView {
  BufferId::Kind tensor = BufferId::Kind::kQ;
  Dtype dtype = Dtype::kBf16;
  std::int64_t batch = 0, rows = 0, heads = 0, depth = 0;
  TensorStrides strides;  ///< in elements, settled: 0 is a stride of 0

  int element_bytes() const { return size_of(dtype); }
  bool empty() const { return batch == 0 || rows == 0; }
};

/// From one batch, head and row of a materialized mask to the next, in bytes. 0: one for all.
struct MaskStrides {
  std::int64_t batch = 0, head = 0, row = 0;
};

struct LaunchTensors {
  TensorView q, k, v, o;
  TensorView q_rope, k_rope;  ///< empty but where the rope part has a type of its own
  TensorView kv_scales;       ///< of depth 1; empty but where pages have scales of tokens
  MaskStrides mask;
};

/// The tensor that a map of an attention kernel views.
const TensorView& tensor_of(const LaunchTensors& tensors, TensorMapId map);

/// The tensor that a launch's map views. NOTE: a tensor map cannot be empty. Where there are no
/// keys nothing is loaded through K's and V's; they view Q, which is there.
inline TensorMapId viewed_by(const LaunchTensors& tensors, TensorMapId map) {
  return tensor_of(tensors, map).empty() ? TensorMapId::kQ : map;
}

/// Adds a problem, at `name`, for a number of sequences, rows or keys that no launch has.
void check_length(const char* name, std::int32_t value, Problems& problems);

/// The tensors of a launch, with packed strides where none were given. Errors: kInvalid, every
/// problem at once: lengths out of range, strides that TMA cannot take, sizes that no memory has.
Result<LaunchTensors> launch_tensors(const SpecFacts& spec, const LaunchShapes& shapes);

/// Keys that a row sees at most: those of the longest sequence, or of its list where it has one.
inline std::int32_t keys_of_row(const AttentionSpec& spec, const LaunchShapes& shapes) {
  return spec.topk > 0 ? spec.topk : shapes.kv_len;
}

/// The factor of the scores: given, or 1 / sqrt(qk_depth). Errors: kInvalid where it is not
/// positive and finite.
Result<float> softmax_scale(const SpecFacts& spec, const LaunchScalars& scalars);

/// The same tensor without gaps.
TensorView packed(TensorView tensor);

}  // namespace attnjit
