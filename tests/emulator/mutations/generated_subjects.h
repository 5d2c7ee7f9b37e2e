// SPDX-License-Identifier: Apache-2.0
// The kernels of the templates that are damaged: names begin with "sm90" or with kTemplatePrefix.
//
// Thread rules: pure functions.
#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "subject.h"

namespace attnjit::emulator {

inline constexpr std::string_view kTemplatePrefix = "sm_100a";

/// Launches of several work tiles per CTA, in pages, of ragged batches, with masks, score
/// modifications, sinks and packed heads. Errors: kEnvironment where there is no NVRTC.
Result<std::vector<std::unique_ptr<Subject>>> make_generated_subjects(const Wanted& wanted);

/// The same of the sm_90a kernel where sequences differ in length.
Result<std::vector<std::unique_ptr<Subject>>> make_sequence_subjects(const Wanted& wanted);

/// Of absorbed MLA.
Result<std::vector<std::unique_ptr<Subject>>> make_mla_subjects(const Wanted& wanted);

/// Of the sm_90a kernels over e4m3 K and V.
Result<std::vector<std::unique_ptr<Subject>>> make_eight_bit_subjects(const Wanted& wanted);

}  // namespace attnjit::emulator
