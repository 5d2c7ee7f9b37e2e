// SPDX-License-Identifier: Apache-2.0
// Kernels that interpret custom code, beside the reference and beside kernels that compile it. Each
// shape is compiled once.
#pragma once

#include <nlohmann/json.hpp>
#include <set>

#include "cookbook.h"
#include "map_fixture.h"
#include "spec/random_expression.h"

namespace attnjit::interpreted_test {

using namespace kernel_test;

/// Arch: of all specs.
template <Arch kArch>
class InterpretedTest : public MapTest {
 protected:
  static AttentionSpec spec_of(nlohmann::json document) {
    return cookbook::spec_of(kArch, std::move(document));
  }

  static AttentionSpec interpreted(AttentionSpec spec) {
    spec.interpreted = true;
    return spec;
  }

  /// The mask and what is always so, but hangs on an array: a kernel that compiles it walks a map,
  /// as one that interprets does, and rounds in the same order.
  static MaskSpec over_an_array(const MaskSpec& mask) {
    return tree(Kind::kAnd, {mask, over_arrays("p.any[q_idx] == p.any[q_idx]",
                                               {{"any", ParamSpec::Type::kI32Array}})});
  }

  std::unique_ptr<Kernel> kernel_of(const AttentionSpec& spec) {
    auto kernel = compiled(spec);
    if (kernel && spec.interpreted) {
      const Result<KernelSource> source = generate(kernel->generated.plan, TemplateSet::embedded());
      EXPECT_TRUE(source.ok());
      if (source.ok()) interpreting_.insert(source->text);
    }
    return kernel;
  }
  /// How many kernels that interpret there were.
  std::size_t interpreting() const { return interpreting_.size(); }

  /// The interpreting kernel computes what the reference does; where `beside` is set, the bits of
  /// the kernel that compiles the mask.
  void expect_interprets(AttentionSpec spec, const std::vector<Lengths>& batches, bool beside) {
    if (beside) spec.mask = over_an_array(spec.mask);
    SCOPED_TRACE(spec_to_json(spec));
    const auto kernel = kernel_of(interpreted(spec));
    ASSERT_TRUE(kernel);
    const auto own = beside ? kernel_of(spec) : nullptr;
    ASSERT_EQ(own != nullptr, beside);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      const auto problem = problem_of(interpreted(spec), batches[i], InputKind::kNormal, i);
      ASSERT_TRUE(problem);
      const int sm_count = i % 2 == 0 ? 2 : 132;
      const auto done = run(*kernel, *problem,
                            launches_of(*kernel, *problem, problem->launch_shapes(), sm_count), i);
      ASSERT_TRUE(done) << "batch " << i;
      expect_right(*problem, *done);
      if (own == nullptr) continue;
      const auto same =
          run(*own, *problem, launches_of(*own, *problem, problem->launch_shapes(), sm_count), i);
      ASSERT_TRUE(same) << "batch " << i;
      EXPECT_EQ(done->o.bytes, same->o.bytes) << "batch " << i;
      EXPECT_EQ(done->lse->bytes, same->lse->bytes) << "batch " << i;
    }
  }

  // Numbers and arrays are random. A prompt, the last rows of a sequence, and more rows than keys:
  // all three in the proof, else one by turns.
  void expect_cookbook() {
    const std::vector<Lengths> lengths{{{140}, {140}}, {{40}, {210}}, {{130}, {70}}};
    std::size_t number = 0;
    for (const cookbook::Recipe& recipe : cookbook::recipes()) {
      const AttentionSpec spec = spec_of({{"mask", nlohmann::json::parse(recipe.mask)}});
      if (spec::materialized(spec.mask) != nullptr) continue;
      expect_interprets(spec, in_proof() ? lengths : std::vector{lengths[number % lengths.size()]},
                        in_proof() || number % 12 == 0);
      ++number;
    }
    EXPECT_EQ(interpreting(), 1U) << "all masks are of one shape";
  }

  void expect_score_mods() {
    for (nlohmann::json document : cookbook::score_mods()) {
      if (document["score_mod"].value("kind", "") != "custom") continue;
      document["mask"] = "causal";
      document["ragged"] = true;
      expect_interprets(spec_of(std::move(document)), {{{60, 0, 31}, {200, 30, 31}}}, false);
    }
    EXPECT_EQ(interpreting(), 1U) << "all modifications are of one shape";
  }

