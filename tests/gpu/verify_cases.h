// SPDX-License-Identifier: Apache-2.0
// The attentions that kernels are verified with: masks, score modifications and their combinations,
// shared by the matrix (verify_matrix.cpp) and the proof of the sm_100a kernel (tests/sm100).
//
// Thread rules: plain values and pure functions.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "attnjit/spec.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// Every proof uses all four.
inline constexpr InputKind kInputs[] = {InputKind::kNormal, InputKind::kLarge, InputKind::kRising,
                                        InputKind::kSpike};

/// Turns K and V's rows around. Of rising inputs it makes falling ones: a kernel that walks the
/// keys backwards rescales at every tile of those.
/// @pre neither paged nor of several lengths
void reverse_keys(Problem& problem);

/// Of normal inputs: scores small but for one key in every `tile` of the first half of the keys,
/// far enough above the others for FA4 to rescale O (8 powers of two) and yet of no more weight
/// than all others together, whose values do not cancel: what becomes of the O before shows.
/// @pre as reverse_keys
void raise_keys(Problem& problem, int tile);

/// A mask of one kind, with a window of 50 or chunks of 37: neither divides a tile of keys.
MaskSpec mask_of(MaskSpec::Kind kind);
/// `and` or `or` of masks.
MaskSpec tree(MaskSpec::Kind kind, std::vector<MaskSpec> of);
/// Documents and a prefix that everybody sees.
MaskSpec custom_mask();

/// By name: every kind of mask but materialized, and trees of them.
std::vector<std::pair<std::string, MaskSpec>> masks();
/// By name: every kind of score modification.
std::vector<std::pair<std::string, ScoreModSpec>> score_mods();

/// Compiles windows and chunks in, of a whole tree.
void set_constant(MaskSpec& mask);

struct Case {
  std::string name;
  AttentionSpec spec;
};

/// Every combination of types, depths, masks, score modifications and sinks, with heads, groups,
/// LSE and constants by turns.
std::vector<Case> cases(Arch arch);

}  // namespace attnjit::verify
