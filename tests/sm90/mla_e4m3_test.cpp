// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA over caches of e4m3 on sm_90a.
#include "../mla_e4m3_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90MlaE4m3 : public MlaE4m3Test {
 protected:
  explicit Sm90MlaE4m3(Arch arch = Arch::kSm90a) : MlaE4m3Test(arch) {}
};

// As few stages as at the depths of models, so that each is handed back.
TEST_F(Sm90MlaE4m3, PagesOfAnySize) {
  Tuning stages;
  stages.rows.push_back({{}, {{"num_stages", 2}}});
  check_pages({{64, 1}, {24, 3}, {1, 2}, {128, 1}, {16, 0}}, &stages);
}
TEST_F(Sm90MlaE4m3, Heads) { check_heads(); }
TEST_F(Sm90MlaE4m3, SeveralRows) { check_several_rows(); }
TEST_F(Sm90MlaE4m3, Depths) { check_depths(); }
TEST_F(Sm90MlaE4m3, TypesSinksAndMasks) { check_types_sinks_and_masks(); }
TEST_F(Sm90MlaE4m3, PartitionsOfFixedKeys) { check_partitions_of_fixed_keys(); }
TEST_F(Sm90MlaE4m3, NewRowsAndRaggedPages) { check_new_rows_and_ragged_pages(); }
TEST_F(Sm90MlaE4m3, DealsStreamKRanges) { check_stream_k(); }
TEST_F(Sm90MlaE4m3, Accumulates) { check_accumulates(); }
TEST_F(Sm90MlaE4m3, Scales) { check_scales(); }
TEST_F(Sm90MlaE4m3, OddBlocksOfTwoStages) { check_odd_blocks_of_two_stages(); }
TEST_F(Sm90MlaE4m3, ScalesOfZero) { check_scales_of_zero(); }
TEST_F(Sm90MlaE4m3, Lists) { check_lists(); }
TEST_F(Sm90MlaE4m3, RandomSpecs) { check_random_specs(); }
TEST_F(Sm90MlaE4m3, DamagesAreSeen) { check_damages_are_seen(); }
TEST_F(Sm90MlaE4m3, SpillsNothing) { check_models_fit(); }

TEST_F(Sm90MlaE4m3, WhatIsRefused) {
  EXPECT_EQ(reason(spec_of(16, 64, 1)), "");
  EXPECT_NE(reason(spec_of(16, 0, 1)).find("page_size"), std::string::npos);
  AttentionSpec spec = spec_of(16, 64, 1);
  spec.scales = Scales::kToken;
  EXPECT_NE(reason(spec).find("scales"), std::string::npos);
  spec = spec_of(16, 64, 1);
  spec.qkv_dtype = Dtype::kE4m3;
  EXPECT_NE(reason(spec).find("qkv_dtype"), std::string::npos);
}

}  // namespace
}  // namespace attnjit::sm90
