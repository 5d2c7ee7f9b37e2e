// SPDX-License-Identifier: Apache-2.0
// Absorbed MLA (mla: decode) on sm_90a.
#include "../mla_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Mla : public MlaTest {
 protected:
  Sm90Mla() : MlaTest(Arch::kSm90a) {}
};

TEST_F(Sm90Mla, PagesOfAnySize) { check_pages({{1, 2}, {16, 3}, {64, 1}}); }
TEST_F(Sm90Mla, Heads) { check_heads(); }
TEST_F(Sm90Mla, SeveralRows) { check_several_rows(); }
TEST_F(Sm90Mla, Depths) { check_depths(); }
TEST_F(Sm90Mla, TypesSinksAndMasks) { check_types_sinks_and_masks(); }
TEST_F(Sm90Mla, PartitionsOfFixedKeys) { check_partitions_of_fixed_keys(); }
TEST_F(Sm90Mla, ManyPartsOfLongRows) { check_many_parts_of_long_rows(); }
TEST_F(Sm90Mla, BatchesWithoutPages) { check_batches_without_pages(); }
TEST_F(Sm90Mla, NewRowsAndRaggedPages) { check_new_rows_and_ragged_pages(); }
TEST_F(Sm90Mla, Accumulates) { check_accumulates(); }
TEST_F(Sm90Mla, RandomSpecs) { check_random_specs(); }
// setmaxnreg leaves no more.
TEST_F(Sm90Mla, SpillsNothing) { check_registers(); }

// Two CTAs that load K for each other.
TEST_F(Sm90Mla, Clusters) {
  Tuning tuning;
  tuning.rows.push_back({{}, {{"cluster", 2}}});
  expect_passes(spec_of(128, 64, 1), {{{1}, {200, 0, 31, 64}}, {{2}, {65}}}, &tuning);
  expect_passes(spec_of(96, 16, 2), {{{3}, {400, 3}}, {{1}, {0}}}, &tuning);
  if (in_proof()) expect_passes(spec_of(65, 0, 1), {{{1}, {130}}}, &tuning);
}

}  // namespace
}  // namespace attnjit::sm90
