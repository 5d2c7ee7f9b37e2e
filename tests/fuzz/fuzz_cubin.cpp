// SPDX-License-Identifier: Apache-2.0
// Fuzz target: the reader of cubins.
#include <algorithm>
#include <cstdlib>
#include <vector>

#include "compile/cubin.h"
#include "fuzz_targets.h"

namespace attnjit::fuzz {

void fuzz_cubin(std::string_view input) {
  // A copy of its own, so that the address sanitizer sees a read past the end.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  const Result<CubinSummary> cubin = read_cubin(bytes);
  const auto require = [](bool holds) {
    if (!holds) std::abort();
  };
  if (!cubin) return require(cubin.error().code == ErrorCode::kCorrupt);
  require(std::is_sorted(cubin->entries.begin(), cubin->entries.end()));
  require(cubin->sm >= 0 && cubin->sm < 256);
  for (const std::string& entry : cubin->entries) {
    require(!entry.empty() && input.find(entry) != std::string_view::npos);
  }
}

}  // namespace attnjit::fuzz
