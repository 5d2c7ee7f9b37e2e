// SPDX-License-Identifier: Apache-2.0
// ModelAttention: the kinds of attention layers that a model has.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <string>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/types.h"

namespace attnjit::models {

/// Layers that need the same kernels.
struct LayerKind {
  int q_heads = 0;
  int kv_heads = 0;
  int qk_depth = 0;
  int ov_depth = 0;
  int window = 0;  ///< keys that a row sees, itself included; 0: no window
  int right = 0;   ///< keys behind its own that it sees, too; of both_ways alone
  bool both_ways =
      false;           ///< rows see keys on both sides: there is no cache, and there are no decodes
  bool cross = false;  ///< rows see all keys of another sequence, which are in a cache
  int chunk = 0;       ///< rows see the keys of their chunk; 0: no chunks
  double softcap = 0;  ///< 0: none
  bool sink = false;
  bool alibi = false;
  bool given_slopes = false;  ///< ALiBi's slopes are not the usual ones
  int latent = 0;             ///< MLA: the width of the latent that K and V share; 0: no MLA
  int rope = 0;               ///< MLA: the width of the part with positions
  int topk = 0;  ///< keys that are listed for each row, which sees no others; 0: no lists

  bool operator==(const LayerKind&) const = default;
};

struct ModelAttention {
  std::string architecture;               ///< the configuration's model_type
  Dtype dtype = Dtype::kBf16;             ///< of Q, K and V
  bool float32 = false;                   ///< the model was saved so, of which no kernel is
  std::vector<LayerKind> kinds;           ///< each once
  std::vector<std::vector<int>> numbers;  ///< of each kind those of its layers, from 0
  /// Where rows of an image see all of it in a server: "free", or "window", where windows cut it.
  std::string images;
  bool encoder = false;       ///< rows see both ways by its architecture, or by its class's name
  bool beyond_specs = false;  ///< its kernels would need what no spec has
  std::vector<std::string> notes;  ///< what kernels cannot know, or do not serve
};

/// The layer on one of `tensor_parallel` GPUs. Errors: kInvalid where the heads cannot be divided.
Result<LayerKind> shard(const LayerKind& layer, int tensor_parallel);

}  // namespace attnjit::models
