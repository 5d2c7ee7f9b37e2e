// SPDX-License-Identifier: Apache-2.0
// Reads what attnjit checks of a cubin: its architecture and its entry symbols.
//
// The bytes may come from anywhere; nothing is trusted. Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/types.h"

namespace attnjit {

struct CubinSummary {
  int sm = 0;                        ///< 90, 100, 103; 0: an ABI version whose flags are not known
  std::vector<std::string> entries;  ///< kernels, sorted
};

/// Parses a cubin's ELF header, section table and symbol table. Errors: kCorrupt with what is
/// wrong.
Result<CubinSummary> read_cubin(std::span<const std::uint8_t> bytes);

/// The gate that every image passes, fresh or stored: it is a cubin for `arch`, and its kernels are
/// exactly `entries`. Errors: kCorrupt with what is wrong.
Status check_cubin(std::span<const std::uint8_t> bytes, Arch arch,
                   std::vector<std::string> entries);

}  // namespace attnjit
