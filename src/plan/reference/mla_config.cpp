// SPDX-License-Identifier: Apache-2.0
// Computes the reference tile configuration of MLA prefill.
#include "plan/reference/mla_config.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnjit {
namespace {

std::int64_t swizzle_of(Dtype dtype) { return size_of(dtype) == 1 ? 64 : 128; }

// A depth without a rope part has no sense here; unsupported_reason() says so.
std::int64_t nope_depth_of(const MlaConfig::Args& args) {
  return std::max(args.depth, MlaConfig::rope_depth) - MlaConfig::rope_depth;
}

Fa4Config::Args inner_args(const MlaConfig::Args& args) {
  return {.qkv_dtype = args.qkv_dtype,
          .rope_dtype = args.rope_mma_dtype,
          .scale_dtype = args.scale_dtype,
          .num_q_heads = args.num_q_heads,
          .group = args.group,
          .qk_depth = args.depth,
          .ov_depth = nope_depth_of(args),
          .swizzle_mode = swizzle_of(args.qkv_dtype),
          .page_size = args.page_size,
          .is_mla = true,
          .num_qo = args.num_qo};
}

}  // namespace

MlaConfig::MlaConfig(const Args& given)
    : Fa4Config(inner_args(given)),
      mla(given),
      nope_depth(nope_depth_of(given)),
      qkv_swizzle_mode(swizzle_of(given.qkv_dtype)),
      rope_mma_swizzle_mode(swizzle_of(given.rope_mma_dtype)),
      rope_gmem_swizzle_mode(swizzle_of(given.rope_gmem_dtype)) {}

MlaConfig MlaConfig::switch_1q_config() const {
  Args changed = mla;
  changed.num_qo = 1;
  return MlaConfig(changed);
}

bool MlaConfig::can_switch_to_1q() const { return num_qo() == 2 && switch_1q_config().supported(); }

std::int64_t MlaConfig::launch_smem_used() const {
  return can_switch_to_1q() ? std::max(smem_used, switch_1q_config().smem_used) : smem_used;
}

std::string MlaConfig::unsupported_reason() const {
  if (mla.depth <= rope_depth) {
    return fmt::format("qk_depth is {}; it must exceed the rope part's {}", mla.depth, rope_depth);
  }
  if (num_qo() != 1 && num_qo() != 2) return fmt::format("num_qo is {}; allowed: 1, 2", num_qo());
  if (group < 1) return fmt::format("group is {}; allowed: 1 or more", group);
  std::string reason = why_no_tensor_memory();
  return reason.empty() ? why_no_shared_memory() : reason;
}

}  // namespace attnjit
