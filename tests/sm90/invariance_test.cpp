// SPDX-License-Identifier: Apache-2.0
// partition_keys on sm_90a: partitions of fixed keys, and rows whose bits are their own.
#include <algorithm>
#include <cstring>
#include <vector>

#include "plan/sm90/sm90_plan.h"
#include "sm90_fixture.h"

namespace attnjit::sm90 {
namespace {

AttentionSpec spec_of(int qk_depth, int keys, const MaskSpec& mask = mask_of(Kind::kCausal)) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 4;
  spec.group = 4;
  spec.qk_depth = qk_depth;
  spec.partition_keys = keys;
  spec.return_lse = true;
  spec.mask = mask;
  return spec;
}

AttentionSpec of_sequences(AttentionSpec spec, int page_size, bool ragged) {
  spec.page_size = page_size;
  spec.ragged = ragged;
  return spec;
}

MaskSpec window_of(int window) {
  MaskSpec mask = mask_of(Kind::kSlidingWindow);
  mask.window = window;
  return mask;
}

/// Some rows of a sequence of another batch, with the keys up to the last of them.
struct Part {
  int sequence;
  int first_row, rows;
};

class Sm90Invariance : public Sm90Kernel {
 protected:
  static void expect_same_bits(const AttentionSpec& spec, InputKind input);

  static Part all_of(const Problem& source, int sequence) {
    return {sequence, 0, source.q_lens[static_cast<std::size_t>(sequence)]};
  }

  // A batch of parts of `source`.
  static std::optional<Problem> batch_of(const Problem& source, const std::vector<Part>& parts,
                                         InputKind input) {
    Lengths lengths;
    for (const auto& [sequence, first, rows] : parts) {
      const auto of = static_cast<std::size_t>(sequence);
      lengths.q.push_back(rows);
      lengths.kv.push_back(source.kv_lens[of] - (source.q_lens[of] - first - rows));
    }
    std::optional<Problem> batch = problem_of(source.spec, lengths, input);
    if (!batch) return batch;
    for (int b = 0; b < batch->batch; ++b) {
      const auto& [sequence, first, rows] = parts[static_cast<std::size_t>(b)];
      copy_rows(source, source.first_q_row(sequence) + first, *batch, batch->first_q_row(b), rows,
                "q");
      for (int key = 0; key < batch->kv_lens[static_cast<std::size_t>(b)]; ++key) {
        for (const char* name : {"k", "v"}) {
          copy_rows(source, source.kv_row(sequence, key), *batch, batch->kv_row(b, key), 1, name);
        }
      }
    }
    if (source.has("sink")) batch->tensors["sink"] = source.at("sink");
    return batch;
  }

  // All heads of `count` rows.
  static void copy_rows(const Problem& source, std::int64_t from, Problem& batch, std::int64_t to,
                        int count, const char* name) {
    const verify::Tensor& tensor = source.at(name);
    const std::int64_t bytes = row_bytes(tensor);
    std::copy_n(tensor.bytes.begin() + from * bytes, count * bytes,
                batch.tensors[name].bytes.begin() + to * bytes);
  }
  static std::int64_t row_bytes(const verify::Tensor& tensor) {
    const std::size_t rank = tensor.shape.size();
    return tensor.shape[rank - 2] * tensor.shape[rank - 1] * size_of(tensor.dtype);
  }

