// SPDX-License-Identifier: Apache-2.0
// What the tests of maps share: masks over arrays, and launches that make a map, write it to the
// caller's memory and read it there.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "kernel_fixture.h"
#include "verify/mask_and_score_mod.h"
#include "verify/mask_map.h"

namespace attnjit::kernel_test {

using Type = ParamSpec::Type;

inline MaskSpec over_arrays(const std::string& code, std::vector<ParamSpec> params) {
  MaskSpec mask = mask_of(Kind::kCustom);
  mask.custom.name = "block_mask";
  mask.custom.code = code;
  mask.custom.params = std::move(params);
  return mask;
}

inline const MaskSpec& same_document() {
  static const MaskSpec mask =
      over_arrays("p.doc[q_idx] == p.doc[kv_idx]", {{"doc", Type::kI32Array}});
  return mask;
}
inline MaskSpec tensor_mask(Dtype dtype) {
  MaskSpec mask = mask_of(Kind::kMaterialized);
  mask.dtype = dtype;
  return mask;
}
inline MaskSpec causal_documents() {
  return tree(Kind::kAnd, {mask_of(Kind::kCausal), same_document()});
}
/// Masks of which each sequence, and each head, has a map.
inline MaskSpec documents_by_batch() {
  return over_arrays("p.doc[q_idx] == p.doc[kv_idx] + b", {{"doc", Type::kI32Array}});
}
inline MaskSpec documents_by_head() {
  return over_arrays("p.doc[q_idx] == p.doc[kv_idx] || kv_idx < h * 130",
                     {{"doc", Type::kI32Array}});
}

inline MaskSpec documents_by_row() {
  return over_arrays("p.doc[total_row] == p.doc[kv_idx]", {{"doc", Type::kI32Array}});
}

/// Causal, and an image's tokens see one another.
inline MaskSpec image_prefix() {
  return over_arrays("kv_idx <= q_idx || p.image[q_idx] != 0 && p.image[q_idx] == p.image[kv_idx]",
                     {{"image", Type::kI32Array}});
}

/// A ragged batch: a sequence without rows, and one with a row.
inline Lengths ragged_lengths() { return {{160, 0, 1, 130}, {300, 30, 200, 130}}; }

/// An array by a rule.
inline verify::ParamArgument array_of(const std::string& name, std::int64_t size,
                                      const std::function<std::int32_t(std::int64_t)>& rule) {
  verify::Tensor tensor = verify::make_tensor(Dtype::kI32, {size});
  for (std::int64_t i = 0; i < size; ++i) tensor.as<std::int32_t>()[i] = rule(i);
  return {name, std::move(tensor)};
}
inline verify::ParamArgument documents_of(std::int64_t length, std::int64_t size = 4096) {
  return array_of("doc", size,
                  [=](std::int64_t i) { return static_cast<std::int32_t>(i / length); });
}

/// Of image_prefix(): an image of 300 tokens behind 100 of text, again and again.
inline verify::ParamArgument images_of(std::int64_t size) {
  return array_of("image", size, [](std::int64_t i) {
    return static_cast<std::int32_t>(i % 500 >= 100 && i % 500 < 400 ? i / 500 + 1 : 0);
  });
}

inline AttentionSpec masked(AttentionSpec spec, const MaskSpec& mask) {
  spec.mask = mask;
  return spec;
}

class MapTest : public KernelTest {
 protected:
  static MaskMapShape shape_of(const Kernel& kernel, const Problem& problem) {
    const auto shape = mask_map_shape(kernel.generated.plan, problem.launch_shapes());
    EXPECT_TRUE(shape.ok());
    return shape.ok() ? *shape : MaskMapShape{};
  }

  // Adds the arrays of a map that a launch is to write.
  static void add_map(const MaskMapShape& shape, Problem& problem) {
    verify::MaskMap none{shape, {}, {}};
    verify::give_mask_map(none, problem);
    problem.mask_map.use = MaskMapUse::kWrite;
  }

  static verify::MaskMap written(const MaskMapShape& shape, const Problem& problem,
                                 const Outputs& outputs) {
    const auto array = [&](const char* name) {
      verify::Tensor tensor = problem.at(name);
      tensor.bytes = outputs.others.at(name);
      return tensor;
    };
    return verify::mask_map_of(shape, array("kv_num_blocks"), array("kv_indices"),
                               array("full_kv_num_blocks"), array("full_kv_indices"));
  }

