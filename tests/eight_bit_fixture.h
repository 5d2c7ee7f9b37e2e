// SPDX-License-Identifier: Apache-2.0
// What kernels over e4m3 K and V are tried with, whatever the type of Q: depths, lengths, scales,
// ways in which keys come, decodes, masks, and specs at random.
#pragma once

#include <gtest/gtest-spi.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "kernel_fixture.h"
#include "sm100/damaged.h"
#include "verify/compare.h"

namespace attnjit::kernel_test {

/// Of an architecture, and of a Q of a type.
template <Arch kArch, Dtype kQ>
class EightBitTest : public KernelTest {
 protected:
  static AttentionSpec spec_of(int depth, Scales scales = Scales::kNone,
                               const MaskSpec& mask = mask_of(Kind::kCausal)) {
    AttentionSpec spec = base_spec(kArch, 2, 1, depth, mask);
    spec.qkv_dtype = kQ;
    if (kQ != Dtype::kE4m3) spec.kv_dtype = Dtype::kE4m3;
    spec.scales = scales;
    return spec;
  }

  static AttentionSpec with_mod(AttentionSpec spec, ScoreModSpec::Kind kind) {
    spec.score_mod.kind = kind;
    if (kind == ScoreModSpec::Kind::kSoftcap) spec.score_mod.cap = 30;
    return spec;
  }

  // What is said of a kernel of these templates. `lse_more`: its LSE is further from the reference.
  static verify::Comparison judged(const AttentionSpec& spec, const Problem& problem,
                                   const TemplateSet& templates = TemplateSet::embedded(),
                                   float lse_more = 0) {
    Result<emulator::GeneratedKernel> generated =
        emulator::generate_kernel(spec, {}, templates, nullptr, CompileTo::kPtx);
    EXPECT_TRUE(generated) << (generated ? "" : generated.error().to_string());
    if (!generated) return {};
    Result<PtxModule> module = PtxModule::load(generated->ptx);
    EXPECT_TRUE(module);
    if (!module) return {};
    const Kernel kernel{std::move(*generated), std::move(*module)};
    auto done = run(kernel, problem, launches_of(kernel, problem, problem.launch_shapes(), 2));
    const Result<verify::Reference> reference = verify::compute_reference(problem, 1);
    if (!done || !reference) return {};
    for (std::int64_t i = 0; lse_more != 0 && i < done->lse->elements(); ++i) {
      float& lse = done->lse->as<float>()[i];
      lse += lse > reference->lse[static_cast<std::size_t>(i)] ? lse_more : -lse_more;
    }
    return verify::compare(problem, *reference, done->o, done->lse ? &*done->lse : nullptr,
                           verify::tolerance_of(spec));
  }
  static bool passes(const AttentionSpec& spec, const Problem& problem,
                     const TemplateSet& templates = TemplateSet::embedded()) {
    return judged(spec, problem, templates).passed;
  }

  struct Damage {
    const char* file;
    const char* from;
    const char* to;
  };
  static void expect_seen(const AttentionSpec& spec, const Lengths& lengths,
                          const std::vector<Damage>& damages) {
    const auto problem = problem_of(spec, lengths, InputKind::kNormal, 5);
    ASSERT_TRUE(problem);
    ASSERT_TRUE(passes(spec, *problem));
    for (const auto& [file, from, to] : some_of(damages)) {
      // By its numbers, or by a finding on the way to them.
      testing::TestPartResultArray failures;
      bool passed = false;
      {
        testing::ScopedFakeTestPartResultReporter reporter(
            testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
        passed = passes(spec, *problem, sm100::damaged(file, from, to));
      }
      bool found = false;
      for (int i = 0; i < failures.size(); ++i) {
        const std::string_view message = failures.GetTestPartResult(i).message();
        const bool finding = message.find(" at PTX line ") != message.npos;
        EXPECT_TRUE(finding) << message;  // that a damage does not compile says nothing
        found |= finding;
      }
      EXPECT_TRUE(!passed || found) << "passes: " << to;
    }
  }

  /// Of a launch of damaged templates the first finding says `what`.
  static void expect_found(const AttentionSpec& spec, const Lengths& lengths, const Damage& damage,
                           const std::string& what) {
    const auto problem = problem_of(spec, lengths);
    ASSERT_TRUE(problem);
    Result<emulator::GeneratedKernel> generated = emulator::generate_kernel(
        spec, {}, sm100::damaged(damage.file, damage.from, damage.to), nullptr, CompileTo::kPtx);
    ASSERT_TRUE(generated) << generated.error().to_string();
    Result<PtxModule> module = PtxModule::load(generated->ptx);
    ASSERT_TRUE(module);
    const Kernel kernel{std::move(*generated), std::move(*module)};
    testing::TestPartResultArray failures;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      run(kernel, *problem, launches_of(kernel, *problem, problem->launch_shapes(), 2));
    }
    ASSERT_GT(failures.size(), 0);
    EXPECT_NE(std::string(failures.GetTestPartResult(0).message()).find(what), std::string::npos);
  }

