// SPDX-License-Identifier: Apache-2.0
// What the launches of all architectures share: tensors with their strides, and the values of
// kernel parameters by name.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/launch.h"
#include "spec/scalars.h"

namespace attnjit {

inline constexpr std::int64_t kMaxTiles = 1 << 30;

Error invalid_launch(std::string field, std::string message);

/// A tensor [batch, rows, heads, depth] of a launch.
struct TensorShape {
  const char* name;
  std::int64_t batch, rows, heads, depth;
  int element_bytes;
  TensorStrides strides;  ///< in elements, none zero
};

/// The tensors of a launch, with their strides: packed where none were given. Errors: kInvalid for
/// strides that TMA cannot take.
struct LaunchTensors {
  TensorShape q, k, v, o;
};
Result<LaunchTensors> launch_tensors(const AttentionSpec& spec, const LaunchShapes& shapes);

/// What every launch of a plan has: entry, block, cluster, shared memory.
LaunchRecipe start_recipe(const KernelPlan& plan);

/// Whether all rows see about as many keys.
bool even_work(const MaskSpec& mask);

/// What the parameters of one launch are filled with, by name.
class LaunchValues {
 public:
  LaunchValues(const KernelPlan& plan, const LaunchShapes& shapes, const LaunchScalars& scalars,
               const std::vector<ParamValue>& params)
      : plan_(plan),
        spec_scalars_(spec::spec_scalars(plan.spec)),
        shapes_(shapes),
        scalars_(scalars),
        params_(params) {}

  std::int32_t m_tiles = 0;
  std::int32_t total_tiles = 0;
  std::int32_t paired_units = 0;   ///< sm_90: pairs of query tiles before the tail
  std::int32_t total_heads = 0;    ///< sm_100: heads, or groups of them, of all the batch
  std::int32_t section_heads = 1;  ///< sm_100: how many of them share the L2 cache
  bool one_query = false;          ///< sm_100: one query tile a CTA
  std::int64_t o_row_bytes = 0;    ///< strides of o
  std::int64_t o_head_bytes = 0;

  /// Appends the arguments in the order of the plan's parameters. Errors: kInvalid where the launch
  /// lacks a value; kInternal for a parameter that nobody knows.
  Status append_to(LaunchRecipe& recipe) const;

 private:
  Result<LaunchArgument> value_of(const KernelParameter& parameter) const;
  Result<LaunchArgument> scale() const;
  Result<LaunchArgument> scalar_value(std::size_t index) const;
  Result<LaunchArgument> user_value(const KernelParameter& parameter) const;

  const KernelPlan& plan_;
  const std::vector<spec::SpecScalar> spec_scalars_;
  const LaunchShapes& shapes_;
  const LaunchScalars& scalars_;
  const std::vector<ParamValue>& params_;
};

}  // namespace attnjit
