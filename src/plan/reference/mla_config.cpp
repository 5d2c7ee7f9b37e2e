// SPDX-License-Identifier: Apache-2.0
// Computes the reference tile configuration of MLA prefill.
#include "plan/reference/mla_config.h"

#include <fmt/format.h>

#include <algorithm>

#include "plan/reference/config_math.h"
#include "plan/reference/config_room.h"

namespace attnjit {
namespace {

std::int64_t swizzle_of(Dtype dtype) { return size_of(dtype) == 1 ? 64 : 128; }

}  // namespace

MlaConfig::MlaConfig(const Args& given) : args(given) {
  // A depth without a rope part has no sense here; unsupported_reason() says so.
  nope_depth = std::max<std::int64_t>(args.depth, rope_depth) - rope_depth;
  qkv_swizzle_mode = swizzle_of(args.qkv_dtype);
  rope_mma_swizzle_mode = swizzle_of(args.rope_mma_dtype);
  rope_gmem_swizzle_mode = swizzle_of(args.rope_gmem_dtype);
  Fa4Config::Args inner;
  inner.qkv_dtype = args.qkv_dtype;
  inner.rope_dtype = args.rope_mma_dtype;
  inner.scale_dtype = args.scale_dtype;
  inner.num_q_heads = args.num_q_heads;
  inner.group = args.group;
  inner.qk_depth = args.depth;
  inner.ov_depth = nope_depth;
  inner.swizzle_mode = qkv_swizzle_mode;
  inner.page_size = args.page_size;
  inner.is_mla = true;
  inner.num_qo = args.num_qo;
  fa4_config = Fa4Config(inner);
  MMA_M = fa4_config.MMA_M;
  BM = fa4_config.BM;
  BN = fa4_config.BN;
  BK0 = fa4_config.BK0;
  BK1 = fa4_config.BK1;
  qk_depth = fa4_config.qk_depth;
  padded_qk_depth = fa4_config.padded_qk_depth;
  group = fa4_config.group;
  num_q_heads = fa4_config.num_q_heads;
  num_kv_heads = fa4_config.num_kv_heads;
  TMEM_S1 = fa4_config.TMEM_S1;
  TMEM_O0 = fa4_config.TMEM_O0;
  TMEM_O1 = fa4_config.TMEM_O1;
  TMEM_P0 = fa4_config.TMEM_P0;
  TMEM_P1 = fa4_config.TMEM_P1;
  tmem_used = fa4_config.tmem_used;
  num_kv_stages = fa4_config.num_kv_stages;
  num_qk_stages = fa4_config.num_qk_stages;
  num_pv_stages = fa4_config.num_pv_stages;
  smem_used = fa4_config.smem_used;
}

std::int64_t MlaConfig::q_tile_rows() const { return num_qo() > 0 ? BM / num_qo() : BM; }

MlaConfig MlaConfig::with_num_qo(std::int64_t num_qo) const {
  Args changed = args;
  changed.num_qo = num_qo;
  return MlaConfig(changed);
}

bool MlaConfig::can_switch_to_1q() const { return num_qo() == 2 && switch_1q_config().supported(); }

std::int64_t MlaConfig::launch_smem_used() const {
  return can_switch_to_1q() ? std::max(smem_used, switch_1q_config().smem_used) : smem_used;
}

bool MlaConfig::prefer_1q(std::uint32_t max_prompt_len, std::uint32_t num_partitions,
                          std::uint32_t batch_size, std::int64_t sm_count) const {
  return prefer_one_query_tile(max_prompt_len, num_partitions, batch_size, sm_count, num_q_heads,
                               BM, q_tile_rows());
}

std::string MlaConfig::unsupported_reason() const {
  if (args.depth <= rope_depth) {
    return fmt::format("qk_depth is {}; it must exceed the rope part's {}", args.depth, rope_depth);
  }
  if (num_qo() != 1 && num_qo() != 2) return fmt::format("num_qo is {}; allowed: 1, 2", num_qo());
  if (group < 1) return fmt::format("group is {}; allowed: 1 or more", group);
  return why_no_room(*this, fa4_config.padded_ov_depth);
}

}  // namespace attnjit