  static void expect_depths(const std::vector<int>& depths) {
    for (const int depth : depths) {
      const bool common = depth == 128 || depth == 64;
      std::vector<Lengths> lengths{{{141}, {300}}};
      if (common || in_proof()) lengths.insert(lengths.end(), 3, {{70, 70}, {257, 257}});
      expect_passes(spec_of(depth), lengths);
      if (in_proof() || (common && depth == depths.front())) {
        expect_passes(spec_of(depth, {}, mask_of(Kind::kNull)), lengths);
      }
    }
    if (depths.size() == 1) return;
    AttentionSpec narrow = spec_of(192, Scales::kHead);
    narrow.ov_depth = 128;
    narrow.output_dtype = Dtype::kFp16;
    expect_passes(narrow, {{{20, 20}, {300, 300}}});
  }

  // Rows that see nothing, sequences without keys or rows, and keys of one tile more or less.
  static void expect_odd_lengths() {
    AttentionSpec spec = spec_of(128, Scales::kTensor);
    spec.sink = true;
    expect_passes(spec, {{{200}, {60}}, {{1}, {1}}, {{65}, {97}}, {{193}, {96}}, {{7}, {0}}});
    expect_passes(spec_of(64), {{{200}, {60}}, {{1}, {129}}, {{64}, {127}}, {{3}, {0}}});
  }

  static void expect_scales() {
    for (const Scales scales : {Scales::kTensor, Scales::kHead}) {
      // Heads of a group in one tile, and head by head: beside the proof by turns.
      for (const int group : {16, 3}) {
        if (!in_proof() && (scales == Scales::kTensor) != (group == 16)) continue;
        AttentionSpec spec = with_group(spec_of(64, scales), 2 * group, group);
        if (in_proof() || group == 16) expect_passes(spec, {{{70, 70}, {300, 300}}});
        spec = with_mod(spec, ScoreModSpec::Kind::kSoftcap);
        spec.sink = true;
        if (in_proof() || group == 3) expect_passes(spec, {{{20, 20}, {200, 200}}});
      }
    }
  }

  static void expect_sequences() {
    std::vector<Trial> trials;
    for (const int depth : some_of<int>({64, 128})) {
      trials.push_back({of_sequences(with_group(spec_of(depth, Scales::kHead), 4, 2), 16, true),
                        {{{20, 0, 141}, {300, 40, 200}}}});
    }
    AttentionSpec parts = of_sequences(spec_of(128, Scales::kHead), 16, true);
    parts.num_partitions = 3;
    parts.sink = true;
    trials.push_back({parts, {{{20, 0, 3}, {500, 40, 20}}}});
    parts = spec_of(64, Scales::kTensor);
    parts.partition_keys = 128;
    trials.push_back({parts, {{{20, 20}, {400, 400}}}});
    AttentionSpec ragged = of_sequences(spec_of(128, Scales::kTensor), 0, true);
    ragged.ragged_kv = true;
    trials.push_back({ragged, {{{20, 0, 141}, {300, 40, 200}}}});
    expect_passes(some_of(kArch, trials, 2));
    if (!in_proof()) return;
    expect_passes(of_sequences(spec_of(256, Scales::kHead), 64, false), {{{20, 20}, {200, 70}}});
  }

  static void expect_pages_of_any_rows() {
    std::vector<Trial> trials;
    for (const int depth : {64, 128}) {
      trials.push_back(
          {of_sequences(with_group(spec_of(depth, Scales::kHead), 4, 2), depth == 64 ? 1 : 3, true),
           {{{20, 0, 141}, {300, 40, 200}}}});
    }
    AttentionSpec decode = with_group(spec_of(128, Scales::kTensor), 16, 8);
    decode.max_q_len = 4;
    decode.page_size = 1;
    decode.num_partitions = 0;
    trials.push_back({decode, {{{3, 3}, {300, 40}}, {{1}, {1000}}}});
    trials.push_back({of_sequences(spec_of(256), 2, false), {{{20, 20}, {200, 70}}}});
    trials.push_back({of_sequences(spec_of(80), 4, true), {{{20, 3}, {65, 0}}}});
    // A list of tiles, of which the consumers are told with K.
    trials.push_back(
        {of_sequences(spec_of(64, {}, verify::custom_mask()), 5, true), {{{70, 20}, {300, 100}}}});
    AttentionSpec narrow = of_sequences(spec_of(192), 12, false);
    narrow.ov_depth = 128;
    trials.push_back({narrow, {{{20}, {300}}}});
    expect_passes(some_of(kArch, trials, 3));
  }

