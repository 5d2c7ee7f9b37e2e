// SPDX-License-Identifier: Apache-2.0
// Writes a problem and a kernel's outputs as spec.json and .npy files, for checks by other
// programs.
#pragma once

#include <string>

#include "attnjit/result.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// Makes the folder if need be and writes spec.json, q, k, v, o, scale, and where they exist lse,
/// page_table, q_offsets, kv_lens, sink, q_scale, k_scale, v_scale, output_scale, mask and
/// param_<name>, in the layouts of docs/spec.md; 16-bit and 8-bit floats are widened to f32.
/// spec.json holds the values of the launch numbers (window, cap) that were used. `lse` may be
/// null. Errors: kIo, kInvalid.
Status dump(const std::string& folder, const Problem& problem, const PlanOptions& options,
            const Tensor& o, const Tensor* lse);

}  // namespace attnjit::verify
