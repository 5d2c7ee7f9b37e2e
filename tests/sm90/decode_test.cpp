// SPDX-License-Identifier: Apache-2.0
// The body for launches of few rows (max_q_len), on sm_90a.
#include <vector>

#include "../kernel_fixture.h"
#include "plan/sm90/sm90_plan.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

AttentionSpec decode_spec(int qk_depth, int max_q_len, int page_size, int partitions) {
  AttentionSpec spec = base_spec(Arch::kSm90a, 8, 4, qk_depth);
  spec.max_q_len = max_q_len;
  spec.page_size = page_size;
  spec.num_partitions = partitions;
  return spec;
}

using Sm90Decode = KernelTest;

TEST_F(Sm90Decode, PagesOfAnySize) {
  for (const auto& [page_size, partitions] :
       some_of<std::pair<int, int>>({{64, 1}, {1, 3}, {16, 3}, {48, 1}}, 2)) {
    SCOPED_TRACE(page_size);
    expect_passes(decode_spec(128, 1, page_size, partitions),
                  {{{1}, {300, 0, 31, 200}}, {{1}, {64, 65}}});
  }
}

TEST_F(Sm90Decode, Depths) {
  for (const int depth : some_of<int>({64, 192, 256})) {
    SCOPED_TRACE(depth);
    AttentionSpec spec = decode_spec(depth, 1, 32, 2);
    if (depth == 192) spec.ov_depth = 128;
    expect_passes(spec, {{{1}, {300, 70}}});
  }
}

// Several rows, as speculative decoding has them; groups that are packed into a tile, and not.
TEST_F(Sm90Decode, SeveralRows) {
  const std::vector<Lengths> batches{{{4}, {200, 3, 0}}, {{1}, {129}}};
  for (const int group : {1, 16}) {
    SCOPED_TRACE(group);
    expect_passes(with_group(decode_spec(64, 4, 16, 2), 16, group), batches);
  }
  if (in_proof()) expect_passes(with_group(decode_spec(64, 4, 16, 2), 6, 3), batches);
  AttentionSpec ragged = decode_spec(128, 4, 16, 2);
  ragged.ragged = true;
  ragged.sink = true;
  expect_passes(ragged, {{{4, 0, 1, 2}, {200, 5, 100, 1}}});
}

// A group's heads and rows that are nobody's: these read no sink or slope of a head that does not
// exist, and write nothing.
TEST_F(Sm90Decode, GroupsThatAreNoPowerOfTwo) {
  struct Case {
    int group, max_q_len, page_size, partitions;
  };
  const auto packs = [](const AttentionSpec& spec) {
    return plan(*ResolvedSpec::make(spec))->sm90->pack_gqa;
  };
  for (const auto& [group, max_q_len, page_size, partitions] : some_of<Case>({{3, 4, 16, 1},
                                                                              {12, 5, 0, 3},
                                                                              {5, 1, 64, 2},
                                                                              {6, 10, 0, 1},
                                                                              {7, 2, 1, 2},
                                                                              {12, 4, 16, 1}})) {
    SCOPED_TRACE(group);
    AttentionSpec spec =
        with_group(decode_spec(64, max_q_len, page_size, partitions), 2 * group, group);
    spec.sink = true;
    spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
    EXPECT_TRUE(packs(spec));
    const std::vector<std::int64_t> kv =
        page_size > 0 ? std::vector<std::int64_t>{200, 3, 0} : std::vector<std::int64_t>{200};
    expect_passes(spec, {{{max_q_len}, kv}, {{1}, {129}}});
  }
  AttentionSpec ragged = with_group(decode_spec(128, 4, 16, 0), 12, 6);
  ragged.ragged = true;
  expect_passes(ragged, {{{4, 0, 1, 2}, {200, 5, 100, 1}}});
  EXPECT_TRUE(packs(with_group(decode_spec(64, 10, 16, 1), 6, 6)));  // 60 rows
}

TEST_F(Sm90Decode, WithoutPages) {
  expect_passes(decode_spec(128, 2, 0, 1), {{{2}, {300}}, {{1}, {0}}});
  expect_passes(decode_spec(64, 2, 0, 3), {{{2}, {300}}});
}

TEST_F(Sm90Decode, MoreRowsThanTheBoundAreRefused) {
  const auto kernel = compiled(decode_spec(128, 2, 16, 1));
  ASSERT_TRUE(kernel);
  EXPECT_EQ(kernel->generated.plan.sm90->num_consumers, 1);
  LaunchShapes shapes;
  shapes.batch = 1;
  shapes.q_len = 3;
  shapes.kv_len = 100;
  shapes.num_pages = shapes.max_pages = 8;
  const Result<LaunchSequence> sequence = plan_launch(kernel->generated.plan, shapes, {}, {});
  ASSERT_FALSE(sequence);
  EXPECT_EQ(sequence.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(sequence.error().field, "q_len");
}

}  // namespace
}  // namespace attnjit::sm90
