// SPDX-License-Identifier: Apache-2.0
// Removes what an older attnjit left in a layer, in the folders of older format versions.
//
// Thread rules: a free function; safe beside an older attnjit that still uses its folder.
#pragma once

#include <cstdint>

#include "cache/layer.h"

namespace attnjit::cache {

/// How long nobody may have used a file of an older version before it goes.
inline constexpr std::int64_t kOlderVersionAgeNs = std::int64_t{30} * 86400 * 1000000000;

/// Removes the files of older format versions that nobody used for kOlderVersionAgeNs, and the
/// folders that are empty then. They count towards no cap, for only their own attnjit knows what
/// they are; folders of newer versions stay for a newer attnjit. Returns the number of files.
std::int64_t remove_older_versions(Layer& layer, bool dry_run);

}  // namespace attnjit::cache
