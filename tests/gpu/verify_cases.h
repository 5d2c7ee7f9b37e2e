// SPDX-License-Identifier: Apache-2.0
// The attentions that kernels are verified with: masks, score modifications and their combinations,
// shared by the matrix (verify_matrix.cpp) and the proof of the sm_100a kernel (tests/sm100).
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/spec.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// A mask of one kind, with a window of 50 or chunks of 37: neither divides a tile of keys.
MaskSpec mask_of(MaskSpec::Kind kind);
/// `and` or `or` of masks.
MaskSpec tree(MaskSpec::Kind kind, std::vector<MaskSpec> of);
/// Documents and a prefix that everybody sees.
MaskSpec custom_mask();

/// A mask, and a score modification, that read parameters of every type.
MaskSpec mask_of_every_type();
ScoreModSpec score_mod_of_every_type();

/// A mask that is a tensor, of kBits, kU8, kF32, kBf16 or kFp16.
MaskSpec materialized_mask(Dtype type);

/// By name: every kind of mask but materialized, and trees of them.
std::vector<std::pair<std::string, MaskSpec>> masks();
/// By name: every kind of score modification.
std::vector<std::pair<std::string, ScoreModSpec>> score_mods();

/// Compiles windows and chunks in, of a whole tree.
void set_constant(MaskSpec& mask);

/// Lengths of the sequences of a batch: the longest, none, one, half, all but one, .. `turn` begins
/// the list after the longest elsewhere, so that with two turns rows without keys come up, keys
/// without rows, and more rows than keys.
std::vector<std::int64_t> mixed_lengths(std::int64_t longest, std::int64_t batch,
                                        std::uint64_t turn);

struct Case {
  std::string name;
  AttentionSpec spec;
};

/// Every combination of types, depths, masks, score modifications and sinks, with heads, groups,
/// LSE and constants by turns; then pages, ragged batches and both, with all masks, and on sm_90a
/// ragged keys, and partitions and lengths that leave out the call's rows by turns; then masks that
/// are tensors, of each type.
std::vector<Case> cases(Arch arch);

}  // namespace attnjit::verify
