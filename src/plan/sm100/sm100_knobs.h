// SPDX-License-Identifier: Apache-2.0
// The choices that a tuning row can make for an sm_100 kernel, as one table.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>

#include "attnjit/result.h"
#include "attnjit/tuning.h"
#include "plan/reference/config_kind.h"

namespace attnjit {

/// A row's choices by name; what it leaves open is unset.
struct Sm100Tuning {
  using Choice = std::optional<std::int64_t>;
  Choice BN;  // NOLINT(readability-identifier-naming): the reference's name
  Choice use_fused_kv;
  Choice num_kv_stages;
  Choice num_qk_stages;
  Choice exp2_fma_pairs;
  Choice softmax_registers;
  Choice correction_registers;
  Choice other_registers;

  /// Errors: kInvalid for a name that the kernel with these tiles has no choice of.
  static Result<Sm100Tuning> read(const TuningValues* values, ConfigKind kind);

  /// Takes a choice within bounds and on a grid into `target`; nothing where it is unset. Errors:
  /// kInvalid.
  Status take(Choice Sm100Tuning::*choice, std::int64_t least, std::int64_t most, std::int64_t step,
              std::int64_t& target) const;
};

/// An error of a choice: kInvalid, under its name.
Error bad_choice(Sm100Tuning::Choice Sm100Tuning::*choice, std::string message);

}  // namespace attnjit
