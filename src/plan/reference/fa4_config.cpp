// SPDX-License-Identifier: Apache-2.0
// Computes the reference tile configuration of the FlashAttention-4 kernel.
#include "plan/reference/fa4_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

#include "plan/reference/config_math.h"

namespace attnjit {
namespace {

constexpr std::int64_t kCorrectionBytes = 256 * 4;  // a float a softmax thread, in both variants
constexpr std::int64_t kTmemPointerBytes = 4;
constexpr std::int64_t kFixedBarriers = 8;  // C0, C1: 2 each; S_prod: 2; O_prod: 2

std::int64_t positive(std::int64_t a) { return std::max<std::int64_t>(a, 0); }

}  // namespace

Fa4Config::Fa4Config(const Args& given) : args(given) {
  const std::int64_t q = qkv_dtype_size();
  const std::int64_t r = rope_dtype_size();
  const std::int64_t s = scale_dtype_size();
  pair_cta = args.pair_cta;
  qk_depth = std::clamp<std::int64_t>(args.qk_depth, 0, kMaxDepth);
  ov_depth = std::clamp<std::int64_t>(args.ov_depth, 0, kMaxDepth);
  swizzle_mode = args.swizzle_mode;
  num_q_heads = args.num_q_heads;
  group = args.group;

  const std::int64_t swizzle_elements = this->swizzle_elements();
  padded_qk_depth = align_up(qk_depth, swizzle_elements);
  padded_ov_depth = align_up(ov_depth, swizzle_elements);
  // Two S and two O accumulators share the tensor memory: 2 BN + 2 padded_ov_depth <= 512.
  BN = std::min<std::int64_t>(256, align_down(sm100_tmem_cols / 2 - padded_ov_depth, MMA_K()));
  BN = fit_tile_to_pages(BN, args.page_size);

  std::int64_t staged = 1;
  if (args.pinned_qk_stages > 0) {
    staged = std::min<std::int64_t>(args.pinned_qk_stages, 64);
  } else if (!args.is_mla) {
    staged = std::max<std::int64_t>(
        std::gcd(padded_qk_depth / swizzle_elements, padded_qk_depth / MMA_K()), 1);
  }
  num_pv_stages = 2;
  const std::int64_t rope = positive(rope_depth());
  // NOTE: the Q1 barriers are charged with the staged count before it is known whether K is staged
  // at all; a fused ring over-reserves them, as the reference does.
  std::int64_t smem = kTmemPointerBytes + mbar_size * (kFixedBarriers + 2 * num_pv_stages +
                                                       (args.num_qo == 2 ? staged : 0));
  smem += BM() * (r > 0 ? padded_ov_depth * q + rope * r : padded_qk_depth * q);
  smem += BM() * s;
  smem += kCorrectionBytes;

  if (BN > 0) {
    const std::int64_t rows = k_rows_per_cta();
    // A K or V stage with its two barriers, and what only a K stage has.
    const std::int64_t stage = BN * v_cols_per_cta() * q + 2 * mbar_size;
    const std::int64_t k_extra = rows * rope * r + rows * s;
    const std::int64_t available = sm100_smem_carveout - smem;
    std::int64_t slots = positive(available) / (stage + k_extra / 2);
    auto used = [&] { return slots * stage + ceil_div(slots, 2) * k_extra; };
    if (slots > 0 && used() > available) --slots;
    if (args.pinned_qk_stages > 1) slots -= slots % 2;
    smem += used();
    if (slots % 2 != 0) {
      use_fused_kv = true;
      num_kv_stages = slots;
    } else {
      num_kv_stages = slots / 2;
      const std::int64_t extra = (staged - 1) * num_kv_stages * 2 * mbar_size;
      if (smem + extra < sm100_smem_carveout) {
        smem += extra;
        num_qk_stages = staged;
      }
    }
  }
  smem_used = smem;
}

std::int64_t Fa4Config::swizzle_elements() const {
  return std::clamp<std::int64_t>(swizzle_mode / qkv_dtype_size(), 1, 128);
}

std::int64_t Fa4Config::q_rope_bytes() const {
  return BM() * rope_depth() * (args.rope_dtype ? rope_dtype_size() : qkv_dtype_size());
}

std::int64_t Fa4Config::num_rope_buffers() const {
  return use_fused_kv && rope_depth() > 0 ? ceil_div(num_kv_stages, 2) : 0;
}

std::int64_t Fa4Config::num_k_scale_bufs() const {
  if (scale_dtype_size() == 0) return 0;
  return use_fused_kv ? ceil_div(num_kv_stages, 2) : num_kv_stages;
}

std::string Fa4Config::unsupported_reason() const {
  std::string reason = unsupported_with_any_keys();
  return reason.empty() ? why_no_shared_memory() : reason;
}

std::string Fa4Config::unsupported_with_any_keys() const {
  if (num_qo() != 1 && num_qo() != 2) return fmt::format("num_qo is {}; allowed: 1, 2", num_qo());
  if (swizzle_mode / qkv_dtype_size() < 1) {
    return fmt::format("swizzle_bytes is {}; allowed: 32, 64, 128", swizzle_mode);
  }
  if (group < 1) return fmt::format("group is {}; allowed: 1 or more", group);
  if (num_qo() == 1 && pair_cta) return "pair_cta needs num_qo 2";
  if (pair_cta && (qk_depth <= 64 || qk_depth > 128)) {
    return fmt::format("pair_cta needs a qk_depth above 64 and at most 128; it is {}", qk_depth);
  }
  if (qk_depth < 64) return fmt::format("qk_depth is {}; the least is 64", qk_depth);
  if (num_qo() == 1 && qk_depth > 256) {
    return fmt::format("qk_depth is {}; the most is 256", qk_depth);
  }
  if (ov_depth > qk_depth) {
    return fmt::format("ov_depth {} is above qk_depth {}", ov_depth, qk_depth);
  }
  return why_no_tensor_memory();
}

std::string Fa4Config::why_no_tensor_memory() const {
  if (BN < 64) {
    return fmt::format(
        "two score tiles beside two output accumulators of {} columns leave BN = {} in {} columns "
        "of tensor memory; the least is 64",
        padded_ov_depth, BN, sm100_tmem_cols);
  }
  if (tmem_used() <= sm100_tmem_cols) return {};
  return fmt::format("needs {} columns of tensor memory of {}", tmem_used(), sm100_tmem_cols);
}

std::string Fa4Config::why_no_shared_memory() const {
  if (num_kv_stages < 2) {
    return fmt::format("{} K/V stages fit the shared memory; the least is 2", num_kv_stages);
  }
  if (smem_used <= sm100_smem_carveout) return {};
  return fmt::format("needs {} bytes of shared memory of {}", smem_used, sm100_smem_carveout);
}

std::string Fa4Config::description() const {
  return fmt::format(
      "pair_cta = {}\nnum_qo = {}\nMMA_M = {}\nqk_depth = {}\nBN = {}\nnum_kv_stages = {}\n"
      "tmem_used = {}\nsmem_used = {}\nsm100_smem_carveout = {}\nnope_dtype_size = {}\n"
      "rope_dtype_size = {}\nscale_dtype_size = {}\nuse_fused_kv = {}",
      pair_cta, num_qo(), MMA_M(), qk_depth, BN, num_kv_stages, tmem_used(), smem_used,
      sm100_smem_carveout, qkv_dtype_size(), rope_dtype_size(), scale_dtype_size(), use_fused_kv);
}

std::int64_t Fa4Config::num_mbarriers() const {
  const std::int64_t k = 2 * num_qk_stages * num_kv_stages;
  const std::int64_t v = use_fused_kv ? 0 : 2 * num_kv_stages;
  return kFixedBarriers + 2 * num_pv_stages + (num_qo() == 2 ? num_qk_stages : 0) + k + v;
}

Fa4Config Fa4Config::switch_1q_config() const {
  Args changed = args;
  changed.num_qo = 1;
  changed.pair_cta = false;
  changed.pinned_qk_stages = num_qk_stages;
  return Fa4Config(changed);
}

bool Fa4Config::can_switch_to_1q() const {
  if (num_qo() != 2 || pair_cta) return false;
  const Fa4Config switched = switch_1q_config();
  return switched.supported() && switched.num_qk_stages == num_qk_stages;
}

std::int64_t Fa4Config::launch_smem_used() const {
  return can_switch_to_1q() ? std::max(smem_used, switch_1q_config().smem_used) : smem_used;
}

bool Fa4Config::prefer_1q(std::uint32_t max_prompt_len, std::uint32_t num_partitions,
                          std::uint32_t batch_size, std::int64_t sm_count) const {
  if (BM() <= 0 || q_tile_rows() <= 0) return false;
  if (std::int64_t{max_prompt_len} <= q_tile_rows()) return true;
  std::int64_t ctas = ceil_div(max_prompt_len, BM());
  for (const std::int64_t factor :
       {std::int64_t{num_partitions}, num_q_heads, std::int64_t{batch_size}}) {
    if (__builtin_mul_overflow(ctas, factor, &ctas)) return false;
  }
  return ctas <= sm_count / 2;
}

std::int64_t kv_sub_tile_rows(std::int64_t tile_rows, std::int64_t page_size) {
  return page_size <= 0 || page_size >= tile_rows ? tile_rows : page_size;
}

std::int64_t kv_num_sub_tiles(std::int64_t tile_rows, std::int64_t page_size) {
  const std::int64_t rows = kv_sub_tile_rows(tile_rows, page_size);
  return rows > 0 ? tile_rows / rows : 0;
}

}  // namespace attnjit
