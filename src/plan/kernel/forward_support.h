// SPDX-License-Identifier: Apache-2.0
// What of a spec the forward templates of every architecture lack, and questions about it.
#pragma once

#include <string>
#include <string_view>

#include "attnjit/spec.h"

namespace attnjit {

/// Whether a mask tree has a node of a kind.
bool contains(const MaskSpec& mask, MaskSpec::Kind kind);
/// The same of a spec's mask. One that is interpreted is custom code, whatever its tree is.
bool contains(const AttentionSpec& spec, MaskSpec::Kind kind);

/// Whether a tree hides nothing, whatever its parts that may hide say. What a tensor adds to scores
/// hides by itself.
bool hides_nothing(const MaskSpec& mask);

/// Whether the kernel interprets custom code.
bool interprets(const AttentionSpec& spec);

/// Whether custom code of the mask can be decided for whole KV tiles: the kernel lists those that
/// it does not hide.
bool lists_tiles(const ResolvedSpec& spec);

/// What a mask shows of a long sequence. One with custom code is asked about a square of tiles.
struct LongSequence {
  /// Later rows see clearly more keys, as under causal: then a CTA takes a long tile with a short
  /// one. Where custom code has parameters, its other parts alone decide.
  bool rising = false;
  /// Custom code shows a good part of the tiles whole, whatever its parameters are: as causal does,
  /// or a mask that hides nothing, and no window.
  bool much_whole = false;
};
LongSequence shown_of_long_sequence(const ResolvedSpec& spec);

/// Whether the kernel finds the pages of a sequence in page_table. Lists of keys (topk) name rows
/// of the pool themselves.
bool has_page_table(const AttentionSpec& spec);

/// Whether sequences differ in length: the kernel finds each one's on the device.
bool lengths_differ(const AttentionSpec& spec);

/// Whether the kernel reads the keys of each sequence from kv_lens.
bool has_kv_lens(const AttentionSpec& spec);

/// Whether a sequence's rows of all the heads of a group are `rows` at most.
bool decodes(const AttentionSpec& spec, int rows);

/// log2 of the rows of a position where they are of all the heads of a group: a power of two, no
/// fewer than the heads.
int rows_shift(int group);

/// Whether heads are deeper than one warpgroup's O: V is a tensor of its own, and absorbed MLA,
/// whose V is K's, has kernels of its own.
bool has_deep_heads(const AttentionSpec& spec);

/// Whether K and V are copied row by row: pages do not hold whole TMA boxes.
bool copies_rows(const AttentionSpec& spec);

/// partition_keys is a multiple of it: the keys of the shortest KV tile of every template.
inline constexpr int kPartitionStep = 64;

/// Whether Q, K and V are e4m3.
bool is_e4m3(const AttentionSpec& spec);
/// K and V are e4m3, and Q is of 16 bits: they are upcast to its type on their way.
bool upcasts_kv(const AttentionSpec& spec);
/// Whether each key has a scale of its own in K, and one in V.
bool keys_have_scales(const AttentionSpec& spec);
/// And lie in pages, so that their scales have strides.
bool pages_have_scales(const AttentionSpec& spec);

/// Whether the rope parts of Q and K have a type of their own (rope_dtype), and so tensors of their
/// own: q_rope and k_rope.
bool has_own_rope(const AttentionSpec& spec);
/// Elements of a row of q and of k: qk_depth, or those before a rope part of its own.
int depth_of_rows(const AttentionSpec& spec);

/// Whether a launch is given what its results are divided by: o is e4m3.
bool has_output_scale(const AttentionSpec& spec);

/// What no forward template can do of a spec; empty: nothing.
std::string unsupported_everywhere(const AttentionSpec& spec);

/// Why a template whose O has 16 bits does not serve a spec that wants another; empty: it does.
std::string unsupported_output(const AttentionSpec& spec);

/// Why a launch cannot merge its result into the spec's o; empty: it can, or is not to.
std::string unsupported_accumulation(const AttentionSpec& spec);

/// Why a template without e4m3 does not serve a spec that has it, of Q or of K and V; empty: the
/// spec has not.
std::string unsupported_e4m3(const AttentionSpec& spec, std::string_view why);

/// What a forward template that splits the keys cannot do of a spec's partitions; empty: nothing.
/// `step`: the keys of its shortest tile.
std::string unsupported_partitions(const AttentionSpec& spec, int step);

}  // namespace attnjit