  static void expect_rows(const Problem& source, const Outputs& expected, const Problem& batch,
                          const std::vector<Part>& parts, const Outputs& got) {
    const auto bytes = static_cast<std::size_t>(row_bytes(expected.o));
    for (int b = 0; b < batch.batch; ++b) {
      const auto& [sequence, first, rows] = parts[static_cast<std::size_t>(b)];
      for (int row = 0; row < rows; ++row) {
        const std::int64_t from = source.first_q_row(sequence) + first + row;
        const std::int64_t to = batch.first_q_row(b) + row;
        EXPECT_EQ(std::memcmp(expected.o.bytes.data() + static_cast<std::size_t>(from) * bytes,
                              got.o.bytes.data() + static_cast<std::size_t>(to) * bytes, bytes),
                  0)
            << "o of row " << first + row << " of sequence " << sequence;
        if (!expected.lse) continue;
        for (int h = 0; h < source.spec.num_q_heads; ++h) {
          EXPECT_EQ(expected.lse->as<std::uint32_t>()[source.lse_index(sequence, h, first + row)],
                    got.lse->as<std::uint32_t>()[batch.lse_index(b, h, row)])
              << "lse of row " << first + row << " of sequence " << sequence << ", head " << h;
        }
      }
    }
  }
};

// Partitions without keys and without rows that see them; a bound far above most lengths.
TEST_F(Sm90Invariance, PartitionsOfFixedKeysAreRight) {
  expect_passes(spec_of(64, 128), {{{70}, {500}}, {{1}, {400}}, {{60}, {40}}, {{3}, {0}}});
  expect_passes(spec_of(128, 64, mask_of(Kind::kNull)), {{{40}, {300}}, {{1}, {20}}});
  expect_passes(spec_of(192, 192, window_of(50)), {{{40}, {400}}});
  expect_passes(of_sequences(spec_of(128, 128), 16, false), {{{1}, {500, 0, 31}}});
  expect_passes(of_sequences(spec_of(64, 128, window_of(100)), 1, true),
                {{{1, 30, 0, 2}, {400, 30, 4, 0}}});
  AttentionSpec spec = with_group(of_sequences(spec_of(64, 64), 0, true), 3, 3);
  spec.sink = true;
  expect_passes(spec, {{{7, 0, 1}, {200, 9, 400}}, {{5, 1}, {60, 1}}});
  spec.lse_includes_sink = false;
  spec.mask = verify::tree(Kind::kOr, {window_of(20), mask_of(Kind::kChunked)});
  expect_passes(spec, {{{200, 70, 1}, {200, 70, 1}}});
}

// The bits of a row are the same whatever is computed beside it: other sequences, in any order,
// other rows of its own sequence; and on however many SMs.
void Sm90Invariance::expect_same_bits(const AttentionSpec& spec, InputKind input) {
  SCOPED_TRACE(spec_to_json(spec));
  SCOPED_TRACE(verify::to_string(input));
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const Lengths lengths = spec.ragged ? Lengths{{9, 1, 70, 0, 3}, {300, 150, 270, 20, 500}}
                                      : Lengths{{3}, {300, 150, 270, 20, 500}};
  const auto source = problem_of(spec, lengths, input);
  ASSERT_TRUE(source);
  const auto expected =
      run(*kernel, *source, launches_of(*kernel, *source, source->launch_shapes(), 132));
  ASSERT_TRUE(expected);
  expect_right(*source, *expected);

  const auto part = [&](int sequence) { return all_of(*source, sequence); };
  std::vector<std::vector<Part>> batches{{part(4), part(2), part(3), part(0), part(1)},
                                         {part(1)},
                                         {part(0), part(2)},
                                         {part(3)},
                                         {part(2)}};
  if (spec.ragged) batches.push_back({{2, 30, 33}, {0, 8, 1}, {4, 0, 2}, {2, 69, 1}});
  for (std::size_t i = 0; i < batches.size(); ++i) {
    SCOPED_TRACE(i);
    const auto batch = batch_of(*source, batches[i], input);
    ASSERT_TRUE(batch);
    const auto got =
        run(*kernel, *batch,
            launches_of(*kernel, *batch, batch->launch_shapes(), i % 2 == 0 ? 2 : 132), i);
    ASSERT_TRUE(got);
    expect_rows(*source, *expected, *batch, batches[i], *got);
  }
}

TEST_F(Sm90Invariance, Ragged) {
  // Rows of one warp that differ in when their maximum moves.
  expect_same_bits(of_sequences(spec_of(128, 256), 16, true), InputKind::kLarge);
  expect_same_bits(of_sequences(spec_of(64, 128), 0, true), InputKind::kSpike);
}

TEST_F(Sm90Invariance, Paged) {
  expect_same_bits(of_sequences(spec_of(128, 128), 64, false), InputKind::kRaised);
  expect_same_bits(of_sequences(spec_of(64, 192), 3, true), InputKind::kFalling);
}

TEST_F(Sm90Invariance, SinksAndMasks) {
  // In a batch of one partition, too, a sink is added by the merge.
  AttentionSpec spec = of_sequences(spec_of(64, 256), 16, true);
  spec.sink = true;
  expect_same_bits(spec, InputKind::kLarge);
  spec = of_sequences(spec_of(128, 64, window_of(100)), 16, true);
  spec.lse_includes_sink = false;
  spec.sink = true;
  expect_same_bits(spec, InputKind::kRaised);
  spec = with_group(of_sequences(spec_of(96, 192), 8, true), 3, 3);
  spec.return_lse = false;
  expect_same_bits(spec, InputKind::kSpike);
}

// The two consumers of absorbed MLA take the tiles by turns, whatever the first one is.
TEST_F(Sm90Invariance, AbsorbedMla) {
  AttentionSpec spec = of_sequences(spec_of(320, 128), 16, true);
  spec.mla = Mla::kDecode;
  spec.ov_depth = 256;
  expect_same_bits(spec, InputKind::kLarge);
  spec = with_group(of_sequences(spec_of(128, 64), 64, false), 20, 20);
  spec.mla = Mla::kDecode;
  spec.ov_depth = 64;
  spec.sink = true;
  expect_same_bits(spec, InputKind::kRaised);
}

// Partitions that no row of a sequence reaches are no work.
TEST_F(Sm90Invariance, AWindowOfALongSequenceIsLittleWork) {
  const AttentionSpec spec = of_sequences(spec_of(64, 64, window_of(40)), 64, false);
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const auto steps = [&](const Lengths& lengths) -> std::uint64_t {
    const auto problem = problem_of(spec, lengths);
    if (!problem) return 0;
    const auto done =
        run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), 1));
    if (!done) return 0;
    expect_right(*problem, *done);
    return done->thread_steps;
  };
  const std::uint64_t few = steps({{1}, {128}});
  const std::uint64_t many = steps({{1}, {64 * 100}});
  EXPECT_GT(few, 0U);
  EXPECT_LT(many, few * 2);
}

}  // namespace
}  // namespace attnjit::sm90
