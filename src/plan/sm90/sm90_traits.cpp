// SPDX-License-Identifier: Apache-2.0
// Asks a spec and a plan for their facts.
#include "plan/sm90/sm90_traits.h"

#include <utility>

#include "plan/kernel/partials.h"
#include "plan/map/map_plan.h"
#include "plan/sm90/sm90_heuristics.h"
#include "plan/sm90/sm90_tiling.h"
#include "spec/expression_ranges.h"
#include "spec/kinds.h"
#include "spec/names.h"
#include "spec/resolved_spec.h"

namespace attnjit {
namespace {

/// Whether a row sees few keys, and the kernel is compiled for their number. NOTE: one that is
/// interpreted takes it at launch, whatever the spec says.
bool has_small_window(const SpecFacts& spec) {
  constexpr int kDepth = 64;
  const MaskSpec& mask = spec.mask;
  return spec.qk_depth == kDepth && spec.ov_depth == kDepth &&
         mask.kind == MaskSpec::Kind::kSlidingWindow && mask.constant && !spec.interpreted &&
         mask.window >= 0 && mask.window_right >= 0 &&
         mask.window + mask.window_right <= spec::kSmallWindow;
}

/// Whether expressions of the mask look up, in arrays, blocks of rows that are no multiple of a
/// full tile's, but of two consumers'; and blocks of keys that are whole tiles. NOTE: rows of all
/// heads of a group are one behind another in a tile. Blocks that are much longer than 192 rows
/// seldom share a CTA, and more rows reuse K and V more.
bool looks_up_blocks(const ResolvedSpec& resolved) {
  int rows = 0, keys = 0;
  const auto lower = [](int& to, int block) {
    if (block > 0 && (to == 0 || block < to)) to = block;
  };
  for (const auto& snippet : resolved.state().snippets) {
    if (!snippet || snippet->kind != spec::SnippetKind::kMask) continue;
    lower(rows, spec::looked_up_block(*snippet, spec::Coord::kQIdx));
    lower(rows, spec::looked_up_block(*snippet, spec::Coord::kQRow));
    lower(keys, spec::looked_up_block(*snippet, spec::Coord::kKvIdx));
  }
  const int most =
      512 / (sm90_packs_gqa(resolved, walks_block_mask(resolved)) ? resolved->group : 1);
  return rows > 0 && keys > 0 && rows % 128 == 0 && rows % 192 != 0 && keys % 128 == 0 &&
         rows <= most;
}

Sm90Traits sum(std::initializer_list<std::pair<Sm90Trait, bool>> facts) {
  Sm90Traits traits = 0;
  for (const auto& [trait, holds] : facts) traits |= holds ? Sm90Traits{trait} : 0;
  return traits;
}

}  // namespace

Sm90Traits sm90_spec_traits(const ResolvedSpec& resolved) {
  using Kind = MaskSpec::Kind;
  using Score = ScoreModSpec::Kind;
  const SpecFacts& spec = resolved;
  const int depth = spec.qk_depth;
  const Score score = spec.score_mod.kind;
  const bool block_mask = walks_block_mask(resolved);
  const bool block_sparse = block_mask || spec.block_sparse;
  const bool expressed = spec.contains(Kind::kOr) || spec.contains(Kind::kCustom);
  const bool tensor = spec.contains(Kind::kMaterialized);
  const bool adds = spec::adds_to_scores(spec.mask);
  const bool simple = spec.mask.kind == Kind::kNull || spec.mask.kind == Kind::kCausal;
  // Columns of Q and K, at most.
  Sm90Traits depths = 0;
  for (const auto& [trait, most] :
       {std::pair{kTo64, 64}, {kTo96, 96}, {kTo128, 128}, {kTo192, 192}}) {
    depths |= depth <= most ? Sm90Traits{trait} : 0;
  }
  const bool to128 = (depths & (kTo96 | kTo128)) == kTo128;
  // Measured of sequences of one length. NOTE: kernels that split keys would spill.
  const bool capped = score == Score::kSoftcap && !block_sparse && !expressed && !tensor &&
                      !spec.interpreted && !spec.is_e4m3 && !spec.upcasts_kv && !splits(spec);
  return depths |
         sum({{kAt256, depth == 256},
              {kVTo128, spec.ov_depth <= 128},
              {kVBelow256, spec.ov_depth < 256},
              {kE4m3, spec.is_e4m3},
              {kUpcast, spec.upcasts_kv},
              {kKeyScales, spec.key_scales},
              {kBlockSparse, block_sparse},
              {kBlockMask, block_mask},
              {kBlockMaskBits, block_mask && block_mask_has_bits(spec)},
              {kKvLens, spec.lengths_differ},
              {kRowCopies, spec.copies_rows},
              {kDecode, spec.decodes(kSm90ConsumerRows)},
              {kPaged, spec.page_size > 0},
              {kLse, spec.return_lse},
              {kODtypeDiffers, spec.o_dtype != spec.qkv_dtype},
              {kNoMask, spec.mask.kind == Kind::kNull},
              {kCausal, spec.mask.kind == Kind::kCausal},
              {kSimple, simple},
              {kWindowed, spec.mask.kind != Kind::kNull && !spec.contains(Kind::kCausal)},
              {kSliding, spec.contains(Kind::kSlidingWindow)},
              {kChunked, spec.contains(Kind::kChunked)},
              {kBools, tensor && !adds},
              {kNumbers, tensor && adds},
              {kAdds, adds},
              {kSmallWindow, has_small_window(spec)},
              {kMuchWhole, spec.much_whole},
              {kRising, spec.rising},
              {kBlocks, block_sparse && to128 && !spec.lengths_differ && looks_up_blocks(resolved)},
              {kIdentity, score == Score::kIdentity},
              {kSoftcap, score == Score::kSoftcap},
              {kNeedsFewRegisters, (block_sparse || !expressed) && !tensor &&
                                       (score == Score::kIdentity || score == Score::kAlibi)},
              {kCapped, capped && to128}});
}

Sm90Traits sm90_traits(const Sm90Plan& plan) {
  const SpecFacts& spec = *plan.spec;
  return plan.spec_traits |
         sum({{kSplit, plan.split},
              {kStreamK, plan.stream_k},
              {kCuts, plan.cuts},
              {kFixedParts, plan.partition_tiles > 0},
              {kBoxes, plan.box_keys < plan.BN},
              {kUnits, spec.lengths_differ && plan.pack_gqa && kSm90ConsumerRows % spec.group != 0},
              {kHeadsApart, spec.group > 1 && !plan.pack_gqa},
              {kOneConsumer, plan.num_consumers == 1},
              {kTwoConsumers, plan.num_consumers == 2},
              {kThreeConsumers, plan.num_consumers == 3},
              {kTwoCtas, plan.ctas_per_sm > 1},
              {kShortTile, plan.BN <= 96},
              {kSums, plan.sums_by_product},
              {kQInRegisters, plan.q_register_steps > 0},
              {kRematerializesRows, plan.rematerializes_rows}});
}

}  // namespace attnjit
