// SPDX-License-Identifier: Apache-2.0
// Fa4Config: the reference tile configuration of the two-query-tile attention kernel on sm_100, and
// what its K and V pipelines derive from it.
//
// It reproduces the reference's formulas exactly, flaws included, and is never adapted to a kernel:
// Sm100Plan does that. Names are the reference's. Pure arithmetic on 64-bit integers; no input
// makes it fail, an impossible one makes it unsupported.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attnjit/types.h"

namespace attnjit {

// NOLINTBEGIN(readability-identifier-naming): the reference's names.

struct Fa4Config {
  /// What a configuration is derived from.
  struct Args {
    Dtype qkv_dtype = Dtype::kBf16;
    std::optional<Dtype> rope_dtype;   ///< what the MMA sees of the rope part; unset: size 0
    std::optional<Dtype> scale_dtype;  ///< per-token scales; unset: size 0
    std::int64_t num_q_heads = 0;
    std::int64_t group = 1;
    std::int64_t qk_depth = 0;
    std::int64_t ov_depth = 0;
    std::int64_t swizzle_mode = 128;  ///< bytes
    std::int64_t page_size = 0;       ///< 0: not paged
    bool is_mla = false;
    bool pair_cta = false;
    std::int64_t num_qo = 2;
    /// Above 0: num_qk_stages must be this; above 1 the K and V rings are split for it.
    std::int64_t pinned_qk_stages = 0;
  };

  static constexpr std::int64_t mbar_size = 8;
  static constexpr std::int64_t num_correction_cols = 1;
  static constexpr std::int64_t num_threads = 512;
  /// Shared memory of a B200 SM less the 1024 bytes that the system reserves.
  static constexpr std::int64_t sm100_smem_carveout = 233472 - 1024;
  static constexpr std::int64_t sm100_tmem_cols = 512;
  static constexpr std::int64_t TMEM_S0 = 0;

  Fa4Config() = default;
  explicit Fa4Config(const Args& args);

  Args args;  ///< as given

  std::int64_t BN = 0;  ///< keys per tile; 0: none fits the tensor memory
  std::int64_t qk_depth = 0;
  std::int64_t padded_qk_depth = 0;
  std::int64_t ov_depth = 0;
  std::int64_t padded_ov_depth = 0;
  std::int64_t group = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_stages = 0;
  std::int64_t num_qk_stages = 1;
  std::int64_t num_pv_stages = 2;
  std::int64_t smem_used = 0;
  std::int64_t swizzle_mode = 0;  ///< bytes
  bool use_fused_kv = false;      ///< K and V tiles alternate in one ring
  bool pair_cta = false;

  std::int64_t MMA_M() const { return pair_cta ? 256 : 128; }        ///< rows of one MMA
  std::int64_t BM() const { return num_qo() == 2 ? 256 : MMA_M(); }  ///< query rows per CTA
  /// Columns of a staged K tile, and rows of a V tile.
  std::int64_t BK0() const { return padded_qk_depth / num_qk_stages; }
  std::int64_t BK1() const { return BN; }
  bool fuse_gqa() const { return group > 1 && MMA_M() % group == 0 && !args.is_mla; }
  std::int64_t num_kv_heads() const { return group > 0 ? num_q_heads / group : 0; }
  std::int64_t TMEM_S1() const { return BN; }
  std::int64_t TMEM_P0() const { return TMEM_S0; }
  std::int64_t TMEM_P1() const { return TMEM_S1(); }
  std::int64_t TMEM_C0() const { return TMEM_P0() + BN / 2; }
  std::int64_t TMEM_C1() const { return TMEM_P1() + BN / 2; }
  std::int64_t TMEM_O0() const { return 2 * BN; }
  std::int64_t TMEM_O1() const { return TMEM_O0() + padded_ov_depth; }
  std::int64_t tmem_used() const { return TMEM_O1() + padded_ov_depth; }
  std::int64_t MMA_K() const { return qkv_dtype_size() == 2 ? 16 : 32; }
  std::int64_t qkv_dtype_size() const { return size_of(args.qkv_dtype); }  ///< bytes
  std::int64_t rope_dtype_size() const { return args.rope_dtype ? size_of(*args.rope_dtype) : 0; }
  std::int64_t scale_dtype_size() const {
    return args.scale_dtype ? size_of(*args.scale_dtype) : 0;
  }

  /// Of a swizzle row. An impossible swizzle leaves the depths unpadded; unsupported_reason() names
  /// it.
  std::int64_t swizzle_elements() const;
  /// Sequence positions of a full tile: BM / group where the group's heads are fused into it.
  std::int64_t BM_eff() const { return fuse_gqa() ? BM() / group : BM(); }
  std::int64_t num_qo() const { return args.num_qo; }
  std::int64_t cta_group() const { return pair_cta ? 2 : 1; }
  std::int64_t PairBM_eff() const { return BM_eff() * cta_group(); }
  std::int64_t v_cols_per_cta() const { return padded_ov_depth / cta_group(); }
  std::int64_t k_rows_per_cta() const { return BN / cta_group(); }
  std::int64_t q_nope_bytes() const { return BM() * padded_ov_depth * qkv_dtype_size(); }
  std::int64_t q_rope_bytes() const;
  std::int64_t rope_depth() const { return padded_qk_depth - padded_ov_depth; }
  std::int64_t num_rope_buffers() const;
  std::int64_t num_k_scale_bufs() const;
  bool supported() const { return unsupported_reason().empty(); }
  /// Why not, in a sentence; empty where supported.
  std::string unsupported_reason() const;
  /// The same, but for shared memory: what no tile of fewer keys would mend.
  std::string unsupported_with_any_keys() const;
  /// Why S and O do not fit tensor memory, or two stages of tiles of BN keys shared memory; empty:
  /// they do.
  std::string why_no_tensor_memory() const;
  std::string why_no_shared_memory() const;
  /// One "name = value" a line.
  std::string description() const;
  std::int64_t correction_smem_elements() const { return BM(); }
  std::int64_t num_active_warps_per_group() const { return 4; }
  std::int64_t num_active_threads_per_group() const { return 128; }
  /// mbarriers of FA4MiscMBars: S and C hand-offs, Q1 sync (2Q), the K and V rings, O.
  std::int64_t num_mbarriers() const;

  /// The 1Q variant that a 2Q kernel may branch to: its num_qk_stages are this one's, so that the
  /// tensor maps are too.
  Fa4Config switch_1q_config() const;
  bool can_switch_to_1q() const;
  /// Dynamic shared memory of a launch: the larger of both variants where it may switch.
  std::int64_t launch_smem_used() const;
  /// Rows of a Q tile: BM / num_qo.
  std::int64_t q_tile_rows() const { return num_qo() > 0 ? BM() / num_qo() : BM(); }
  /// Whether a launch should take the 1Q variant: the prompt fits one Q tile, or the 2Q grid fills
  /// at most half of the SMs.
  bool prefer_1q(std::uint32_t max_prompt_len, std::uint32_t num_partitions,
                 std::uint32_t batch_size, std::int64_t sm_count) const;
};

/// Rows of one TMA box of a K or V tile: a whole tile, or a page where pages are smaller.
std::int64_t kv_sub_tile_rows(std::int64_t tile_rows, std::int64_t page_size);
/// TMA boxes per tile.
std::int64_t kv_num_sub_tiles(std::int64_t tile_rows, std::int64_t page_size);

// NOLINTEND(readability-identifier-naming)

}  // namespace attnjit
