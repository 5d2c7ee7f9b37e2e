// SPDX-License-Identifier: Apache-2.0
// Sm100Variant: one body of the sm_100a and sm_103a kernel, with its tiles, shared and tensor
// memory, and barriers; its roles and tensor maps.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/plan.h"
#include "plan/kernel/fields.h"
#include "plan/kernel/memory_layout.h"

namespace attnjit {

// NOLINTBEGIN(readability-identifier-naming): the reference's names where it has one.

/// A group of warps that does one job. All roles of a warpgroup have one register budget: PTX wants
/// every warp of a warpgroup to execute the same setmaxnreg.
struct Sm100Role {
  enum class Id : std::uint8_t {
    kSoftmax,
    kSoftmax0,
    kSoftmax1,
    kCorrection,
    kMma,
    kLoad,
    kStore,
    kScheduler,
    kUpcast
  };
  Id id = Id::kScheduler;
  int first_warp = 0;
  int num_warps = 0;
  int registers = 0;  ///< per thread, after setmaxnreg
};
/// "softmax 0", "mma", ..
std::string_view to_string(Sm100Role::Id id);

/// Something that lives where other ranges lay before: bytes of shared memory or columns of tensor
/// memory.
struct Sm100Overlay {
  std::string name;
  std::int64_t begin = 0;
  std::int64_t size = 0;
  std::string when;  ///< why its place is free by then
};

/// A dimension of a tensor map.
enum class MapAxis : std::uint8_t { kDepth, kGroup, kHead, kKvHead, kRow, kPageRow, kPage, kBatch };
/// "depth", "kv_head", ..
std::string_view to_string(MapAxis axis);

/// The kind of a tensor map: everything but the run-time extents and strides.
struct Sm100TensorMap {
  TensorMapId id = TensorMapId::kQ;
  Dtype dtype = Dtype::kBf16;
  std::vector<MapAxis> axes;      ///< innermost first
  std::vector<std::int64_t> box;  ///< elements along the axes
  int swizzle = 128;              ///< bytes; 0: none
  std::int64_t copies = 1;        ///< TMA instructions per tile
};

/// One body of the kernel: with two query tiles per CTA, or one.
struct Sm100Variant {
  std::int64_t num_qo = 2;
  std::int64_t MMA_M = 0;
  std::int64_t MMA_K = 0;
  std::int64_t BM = 0;
  std::int64_t BN = 0;
  std::int64_t BM_eff = 0;
  bool fuse_gqa = false;
  std::int64_t qk_depth = 0;
  std::int64_t ov_depth = 0;
  std::int64_t padded_qk_depth = 0;
  std::int64_t padded_ov_depth = 0;
  std::int64_t qk_mma_depth = 0;  ///< what Q K^T contracts: qk_depth up to a multiple of MMA_K
  std::int64_t num_kv_stages = 0;
  std::int64_t num_qk_stages = 1;
  bool use_fused_kv = false;
  std::int64_t num_rope_buffers = 0;
  std::int64_t num_k_scale_bufs = 0;
  std::vector<std::int64_t> pv_keys;  ///< keys that each part of P V contracts
  std::int64_t k_stage_bytes = 0;     ///< fused: of the slot that K and V share, rope apart
  std::int64_t v_stage_bytes = 0;
  std::int64_t num_o_buffers = 0;  ///< of a block of columns of O; 0: O is staged in Q's memory
  MemoryLayout smem;
  std::vector<Sm100Overlay> smem_overlays;
  MemoryLayout tmem;  ///< a stage of S and of O for each softmax warpgroup
  std::vector<Sm100Overlay> tmem_overlays;
  /// `cons` barriers release memory, `prod` ones publish it.
  BarrierList barriers;

  std::int64_t cta_group() const { return MMA_M / 128; }
  std::int64_t num_mbarriers() const { return barriers.size(); }
  std::int64_t q_tile_rows() const { return BM / num_qo; }
  std::int64_t rope_depth() const { return padded_qk_depth - padded_ov_depth; }
  std::int64_t k_rows_per_cta() const { return BN / cta_group(); }
  std::int64_t v_cols_per_cta() const { return padded_ov_depth / cta_group(); }
  std::int64_t BK0() const { return padded_qk_depth / num_qk_stages; }
  std::int64_t BK1() const { return BN; }
  std::int64_t num_pv_stages() const { return static_cast<std::int64_t>(pv_keys.size()); }
  std::int64_t tmem_used() const { return tmem.end_of_last(); }  ///< columns
  std::int64_t tmem_allocated() const { return allocated_columns(tmem_used()); }
  std::int64_t smem_bytes() const { return smem.end_of_last(); }  ///< dynamic
};

#define FIELD(member, constant) ATTNJIT_FIELD(Sm100Variant, member, constant)
/// The fields of a body, in the order in which JSON shows them.
inline constexpr Field<Sm100Variant> kSm100BodyFields[] = {
    FIELD(num_qo, "kNumQo"),
    FIELD(MMA_M, nullptr),
    FIELD(MMA_K, nullptr),
    FIELD(BM, "kTileM"),
    FIELD(BN, "kTileN"),
    FIELD(BK0, nullptr),
    FIELD(BK1, nullptr),
    FIELD(BM_eff, nullptr),
    FIELD(q_tile_rows, nullptr),
    FIELD(fuse_gqa, "kFuseGqa"),
    FIELD(qk_depth, nullptr),
    FIELD(ov_depth, nullptr),
    FIELD(padded_qk_depth, nullptr),
    FIELD(padded_ov_depth, nullptr),
    FIELD(rope_depth, nullptr),
    FIELD(qk_mma_depth, nullptr),
    FIELD(k_rows_per_cta, nullptr),
    FIELD(v_cols_per_cta, nullptr),
    FIELD(use_fused_kv, "kFusedKv"),
    FIELD(num_kv_stages, "kStages"),
    FIELD(num_qk_stages, "kQkStages"),
    FIELD(num_pv_stages, "kPvParts"),
    FIELD(num_rope_buffers, "kRopeBuffers"),
    FIELD(num_o_buffers, "kOBuffers"),
    FIELD(num_k_scale_bufs, nullptr),
    FIELD(pv_keys, nullptr),
    FIELD(k_stage_bytes, "kKStageBytes"),
    FIELD(v_stage_bytes, nullptr),
    FIELD(tmem_used, nullptr),
    FIELD(tmem_allocated, "kTmemColumns"),
    FIELD(smem_bytes, nullptr),
};
#undef FIELD

// NOLINTEND(readability-identifier-naming)

}  // namespace attnjit
