// SPDX-License-Identifier: Apache-2.0
// The digest of a list of source files.
#pragma once

#include <string>
#include <vector>

#include "attnjit/source.h"

namespace attnjit {

/// SHA-256, hex, over length-prefixed names and texts in the order given.
std::string source_digest(const std::vector<SourceFile>& files);

}  // namespace attnjit
