// SPDX-License-Identifier: Apache-2.0
// The arguments of a launch, filled by the sources of a kernel's parameters.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <span>
#include <utility>
#include <variant>

#include "attnjit/launch.h"
#include "plan/launch/tensors.h"

namespace attnjit {

/// The numbers that a launch computed from its shapes, each by what it is.
class LaunchNumbers {
 public:
  LaunchNumbers() = default;
  /// Those that follow from spec and shapes alone.
  LaunchNumbers(const AttentionSpec& spec, const LaunchShapes& shapes, float scale);

  /// Those that are strides, in bytes, and the rows of O.
  void set_strides(const LaunchTensors& tensors);

  using Value = std::variant<std::monostate, std::int32_t, std::int64_t, float>;
  void set(LaunchNumber number, Value value) { at(number) = value; }
  void set(std::initializer_list<std::pair<LaunchNumber, Value>> values) {
    for (const auto& [number, value] : values) at(number) = value;
  }
  const Value& get(LaunchNumber number) const {
    return values_.at(static_cast<std::size_t>(number));
  }

 private:
  Value& at(LaunchNumber number) { return values_.at(static_cast<std::size_t>(number)); }
  std::array<Value, static_cast<std::size_t>(LaunchNumber::kCount)> values_;
};

/// What the parameters of a kernel are filled from.
struct ArgumentValues {
  const KernelPlan& plan;
  std::span<const double> scalars;  ///< LaunchScalars::values
  std::span<const UserParamShape> params;
  LaunchNumbers numbers;
  /// Fills a new description, all but its names.
  std::function<void(TensorMapId, TensorMapDescription&)> describe;
};

/// Fills in what every launch of a kernel of the plan has: entry, block, cluster, shared memory,
/// arguments and the tensor maps that they name. `recipe` is new, or one that was filled for the
/// same plan, whose memory is used again. Errors: kInvalid where the launch lacks a value;
/// kInternal for a number that was not computed.
Status fill_recipe(KernelId id, std::uint32_t ctas, const ArgumentValues& values,
                   LaunchRecipe& recipe);

}  // namespace attnjit
