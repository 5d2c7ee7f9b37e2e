// SPDX-License-Identifier: Apache-2.0
// Tiles, constants and parameters that the kernels of absorbed MLA and head_dim above 256 share.
#include "plan/mla/mla_tiles.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <numeric>

#include "plan/kernel/forward_support.h"
#include "plan/kernel/partials.h"
#include "plan/kernel/signature.h"
#include "plan/launch/row_tiles.h"
#include "plan/launch/tensors.h"

namespace attnjit {
namespace {

constexpr int kMaxLatent = 512;  // O of 64 x 512 floats is half of a register file, or of tmem
constexpr int kMaxHeads = 128;
static_assert(MlaTiles::kKeys == kPartitionStep);

std::vector<LaunchNumber> numbers_of(const MlaTiles& tiles) {
  const SpecFacts& spec = *tiles.spec;
  using enum LaunchNumber;
  std::vector<LaunchNumber> numbers{kNumQHeads, kQLen, kKvLen, kOBatchBytes};
  // A ragged O comes with these.
  if (!spec.ragged) {
    numbers.push_back(kORowBytes);
    numbers.push_back(kOHeadBytes);
  }
  add_work_numbers(spec, splits(spec), spec.lengths_differ, numbers);
  if (tiles.stream_k) numbers.push_back(kUniformSplits);
  if (tiles.cluster_reduces) numbers.push_back(kClusterReduced);
  if (tiles.row_copies) numbers.insert(numbers.end(), {kNumPages, kKPageBytes, kKRowBytes});
  if (tiles.row_copies && tiles.separate_v()) {
    numbers.insert(numbers.end(), {kKHeadBytes, kVPageBytes, kVRowBytes, kVHeadBytes});
  }
  return numbers;
}

/// Whether a tile's rows are of all the heads of a group: where that wastes no rows, and in
/// decodes, which wait for K and V.
bool packs_group(const SpecFacts& spec) {
  if (!spec.head_dim_above_256) return true;
  const int rows = 1 << rows_shift(spec.group);
  const bool whole = rows == spec.group && rows <= kMaxHeads;
  return whole ||
         (spec.decodes(MlaTiles::kRows) && std::int64_t{spec.max_q_len} * rows <= MlaTiles::kRows);
}

/// Blocks of a row of K that are e4m3: of the format dsv32 the latent part's.
int upcast_blocks(const SpecFacts& spec) {
  if (spec.cache_format == CacheFormat::kDsv32) return mla_latent_blocks(spec);
  return spec.mla == Mla::kDecode && spec.upcasts_kv ? mla_blocks(spec) : 0;
}

/// Why the kernel does not serve the types of Q, K and V; empty: it does.
std::string why_no_types(const SpecFacts& spec) {
  if (spec.head_dim_above_256) {
    return unsupported_e4m3(spec, "head_dim above 256 (qk_depth) takes K and V of 16 bits alone");
  }
  if (spec.qkv_dtype == Dtype::kE4m3) {
    return unsupported_e4m3(spec,
                            "its products want V's keys adjacent, and the cache has them in rows; "
                            "beside a Q of bf16 or fp16 (qkv_dtype) K may be e4m3 (kv_dtype)");
  }
  if (spec.upcasts_kv && spec.page_size == 0) {
    return fmt::format(
        "the {} template of absorbed MLA takes K of e4m3 (kv_dtype) in pages (page_size) alone",
        to_string(spec.arch));
  }
  return {};
}

/// What of its heads and depths the kernel of absorbed MLA does not serve; empty: nothing.
std::string why_no_absorbed_shape(const SpecFacts& spec) {
  if (spec.group != spec.num_q_heads) {
    return fmt::format(
        "absorbed MLA (mla: decode) has one key-value head: group is {}, num_q_heads {}",
        spec.group, spec.num_q_heads);
  }
  if (spec.num_q_heads > kMaxHeads) {
    return fmt::format("the {} template of absorbed MLA takes up to {} heads per rank, not {}",
                       to_string(spec.arch), kMaxHeads, spec.num_q_heads);
  }
  const int rope = spec.qk_depth - spec.ov_depth;
  if (spec.ov_depth % MlaTiles::kBlockColumns != 0 || spec.ov_depth > kMaxLatent ||
      (rope != 0 && rope != MlaTiles::kBlockColumns)) {
    return fmt::format(
        "the {} template of absorbed MLA takes a latent part (ov_depth) of a multiple of {} up to "
        "{}, and a rope part of {} or none; qk_depth is {}, ov_depth {}",
        to_string(spec.arch), MlaTiles::kBlockColumns, kMaxLatent, MlaTiles::kBlockColumns,
        spec.qk_depth, spec.ov_depth);
  }
  return {};
}

/// The same of head_dim above 256.
std::string why_no_deep_shape(const SpecFacts& spec) {
  if (spec.qk_depth == spec.ov_depth && spec.qk_depth % MlaTiles::kBlockColumns == 0 &&
      spec.qk_depth <= kMaxLatent) {
    return {};
  }
  return fmt::format(
      "the {} template takes head_dim above 256 where qk_depth and ov_depth are the same "
      "multiple of {} up to {}; qk_depth is {}, ov_depth {}",
      to_string(spec.arch), MlaTiles::kBlockColumns, kMaxLatent, spec.qk_depth, spec.ov_depth);
}

}  // namespace

MlaTiles mla_tiles(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  MlaTiles tiles;
  tiles.spec = &spec;
  // NOTE: of a ragged batch a sequence may have more query tiles than another, and of topk each
  // position has keys of its own.
  tiles.stream_k = splits(spec) && spec.lengths_differ && !spec.head_dim_above_256 &&
                   !spec.ragged && spec.topk == 0 && spec.num_partitions == 0 &&
                   spec.partition_keys == 0;
  tiles.upcast_blocks = upcast_blocks(spec);
  tiles.row_copies = spec.topk > 0 || tiles.upcast_blocks > 0 || spec.copies_rows;
  if (!tiles.row_copies) {
    tiles.box_keys =
        spec.page_size > 0 ? std::gcd(spec.page_size, MlaTiles::kKeys) : MlaTiles::kKeys;
  }
  tiles.pair_tiles = spec.head_dim_above_256 && !spec.lengths_differ &&
                     !spec.decodes(MlaTiles::kRows) && spec.rising;
  // As of sm_90a's decodes: nobody comes back for what was not asked for. But where a sequence has
  // several query tiles, the next block of each row is wanted soon, by all of them.
  tiles.l2_bytes = !tiles.separate_v() && (1 << mla_head_shift(spec)) > MlaTiles::kRows ? 256 : 128;
  return tiles;
}

std::int64_t mla_tile_bytes(const SpecFacts& spec) {
  static_assert(MlaTiles::kRows == MlaTiles::kKeys);
  return std::int64_t{size_of(spec.qkv_dtype)} * MlaTiles::kKeys * spec.qk_depth;
}

std::int64_t mla_own_v_bytes(const SpecFacts& spec) {
  if (!spec.head_dim_above_256) return 0;
  return std::int64_t{size_of(spec.qkv_dtype)} * MlaTiles::kKeys * spec.ov_depth;
}

std::int64_t mla_loaded_bytes(const SpecFacts& spec) {
  if (spec.cache_format == CacheFormat::kDsv32) {
    return std::int64_t{MlaTiles::kKeys} * kDsv32RowBytes;
  }
  return mla_tile_bytes(spec) / size_of(spec.qkv_dtype) * size_of(spec.type_of_kv()) +
         mla_own_v_bytes(spec);
}

int mla_head_shift(const SpecFacts& spec) {
  if (!packs_group(spec)) return 0;
  const int shift = rows_shift(spec.group);
  constexpr int kWholeTile = std::bit_width(std::uint32_t{MlaTiles::kRows}) - 1;
  return spec.topk > 0 ? std::max(shift, kWholeTile) : shift;
}

int mla_packed_heads(const SpecFacts& spec) { return packs_group(spec) ? spec.group : 1; }

int mla_blocks(const SpecFacts& spec) { return spec.qk_depth / MlaTiles::kBlockColumns; }
int mla_latent_blocks(const SpecFacts& spec) { return spec.ov_depth / MlaTiles::kBlockColumns; }

std::string mla_unsupported_reason(const ResolvedSpec& resolved) {
  const SpecFacts& spec = resolved;
  if (std::string reason = first_reason({unsupported_output(spec), unsupported_everywhere(spec)});
      !reason.empty()) {
    return reason;
  }
  const bool deep = spec.head_dim_above_256;
  const char* const kernel = deep ? "head_dim above 256 (qk_depth)" : "absorbed MLA";
  if (spec.interprets) {
    return fmt::format("the kernel of {} interprets no custom code (interpreted) yet", kernel);
  }
  if (std::string reason =
          first_reason({why_no_types(spec), unsupported_partitions(spec),
                        deep ? why_no_deep_shape(spec) : why_no_absorbed_shape(spec)});
      !reason.empty()) {
    return reason;
  }
  if (spec.topk % MlaTiles::kKeys != 0) {
    return fmt::format("topk is {}; the {} template takes multiples of {} keys, a tile", spec.topk,
                       to_string(spec.arch), MlaTiles::kKeys);
  }
  const PlanOptions& options = resolved.options();
  if (options.swizzle_bytes.value_or(128) != 128) {
    return fmt::format("the {} template needs 128-byte swizzles; swizzle_bytes is {}",
                       to_string(spec.arch), *options.swizzle_bytes);
  }
  if (options.num_qo.value_or(1) != 1) {
    return fmt::format("a CTA of {} has one query tile; num_qo is {}", kernel, *options.num_qo);
  }
  return why_no_parameters(spec);
}

void add_mla_constants(const MlaTiles& tiles, Constants& constants) {
  const SpecFacts& spec = *tiles.spec;
  constants.add("kSeparateV", tiles.separate_v());
  constants.add("kLoadsApart", tiles.loads_apart);
  constants.add("kTwoReaders", tiles.two_readers);
  constants.add("kStageLoaders", tiles.stage_loaders);
  constants.add("kGqaShift", mla_head_shift(spec));
  constants.add("kCluster", tiles.cluster);
  constants.add("kTileM", tiles.rows());
  constants.add("kTileN", MlaTiles::kKeys);
  constants.add("kTopk", spec.topk);
  constants.add("kPoolPageSize", spec.topk > 0 ? spec.page_size : 0);
  constants.add("kBoxKeys", tiles.box_keys);
  constants.add("kRowCopies", tiles.row_copies);
  constants.add("kUpcastBlocks", tiles.upcast_blocks);
  constants.add("kStashesCursors", tiles.stashes_cursors());
  if (tiles.upcast_blocks > 0) {
    constants.add("kKeyRowBytes",
                  spec.cache_format == CacheFormat::kDsv32 ? kDsv32RowBytes : spec.qk_depth);
  }
  constants.add("kPairTiles", tiles.pair_tiles);
  constants.add("kBlockMask", false);
  constants.add("kSplit", splits(spec));
  constants.add("kStreamK", tiles.stream_k);
  // What kernels with heads of their own may do.
  constants.add("kHeadStreamK", false);
  constants.add("kCuts", false);
  constants.add("kUnitPositions", 0);
  constants.add("kClusterReduces", tiles.cluster_reduces);
  constants.add("kSkipsHiddenTiles", spec.block_sparse);
  constants.add("kPartitionTiles", tiles.partition_tiles());
  constants.add("kStages", tiles.barrier_stages());
  constants.add("kSlots", tiles.num_stages);
  constants.add("kWorkBytes", MlaTiles::kWorkBytes);
}

std::vector<KernelParameter> mla_parameters(const KernelPlan& plan, const MlaTiles& tiles) {
  const SpecFacts& spec = plan.spec;
  std::vector<TensorMapId> maps{TensorMapId::kQ};
  if (!tiles.row_copies) maps.push_back(TensorMapId::kK);
  if (!tiles.row_copies && tiles.separate_v()) maps.push_back(TensorMapId::kV);
  std::vector<KernelParameter> parameters = forward_parameters(plan, maps, numbers_of(tiles));
  using enum BufferId::Kind;
  if (!spec.ragged) parameters.push_back(forward_array(plan, kO, "unsigned char"));
  if (tiles.row_copies) parameters.push_back(forward_array(plan, kK, "const unsigned char"));
  if (tiles.row_copies && tiles.separate_v()) {
    parameters.push_back(forward_array(plan, kV, "const unsigned char"));
  }
  add_partial_parameters(plan, parameters);
  return parameters;
}

}  // namespace attnjit
