// SPDX-License-Identifier: Apache-2.0
// Architecture: what an architecture's attention is, beyond the fields that all configurations
// share.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <span>
#include <string_view>

namespace attnjit::models {

/// Which layers have which reach, where a configuration has no list of its layers.
///
/// Patterns have a letter for each layer, and repeat: F sees all keys, W has a window, C sees its
/// chunk, I sees the keys that an indexer lists, - has no attention. With "-" alone there is no
/// rule: the configuration must list its layers.
struct LayerRule {
  enum class Kind {
    kPattern,
    kWindow,       ///< every layer has sliding_window, if it is given
    kIfAsked,      ///< every layer has it, if use_sliding_window
    kFromLayer,    ///< layers from max_window_layers on have it, if use_sliding_window
    kEvenBelow,    ///< even layers below max_window_layers have it, if use_sliding_window
    kNoRope,       ///< layers without a rope see all keys, the others their chunk
    kNoRopeAsked,  ///< layers without a rope have a window, if use_sliding_window
    kOffset,       ///< attention is attn_layer_offset and each attn_layer_period-th from there on
  };
  std::string_view pattern = "F";
  Kind kind = Kind::kPattern;
  std::string_view period = {};  ///< field: n, where only each n-th layer has the pattern's last
  std::string_view first = {};   ///< of the first layers
  char last = 0;                 ///< of the last layer
  bool from_end = false;         ///< the pattern ends with the last layer
};

/// How many heads layers have, of what depth.
enum class Heads {
  kUsual,
  kLatent,       ///< MLA: a latent is K and V
  kFalcon,       ///< one key-value head, unless fields say otherwise
  kMpt,          ///< in attn_config
  kGemma4,       ///< layers that see all keys have other heads
  kMimo,         ///< layers with a window have twice the key-value heads
  kInkling,      ///< layers with a window have the fields that begin with swa_
  kLaguna,       ///< query heads are listed for each layer
  kStep,         ///< layers with a window have attention_other_setting
  kDots,         ///< MLA, and another in layers with a window
  kOneRow,       ///< one head, whose rows are K and V
  kNoHeadDim,    ///< head_dim is not read
  kGivenDepth,   ///< head_dim must be given
  kDoubleDepth,  ///< where head_dim is not given, twice the width over the heads
  kDbrx,         ///< key-value heads are in attn_config
  kBlocks,       ///< block_configs has the query heads of each layer's key-value heads
  kDecoder,      ///< of an encoder and a decoder, the fields that begin with decoder_
};

struct Architecture {
  /// What beside reach and heads decides its kernels.
  enum Trait : unsigned {
    kNothing = 0,
    kSoftcap = 1 << 0,        ///< attn_logit_softcapping
    kSinks = 1 << 1,          ///< each head has a sink
    kWindowSinks = 1 << 2,    ///< each head of layers with a window has one
    kAlibi = 1 << 3,          ///< the flag alibi
    kLists = 1 << 4,          ///< an indexer lists index_topk keys for each row
    kNoLists = 1 << 5,        ///< an indexer lists keys, in a form that no spec has
    kEncoder = 1 << 6,        ///< rows see keys on both sides
    kBothWays = 1 << 7,       ///< the same, where use_bidirectional_attention says so
    kWholeWindow = 1 << 8,    ///< a window of n has n keys on each side, and the row's own
    kScaleOne = 1 << 9,       ///< scores are not scaled
    kScaleInverse = 1 << 10,  ///< the scale is 1 / head_dim
    kScalar = 1 << 11,        ///< query_pre_attn_scalar
    kMultiplier = 1 << 12,    ///< attention_multiplier
    kLastIsFull = 1 << 13,    ///< the last layer sees all keys, whatever a list says
    kGatedHeads = 1 << 14,    ///< num_global_key_value_heads counts with attention_k_eq_v only
    kFullWithout = 1 << 15,   ///< layers see all keys where sliding_window is null
    kLongWindows = 1 << 17,   ///< every second layer with a window has one of 1024
    kRopeless = 1 << 16,      ///< MLA: some layers have no rope part
    kUsualAlibi = 1 << 18,    ///< ALiBi's usual slopes
    kCross = 1 << 19,         ///< each layer has another attention, to the keys of an encoder
    kBeyondSpecs = 1 << 20,   ///< the note says what no spec has
  };
  std::string_view model_type;
  LayerRule layers = {};
  Heads heads = Heads::kUsual;
  unsigned traits = kNothing;
  std::string_view note = {};      ///< what its kernels would need beyond a spec
  std::string_view defaults = {};  ///< the class that has its defaults; empty: its own

  bool has(Trait trait) const { return (traits & trait) != 0; }
};

std::span<const Architecture> architectures();

}  // namespace attnjit::models
