// SPDX-License-Identifier: Apache-2.0
// Decodes of sequences that differ in kv_len, whose keys are dealt out in stream-K ranges, on
// sm_90a: some sequences are cut, and others are written whole; or all are. NOTE: ranges are dealt
// out where 0.6 of the most units of a CTA are more than a run's and 2.5
// (common/sequence_ranges.cuh): of few CTAs that is not so.
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec head_run_spec(int heads, int group, int page_size, int max_q_len = 1) {
  AttentionSpec spec = base_spec(Arch::kSm90a, heads, group, 64);
  spec.max_q_len = max_q_len;
  spec.page_size = page_size;
  spec.num_partitions = 0;
  return spec;
}

struct HeadRanges {
  AttentionSpec spec;
  Lengths lengths;
  std::vector<int> sm_counts;
};

class Sm90HeadRanges : public KernelTest {
 protected:
  static void expect_all(const std::vector<HeadRanges>& cases, std::size_t usually) {
    for (const auto& [spec, lengths, sm_counts] : some_of(cases, usually)) {
      expect_runs(spec, lengths, sm_counts, true);
    }
  }
};

// Groups of heads: one, several, more than the CTAs can be dealt to evenly; that are packed, with
// rows that are nobody's, and not.
TEST_F(Sm90HeadRanges, Heads) {
  AttentionSpec sinks = head_run_spec(10, 5, 16);
  sinks.sink = true;
  expect_all({{head_run_spec(8, 4, 16), {{1}, {2100, 70, 0, 700}}, {5, 8}},
              {sinks, {{1}, {0, 0, 2200, 129, 1}}, {3}},
              {head_run_spec(5, 1, 64), {{1}, {70, 2100, 900}}, {6}},
              {head_run_spec(8, 8, 64, 8), {{8}, {300, 8, 2100, 7}}, {3, 2}}},
             4);
}

TEST_F(Sm90HeadRanges, PagesOfAnySize) {
  AttentionSpec rows = head_run_spec(8, 4, 0);
  rows.ragged_kv = true;
  rows.lse_includes_sink = false;
  expect_all({{head_run_spec(8, 4, 1), {{1}, {2100, 70, 0, 700}}, {5, 8}},
              {head_run_spec(4, 4, 48), {{1}, {64, 2100, 1, 64}}, {3}},
              {rows, {{1}, {700, 0, 2100, 65}}, {4}}},
             3);
}

// In a ragged batch sequences without rows, which are no work, stand at either end and between
// others; more of them than a warp looks at together.
TEST_F(Sm90HeadRanges, RaggedBatches) {
  AttentionSpec spec = head_run_spec(8, 4, 16, 4);
  spec.ragged = true;
  spec.sink = true;
  AttentionSpec rows = head_run_spec(4, 2, 1, 2);
  rows.ragged = true;
  Lengths many{std::vector<std::int64_t>(70, 0), std::vector<std::int64_t>(70, 100)};
  for (const std::size_t i : {3, 45, 46}) many.q[i] = 1;
  many.kv[45] = 2100;
  expect_all({{spec, {{0, 1, 0, 4, 2, 0}, {900, 2100, 50, 700, 0, 300}}, {5, 8}},
              {spec, many, {4}},
              {rows, {{2, 0, 1, 1}, {130, 2100, 900, 2100}}, {4}}},
             3);
}

TEST_F(Sm90HeadRanges, ManySequences) {
  Lengths many{{1}, {}};
  for (int i = 0; i < 70; ++i) many.kv.push_back(i % 7 == 0 ? 300 : i % 5 * 30);
  many.kv[33] = 2100;
  expect_all({{head_run_spec(2, 1, 16), many, {20}}, {head_run_spec(4, 4, 64), many, {12}}}, 1);
}

// As long as one another, nearly: whole.
TEST_F(Sm90HeadRanges, EvenSequences) {
  AttentionSpec spec = head_run_spec(8, 4, 16);
  spec.sink = true;
  AttentionSpec ragged = head_run_spec(8, 4, 1, 2);
  ragged.ragged = true;
  expect_all(
      {{spec, {{1}, {2100, 2090, 2050}}, {3}}, {ragged, {{1, 0, 0, 1}, {700, 9, 0, 690}}, {4}}}, 2);
}

TEST_F(Sm90HeadRanges, TypesAndMasks) {
  AttentionSpec eight = head_run_spec(8, 4, 16);
  eight.qkv_dtype = Dtype::kE4m3;
  AttentionSpec upcast = head_run_spec(8, 4, 16);
  upcast.kv_dtype = Dtype::kE4m3;
  upcast.scales = Scales::kHead;
  AttentionSpec tokens = head_run_spec(8, 4, 64);
  tokens.kv_dtype = Dtype::kE4m3;
  tokens.scales = Scales::kToken;
  AttentionSpec window = head_run_spec(8, 4, 16);
  window.mask = window_of(900);
  window.kv_lens_exclude_new = true;
  window.return_lse = false;
  AttentionSpec deep = head_run_spec(4, 2, 32);
  deep.qk_depth = deep.ov_depth = 256;
  const Lengths lengths{{1}, {2100, 70, 0, 1500}};
  expect_all({{upcast, lengths, {5}},
              {eight, lengths, {5}},
              {window, {{1}, {2300, 70, 1200, 2100}}, {8}},
              {deep, lengths, {8}},
              {tokens, lengths, {3}}},
             3);
}

}  // namespace
}  // namespace attnjit::sm90
