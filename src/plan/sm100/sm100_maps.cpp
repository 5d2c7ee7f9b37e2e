// SPDX-License-Identifier: Apache-2.0
// Makes the tensor maps of the sm_100 kernels.
#include "plan/sm100/sm100_maps.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "plan/kernel/forward_support.h"
#include "plan/reference/config_math.h"

namespace attnjit {

void add_tensor_maps(const SpecFacts& spec, const Sm100Variant& variant, std::int64_t swizzle_bytes,
                     Sm100Plan& plan) {
  const Dtype dtype = spec.qkv_dtype;
  const std::int64_t columns = swizzle_bytes / size_of(spec.qkv_dtype);
  const bool own_rope = variant.rope_depth > 0 && spec.own_rope;
  const std::int64_t qk_columns = own_rope ? variant.padded_ov_depth : variant.padded_qk_depth;
  auto rows_map = [&](TensorMapId id, Dtype element, std::int64_t box_columns,
                      std::int64_t all_columns, int swizzle) {
    Sm100TensorMap map;
    map.id = id;
    map.dtype = element;
    if (variant.fuse_gqa) {
      map.axes = {MapAxis::kDepth, MapAxis::kGroup, MapAxis::kKvHead, MapAxis::kRow};
      map.box = {box_columns, spec.group, 1, variant.q_tile_rows / spec.group};
    } else {
      map.axes = {MapAxis::kDepth, MapAxis::kHead, MapAxis::kRow};
      map.box = {box_columns, 1, variant.q_tile_rows};
    }
    if (!spec.ragged) {
      map.axes.push_back(MapAxis::kBatch);
      map.box.push_back(1);
    }
    map.swizzle = swizzle;
    map.copies = ceil_div(all_columns, box_columns);
    plan.tensor_maps.push_back(std::move(map));
  };
  auto kv_map = [&](TensorMapId id, Dtype element, std::int64_t box_columns,
                    std::int64_t all_columns, std::int64_t rows, int swizzle) {
    if (spec.copies_rows || spec.upcasts_kv) return;
    Sm100TensorMap map;
    map.id = id;
    map.dtype = element;
    const std::int64_t box_rows =
        spec.page_size > 0 ? std::gcd(spec.page_size, variant.k_rows_per_cta) : rows;
    if (spec.page_size > 0) {
      map.axes = {MapAxis::kDepth, MapAxis::kKvHead, MapAxis::kPageRow, MapAxis::kPage};
    } else {
      map.axes = {MapAxis::kDepth, MapAxis::kKvHead, MapAxis::kRow, MapAxis::kBatch};
    }
    map.box = {box_columns, 1, box_rows, 1};
    map.swizzle = swizzle;
    map.copies = ceil_div(all_columns, box_columns) * (rows / box_rows);
    plan.tensor_maps.push_back(std::move(map));
  };
  const int swizzle = static_cast<int>(swizzle_bytes);
  rows_map(TensorMapId::kQ, dtype, columns, qk_columns, swizzle);
  kv_map(TensorMapId::kK, dtype, columns, qk_columns / variant.num_qk_stages,
         variant.k_rows_per_cta, swizzle);
  if (own_rope) {
    const Dtype rope = *spec.rope_dtype;
    const int rope_swizzle = size_of(*spec.rope_dtype) == 1 ? 64 : 128;
    const std::int64_t rope_columns = rope_swizzle / size_of(*spec.rope_dtype);
    rows_map(TensorMapId::kQRope, rope, rope_columns, variant.rope_depth, rope_swizzle);
    kv_map(TensorMapId::kKRope, rope, rope_columns, variant.rope_depth, variant.k_rows_per_cta,
           rope_swizzle);
  }
  kv_map(TensorMapId::kV, dtype, std::min(columns, variant.v_cols_per_cta), variant.v_cols_per_cta,
         variant.BN, swizzle);
  rows_map(TensorMapId::kO, spec.o_dtype, 128 / size_of(spec.o_dtype), variant.padded_ov_depth,
           128);
}

}  // namespace attnjit
