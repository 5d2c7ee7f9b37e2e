// SPDX-License-Identifier: Apache-2.0
// SpecFacts: a resolved spec with what planning asks of it, answered once.
#pragma once

#include <algorithm>
#include <optional>
#include <vector>

#include "attnjit/spec.h"
#include "spec/expression.h"

namespace attnjit {

namespace spec {
/// The custom code of a mask tree in preorder, then a score modification's: parsed; nothing for a
/// trusted body, which was checked and stays text. In a ResolvedSpec, whose spec has built-in masks
/// for expressions that are no more (builtin.h), without these.
using Snippets = std::vector<std::optional<Expression>>;

/// Whether something holds of some expression of a mask.
template <class Holds>
bool any_of_mask(const Snippets& snippets, const Holds& holds) {
  return std::ranges::any_of(snippets, [&](const std::optional<Expression>& snippet) {
    return snippet && snippet->kind == SnippetKind::kMask && holds(*snippet);
  });
}
}  // namespace spec

/// Whether a mask tree has a node of a kind.
bool contains(const MaskSpec& mask, MaskSpec::Kind kind);

/// Whether a tree hides nothing, whatever its parts that may hide say. What a tensor adds to scores
/// hides by itself.
bool hides_nothing(const MaskSpec& mask);

/// Whether the rope parts of Q and K have a type of their own (rope_dtype), and so tensors of their
/// own: q_rope and k_rope.
bool has_separate_rope(const AttentionSpec& spec);
/// Elements of a row of q and of k: qk_depth, or those before a rope part of its own.
int depth_of_rows(const AttentionSpec& spec);

struct SpecFacts : AttentionSpec {
  bool interprets_mask = false;       ///< the kernel interprets it: all of a tree with custom code
  bool interprets_score_mod = false;  ///< the same of the score modification
  bool interprets = false;            ///< either
  /// The kernel finds the pages of a sequence in page_table. Lists of keys (topk) name rows of the
  /// pool themselves.
  bool has_page_table = false;
  bool lengths_differ = false;  ///< of sequences: the kernel finds each one's on the device
  bool has_kv_lens = false;     ///< it reads the keys of each sequence from kv_lens
  bool copies_rows = false;     ///< of K and V one by one: pages do not hold whole TMA boxes
  /// head_dim is above what one warpgroup's O takes: V is a tensor of its own, and absorbed MLA,
  /// whose V is K's, has kernels of its own.
  bool head_dim_above_256 = false;
  bool is_e4m3 = false;            ///< Q, K and V
  bool upcasts_kv = false;         ///< K and V are e4m3, and Q is of 16 bits, which they become
  bool key_scales = false;         ///< each key has a scale of its own in K, and one in V
  bool pages_have_scales = false;  ///< and lie in pages, so that their scales have strides
  bool separate_rope = false;      ///< has_separate_rope()
  Dtype o_dtype = Dtype::kBf16;    ///< of O
  /// Custom code of the mask can be decided for whole KV tiles: the kernel lists those that it does
  /// not hide.
  bool block_sparse = false;
  // Of a long sequence. Later rows see clearly more keys, as under causal: then a CTA takes a long
  // tile with a short one. Where custom code has parameters, its other parts alone decide.
  bool rising = false;
  /// Custom code shows a good part of the tiles whole, whatever its parameters are: as causal does,
  /// or a mask that hides nothing, and no window.
  bool much_whole = false;

  SpecFacts() = default;
  SpecFacts(AttentionSpec resolved, const spec::Snippets& snippets);

  /// Whether the mask has a node of a kind. One that is interpreted is custom code, whatever its
  /// tree is.
  bool contains(MaskSpec::Kind kind) const;
  /// Whether a sequence's rows of all the heads of a group are `rows` at most.
  bool decodes(int rows) const;
};

}  // namespace attnjit
