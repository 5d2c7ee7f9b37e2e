// SPDX-License-Identifier: Apache-2.0
// Shared memory, tensor memory, barriers and tensor maps of one sm_100 kernel variant.
#pragma once

#include <cstdint>
#include <vector>

#include "plan/sm100/sm100_plan.h"
#include "spec/spec_facts.h"

namespace attnjit {

struct Fa4Config;

inline constexpr int kSm100TileRows = 128;  ///< of a query tile

/// How P is signalled to P V: `first_quarters` of a tile's keys, in whole steps, and the rest in
/// parts of one size. Four quarters are all of it.
struct Sm100SplitOfP {
  std::int64_t first_quarters = 3;
  std::int64_t parts = 2;
};

/// The keys of each part. Empty: no whole steps of `step_keys` are left for each.
std::vector<std::int64_t> split_of_p(const Sm100SplitOfP& split, std::int64_t keys,
                                     std::int64_t step_keys);

/// What a variant's layout is made from, beside its spec and how CTAs of its plan come to work.
struct Sm100LayoutRequest {
  const SpecFacts* spec;
  const Sm100Plan* plan;  ///< with the work of its CTAs chosen
  std::int64_t num_qo = 2;
  bool pair_cta = false;
  bool is_mla = false;
  std::int64_t BN = 0;  // NOLINT(readability-identifier-naming): the reference's name
  Sm100SplitOfP split_p;
  std::int64_t swizzle_bytes = 128;
  bool separate_o = false;         ///< O is staged in buffers of its own, beside Q
  std::int64_t max_qk_stages = 1;  ///< what K may be staged in
  bool exact_qk_stages = false;    ///< nothing but max_qk_stages will do
  // Where two bodies share their code they have one list of barriers: that of the larger.
  std::int64_t barrier_stages = 0;  ///< stages that have barriers; 0: as many as there are
  std::int64_t barrier_num_qo = 0;  ///< query tiles that have barriers; 0: num_qo

  Sm100LayoutRequest(const SpecFacts& of, const Sm100Plan& by) : spec(&of), plan(&by) {}
  /// With a configuration's tiles.
  Sm100LayoutRequest(const SpecFacts& of, const Sm100Plan& by, const Fa4Config& config);

  /// One softmax warpgroup: S has two buffers, O is one, and Q is copied behind it, but of a pair.
  bool single_accumulator() const { return plan->softmax_warpgroups == 1; }
  /// A CTA asks for others' work, and is answered at a barrier.
  bool steals_tiles() const { return plan->published && plan->steals_tiles(); }
  /// V's rows past the end of a sequence are zeroed.
  bool tails() const { return spec->lengths_differ && !spec->copies_rows && !spec->upcasts_kv; }
  std::int64_t qkv_size() const { return size_of(spec->qkv_dtype); }
  std::int64_t rope_size() const { return size_of(spec->rope_dtype.value_or(spec->qkv_dtype)); }
};

/// The layout with a ring of `slots` K or V tiles; an even count is split into a K and a V ring
/// unless `fused`.
Sm100Variant lay_out_fa4(const Sm100LayoutRequest& tile, std::int64_t slots, bool fused,
                         std::int64_t qk_stages);

/// Moves the small regions (O's buffers, statistics, barriers) of both bodies of a kernel to the
/// same place, so that they share the code that needs nothing else. The caller checks that they
/// still fit.
void share_small_regions(Sm100Variant& a, Sm100Variant& b);

/// True where the variant is within shared memory and the barriers' limit.
bool fits(const Sm100Variant& variant);

/// Adds the maps of a body to the plan: boxes of a block of columns, `swizzle_bytes` wide, and of a
/// query tile's rows, or of what a CTA has of a tile of K or V. There are none of K and V where
/// threads load them.
void add_tensor_maps(Sm100Plan& plan);

}  // namespace attnjit
