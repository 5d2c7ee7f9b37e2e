// SPDX-License-Identifier: Apache-2.0
// The choices of the sm_100 tiles: what registers and memory hold, and what was measured.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "attnjit/plan.h"
#include "attnjit/result.h"
#include "plan/reference/fa4_config.h"
#include "plan/reference/reference_json.h"
#include "plan/sm100/sm100_layout.h"
#include "plan/sm100/sm100_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

/// kUnsupported, with the reason.
template <class... Args>
Error sm100_unsupported(fmt::format_string<Args...> reason, Args&&... args) {
  return make_error(ErrorCode::kUnsupported, fmt::format(reason, std::forward<Args>(args)...));
}

/// Depths that no layout serves.
std::optional<Error> sm100_check_shape(const SpecFacts& spec);

/// Why the reference has no tiles, of any number of keys; empty: it has.
std::string sm100_why_no_tiles(const Fa4Config& config);

/// Whether two O take all of tensor memory: depths of V above 192, and those of Depth512Config. And
/// of K above 192 where two softmax warpgroups leave no registers for the rows that are upcast, or
/// two query tiles no room for two stages of the keys that a V of 128 and less goes with; a pair of
/// CTAs would have the room.
bool sm100_has_single_accumulator(const SpecFacts& spec, const PlanOptions& options,
                                  ConfigKind kind);

/// The swizzle that the caller or this plan chooses; unset: the reference's. That is 64 bytes for
/// e4m3, where 128 take half of the TMA's lines; but they pad a row to 128 columns.
std::optional<int> sm100_swizzle(const SpecFacts& spec, const PlanOptions& options);

/// The greatest depth of K at which no pair of CTAs with two O multiplies together.
inline constexpr int kSm100Pairless = 64;

/// The reference's tiles, with the swizzle that is chosen here.
Fa4Config sm100_fa4_config(const SpecFacts& spec, PlanOptions options);

/// How CTAs come to their work tiles. What a row chooses is checked when there is a plan. `pair`:
/// two CTAs multiply together.
void sm100_choose_work(const ResolvedSpec& resolved, bool pair, const Sm100Tuning& tuned,
                       Sm100Plan& plan);

/// The keys per tile, lowered to what a thread's row fits and to whole batches of columns; `why`:
/// they are not the configuration's.
Result<std::int64_t> sm100_choose_keys(const SpecFacts& spec, const Fa4Config& config,
                                       const Sm100Tuning& tuned, bool block_mask, std::string& why);

/// How P of a tile is signalled, where a row chooses among its parts.
Result<Sm100SplitOfP> sm100_choose_split_of_p(const SpecFacts& spec, std::int64_t keys,
                                              const Sm100Tuning& tuned);

/// The keys per tile with a single accumulator. Beside an O of 256 columns and a Q of 128, S has
/// room for two buffers of 64 keys. A pair of CTAs, of which each has half of a tile's keys, keeps
/// Q in shared memory.
std::int64_t sm100_single_accumulator_keys(bool pair_cta);

/// Whether two CTAs multiply together where the caller does not say (docs/sm100.md, "Pairs of
/// CTAs"): in batches of one length, for whose K and V the shared memory of CTAs that multiply
/// alone is too slow. Not where a sequence's rows fit a CTA's tile, whose pair would have a CTA
/// without rows; so decodes among the prompts of a ragged batch would.
bool sm100_pairs_by_default(const ResolvedSpec& resolved);

/// Whether a tuning row may choose pairs or CTAs alone: where the caller does not say, and both
/// serve batches of one length.
bool sm100_may_choose_pairs(const ResolvedSpec& resolved, ConfigKind kind, bool single_accumulator);

/// The caller's options, with what a row chooses among them.
PlanOptions sm100_options(const ResolvedSpec& resolved, const Sm100Tuning& tuned);

/// The pairs of a row's exponentials that are polynomials on the FMA pipe (the table of
/// docs/sm100.md). By cycles of 128 keys: 1024 of MUFU, less 16 a pair, against the tensor cores' 4
/// a column of Q K^T and of P V, 2 where they are e4m3. Where the MUFU is the bound, three in 16,
/// which is the most that leaves a softmax thread registers enough (two in 16 where a kernel has
/// one query tile alone: causal spilt 40 bytes with three); where the tensor cores are, a share
/// that gives the MUFU an eighth of slack or so, as FlashAttention-4's. sm_103 doubled the MUFU.
std::int64_t sm100_polynomial_pairs(const SpecFacts& spec, const Sm100Plan& plan,
                                    const Sm100Variant& variant);

}  // namespace attnjit
