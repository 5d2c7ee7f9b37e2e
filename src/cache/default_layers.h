// SPDX-License-Identifier: Apache-2.0
// The cache folders that the environment asks for, as a function of a value.
//
// Thread rules: a free function without state.
#pragma once

#include <string>
#include <vector>

#include "base/environment.h"
#include "cache/file_system.h"

namespace attnjit::cache {

std::vector<std::string> default_layers(const Environment& environment, FileSystem& fs);

}  // namespace attnjit::cache
