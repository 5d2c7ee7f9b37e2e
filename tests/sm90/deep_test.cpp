// SPDX-License-Identifier: Apache-2.0
// Heads deeper than 256 on sm_90a, whose V is a tensor of its own. Skipped without NVRTC.
#include <gtest/gtest-spi.h>

#include <limits>
#include <random>
#include <vector>

#include "../kernel_fixture.h"
#include "../sm100/damaged.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

constexpr std::int32_t kMax = std::numeric_limits<std::int32_t>::max();
constexpr std::int32_t kMin = std::numeric_limits<std::int32_t>::min();

AttentionSpec spec_of(int heads, int group, int depth = 512,
                      const MaskSpec& mask = mask_of(Kind::kCausal)) {
  return base_spec(Arch::kSm90a, heads, group, depth, mask);
}

AttentionSpec decode_of(int heads, int group, int page_size, int max_q_len) {
  AttentionSpec spec = of_sequences(spec_of(heads, group), page_size, false);
  spec.max_q_len = max_q_len;
  return spec;
}

class Sm90Deep : public KernelTest {
 protected:
  static bool passes(const AttentionSpec& spec, const Lengths& lengths,
                     const TemplateSet& templates) {
    Result<emulator::GeneratedKernel> generated =
        emulator::generate_kernel(spec, {}, templates, nullptr, CompileTo::kPtx);
    EXPECT_TRUE(generated) << generated.error().to_string();
    Result<PtxModule> module = PtxModule::load(generated->ptx);
    EXPECT_TRUE(module);
    const Kernel kernel{std::move(*generated), std::move(*module)};
    const auto problem = problem_of(spec, lengths);
    testing::TestPartResultArray failures;
    std::optional<Outputs> done;
    {
      testing::ScopedFakeTestPartResultReporter reporter(
          testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
      done = run(kernel, *problem, launches_of(kernel, *problem, problem->launch_shapes(), 2));
    }
    if (!done || failures.size() > 0) return false;
    const Result<verify::Reference> reference = verify::compute_reference(*problem, 1);
    EXPECT_TRUE(reference);
    return verify::compare(*problem, *reference, done->o, done->lse ? &*done->lse : nullptr,
                           verify::tolerance_of(spec))
        .passed;
  }
};

// Odd numbers of KV tiles and even ones, more queries than keys, no keys; several work tiles for a
// CTA, of two key-value heads.
TEST_F(Sm90Deep, Dense) {
  expect_passes(spec_of(2, 1, 512, mask_of(Kind::kNull)),
                {{{70}, {129}}, {{1}, {64}}, {{3}, {0}}, {{65, 65}, {200, 200}}});
  expect_passes(spec_of(2, 1), {{{141}, {200}}, {{100}, {60}}, {{64, 64}, {64, 64}}});
}

// Rows of all the heads of a group, and of one head where a group would waste rows.
TEST_F(Sm90Deep, Groups) {
  for (const int group : some_of<int>({8, 3, 2, 4, 5, 64, 128, 256})) {
    SCOPED_TRACE(group);
    expect_passes(spec_of(2 * group, group), {{{group > 8 ? 2 : 21}, {130}}});
  }
}

// All depths; those to 320 have two stages, and of odd numbers of blocks both halves of O have one.
TEST_F(Sm90Deep, Depths) {
  for (const int depth : some_of<int>({320, 384, 448, 512})) {
    SCOPED_TRACE(depth);
    expect_passes(spec_of(4, 2, depth), {{{70}, {300}}, {{3, 3}, {90, 90}}});
    expect_passes(of_sequences(spec_of(4, 2, depth), 16, true), {{{20, 0, 3}, {150, 70, 0}}});
  }
}

TEST_F(Sm90Deep, TypesSinksMasksAndModifications) {
  AttentionSpec spec = spec_of(4, 2, 512, window_of(100));
  spec.qkv_dtype = Dtype::kFp16;
  spec.sink = true;
  expect_passes(spec, {{{40}, {300}}, {{100}, {50}}});
  spec.output_dtype = Dtype::kBf16;
  spec.lse_includes_sink = false;
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  spec.score_mod.cap = 20;
  spec.mask = mask_of(Kind::kNull);
  expect_passes(spec, {{{40}, {100}}});
  AttentionSpec custom = spec_of(4, 2, 384, mask_of(Kind::kCustom));
  custom.mask.custom.name = "third";
  custom.mask.custom.code = "kv_idx <= q_idx && (kv_idx + h + 2 * kv_h) % 3 != 0";
  custom.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  expect_passes(custom, {{{40}, {150}}});
}

TEST_F(Sm90Deep, DecodesOfPages) {
  for (const int page_size : some_of<int>({16, 1, 64, 24, 256}, 3)) {
    SCOPED_TRACE(page_size);
    expect_passes(decode_of(16, 8, page_size, 4),
                  {{{1}, {200, 0, 31}}, {{4}, {64, 65}}, {{1}, {330}}, {{1}, {1}}});
  }
  // A group that is no power of two fills its rows up.
  expect_passes(decode_of(6, 3, 64, 4), {{{3}, {70, 2}}});
}

TEST_F(Sm90Deep, RaggedBatches) {
  AttentionSpec spec = of_sequences(spec_of(4, 2), 64, true);
  expect_passes(spec, {{{40, 0, 1}, {150, 70, 2}}});
  spec.kv_lens_exclude_new = true;
  expect_passes(spec, {{{1, 5, 0, 2}, {130, 64, 3, 2}}});
  AttentionSpec packed = spec_of(6, 3);
  packed.ragged = packed.ragged_kv = true;
  expect_passes(packed, {{{1, 70, 0}, {70, 129, 3}}});
}

TEST_F(Sm90Deep, Partitions) {
  AttentionSpec spec = decode_of(8, 4, 16, 2);
  spec.num_partitions = 3;
  spec.sink = true;
  expect_passes(spec, {{{1}, {300, 0, 31}}, {{2}, {100}}});
  spec.num_partitions = 1;
  spec.partition_keys = 128;
  expect_passes(spec, {{{1}, {400, 0, 31}}});
  AttentionSpec dense = spec_of(4, 2);
  dense.num_partitions = 2;
  expect_passes(dense, {{{70}, {150}}});
  AttentionSpec chosen = decode_of(8, 4, 64, 1);
  chosen.num_partitions = 0;
  expect_passes(chosen, {{{1}, {400, 64}}, {{1}, {700}}});
}

TEST_F(Sm90Deep, Accumulates) {
  AttentionSpec spec = of_sequences(spec_of(4, 2), 64, false);
  spec.accumulate = true;
  expect_passes(spec, {{{2}, {130, 1}}});
}

TEST_F(Sm90Deep, WhateverTensorsHold) {
  for (const int page_size : {16, 3}) {
    AttentionSpec spec = of_sequences(spec_of(2, 2), page_size, true);
    if (page_size == 3) spec.num_partitions = 2;
    expect_no_harm(spec, {{"page_table", {kMax, kMin, -1, 1 << 20}},
                          {"kv_lens", {-7, 500, kMin}},
                          {"q_offsets", {kMax, kMin, kMax, kMin}}});
  }
}

// Heads, groups, pages, splits, types, masks and lengths.
TEST_F(Sm90Deep, RandomSpecs) {
  std::mt19937 random(20261124);
  const auto draw = [&](int begin, int end) {
    return begin + static_cast<int>(random() % static_cast<unsigned>(end - begin));
  };
  for (int i = 0; i < (in_proof() ? 60 : 3); ++i) {
    const int group = draw(1, 17);
    AttentionSpec spec = spec_of(group * draw(1, 4), group, 64 * draw(5, 9));
    const int pages[] = {0, 1, 5, 16, 64, 96, 256};
    spec.page_size = pages[draw(0, 7)];
    spec.ragged = draw(0, 3) == 0;
    spec.num_partitions = draw(0, 4);
    if (spec.num_partitions == 1 && draw(0, 2) == 1) spec.partition_keys = 64 * draw(1, 4);
    spec.qkv_dtype = draw(0, 2) == 1 ? Dtype::kFp16 : Dtype::kBf16;
    spec.sink = draw(0, 2) == 1;
    if (draw(0, 3) == 0) spec.mask = window_of(draw(1, 200));
    if (draw(0, 3) == 0) spec.mask = mask_of(Kind::kNull);
    if (draw(0, 2) == 0) spec.max_q_len = 40;
    Lengths lengths{{draw(0, 40)}, {draw(0, 400), draw(0, 200)}};
    if (spec.ragged) lengths.q.push_back(draw(1, 30));
    if (spec.page_size == 0 && !spec.ragged) lengths.kv.pop_back();
    SCOPED_TRACE(testing::Message() << i << ": " << spec_to_json(spec));
    expect_passes(spec, {lengths});
  }
}

// What each change would spoil is noticed.
TEST_F(Sm90Deep, DamagesAreSeen) {
  const AttentionSpec spec = of_sequences(spec_of(4, 2), 64, true);
  const Lengths lengths{{20, 3}, {200, 70}};
  ASSERT_TRUE(passes(spec, lengths, TemplateSet::embedded()));
  struct Damage {
    const char* file;
    const char* from;
    const char* to;
  };
  const std::vector<Damage> all{
      // The other head's keys; K's bytes as V; the memory of a tile that is still multiplied.
      {"mla/layout.cuh", "head / Config::kGroup : 0", "0 : 0"},
      {"sm90_mla/consumer.cuh", "Layout::kFirstOfV + Layout::first_block(rank)",
       "Layout::first_block(rank)"},
      {"mla/layout.cuh", "stage : stage ^ 1", "stage : stage"},
      // V that has not landed; K that is handed back before S is made of it; rows past the end.
      {"sm90_mla/consumer.cuh", "if constexpr (Config::kOwnV) await_v(ring);", ""},
      {"mla/producer.cuh", "smem.kv(tail_stage, Tiles::kFirstOfV + block)",
       "smem.kv(tail_stage, block)"},
      {"mla/producer.cuh", "return arguments.v_map", "return arguments.k_map"},
  };
  for (const auto& [file, from, to] : some_of(all, 3)) {
    EXPECT_FALSE(passes(spec, lengths, sm100::damaged(file, from, to))) << "passes: " << from;
  }
}

// A CTA of 384 threads is launched with 168 registers per thread; none is spilt.
TEST_F(Sm90Deep, SpillsNothing) {
  AttentionSpec alibi = spec_of(16, 8);
  alibi.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  AttentionSpec fixed = decode_of(16, 8, 16, 1);
  fixed.partition_keys = 256;
  fixed.sink = true;
  AttentionSpec rows = decode_of(6, 3, 1, 4);
  rows.num_partitions = 0;
  AttentionSpec parts = of_sequences(spec_of(16, 8), 64, true);
  parts.num_partitions = 0;
  AttentionSpec odd = of_sequences(spec_of(6, 3, 320, window_of(128)), 24, true);
  odd.partition_keys = 128;
  AttentionSpec packed = spec_of(16, 8);
  packed.ragged = packed.ragged_kv = true;
  for (const AttentionSpec& spec :
       some_of<AttentionSpec>({spec_of(16, 8), fixed, rows, alibi, parts, odd, packed}, 3)) {
    const auto kernel = compiled(spec, nullptr, CompileTo::kImage);
    ASSERT_TRUE(kernel);
    SCOPED_TRACE(spec_to_json(spec));
    EXPECT_EQ(kernel->generated.usage.spill_bytes, 0);
    EXPECT_EQ(kernel->generated.usage.stack_bytes, 0);
    EXPECT_LE(kernel->generated.usage.registers, 168);
    EXPECT_EQ(kernel->generated.log.find("serialized"), std::string::npos);
  }
}

}  // namespace
}  // namespace attnjit::sm90
