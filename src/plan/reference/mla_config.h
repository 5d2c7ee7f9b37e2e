// SPDX-License-Identifier: Apache-2.0
// MlaConfig: the reference tile configuration of the multi-head-latent-attention prefill kernel on
// sm_100 (192/128: a 128-wide part and a 64-wide rope part).
//
// It reproduces the reference exactly and is never adapted to a kernel. Names are the reference's.
// No input makes it fail.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "attnjit/types.h"
#include "plan/reference/fa4_config.h"

namespace attnjit {

// NOLINTBEGIN(readability-identifier-naming): the reference's names.

struct MlaConfig {
  struct Args {
    Dtype qkv_dtype = Dtype::kBf16;
    Dtype rope_gmem_dtype = Dtype::kBf16;  ///< of the cache that holds the rope part
    Dtype rope_mma_dtype = Dtype::kBf16;   ///< what the MMA sees of it
    std::optional<Dtype> scale_dtype;      ///< per-token scales; unset: size 0
    std::int64_t num_q_heads = 0;
    std::int64_t group = 1;
    std::int64_t depth = 0;  ///< of q and k, the rope part included
    std::int64_t page_size = 0;
    std::int64_t num_qo = 2;
  };

  static constexpr std::int64_t mbar_size = 8;
  static constexpr std::int64_t num_correction_cols = 1;
  static constexpr std::int64_t num_threads = 512;
  static constexpr std::int64_t sm100_smem_carveout = Fa4Config::sm100_smem_carveout;
  static constexpr std::int64_t sm100_tmem_cols = 512;
  static constexpr std::int64_t TMEM_S0 = 0;

  MlaConfig() = default;
  explicit MlaConfig(const Args& args);

  Args args;  ///< as given

  Fa4Config fa4_config;
  std::int64_t MMA_M = 0;
  std::int64_t BM = 0;
  std::int64_t BN = 0;
  std::int64_t BK0 = 0;
  std::int64_t BK1 = 0;
  std::int64_t qk_depth = 0;
  std::int64_t rope_depth = 64;
  std::int64_t nope_depth = 0;
  std::int64_t cache_depth = 576;  ///< 512 latent + 64 rope
  std::int64_t padded_qk_depth = 0;
  std::int64_t group = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t TMEM_S1 = 0;
  std::int64_t TMEM_O0 = 0;
  std::int64_t TMEM_O1 = 0;
  std::int64_t TMEM_P0 = 0;
  std::int64_t TMEM_P1 = 0;
  std::int64_t tmem_used = 0;
  std::int64_t num_kv_stages = 0;
  std::int64_t num_qk_stages = 1;
  std::int64_t num_pv_stages = 2;
  std::int64_t smem_used = 0;
  std::int64_t qkv_swizzle_mode = 0;  ///< bytes, as the three others
  std::int64_t rope_mma_swizzle_mode = 0;
  std::int64_t rope_gmem_swizzle_mode = 0;
  std::int64_t output_swizzle_mode = 128;

  std::int64_t qkv_dtype_size() const { return size_of(args.qkv_dtype); }
  std::int64_t rope_gmem_dtype_size() const { return size_of(args.rope_gmem_dtype); }
  std::int64_t rope_mma_dtype_size() const { return size_of(args.rope_mma_dtype); }

  std::int64_t num_qo() const { return args.num_qo; }
  /// Rows of a Q tile and of one MMA: BM / num_qo, 128 with one tile and with two.
  std::int64_t q_tile_rows() const;
  MlaConfig with_num_qo(std::int64_t num_qo) const;
  MlaConfig switch_1q_config() const { return with_num_qo(1); }
  bool can_switch_to_1q() const;
  /// Dynamic shared memory of a launch: the larger of both variants where it may switch.
  std::int64_t launch_smem_used() const;
  /// Whether a launch should take the 1Q variant: the prompt fits one Q tile, or the 2Q grid fills
  /// at most half of the SMs.
  bool prefer_1q(std::uint32_t max_prompt_len, std::uint32_t num_partitions,
                 std::uint32_t batch_size, std::int64_t sm_count) const;
  std::int64_t num_rope_buffers() const { return fa4_config.num_rope_buffers(); }
  bool supported() const { return unsupported_reason().empty(); }
  /// Why not, in a sentence; empty where supported.
  std::string unsupported_reason() const;
  std::int64_t correction_smem_elements() const { return BM; }
  std::int64_t num_active_warps_per_group() const { return 4; }
  std::int64_t num_active_threads_per_group() const { return 128; }
};

// NOLINTEND(readability-identifier-naming)

}  // namespace attnjit
