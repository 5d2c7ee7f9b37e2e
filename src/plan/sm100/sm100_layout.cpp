// SPDX-License-Identifier: Apache-2.0
// Lays out shared memory, tensor memory and the barriers of an sm_100 kernel variant, and makes its
// tensor maps.
#include "plan/sm100/sm100_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "plan/reference/config_math.h"
#include "plan/reference/fa4_config.h"

namespace attnjit {
namespace {

constexpr std::int64_t kCorrectionBytes = 512 * 4;  // a sum and a maximum a softmax thread
// Of a key in a buffer (templates/sm100/scales.cuh): its k_scale, and v_scale in two forms.
constexpr std::int64_t kKeyScalesBytes = 3 * 4;
constexpr std::int64_t kKeyScalesBuffers = 2;  // of a softmax warpgroup

// Who reads a published work tile: the warps of softmax, four of correction, a thread each that
// multiplies, loads and stores, and the warps that upcast.
int work_readers(const Sm100LayoutRequest& tile) {
  return (tile.single_accumulator() ? 4 : 8) + 4 + 3 +
         (tile.spec->upcasts_kv ? kSm100UpcastWarps : 0);
}

// FA4MiscMBars' order, with barriers of Q's own and of O's staging. One lane a warp arrives for it:
// 4 softmax warps publish each part of P, and 4 correction warps vouch for O before its first
// part; a pair's leader hears both CTAs. K and V are published by one thread, by each of the warp
// that copies them, or by one of each warp that upcasts them. Q's memory is released by the
// commit of its last product; where O is staged there by the store, and by the load, which has
// waited for the phase before. Not where a CTA has one work tile; nor are buffers of O then, of
// which its blocks take one each. The others are one tcgen05.commit, one expect_tx or one thread.
void lay_out_barriers(Sm100Variant& variant, const Sm100LayoutRequest& tile) {
  const auto num_qo = static_cast<int>(std::max(tile.barrier_num_qo, variant.num_qo));
  const auto stages = static_cast<int>(std::max(tile.barrier_stages, variant.num_kv_stages));
  const auto qk_stages = static_cast<int>(variant.num_qk_stages);
  const int kv_arrivals = tile.plan->row_copies() ? 32
                          : tile.spec->upcasts_kv ? kSm100UpcastWarps
                                                  : 1;
  const int warps = tile.pair_cta ? 8 : 4;
  const int accumulators = tile.single_accumulator() ? 1 : 2;
  BarrierList& barriers = variant.barriers;
  // Of several the number stands in brackets.
  const auto add = [&](const char* group, const std::string& name, int count, int arrivals) {
    barriers.add_group(group, count == 1 ? name : name + "[{}]", arrivals, count);
  };
  barriers.start("kBarSCons");
  for (int wg = 0; wg < 2; ++wg) {
    for (std::int64_t part = 0; part < variant.num_pv_stages(); ++part) {
      barriers.add(fmt::format("S{}_cons[{}]", wg, part), part == 0 ? 2 * warps : warps);
    }
  }
  barriers.start("kBarC");
  for (int o = 0; o < accumulators; ++o) {
    barriers.add(fmt::format("C{}_prod", o), 4);
    barriers.add(fmt::format("C{}_cons", o), 4);
  }
  barriers.add_group("kBarSProd", "S{}_prod", 1, 2);
  for (int i = 0; i < num_qo; ++i) {
    add("kBarQProd", fmt::format("Q{}_prod", i), qk_stages, 1);
  }
  if (!tile.plan->one_work_tile()) {
    barriers.add_group("kBarQCons", "Q{}_cons", tile.separate_o ? 1 : 2, num_qo);
  }
  if (variant.use_fused_kv) {
    barriers.start("kBarVProd");
    add("kBarKProd", "KV_prod", stages * qk_stages, kv_arrivals);
    barriers.start("kBarVCons");
    add("kBarKCons", "KV_cons", stages * qk_stages, 1);
  } else {
    add("kBarKProd", "K_prod", stages * qk_stages, kv_arrivals);
    add("kBarKCons", "K_cons", stages * qk_stages, 1);
    add("kBarVProd", "V_prod", stages, kv_arrivals);
    add("kBarVCons", "V_cons", stages, 1);
  }
  barriers.add_group("kBarOProd", "O{}_prod", 1, accumulators);
  if (tile.separate_o) {
    add("kBarOStaged", "O_staged", kSm100OBuffers, 4);
    const std::int64_t blocks =
        num_qo * ceil_div(tile.spec->ov_depth * size_of(tile.spec->o_dtype), 128);
    if (!tile.plan->one_work_tile() || blocks > kSm100OBuffers) {
      add("kBarOCons", "O_cons", kSm100OBuffers, 1);
    }
  } else {
    barriers.add_group("kBarOStaged", "O{}_staged", 4, num_qo);
  }
  if (tile.tails()) barriers.add_group("kBarVTail", "tail_prod", 1);
  if (tile.tails() && tile.pair_cta) barriers.add_group("kBarPairTail", "pair_tail_prod", 1);
  if (tile.plan->published) {
    add("kBarWork", "work_prod", kSm100WorkSlots, 1);
    add("kBarWork", "work_cons", kSm100WorkSlots, work_readers(tile));
  }
  const bool dynamic = tile.plan->cuts && tile.spec->ragged;
  if (tile.steals_tiles() || dynamic) barriers.add_group("kBarAnswer", "answer_prod", 1);
}

// Whether rows of a tile may be nobody's, behind whole positions of a group: where keys are what is
// waited for. Of larger groups a tile has one position, and many rows are nobody's.
bool takes_any_group(const SpecFacts& spec, const Sm100Plan& plan) {
  return spec.decodes(kSm100TileRows) ||
         (spec.lengths_differ && !plan.block_mask && spec.group < kSm100TileRows / 2);
}

// What one warp says to all others of work tiles, and what a CTA keeps of them. Where CTAs walk a
// list each role counts for itself.
std::int64_t work_bytes(const Sm100LayoutRequest& tile) {
  const Sm100Plan& plan = *tile.plan;
  const std::int64_t tiles = plan.published ? kSm100WorkSlots : plan.one_work_tile() ? 1 : 0;
  const std::int64_t kept = tile.steals_tiles() ? kSm100AnswerBytes
                            : plan.cuts         ? kSm100CutBytes
                                                : 0;
  return kSm100WorkBytes * tiles + kept;
}

void lay_out_tmem(Sm100Variant& variant, const Sm100LayoutRequest& tile) {
  const std::int64_t bn = variant.BN;
  const std::int64_t ov = variant.padded_ov_depth;
  MemoryLayout& tmem = variant.tmem;
  tmem.add_stages(Region::kS, "S{}", 2, bn);
  if (tile.single_accumulator()) {
    tmem.add(Region::kO, "O", ov);
    // A pair's tiles of 128 keys leave no columns.
    if (!tile.pair_cta) tmem.add(Region::kQ, "Q", variant.qk_mma_depth * tile.qkv_size() / 4);
  } else {
    tmem.add_stages(Region::kO, "O{}", 2, ov);
  }
  // P's elements are packed into 32-bit columns.
  const std::int64_t p_columns = bn * tile.qkv_size() / 4;
  const std::string when = "its thread has loaded the whole row of S";
  variant.tmem_overlays = {{"P0", 0, p_columns, when}, {"P1", bn, p_columns, when}};
}

}  // namespace

Sm100LayoutRequest::Sm100LayoutRequest(const SpecFacts& of, const Sm100Plan& by,
                                       const Fa4Config& config)
    : Sm100LayoutRequest(of, by) {
  num_qo = config.num_qo();
  pair_cta = config.pair_cta;
  is_mla = config.args.is_mla;
  BN = config.BN;
  swizzle_bytes = config.swizzle_mode;
  // K is staged in chunks of one element type only, and where TMA brings it.
  if (!is_mla && !spec->upcasts_kv && (config.rope_depth() == 0 || rope_size() == qkv_size())) {
    max_qk_stages = std::gcd(config.padded_qk_depth / (swizzle_bytes / qkv_size()),
                             config.padded_qk_depth / config.MMA_K());
  }
}

std::vector<std::int64_t> split_of_p(const Sm100SplitOfP& split, std::int64_t keys,
                                     std::int64_t step_keys) {
  const std::int64_t steps = keys / step_keys;
  const std::int64_t first = ceil_div(steps * split.first_quarters, 4);
  const std::int64_t others = split.parts - 1;
  if ((first == steps) != (others == 0)) return {};
  if (others > 0 && (steps - first) % others != 0) return {};
  std::vector<std::int64_t> parts{first * step_keys};
  for (std::int64_t i = 0; i < others; ++i) {
    parts.push_back((steps - first) / others * step_keys);
  }
  return parts;
}

bool fits(const Sm100Variant& variant) {
  return variant.smem_bytes() <= kSm100SmemBytes && variant.tmem_used() <= 512 &&
         variant.barriers.size() <= kSm100MaxBarriers;
}

Sm100Variant lay_out_fa4(const Sm100LayoutRequest& tile, std::int64_t slots, bool fused,
                         std::int64_t qk_stages) {
  Sm100Variant v;
  const std::int64_t q = tile.qkv_size();
  const std::int64_t swizzle_elements = tile.swizzle_bytes / q;
  const std::int64_t tile_alignment = 8 * tile.swizzle_bytes;  // a swizzle pattern: 8 rows
  v.num_qo = tile.num_qo;
  v.MMA_M = 128 * (tile.pair_cta ? 2 : 1);
  v.MMA_K = q == 2 ? 16 : 32;
  v.BM = 128 * tile.num_qo;
  v.BN = tile.BN;
  // Whole positions a Q box: the reference asks this of MMA_M, which is two boxes of a pair.
  // Elsewhere rows are left over.
  v.fuse_gqa =
      tile.spec->group > 1 &&
      (v.q_tile_rows() % tile.spec->group == 0 || takes_any_group(*tile.spec, *tile.plan)) &&
      !tile.is_mla;
  v.BM_eff = v.fuse_gqa ? v.BM / v.q_tile_rows() * (v.q_tile_rows() / tile.spec->group) : v.BM;
  v.qk_depth = tile.spec->qk_depth;
  v.ov_depth = tile.spec->ov_depth;
  v.padded_qk_depth = align_up(tile.spec->qk_depth, swizzle_elements);
  v.padded_ov_depth = align_up(tile.spec->ov_depth, swizzle_elements);
  v.qk_mma_depth = align_up(tile.spec->qk_depth, v.MMA_K);
  v.use_fused_kv = fused;
  v.num_kv_stages = fused ? slots : slots / 2;
  v.num_qk_stages = qk_stages;
  // One more than half of an even number of slots: with one query tile two Ks follow one another at
  // the begin of a work tile.
  v.num_rope_buffers = fused && v.rope_depth() > 0 ? slots / 2 + 1 : 0;
  v.num_o_buffers = tile.separate_o ? kSm100OBuffers : 0;
  v.num_k_scale_bufs =
      tile.spec->key_scales ? kKeyScalesBuffers * (tile.single_accumulator() ? 1 : 2) : 0;
  // P V begins on a part of the tile while the rest is still exponentiated.
  v.pv_keys = split_of_p(tile.split_p, v.BN, v.MMA_K);

  const std::int64_t nope_columns = v.padded_ov_depth;
  const std::int64_t k_nope_bytes = v.k_rows_per_cta() * nope_columns * q;
  const std::int64_t k_rope_bytes = v.k_rows_per_cta() * v.rope_depth() * tile.rope_size();
  v.v_stage_bytes = v.v_cols_per_cta() * v.BN * q;
  v.k_stage_bytes = fused ? std::max(k_nope_bytes, v.v_stage_bytes) : k_nope_bytes + k_rope_bytes;

  MemoryLayout& smem = v.smem;
  const std::int64_t q_bytes = v.BM * (nope_columns * q + v.rope_depth() * tile.rope_size());
  // O takes the place of its query tile, in blocks of 128 bytes of columns, or has buffers.
  const std::int64_t o_row_bytes = align_up(tile.spec->ov_depth * size_of(tile.spec->o_dtype), 128);
  const std::int64_t o_bytes = tile.separate_o ? 0 : v.BM * o_row_bytes;
  smem.add(Region::kQ, "Q", std::max(q_bytes, o_bytes),
           std::max<std::int64_t>(tile_alignment, 1024));
  const std::int64_t q_end = smem.end_of_last();
  if (fused) {
    smem.add(Region::kKv, "KV ring", slots * v.k_stage_bytes, tile_alignment);
    smem.add(Region::kKRope, "K rope", v.num_rope_buffers * k_rope_bytes, 1024);
  } else {
    smem.add(Region::kK, "K ring", v.num_kv_stages * v.k_stage_bytes, tile_alignment);
    smem.add(Region::kV, "V ring", v.num_kv_stages * v.v_stage_bytes, tile_alignment);
  }
  smem.add(Region::kO, "O", v.num_o_buffers * kSm100OBlockBytes, 1024);
  smem.add(Region::kCorrection, "correction", kCorrectionBytes, 16);
  smem.add(Region::kKeyScales, "key scales", v.num_k_scale_bufs * v.BN * kKeyScalesBytes, 16);
  smem.add(Region::kTmemAddress, "tmem address", 4, 4);
  smem.add(Region::kWork, "work", work_bytes(tile), 16);
  lay_out_barriers(v, tile);
  smem.add(Region::kBarriers, "barriers", v.barriers.bytes(), 8);
  for (std::int64_t i = 0; !tile.separate_o && i < tile.num_qo; ++i) {
    v.smem_overlays.push_back({fmt::format("O{}", i), i * q_end / tile.num_qo,
                               o_bytes / tile.num_qo, "every Q K^T of the query tile is done"});
  }
  lay_out_tmem(v, tile);
  return v;
}

void share_small_regions(Sm100Variant& a, Sm100Variant& b) {
  const auto first = [](Sm100Variant& v) {
    return std::find_if(v.smem.begin(), v.smem.end(), [](const PlacedRegion& range) {
      return range.region == Region::kO || range.region == Region::kCorrection;
    });
  };
  const std::int64_t begin = std::max(first(a)->begin, first(b)->begin);
  for (Sm100Variant* v : {&a, &b}) {
    const std::int64_t moved = begin - first(*v)->begin;
    for (auto region = first(*v); region != v->smem.end(); ++region) region->begin += moved;
  }
}

void add_tensor_maps(Sm100Plan& plan) {
  const SpecFacts& spec = *plan.spec;
  const Sm100Variant& variant = plan.variants.front();
  const Dtype dtype = spec.qkv_dtype;
  const int swizzle = static_cast<int>(plan.swizzle_bytes);
  const std::int64_t columns = swizzle / size_of(dtype);
  const bool separate_rope = variant.rope_depth() > 0 && spec.separate_rope;
  const std::int64_t qk_columns = separate_rope ? variant.padded_ov_depth : variant.padded_qk_depth;
  const auto rows_map = [&](TensorMapId id, Dtype element, std::int64_t box_columns,
                            std::int64_t all_columns, int swizzle_bytes) {
    std::vector<MapAxis> axes{MapAxis::kDepth, MapAxis::kHead, MapAxis::kRow};
    std::vector<std::int64_t> box{box_columns, 1, variant.q_tile_rows()};
    if (variant.fuse_gqa) {
      axes = {MapAxis::kDepth, MapAxis::kGroup, MapAxis::kKvHead, MapAxis::kRow};
      box = {box_columns, spec.group, 1, variant.q_tile_rows() / spec.group};
    }
    if (!spec.ragged) {
      axes.push_back(MapAxis::kBatch);
      box.push_back(1);
    }
    plan.tensor_maps.push_back({id, element, std::move(axes), std::move(box), swizzle_bytes,
                                ceil_div(all_columns, box_columns)});
  };
  const auto kv_map = [&](TensorMapId id, Dtype element, std::int64_t box_columns,
                          std::int64_t all_columns, std::int64_t rows, int swizzle_bytes) {
    if (spec.copies_rows || spec.upcasts_kv) return;
    const bool paged = spec.page_size > 0;
    const std::int64_t box_rows = paged ? std::gcd(spec.page_size, variant.k_rows_per_cta()) : rows;
    plan.tensor_maps.push_back(
        {id,
         element,
         {MapAxis::kDepth, MapAxis::kKvHead, paged ? MapAxis::kPageRow : MapAxis::kRow,
          paged ? MapAxis::kPage : MapAxis::kBatch},
         {box_columns, 1, box_rows, 1},
         swizzle_bytes,
         ceil_div(all_columns, box_columns) * (rows / box_rows)});
  };
  rows_map(TensorMapId::kQ, dtype, columns, qk_columns, swizzle);
  kv_map(TensorMapId::kK, dtype, columns, qk_columns / variant.num_qk_stages,
         variant.k_rows_per_cta(), swizzle);
  if (separate_rope) {
    const Dtype rope = *spec.rope_dtype;
    const int rope_swizzle = size_of(rope) == 1 ? 64 : 128;
    const std::int64_t rope_columns = rope_swizzle / size_of(rope);
    rows_map(TensorMapId::kQRope, rope, rope_columns, variant.rope_depth(), rope_swizzle);
    kv_map(TensorMapId::kKRope, rope, rope_columns, variant.rope_depth(), variant.k_rows_per_cta(),
           rope_swizzle);
  }
  kv_map(TensorMapId::kV, dtype, std::min(columns, variant.v_cols_per_cta()),
         variant.v_cols_per_cta(), variant.BN, swizzle);
  rows_map(TensorMapId::kO, spec.o_dtype, 128 / size_of(spec.o_dtype), variant.padded_ov_depth,
           128);
}

}  // namespace attnjit