  static void expect_decodes() {
    AttentionSpec split = with_group(spec_of(128, Scales::kHead), 16, 8);
    split.max_q_len = 4;
    split.page_size = 16;
    split.num_partitions = 0;
    // Heads that do not fill a power of two of rows.
    AttentionSpec spec = with_group(spec_of(64, Scales::kHead), 12, 6);
    spec.max_q_len = 4;
    expect_passes(some_of<Trial>(
        kArch, {{split, {{{3, 3}, {300, 40}}, {{1}, {1000}}}}, {spec, {{{3, 3}, {200, 200}}}}}));
    spec.qk_depth = 256;
    if (in_proof()) expect_passes(spec, {{{4}, {500}}});
  }

  static void expect_masks() {
    MaskSpec chunks = mask_of(Kind::kChunked);
    chunks.chunk = 48;
    MaskSpec documents = mask_of(Kind::kCustom);
    documents.custom.name = "document";
    documents.custom.code = "p.doc[q_idx] == p.doc[kv_idx]";
    documents.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
    for (const MaskSpec& mask :
         some_of<MaskSpec>(kArch, {documents, mask_of(Kind::kMaterialized), chunks, window_of(70),
                                   tree(Kind::kOr, {mask_of(Kind::kCausal), chunks})})) {
      expect_passes(spec_of(128, Scales::kTensor, mask), {{{200, 200}, {300, 300}}});
      if (in_proof()) expect_passes(spec_of(64, Scales::kNone, mask), {{{200}, {300}}});
    }
    expect_passes(with_mod(spec_of(128), ScoreModSpec::Kind::kAlibi), {{{70}, {300}}});
    if (in_proof()) {
      expect_passes(with_mod(spec_of(256), ScoreModSpec::Kind::kAlibi), {{{70}, {300}}});
    }
  }

  static void expect_tuned(const std::vector<const char*>& choices) {
    for (const char* choose : some_of(choices)) {
      const Result<Tuning> tuning =
          tuning_from_json(std::string(R"({"rows": [{"choose": )") + choose + "}]}");
      ASSERT_TRUE(tuning) << tuning.error().to_string();
      expect_passes(spec_of(128), {{{141, 141}, {500, 500}}}, &*tuning);
    }
  }

  static void expect_random(std::uint32_t seed) {
    std::mt19937 draw(seed);
    const auto below = [&](int n) { return static_cast<int>(draw() % static_cast<unsigned>(n)); };
    for (int i = 0; i < (in_proof() ? 40 : kQ == Dtype::kFp16 ? 1 : 2); ++i) {
      const int depths[] = {64, 128, 256, 16, 48, 80, 96, 160, 192, 224};
      const int groups[] = {1, 2, 3, 8};
      const int pages[] = {1, 3, 6, 8, 16, 32, 64, 128};
      const int group = groups[below(4)];
      const MaskSpec masks[] = {mask_of(Kind::kNull), mask_of(Kind::kCausal), window_of(70)};
      AttentionSpec spec =
          with_group(spec_of(depths[below(10)], static_cast<Scales>(below(3)), masks[below(3)]),
                     2 * group, group);
      if (below(3) == 0) spec.ov_depth = 16 * (1 + below(spec.qk_depth / 16));
      if (below(2) == 0) spec = of_sequences(spec, pages[below(8)], below(2) == 0);
      if (below(3) == 0) spec.num_partitions = below(4);
      spec.sink = below(2) == 0;
      if (below(4) == 0) spec.output_dtype = Dtype::kF32;
      const bool has_scales_of_rows = kQ == Dtype::kE4m3 || spec.qk_depth <= 192;
      if (has_scales_of_rows && below(3) == 0) spec.scales = Scales::kToken;
      if (below(4) == 0) spec.max_q_len = 4;
      if (below(4) == 0) spec = with_mod(spec, ScoreModSpec::Kind::kSoftcap);
      const bool one_length = spec.page_size == 0 && !spec.ragged;
      const std::int64_t rows = spec.max_q_len > 0 ? 1 + below(4) : 1 + below(200);
      const std::int64_t keys = 1 + below(500);
      const std::int64_t other = one_length || !spec.ragged ? rows : rows / 2;
      expect_passes(spec, {{{rows, other}, {keys, one_length ? keys : keys / 3}}});
    }
  }

