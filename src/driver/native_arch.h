// SPDX-License-Identifier: Apache-2.0
// The architecture of the GPU at hand, for who is not told for which one to make kernels.
//
// Thread rules: any thread.
#pragma once

#include <functional>
#include <memory>

#include "attnjit/driver.h"
#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "spec/resolved_spec.h"

namespace attnjit {

using OpenDriver = std::function<Result<std::shared_ptr<const Driver>>()>;

/// That of the device of this thread's context, else of the first GPU that kernels are made for.
/// The driver is opened for that. Errors, of the field arch: where it was left out kInvalid; where
/// it was named native, kEnvironment without a GPU, and kUnsupported with none that is served.
/// @param asked kNative or kNothing.
Result<Arch> native_arch(spec::ArchFrom asked, const OpenDriver& open);

/// The spec with an architecture: its own, else the GPU's. Errors: as native_arch.
Result<ResolvedSpec> with_native_arch(const ResolvedSpec& spec, const OpenDriver& open);

}  // namespace attnjit