  // Takes the arrays that a launch has written for one that reads them.
  static void take_map(const Outputs& outputs, Problem& problem) {
    for (const char* const name : {"kv_num_blocks", "kv_indices", "full_kv_num_blocks",
                                   "full_kv_indices", "kv_bits", "block_bits"}) {
      const auto array = problem.tensors.find(name);
      if (array != problem.tensors.end()) array->second.bytes = outputs.others.at(name);
    }
    problem.mask_map.use = MaskMapUse::kRead;
  }

  // The bits of a written map, and what they come to in a quarter of a block, are what asking about
  // each score gives. Returns of how many blocks there are some.
  static int expect_bits(const verify::MaskMap& map, const Problem& problem,
                         const Outputs& outputs) {
    if (map.shape.bit_blocks == 0) return 0;
    const auto words = [&](const char* name) {
      return reinterpret_cast<const std::uint32_t*>(outputs.others.at(name).data());
    };
    const auto functions = verify::MaskAndScoreMod::of(problem);
    EXPECT_TRUE(functions);
    if (!functions) return 0;
    const int sharing = problem.spec.num_q_heads / map.shape.heads;
    int blocks = 0;
    for (std::size_t row = 0; row < map.part.size(); ++row) {
      const auto of_heads = static_cast<std::int32_t>(row) / map.shape.q_blocks;
      const int b = of_heads / map.shape.heads, h = of_heads % map.shape.heads * sharing;
      const int first_row = static_cast<std::int32_t>(row) % map.shape.q_blocks * 128;
      const int q_len = problem.q_lens[static_cast<std::size_t>(b)];
      const int kv_len = problem.kv_lens[static_cast<std::size_t>(b)];
      for (std::size_t i = 0; i < map.part[row].size(); ++i) {
        const std::uint32_t note =
            words("kv_bits")[row * static_cast<std::size_t>(map.shape.kv_blocks) + i];
        if (note == ~0U) continue;
        ++blocks;
        EXPECT_LT(note >> 8, static_cast<std::uint32_t>(map.shape.bit_blocks));
        const std::uint32_t* const bits = words("block_bits") + std::size_t{note >> 8} * 512;
        const int first_key = map.part[row][i] * 128;
        bool seen[4] = {}, hidden[4] = {};
        int wrong = 0;
        for (int r = 0; r < 128; ++r) {
          for (int c = 0; c < 128; ++c) {
            const int q_row = first_row + r, key = first_key + c;
            const bool there = q_row < q_len && key < kv_len;
            const bool visible =
                there && functions->visible({b, h, h / problem.spec.group, q_row + kv_len - q_len,
                                             key, q_len, kv_len,
                                             static_cast<std::int32_t>(problem.first_q_row(b))});
            const int quarter = r / 64 * 2 + c / 64;
            if (there) (visible ? seen : hidden)[quarter] = true;
            const int word = c % 8 / 2, bit = c / 8 * 2 + c % 2;
            if ((bits[r * 4 + word] >> bit & 1) != (visible ? 1U : 0U)) ++wrong;
          }
        }
        EXPECT_EQ(wrong, 0) << "row " << row << ", block " << map.part[row][i];
        for (int quarter = 0; quarter < 4; ++quarter) {
          EXPECT_EQ(note >> 2 * quarter & 1, seen[quarter] ? 1U : 0U);
          EXPECT_EQ(note >> 2 * quarter & 2, seen[quarter] && !hidden[quarter] ? 2U : 0U);
        }
      }
    }
    return blocks;
  }

