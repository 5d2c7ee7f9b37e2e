// SPDX-License-Identifier: Apache-2.0
// An OCI image layout whose one layer is a layer of the cache: a registry carries it, and where it
// is mounted it is a lower layer of ATTNJIT_CACHE_DIR.
//
// Thread rules: a free function.
#pragma once

#include <string>

#include "attnjit/result.h"

namespace attnjit::cli {

/// From a bundle, whose bytes decide every byte that is written. `folder` is made; it may be there
/// if it is empty. Errors: kInvalid where it is not, or the bundle cannot be read; kCorrupt; kIo.
Status write_oci_layout(const std::string& bundle, const std::string& folder);

}  // namespace attnjit::cli
