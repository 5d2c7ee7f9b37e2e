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

#include "plan/reference/fa4_config.h"

namespace attnjit {

// NOLINTBEGIN(readability-identifier-naming): the reference's names.

struct MlaConfig : Fa4Config {
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

  static constexpr std::int64_t rope_depth = 64;
  static constexpr std::int64_t cache_depth = 576;  ///< 512 latent + 64 rope
  static constexpr std::int64_t output_swizzle_mode = 128;

  explicit MlaConfig(const Args& given);

  Args mla;  ///< as given

  std::int64_t nope_depth = 0;
  std::int64_t qkv_swizzle_mode = 0;  ///< bytes, as the others
  std::int64_t rope_mma_swizzle_mode = 0;
  std::int64_t rope_gmem_swizzle_mode = 0;

  std::int64_t rope_gmem_dtype_size() const { return size_of(mla.rope_gmem_dtype); }
  std::int64_t rope_mma_dtype_size() const { return size_of(mla.rope_mma_dtype); }

  MlaConfig switch_1q_config() const;
  bool can_switch_to_1q() const;
  std::int64_t launch_smem_used() const;
  bool supported() const { return unsupported_reason().empty(); }
  std::string unsupported_reason() const;
};

// NOLINTEND(readability-identifier-naming)

}  // namespace attnjit
