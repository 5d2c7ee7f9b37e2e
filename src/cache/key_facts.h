// SPDX-License-Identifier: Apache-2.0
// What a kernel computes, read from the key material that each entry holds.
//
// Thread rules: a pure function.
#pragma once

#include <string_view>

#include "attnjit/cache.h"

namespace attnjit::cache {

/// Empty facts where the material is not what request_key() writes.
KernelFacts facts_of(std::string_view material);

}  // namespace attnjit::cache