  void expect_corpus(std::uint32_t count) {
    std::uint32_t run = 0;
    for (std::uint32_t seed = 100; run < count; ++seed) {
      AttentionSpec spec = spec_of({});
      spec.mask.kind = MaskSpec::Kind::kCustom;
      spec.mask.custom.name = "random";
      spec.mask.custom.code = spec::random::Generator(seed).mask()->text();
      spec.mask.custom.params = spec::random::Params::declared();
      if (!validate(spec).empty()) continue;
      ++run;
      expect_interprets(spec, {{{33}, {70}}}, false);
    }
    EXPECT_EQ(interpreting(), 1U);
  }

  // A map for all, for each sequence, and for each head, whatever the kernel was compiled for.
  // Beside the proof two of them are run.
  void expect_maps_of_any() {
    AttentionSpec spec = interpreted(spec_of({}));
    const auto custom = [](const std::string& code) { return over_arrays(code, {}); };
    for (const MaskSpec& mask :
         some_of<MaskSpec>(kArch,
                           {causal_documents(), custom("kv_idx < h * 130"),
                            custom("q_idx - kv_idx < 150 && kv_idx <= q_idx"),
                            custom("kv_idx / 130 == kv_h"), custom("kv_idx < b * 140")},
                           2)) {
      spec.mask = mask;
      std::vector<verify::ParamArgument> params;
      if (!spec::declared_params(spec).empty()) params.push_back(documents_of(150));
      expect_maps(spec, {{200, 200}, {300, 300}}, params);
    }
  }

  // A tree with numbers of the launch, and a score modification of one's own.
  void expect_trees() {
    AttentionSpec spec = spec_of({});
    spec.mask =
        tree(Kind::kOr, {tree(Kind::kAnd, {window_of(0), verify::custom_mask()}),
                         tree(Kind::kAnd, {mask_of(Kind::kChunked), mask_of(Kind::kCausal)})});
    expect_interprets(spec, {{{70}, {200}}}, true);
    spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
    spec.score_mod.custom.name = "bias";
    spec.score_mod.custom.code = "score * p.slope + p.bias[kv_idx] - 0.01f * abs(q_idx - kv_idx)";
    spec.score_mod.custom.params = {{"slope", ParamSpec::Type::kF32},
                                    {"bias", ParamSpec::Type::kF32Array}};
    expect_interprets(spec, {{{70}, {200}}}, false);
  }

  void expect_rows_of_batches() {
    AttentionSpec spec = by_total_row(spec_of({}));
    expect_interprets(spec, {{{40, 40}, {70, 70}}}, false);
    spec.ragged = true;
    expect_interprets(spec, {{{60, 0, 31}, {200, 30, 31}}}, false);
  }

  // Pages, ragged batches, parts of the keys, decodes, head_dim above 256. All beside the kernel
  // that compiles the mask in the proof, else one of the first two alone.
  void expect_shapes() {
    AttentionSpec spec = spec_of({});
    spec.mask = verify::custom_mask();
    const AttentionSpec paged = of_sequences(spec, 16, true);
    if (in_proof() || kArch == Arch::kSm90a) {
      expect_interprets(paged, {{{60, 0, 31}, {200, 30, 31}}}, in_proof());
    }
    AttentionSpec split = spec;
    split.num_partitions = 3;
    if (in_proof() || kArch != Arch::kSm90a) {
      expect_interprets(split, {{{9}, {500}}}, in_proof());
    }
    if (!in_proof()) return;
    AttentionSpec decode = of_sequences(spec, 64, false);
    decode.max_q_len = 1;
    expect_interprets(decode, {{{1, 1}, {300, 65}}}, true);
    AttentionSpec deep = spec;
    deep.qk_depth = deep.ov_depth = 256;
    expect_interprets(deep, {{{70}, {200}}}, true);
  }

  std::set<std::string> interpreting_;  // the text of each kernel that interprets
};

}  // namespace attnjit::interpreted_test
