// SPDX-License-Identifier: Apache-2.0
// Kernels of sm_100a that interpret custom code.
#include "../interpreted_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

using Sm100Interpreted = interpreted_test::InterpretedTest<Arch::kSm100a>;

TEST_F(Sm100Interpreted, CookbookMasks) { expect_cookbook(); }

TEST_F(Sm100Interpreted, CookbookScoreModifications) { expect_score_mods(); }

TEST_F(Sm100Interpreted, RandomMasks) { expect_corpus(in_proof() ? 2000 : 30); }

TEST_F(Sm100Interpreted, Maps) { expect_maps_of_any(); }

// A tree with numbers of the launch, and a score modification of one's own.
TEST_F(Sm100Interpreted, Trees) {
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

// Pages, ragged batches, parts of the keys, decodes, deep heads.
TEST_F(Sm100Interpreted, Shapes) {
  AttentionSpec spec = spec_of({});
  spec.mask = verify::custom_mask();
  const AttentionSpec paged = of_sequences(spec, 16, true);
  expect_interprets(paged, {{{60, 0, 31}, {200, 30, 31}}}, true);
  AttentionSpec split = spec;
  split.num_partitions = 3;
  expect_interprets(split, {{{9}, {500}}}, true);
  AttentionSpec decode = of_sequences(spec, 64, false);
  decode.max_q_len = 1;
  expect_interprets(decode, {{{1, 1}, {300, 65}}}, true);
  AttentionSpec deep = spec;
  deep.qk_depth = deep.ov_depth = 256;
  expect_interprets(deep, {{{70}, {200}}}, true);
}

}  // namespace
}  // namespace attnjit::sm100
