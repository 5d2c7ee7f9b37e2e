// SPDX-License-Identifier: Apache-2.0
// Whether the tiles of Fa4Config or MlaConfig fit tensor memory and shared memory.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>

namespace attnjit {

/// Why S and O do not fit tensor memory, in a sentence; empty: they do.
template <class Config>
std::string why_no_tensor_memory(const Config& config, std::int64_t padded_ov_depth) {
  if (config.BN < 64) {
    return fmt::format(
        "two score tiles beside two output accumulators of {} columns leave BN = {} in {} columns "
        "of tensor memory; the least is 64",
        padded_ov_depth, config.BN, Config::sm100_tmem_cols);
  }
  if (config.tmem_used > Config::sm100_tmem_cols) {
    return fmt::format("needs {} columns of tensor memory of {}", config.tmem_used,
                       Config::sm100_tmem_cols);
  }
  return {};
}

/// Why two stages of tiles of BN keys do not fit shared memory, in a sentence; empty: they do.
template <class Config>
std::string why_no_shared_memory(const Config& config) {
  if (config.num_kv_stages < 2) {
    return fmt::format("{} K/V stages fit the shared memory; the least is 2", config.num_kv_stages);
  }
  if (config.smem_used > Config::sm100_smem_carveout) {
    return fmt::format("needs {} bytes of shared memory of {}", config.smem_used,
                       Config::sm100_smem_carveout);
  }
  return {};
}

/// Either of them.
template <class Config>
std::string why_no_room(const Config& config, std::int64_t padded_ov_depth) {
  std::string reason = why_no_tensor_memory(config, padded_ov_depth);
  return reason.empty() ? why_no_shared_memory(config) : reason;
}

}  // namespace attnjit