  // The attention is right where the map is made in the workspace, written to memory of the
  // caller's, and read there, with its bits and without; and the map is what asking about each
  // score gives.
  static void expect_maps(const AttentionSpec& spec, const Lengths& lengths,
                          const std::vector<verify::ParamArgument>& params = {},
                          std::uint64_t seed = 0, const PlanOptions& options = {}) {
    SCOPED_TRACE(spec_to_json(spec));
    const auto kernel = compiled(spec, options);
    ASSERT_TRUE(kernel);
    ASSERT_TRUE(kernel->generated.plan.map);
    auto problem = problem_of(spec, lengths, InputKind::kNormal, seed, params);
    ASSERT_TRUE(problem);
    const auto launched = [&](int sm_count) {
      const LaunchSequence sequence =
          launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
      auto done = run(*kernel, *problem, sequence, static_cast<std::uint64_t>(sm_count));
      if (done) expect_right(*problem, *done);
      return done;
    };
    ASSERT_TRUE(launched(132));
    const MaskMapShape shape = shape_of(*kernel, *problem);
    add_map(shape, *problem);
    const auto done = launched(3);
    ASSERT_TRUE(done);
    const verify::MaskMap made = written(shape, *problem, *done);
    const auto by_scores = verify::make_mask_map(*problem, shape.batch, shape.heads);
    ASSERT_TRUE(by_scores);
    EXPECT_EQ(made.part, by_scores->part);
    EXPECT_EQ(made.whole, by_scores->whole);
    const int with_bits = expect_bits(made, *problem, *done);
    if (shape.bit_blocks > 0) {
      int in_part = 0;
      for (const auto& list : made.part) in_part += static_cast<int>(list.size());
      EXPECT_EQ(with_bits, in_part);
      take_map(*done, *problem);
      ASSERT_TRUE(launched(132));
    }
    verify::give_mask_map(*by_scores, *problem);
    const LaunchSequence reading = launches_of(*kernel, *problem, problem->launch_shapes(), 132);
    for (const LaunchRecipe& recipe : reading.launches) EXPECT_NE(recipe.entry, "attnjit_map");
    ASSERT_TRUE(launched(132));
  }

  // Rows of 192 beside V of 128, of `base`: the expanded prefill of MLA.
  static void expect_maps_of_mla_prefill(AttentionSpec base) {
    base.ov_depth = 128;
    base.mla = Mla::kPrefill;
    const auto of = [&](const MaskSpec& mask) { return masked(base, mask); };
    PlanOptions options;
    options.mask_map = true;
    if (in_proof() || base.arch == Arch::kSm90a) {
      expect_maps(of(causal_documents()), {{300}, {500}}, {documents_of(200)});
    }
    if (!in_proof() && base.arch == Arch::kSm90a) return;
    expect_maps(
        of(over_arrays("kv_idx <= q_idx || kv_idx < p.prefix[b]", {{"prefix", Type::kI32Array}})),
        {{200, 200}, {450, 450}},
        {array_of("prefix", 2,
                  [](std::int64_t b) { return static_cast<std::int32_t>(330 + 40 * b); })},
        0, options);
    if (in_proof()) expect_given_lists(of(mask_of(Kind::kCausal)), {{300}, {500}});
  }

  // The option makes a map of a built-in mask, too, as of any other: of a causal mask and of none.
  static void expect_maps_of_built_in_masks(const AttentionSpec& causal,
                                            const AttentionSpec& none) {
    PlanOptions options;
    options.mask_map = true;
    expect_maps(causal, {{300}, {700}}, {}, 0, options);
    if (!in_proof()) return;
    expect_maps(none, {{300}, {650}}, {}, 0, options);
    expect_maps(masked(causal, window_of(200)), {{300}, {700}}, {}, 0, options);
  }

  // A caller's lists of any blocks: what they hide is hidden, and of blocks that they call whole
  // the mask is not asked, whatever it shows of either.
  static void expect_given_lists(const AttentionSpec& spec, const Lengths& lengths,
                                 const std::vector<verify::ParamArgument>& params = {}) {
    SCOPED_TRACE(spec_to_json(spec));
    PlanOptions options;
    options.mask_map = true;
    const auto kernel = compiled(spec, options);
    ASSERT_TRUE(kernel);
    ASSERT_TRUE(kernel->generated.plan.map);
    for (std::uint64_t seed = 0; seed < std::max<std::uint64_t>(2, seeds()); ++seed) {
      auto problem = problem_of(spec, lengths, InputKind::kNormal, seed, params);
      ASSERT_TRUE(problem);
      give_mask_map(verify::random_mask_map(*problem), *problem);
      const LaunchSequence sequence =
          launches_of(*kernel, *problem, problem->launch_shapes(), seed % 2 == 0 ? 132 : 3);
      for (const LaunchRecipe& recipe : sequence.launches) EXPECT_NE(recipe.entry, "attnjit_map");
      const auto done = run(*kernel, *problem, sequence, seed);
      ASSERT_TRUE(done);
      expect_right(*problem, *done);
    }
  }

