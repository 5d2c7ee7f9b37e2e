// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA over caches of e4m3 (kv_dtype) on one architecture: what the cases of other caches
// (mla_fixture.h) do not try.
#pragma once

#include <utility>
#include <vector>

#include "mla_fixture.h"
#include "sm100/damaged.h"
#include "verify/compare.h"

namespace attnjit::kernel_test {

class MlaE4m3Test : public MlaTest {
 protected:
  explicit MlaE4m3Test(Arch arch) : MlaTest(arch, Dtype::kE4m3) {}

  // Of the whole cache, of each sequence, and none; before a score modification and without one.
  void check_scales() {
    for (const Scales scales : some_of<Scales>(arch_, {Scales::kTensor, Scales::kNone})) {
      AttentionSpec spec = spec_of(20, 64, 2);
      spec.scales = scales;
      expect_passes(spec, {{{2}, {200, 70}}, {{1}, {130, 1}}});
    }
    AttentionSpec capped = spec_of(16, 24, 1);
    capped.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    capped.score_mod.cap = 20;
    expect_passes(capped, {{{2}, {200, 70, 0}}});
  }

  // A tile is asked for while the one before is upcast, and where blocks are no two halves, a
  // block that it lands in comes free behind S of that one: who waits for it waits for ever. With
  // two stages, and many tiles.
  void check_odd_blocks_of_two_stages() {
    Tuning stages;
    stages.rows.push_back({{}, {{"num_stages", 2}}});
    const AttentionSpec spec = with_depths(spec_of(16, 64, 1), 384, 320);
    const auto kernel = compiled(spec, &stages);
    ASSERT_TRUE(kernel);
    const auto problem = problem_of(spec, {{1}, {2500}});
    ASSERT_TRUE(problem);
    const LaunchSequence launches = launches_of(*kernel, *problem, problem->launch_shapes(), 1);
    const auto reference = reference_of(*problem);
    ASSERT_TRUE(reference);
    for (std::uint64_t seed = 0; seed < 12; ++seed) {
      const auto done = run(*kernel, *problem, launches, seed);
      ASSERT_TRUE(done);
      expect_right(*problem, *reference, *done);
    }
  }

