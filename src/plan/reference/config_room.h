// SPDX-License-Identifier: Apache-2.0
// Whether the tiles of Fa4Config or MlaConfig fit tensor memory and shared memory.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace attnjit {

/// Why they do not fit, in a sentence; empty: they do.
template <class Config>
std::string why_no_room(const Config& config, std::int64_t padded_ov_depth) {
  if (config.BN < 64) {
    return fmt::format(
        "two score tiles beside two output accumulators of {} columns leave BN = {} in {} columns "
        "of tensor memory; the least is 64",
        padded_ov_depth, config.BN, Config::sm100_tmem_cols);
  }
  if (config.num_kv_stages < 2) {
    return fmt::format("{} K/V stages fit the shared memory; the least is 2", config.num_kv_stages);
  }
  if (config.tmem_used > Config::sm100_tmem_cols) {
    return fmt::format("needs {} columns of tensor memory of {}", config.tmem_used,
                       Config::sm100_tmem_cols);
  }
  if (config.smem_used > Config::sm100_smem_carveout) {
    return fmt::format("needs {} bytes of shared memory of {}", config.smem_used,
                       Config::sm100_smem_carveout);
  }
  return {};
}

}  // namespace attnjit