  // As above, over each kind of built-in mask, with keys that end within a block.
  static void expect_given_lists_over_built_in_masks(const AttentionSpec& spec) {
    const Lengths lengths{{300, 300}, {650, 650}};
    MaskSpec chunks = mask_of(Kind::kChunked);
    chunks.chunk = 150;
    for (const MaskSpec& mask :
         some_of<MaskSpec>(spec.arch, {mask_of(Kind::kCausal), mask_of(Kind::kNull), window_of(200),
                                       chunks, tree(Kind::kAnd, {mask_of(Kind::kCausal), chunks}),
                                       tree(Kind::kOr, {window_of(70), chunks})})) {
      expect_given_lists(masked(spec, mask), lengths);
    }
    AttentionSpec causal = spec;
    causal.mask = mask_of(Kind::kCausal);
    causal.sink = true;
    expect_given_lists(of_sequences(causal, 16, true), ragged_lengths());
  }

  // As above, of a map that was made for the longest sequence: its rows of the others have blocks
  // past their keys, behind blocks that are hidden.
  static void expect_blocks_past_the_keys_passed_over(
      const AttentionSpec& spec, const Lengths& lengths,
      const std::vector<verify::ParamArgument>& params) {
    SCOPED_TRACE(spec_to_json(spec));
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    auto problem = problem_of(spec, lengths, InputKind::kNormal, 0, params);
    ASSERT_TRUE(problem);
    auto map = verify::make_mask_map(*problem, problem->batch, 1);
    ASSERT_TRUE(map);
    int added = 0;
    for (std::size_t row = 0; row < map->part.size(); ++row) {
      const auto b = row / static_cast<std::size_t>(map->shape.q_blocks);
      const std::int32_t last = map->shape.kv_blocks - 1;
      if (problem->kv_lens[b] > last * 128) continue;
      map->part[row].push_back(last - 1);
      map->whole[row].push_back(last);
      ++added;
    }
    ASSERT_GT(added, 0);
    give_mask_map(*map, *problem);
    const auto done =
        run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
    ASSERT_TRUE(done);
    expect_right(*problem, *done);
  }

  // Of causal_documents(). What a launch wrote is read in the place of the mask: with other
  // documents the next one still computes those of the first.
  static void expect_bits_in_the_place_of_the_mask(const AttentionSpec& spec) {
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    auto problem = problem_of(kernel->generated.plan.spec, {{300}, {700}}, InputKind::kNormal, 0,
                              {documents_of(90)});
    ASSERT_TRUE(problem);
    const auto launched = [&](const Problem& one) {
      return run(*kernel, one, launches_of(*kernel, one, one.launch_shapes(), 132));
    };
    add_map(shape_of(*kernel, *problem), *problem);
    const auto first = launched(*problem);
    ASSERT_TRUE(first);
    Problem other = *problem;
    take_map(*first, other);
    other.tensors.at("param_doc") = documents_of(3).value;
    const auto second = launched(other);
    ASSERT_TRUE(second);
    expect_right(*problem, *second);
  }

  // A map that was made for a longer sequence is read: its bits past the keys count for nothing.
  static void expect_bits_past_the_keys_passed_over(AttentionSpec spec) {
    spec.mask = over_arrays("p.doc[q_row] == p.doc[kv_idx] || p.doc[kv_idx] % 2 == 0",
                            {{"doc", Type::kI32Array}});
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    auto longer = problem_of(spec, {{300}, {760}}, InputKind::kNormal, 0, {documents_of(50)});
    auto problem = problem_of(spec, {{300}, {650}}, InputKind::kNormal, 0, {documents_of(50)});
    ASSERT_TRUE(longer && problem);
    for (Problem* one : {&*longer, &*problem}) add_map(shape_of(*kernel, *one), *one);
    const auto first =
        run(*kernel, *longer, launches_of(*kernel, *longer, longer->launch_shapes(), 132));
    ASSERT_TRUE(first);
    take_map(*first, *problem);
    const auto done =
        run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
    ASSERT_TRUE(done);
    expect_right(*problem, *done);
  }

