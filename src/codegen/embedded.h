// SPDX-License-Identifier: Apache-2.0
// The templates as they were when the library was built; the definition is generated.
#pragma once

#include <string_view>
#include <vector>

namespace attnjit {

struct EmbeddedFile {
  std::string_view name;  ///< relative to templates/
  std::string_view text;
};

std::vector<EmbeddedFile> embedded_files();

}  // namespace attnjit