  // With rows that have scales of their own: depths, ways in which keys come, decodes, masks and
  // modifications. A CTA has several work tiles, of odd and of even numbers of KV tiles.
  static void expect_scales_of_rows(const std::vector<int>& depths) {
    const auto of_rows = [](int depth, const MaskSpec& mask = mask_of(Kind::kCausal)) {
      return with_group(spec_of(depth, Scales::kToken, mask), 4, 2);
    };
    for (const int depth : depths) expect_passes(of_rows(depth), {{{141}, {300}}, {{200}, {60}}});
    std::vector<Trial> trials;
    trials.push_back(
        {of_rows(64, mask_of(Kind::kNull)), {{{300, 300, 300}, {300, 300, 300}}, {{3}, {700}}}});
    AttentionSpec sinks = with_mod(of_rows(128), ScoreModSpec::Kind::kSoftcap);
    sinks.sink = true;
    trials.push_back({sinks, {{{70, 70}, {300, 300}}}});
    trials.push_back({of_rows(64, verify::custom_mask()), {{{141}, {300}}}});
    trials.push_back({of_rows(128, mask_of(Kind::kMaterialized)), {{{141}, {300}}}});
    for (const int page_size : {16, 3}) {
      trials.push_back(
          {of_sequences(of_rows(128), page_size, true), {{{20, 0, 141}, {300, 40, 200}}}});
    }
    AttentionSpec ragged = of_sequences(of_rows(64), 0, true);
    ragged.ragged_kv = true;
    ragged.output_dtype = Dtype::kF32;
    trials.push_back({ragged, {{{20, 0, 141}, {300, 40, 200}}}});
    AttentionSpec decode = with_group(spec_of(128, Scales::kToken), 12, 6);
    decode.max_q_len = 4;
    decode.page_size = 16;
    decode.num_partitions = 0;
    trials.push_back({decode, {{{3, 3}, {500, 40}}, {{4}, {700}}}});
    AttentionSpec parts = of_rows(64);
    parts.partition_keys = 128;
    parts.return_lse = true;
    trials.push_back({parts, {{{20, 20}, {400, 400}}}});
    AttentionSpec narrow = of_rows(192);
    narrow.ov_depth = 128;
    trials.push_back({narrow, {{{70}, {300}}}});
    expect_passes(some_of(kArch, trials, 3));
  }

  // As servers keep them: behind each head's row of K and V, by rows or by heads.
  static void expect_scales_between_rows() {
    constexpr int kHeads = 2, kRows = 16, kWords = 36;  // of a row: K, V, two scales, and padding
    const AttentionSpec spec =
        with_group(of_sequences(spec_of(64, Scales::kToken), kRows, true), 4, 2);
    const auto kernel = compiled(spec, {});
    ASSERT_TRUE(kernel);
    const auto packed = problem_of(spec, {{20, 1}, {50, 35}});
    ASSERT_TRUE(packed);
    for (const TensorStrides& strides :
         {TensorStrides{kHeads * kRows * kWords, kWords, kRows * kWords},
          TensorStrides{kHeads * kRows * kWords, kHeads * kWords, kWords}}) {
      Problem problem = *packed;
      for (const char* name : {"k_scale", "v_scale"}) {
        const verify::Tensor& from = packed->at(name);
        verify::Tensor to =  // up to the last number and no further
            verify::make_tensor(
                from.dtype, {(packed->num_pages - 1) * strides.batch + (kRows - 1) * strides.row +
                             (kHeads - 1) * strides.head + 1});
        std::fill_n(to.as<float>(), to.elements(), std::numeric_limits<float>::quiet_NaN());
        for (std::int64_t i = 0; i < from.elements(); ++i) {
          to.as<float>()[i / kHeads / kRows * strides.batch + i / kHeads % kRows * strides.row +
                         i % kHeads * strides.head] = from.as<float>()[i];
        }
        problem.tensors.at(name) = std::move(to);
      }
      LaunchShapes shapes = problem.launch_shapes();
      shapes.kv_scales = strides;
      const auto done = run(*kernel, problem, launches_of(*kernel, problem, shapes, 132));
      ASSERT_TRUE(done);
      expect_right(*packed, *done);
    }
  }

