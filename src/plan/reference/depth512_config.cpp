// SPDX-License-Identifier: Apache-2.0
// Computes the reference tile configuration for depths 256 and 512.
#include "plan/reference/depth512_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/reference/config_math.h"

namespace attnjit {
namespace {

constexpr std::int64_t kMaxBarriers = 32;

}  // namespace

Depth512Config::Depth512Config(const Args& given) : args(given) {
  qk_depth = std::clamp<std::int64_t>(args.qk_depth, 0, kMaxDepth);
  ov_depth = std::clamp<std::int64_t>(args.ov_depth, 0, kMaxDepth);
  num_q_heads = args.num_q_heads;
  group = args.group;
  swizzle_mode = args.swizzle_mode;
  split_o = ov_depth > 256;
  num_qk_stages = std::max<std::int64_t>(qk_depth / 128, 1);
  // An accumulator of N columns takes MMA_M() * N / 256 physical ones: both CTAs hold a part.
  const std::int64_t logical_cols = sm100_tmem_cols * 256 / MMA_M();
  BN = std::min<std::int64_t>(256, align_down((logical_cols - ov_depth) / 2, MMA_K()));
  BN = fit_tile_to_pages(BN, args.page_size);
  smem_used = 4 + q_bytes() + p_buffer_bytes() + 4 * BM() + mbar_size * num_fixed_mbarriers();
  if (BN > 0 && qk_depth > 0 && smem_used <= sm100_smem_carveout) {
    const std::int64_t stage = kv_stage_bytes() + 2 * mbar_size;
    num_kv_stages = std::min((sm100_smem_carveout - smem_used) / stage,
                             (kMaxBarriers - num_fixed_mbarriers()) / 2);
    smem_used += num_kv_stages * stage;
  }
}

std::string Depth512Config::unsupported_reason() const {
  if (group < 1) return fmt::format("group is {}; allowed: 1 or more", group);
  if (qk_depth != 256 && qk_depth != 512) {
    return fmt::format("qk_depth is {}; allowed: 256, 512", qk_depth);
  }
  if (ov_depth < 1 || ov_depth > qk_depth) {
    return fmt::format("ov_depth is {}; allowed: 1 to qk_depth", ov_depth);
  }
  if (BN < 32) return fmt::format("BN is {}; the least is 32", BN);
  if (num_kv_stages < 2 || num_kv_stages < num_qk_stages) {
    return fmt::format("{} K/V stages fit the shared memory; the least is {}", num_kv_stages,
                       std::max<std::int64_t>(2, num_qk_stages));
  }
  if (tmem_used() > sm100_tmem_cols) {
    return fmt::format("needs {} columns of tensor memory of {}", tmem_used(), sm100_tmem_cols);
  }
  if (smem_used > sm100_smem_carveout) {
    return fmt::format("needs {} bytes of shared memory of {}", smem_used, sm100_smem_carveout);
  }
  return {};
}

}  // namespace attnjit
