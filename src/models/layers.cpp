// SPDX-License-Identifier: Apache-2.0
// Divides the heads of a layer among GPUs.
#include "models/layers.h"

#include <fmt/format.h>

namespace attnjit::models {

Result<LayerKind> shard(const LayerKind& layer, int tensor_parallel) {
  // GPUs share a key-value head where there are more of them than heads.
  const bool shared = layer.kv_heads < tensor_parallel && tensor_parallel % layer.kv_heads == 0;
  if (layer.q_heads % tensor_parallel != 0 || (layer.kv_heads % tensor_parallel != 0 && !shared)) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("{} query heads and {} key-value heads cannot be divided among "
                                  "{} GPUs",
                                  layer.q_heads, layer.kv_heads, tensor_parallel),
                      "tp", "give numbers that divide the heads");
  }
  LayerKind part = layer;
  part.q_heads = layer.q_heads / tensor_parallel;
  part.kv_heads = shared ? 1 : layer.kv_heads / tensor_parallel;
  part.given_slopes |= layer.alibi && tensor_parallel > 1;  // a shard's heads are not all heads
  return part;
}

}  // namespace attnjit::models