  // Of same_document(). A map with room for the bits of fewer blocks than are seen in part: of the
  // others the mask is asked.
  static void expect_bits_of_some_blocks(const AttentionSpec& spec) {
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    auto problem = problem_of(kernel->generated.plan.spec, {{384}, {700}}, InputKind::kNormal, 0,
                              {documents_of(90)});
    ASSERT_TRUE(problem);
    for (const std::int32_t bit_blocks : {0, 2, 7}) {
      MaskMapShape shape = shape_of(*kernel, *problem);
      shape.bit_blocks = bit_blocks;
      add_map(shape, *problem);
      for (const bool reads : {false, true}) {
        const auto done =
            run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
        ASSERT_TRUE(done);
        expect_right(*problem, *done);
        if (reads) continue;
        // Three rows of blocks have the same share each.
        const verify::MaskMap made = written(shape, *problem, *done);
        EXPECT_EQ(expect_bits(made, *problem, *done), bit_blocks / 3 * 3);
        take_map(*done, *problem);
      }
    }
  }

  // Of same_document(). Nothing is known from the elements' ranges: scores are asked about.
  static void expect_mixed_elements(const AttentionSpec& spec) {
    const auto mixed = [](std::int64_t i) {
      return static_cast<std::int32_t>(i % 2 + i / 300 * 2);
    };
    expect_maps(spec, {{260}, {600}}, {array_of("doc", 4096, mixed)});
    expect_maps(spec, {{70}, {0}});
  }

  // Of same_document(). Parts share out the keys that a map shows, wherever they are: of one
  // document among many each part has some.
  static void expect_parts_of_what_is_seen(AttentionSpec spec) {
    constexpr int kPartitions = 4;
    constexpr std::int64_t kKeys = 2048;
    spec.num_partitions = kPartitions;
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    auto problem =
        problem_of(spec, {{1}, {kKeys}}, InputKind::kNormal, 0,
                   {array_of("doc", kKeys, [](std::int64_t i) { return i < 1536 ? 0 : 1; })});
    ASSERT_TRUE(problem);
    const auto map = verify::make_mask_map(*problem, 1, 1);
    ASSERT_TRUE(map);
    for (const bool given : {false, true}) {
      SCOPED_TRACE(given);
      if (given) give_mask_map(*map, *problem);
      const LaunchSequence sequence = launches_of(*kernel, *problem, problem->launch_shapes(), 132);
      std::vector<std::uint8_t> lse(sizeof(float) * kPartitions *
                                    static_cast<std::size_t>(spec.num_q_heads));
      EmulatorOptions options;
      options.model = EmulatorModel::kIsa;
      options.threads = 1;
      const auto done = emulator::run_kernel(kernel->module, sequence, *problem, options,
                                             {{"partial_lse", std::move(lse)}});
      ASSERT_TRUE(done.ok());
      EXPECT_TRUE(done->report.findings.empty());
      const auto* const parts =
          reinterpret_cast<const float*>(done->workspaces.at("partial_lse").data());
      for (int i = 0; i < kPartitions * spec.num_q_heads; ++i) {
        EXPECT_TRUE(std::isfinite(parts[i])) << "part " << i / spec.num_q_heads;
      }
    }
  }

  // Of same_document(). A launch with as many keys of its own document costs at most `percent` more
  // steps, however many others there are.
  static void expect_hidden_tiles_are_not_loaded(const AttentionSpec& spec, std::int64_t most_keys,
                                                 std::uint64_t percent) {
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    std::vector<std::uint64_t> steps;
    for (const std::int64_t keys : {std::int64_t{256}, most_keys}) {
      auto problem = problem_of(
          kernel->generated.plan.spec, {{128}, {keys}}, InputKind::kNormal, 0,
          {array_of("doc", 4096, [=](std::int64_t i) { return i >= keys - 256 ? 1 : 0; })});
      ASSERT_TRUE(problem);
      const auto map = verify::make_mask_map(*problem, 1, 1);
      ASSERT_TRUE(map);
      give_mask_map(*map, *problem);
      const auto done =
          run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 132));
      ASSERT_TRUE(done);
      expect_right(*problem, *done);
      steps.push_back(done->thread_steps);
    }
    EXPECT_LT(steps[1], steps[0] + steps[0] * percent / 100);
  }
};

}  // namespace attnjit::kernel_test
