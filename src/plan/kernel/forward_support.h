// SPDX-License-Identifier: Apache-2.0
// What of a spec the forward templates of every architecture lack.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

#include "spec/spec_facts.h"

namespace attnjit {

/// log2 of the rows of a position where they are of all the heads of a group: a power of two, no
/// fewer than the heads.
int rows_shift(int group);

/// Registers per thread at launch, of a register file that so many threads share.
constexpr int launch_registers(int threads) { return 65536 / threads / 8 * 8; }

/// partition_keys is a multiple of it: the keys of the shortest KV tile of every template.
inline constexpr int kPartitionStep = 64;

/// The first of reasons that is one; empty: none is.
std::string first_reason(std::initializer_list<std::string> reasons);

/// What no forward template can do of a spec; empty: nothing.
std::string unsupported_everywhere(const SpecFacts& spec);

/// Why a template whose O has 16 bits does not serve a spec that wants another; empty: it does.
std::string unsupported_output(const SpecFacts& spec);

/// Why a launch cannot merge its result into the spec's o; empty: it can, or is not to.
std::string unsupported_accumulation(const SpecFacts& spec);

/// Why a template without e4m3 does not serve a spec that has it, of Q or of K and V; empty: the
/// spec has not.
std::string unsupported_e4m3(const SpecFacts& spec, std::string_view why);

/// What a forward template that splits the keys cannot do of a spec's partitions; empty: nothing.
std::string unsupported_partitions(const SpecFacts& spec);

}  // namespace attnjit
