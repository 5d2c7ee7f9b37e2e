// SPDX-License-Identifier: Apache-2.0
// The one gate behind both compilers: what NVRTC gave back becomes a KernelImage, or an Error.
//
// Thread rules: pure functions.
#pragma once

#include "attnjit/compile.h"
#include "attnjit/result.h"
#include "compile/nvrtc.h"

namespace attnjit {

/// What a request must be before a compiler sees it. Errors: kInvalid (a NUL byte, no entry).
Status check_request(const CompileRequest& request);

/// Judges an output; the image's total time stays 0. NOTE: NVRTC's result alone is no judgement:
/// after a failed compile it still hands out an empty cubin with success, and it ignores or
/// serialises instructions with a remark only. Errors: kCompileFailed, with the place in the user's
/// snippet where the fault lies there; kInternal where attnjit's own source is at fault, with the
/// log; kEnvironment where neither is (see fault_of_environment).
Result<KernelImage> check_output(const CompileRequest& request, CompileOutput output);

}  // namespace attnjit