  // A tensor of zeros: every key counts the same, and O is 0.
  void check_scales_of_zero() {
    const AttentionSpec spec = spec_of(16, 64, 1);
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    auto problem = problem_of(spec, {{2}, {200, 70}});
    ASSERT_TRUE(problem);
    for (const char* scale : {"k_scale", "v_scale"}) {
      problem->tensors.at(scale).as<float>()[1] = 0;
    }
    const auto done =
        run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 2));
    ASSERT_TRUE(done);
    expect_right(*problem, *done);
  }

  // Odd numbers of blocks and even ones, of which the first says what is listed; lists that are
  // longer than their sequence, and shorter; in parts, and of ragged batches.
  void check_lists() {
    for (const auto& [depths, heads] : some_of<std::pair<std::pair<int, int>, int>>(
             arch_, {{{192, 128}, 16}, {{576, 512}, 128}, {{256, 192}, 20}, {{128, 128}, 64}})) {
      AttentionSpec spec = listed(heads, heads == 16 ? 1 : 64, 192);
      spec = with_depths(spec, depths.first, depths.second);
      expect_passes(spec, {{{2}, {300, 0, 31}}, {{1}, {70}}});
    }
    AttentionSpec parts = listed(16, 24, 256);
    parts.sink = true;
    parts.num_partitions = 3;
    parts.qkv_dtype = Dtype::kFp16;
    AttentionSpec ragged = listed(16, 64, 128);
    ragged.ragged = true;
    expect_passes(some_of<Trial>(
        arch_, {{parts, {{{3}, {200, 64, 40}}}}, {ragged, {{{3, 0, 2}, {200, 64, 40}}}}}));
  }

  // Behind the second sequence's keys its last page is NaN.
  void check_damages_are_seen() {
    AttentionSpec spec = spec_of(16, 64, 1);
    const auto problem = problem_of(spec, {{2}, {300, 100}}, InputKind::kNormal, 5);
    ASSERT_TRUE(problem);
    ASSERT_TRUE(passes(spec, *problem, TemplateSet::embedded()));
    using Damage = std::pair<const char*, std::pair<const char*, const char*>>;
    const std::vector<Damage> damages = {
        {"common/scales.cuh", {"static_cast<i64>(batch) * heads + head : 0", "0 : 0"}},
        {"mla/scales.cuh", {"    return key_scale<Config>", "    return 1.0f; key_scale<Config>"}},
        {"mla/upcasting.cuh", {"(2 * (lane % 4) ^ lane / 4) << 4", "(2 * (lane % 4)) << 4"}},
        {"mla/upcasting.cuh", {"part[row][2 * half + word]", "part[row][2 * half]"}},
        {"mla/upcasting.cuh", {"from ^ 4 << 4", "from"}},
        {"common/work_tiles.cuh", {"if (key >= work.kv_len ||", "if (key > work.kv_len ||"}},
    };
    for (const auto& [file, change] : some_of(arch_, damages)) {
      EXPECT_FALSE(passes(spec, *problem, sm100::damaged(file, change.first, change.second)))
          << "passes: " << change.second;
    }
  }

  // What servers have: pages of 64 and of 1, with lists and without, drafts, ragged batches.
  void check_models_fit() {
    std::vector<AttentionSpec> specs;
    for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
      AttentionSpec spec = with_depths(spec_of(128, 64, 0), 576, 512);
      spec.qkv_dtype = dtype;
      spec.sink = true;
      AttentionSpec lists = with_depths(listed(128, 1, 2048), 576, 512);
      lists.qkv_dtype = dtype;
      AttentionSpec ragged = with_depths(spec_of(20, 24, 1), 576, 512);
      ragged.qkv_dtype = dtype;
      ragged.ragged = ragged.kv_lens_exclude_new = true;
      ragged.partition_keys = 256;
      ragged.score_mod.kind = ScoreModSpec::Kind::kAlibi;
      AttentionSpec ragged_lists = lists;
      ragged_lists.ragged = true;
      AttentionSpec small = with_depths(spec_of(32, 16, 0), 320, 256);
      small.qkv_dtype = dtype;
      small.mask = window_of(1000);
      specs.insert(specs.end(), {spec, lists, ragged, ragged_lists, small});
    }
    expect_no_spills(some_of(arch_, specs));
  }

  static std::string reason(const AttentionSpec& spec) { return plan(spec)->reason; }

 private:
  AttentionSpec listed(int heads, int page_size, int topk) const {
    AttentionSpec spec = spec_of(heads, page_size, 1);
    spec.mask = mask_of(Kind::kNull);
    spec.topk = topk;
    return spec;
  }

  static bool passes(const AttentionSpec& spec, const Problem& problem,
                     const TemplateSet& templates) {
    Result<emulator::GeneratedKernel> generated =
        emulator::generate_kernel(spec, {}, templates, nullptr, CompileTo::kPtx);
    EXPECT_TRUE(generated) << (generated ? "" : generated.error().to_string());
    if (!generated) return false;
    Result<PtxModule> module = PtxModule::load(generated->ptx);
    EXPECT_TRUE(module);
    if (!module) return false;
    const Kernel kernel{std::move(*generated), std::move(*module)};
    const auto done =
        run(kernel, problem, launches_of(kernel, problem, problem.launch_shapes(), 2));
    const Result<verify::Reference> reference = verify::compute_reference(problem, 1);
    if (!done || !reference) return false;
    return verify::compare(problem, *reference, done->o, done->lse ? &*done->lse : nullptr,
                           verify::tolerance_of(spec))
        .passed;
  }
};

}  // namespace attnjit::kernel_test