  // A tensor of zeros has the scale 0, where nobody saw to that: all keys that are seen are alike.
  static void expect_a_scale_of_zero() {
    for (const char* scale : {"q_scale", "k_scale", "v_scale"}) {
      const AttentionSpec spec = spec_of(64, Scales::kHead);
      auto problem = problem_of(spec, {{70}, {100}}, InputKind::kNormal, 5);
      ASSERT_TRUE(problem);
      problem->tensors.at(scale).template as<float>()[1] = 0;
      EXPECT_TRUE(passes(spec, *problem)) << scale;
    }
  }

  // Of a Q of e4m3, whose P is e4m3, too. One key has 2^17 times the weight of each of the others,
  // and no value. What is lost of P shows whole: it is 2^-9 with the bias, e4m3's least number, and
  // 0 with `less` of it.
  static void expect_bias_keeps_weights_of_2_to_the_minus_17(const Damage& less) {
    const Problem problem = one_row_of([](int key) {
      return key == 7 ? ScoredKey{0, 0, 0} : ScoredKey{-11, -0.8125F, 16};
    });
    EXPECT_TRUE(passes(one_row(), problem));
    EXPECT_FALSE(passes(one_row(), problem, sm100::damaged(less.file, less.from, less.to)));
  }

  // Of the same. The keys that are walked first have the lesser maximum, by 1.35 (1.95 as a power
  // of two). Weights relative to it would be 2^9.95, which e4m3 has not: half of them would be lost
  // where the maximum is renewed `late`.
  static void expect_maximum_renewed_before_p_saturates(const Damage& late) {
    const Problem problem = one_row_of([](int key) {
      return key < 100 ? ScoredKey{1.375F, 0, 4} : ScoredKey{0, 0, -1};
    });
    EXPECT_TRUE(passes(one_row(), problem));
    EXPECT_FALSE(passes(one_row(), problem, sm100::damaged(late.file, late.from, late.to)));
  }

  // Of a Q of 16 bits, whose P is fp16, which has no numbers below 2^-24. The first 299 keys have
  // 2^-24.5 of the last one's probability, and they alone have a V: with `none` of the bias the
  // result is wrong by half.
  static void expect_small_probabilities_kept(const Damage& none) {
    constexpr int kDepth = 64, kHeads = 2, kKeys = 300;
    const AttentionSpec spec = spec_of(kDepth, Scales::kNone, mask_of(Kind::kNull));
    auto problem = problem_of(spec, {{20}, {kKeys}});
    ASSERT_TRUE(problem);
    const auto fill = [&](const char* name, auto value_of) {
      verify::Tensor& tensor = problem->tensors.at(name);
      for (std::int64_t i = 0; i < tensor.elements(); ++i) {
        const bool last_key = i / kDepth / kHeads == kKeys - 1;
        verify::store_float(tensor, i, value_of(i % kDepth == 0, last_key));
      }
    };
    fill("q", [](bool first_column, bool) { return first_column ? 17.F : 0.F; });
    fill("k",
         [](bool first_column, bool last_key) { return first_column && !last_key ? -8.F : 0.F; });
    fill("v", [](bool, bool last_key) { return last_key ? 0.F : 1.F; });
    EXPECT_TRUE(passes(spec, *problem));
    EXPECT_FALSE(passes(spec, *problem, sm100::damaged(none.file, none.from, none.to)));
  }

  static std::string reason(const AttentionSpec& spec) { return plan(spec)->reason; }

 private:
  // One head and row of queries, whose scores are what K's first columns say.
  static AttentionSpec one_row() {
    AttentionSpec spec = spec_of(64, Scales::kNone, mask_of(Kind::kNull));
    spec.num_q_heads = 1;
    return spec;
  }
  struct ScoredKey {
    float first, second;  // their sum is the score
    float value;
  };
  template <class KeyOf>
  static Problem one_row_of(KeyOf key_of) {
    verify::ProblemRequest request;
    request.batch = 1;
    request.q_lens = {1};
    request.kv_lens = {300};
    request.scale = 1.0F;
    Problem problem = verify::make_problem(one_row(), request).value();
    verify::Tensor& q = problem.tensors.at("q");
    verify::Tensor& k = problem.tensors.at("k");
    verify::Tensor& v = problem.tensors.at("v");
    for (int d = 0; d < 64; ++d) verify::store_float(q, d, d < 2 ? 1.0F : 0.0F);
    for (int i = 0; i < 300; ++i) {
      const ScoredKey key = key_of(i);
      for (int d = 0; d < 64; ++d) {
        verify::store_float(k, i * 64 + d, d == 0 ? key.first : d == 1 ? key.second : 0.0F);
        verify::store_float(v, i * 64 + d, key.value);
      }
    }
    return problem;
  }
};

}  // namespace attnjit::kernel_test
