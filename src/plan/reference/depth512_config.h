// SPDX-License-Identifier: Apache-2.0
// Depth512Config: the reference tile configuration of the two-CTA attention kernel for depths 256
// and 512 on sm_100.
//
// It reproduces the reference exactly and is never adapted to a kernel. Names are the reference's.
// No input makes it fail.
#pragma once

#include <cstdint>
#include <string>

#include "attnjit/types.h"
#include "plan/reference/fa4_config.h"

namespace attnjit {

// NOLINTBEGIN(readability-identifier-naming): the reference's names.

struct Depth512Config {
  struct Args {
    Dtype qkv_dtype = Dtype::kBf16;
    std::int64_t num_q_heads = 0;
    std::int64_t group = 1;
    std::int64_t qk_depth = 0;
    std::int64_t ov_depth = 0;
    std::int64_t swizzle_mode = 128;  ///< bytes
    std::int64_t page_size = 0;
  };

  static constexpr std::int64_t mbar_size = 8;
  static constexpr std::int64_t num_threads = 384;
  static constexpr std::int64_t cta_group = 2;
  static constexpr std::int64_t sm100_smem_carveout = Fa4Config::sm100_smem_carveout;
  static constexpr std::int64_t sm100_tmem_cols = 512;
  static constexpr std::int64_t TMEM_O = 0;

  Depth512Config() = default;
  explicit Depth512Config(const Args& args);

  Args args;  ///< as given

  bool split_o = false;  ///< O's columns in two halves, one a CTA
  std::int64_t BN = 0;   ///< keys per tile
  std::int64_t qk_depth = 0;
  std::int64_t ov_depth = 0;
  std::int64_t group = 0;
  std::int64_t num_q_heads = 0;
  std::int64_t num_qk_stages = 1;
  std::int64_t num_kv_stages = 0;
  std::int64_t smem_used = 0;
  std::int64_t swizzle_mode = 0;  ///< bytes

  std::int64_t MMA_M() const { return split_o ? 128 : 256; }     ///< of the CTA pair
  std::int64_t BM() const { return MMA_M() / 2; }                ///< query rows per CTA
  std::int64_t BK0() const { return qk_depth / num_qk_stages; }  ///< columns of a staged K tile
  std::int64_t BK1() const { return BN / 2; }                    ///< rows of a V tile
  std::int64_t num_kv_heads() const { return group > 0 ? num_q_heads / group : 0; }
  bool fuse_gqa() const { return group > 1 && MMA_M() % group == 0; }
  std::int64_t v_cols_per_cta() const { return split_o ? ov_depth / 4 : ov_depth / 2; }
  /// Where split_o's upper half begins, else TMEM_O.
  std::int64_t TMEM_O_hi() const { return split_o ? ov_depth / 4 : TMEM_O; }
  std::int64_t TMEM_S_even() const { return MMA_M() * ov_depth / 256; }
  std::int64_t TMEM_S_odd() const { return TMEM_S_even() + MMA_M() * BN / 256; }
  std::int64_t tmem_used() const { return TMEM_S_odd() + MMA_M() * BN / 256; }
  std::int64_t q_bytes() const { return BM() * qk_depth * qkv_dtype_size(); }
  std::int64_t p_buffer_bytes() const { return BM() * BN * qkv_dtype_size(); }
  std::int64_t kv_stage_bytes() const { return BN / 2 * BK0() * qkv_dtype_size(); }
  std::int64_t MMA_K() const { return qkv_dtype_size() == 2 ? 16 : 32; }
  std::int64_t qkv_dtype_size() const { return size_of(args.qkv_dtype); }
  std::int64_t BM_eff() const { return fuse_gqa() ? BM() / group : BM(); }
  std::int64_t PairBM_eff() const { return BM_eff() * cta_group; }
  std::int64_t k_rows_per_cta() const { return BN / 2; }
  /// Barriers beside the K/V ring.
  std::int64_t num_fixed_mbarriers() const { return split_o ? 10 : 8; }
  std::int64_t num_mbarriers() const { return num_fixed_mbarriers() + 2 * num_kv_stages; }
  bool supported() const { return unsupported_reason().empty(); }
  /// Why not, in a sentence; empty where supported.
  std::string unsupported_reason() const;
};

// NOLINTEND(readability-identifier-naming)

}  // namespace attnjit
