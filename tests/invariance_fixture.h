// SPDX-License-Identifier: Apache-2.0
// What the tests of invariance share: rows whose bits do not depend on what is computed beside
// them.
#pragma once

#include <algorithm>
#include <cstring>
#include <optional>
#include <vector>

#include "map_fixture.h"

namespace attnjit::kernel_test {

/// Some rows of a sequence of another batch, with the keys up to the last of them.
struct Part {
  int sequence;
  int first_row, rows;
};

class InvarianceTest : public KernelTest {
 protected:
  // The bits of a row are the same whatever is computed beside it: other sequences, in any order,
  // other rows of its own sequence; and on however many SMs.
  static void expect_same_bits(const AttentionSpec& spec, InputKind input,
                               const std::vector<verify::ParamArgument>& params = {}) {
    SCOPED_TRACE(spec_to_json(spec));
    SCOPED_TRACE(verify::to_string(input));
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    const Lengths lengths = spec.ragged ? Lengths{{9, 1, 70, 0, 3}, {300, 150, 270, 20, 500}}
                                        : Lengths{{3}, {300, 150, 270, 20, 500}};
    const auto source = problem_of(spec, lengths, input, 0, params);
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
    if (spec.ragged) {
      batches.push_back({{2, 30, 33}, {0, 8, 1}, {4, 0, 2}, {2, 69, 1}});
      // Rows that lie beside others in a query tile of the source are alone in theirs.
      batches.push_back({{2, 30, 10}});
    }
    // Of a map they begin with those that have some of a sequence's rows.
    if (!params.empty()) std::reverse(batches.begin(), batches.end());
    batches =
        params.empty() ? some_of(spec.arch, std::move(batches), 3) : some_of(std::move(batches), 3);
    for (std::size_t i = 0; i < batches.size(); ++i) {
      SCOPED_TRACE(i);
      const auto batch = batch_of(*source, batches[i], input, params);
      ASSERT_TRUE(batch);
      const auto got =
          run(*kernel, *batch,
              launches_of(*kernel, *batch, batch->launch_shapes(), i % 2 == 0 ? 2 : 132), i);
      ASSERT_TRUE(got);
      expect_rows(*source, *expected, *batch, batches[i], *got);
    }
  }

  // The same where there is a map, of which rows that are computed together share a row of blocks:
  // what of them is seen in part, and what whole, hangs on all of these. Here every second row
  // begins to see keys later, and all see them up to their own.
  static void expect_same_bits_of_maps(AttentionSpec spec, InputKind input) {
    spec.mask =
        over_arrays("kv_idx <= q_idx && kv_idx >= p.from[q_idx]", {{"from", Type::kI32Array}});
    expect_same_bits(spec, input, {array_of("from", 500, [](std::int64_t i) {
                       return static_cast<std::int32_t>(i % 2 == 0 ? 0 : 70);
                     })});
  }

  // A launch over many partitions of which a row's window reaches few takes little more steps than
  // one over those.
  static void expect_little_work(const AttentionSpec& spec) {
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
    EXPECT_GT(many, 0U);
    EXPECT_LT(many, few * 2);
  }

 private:
  static Part all_of(const Problem& source, int sequence) {
    return {sequence, 0, source.q_lens[static_cast<std::size_t>(sequence)]};
  }

  // A batch of parts of `source`.
  static std::optional<Problem> batch_of(const Problem& source, const std::vector<Part>& parts,
                                         InputKind input,
                                         const std::vector<verify::ParamArgument>& params) {
    Lengths lengths;
    for (const auto& [sequence, first, rows] : parts) {
      const auto of = static_cast<std::size_t>(sequence);
      lengths.q.push_back(rows);
      lengths.kv.push_back(source.kv_lens[of] - (source.q_lens[of] - first - rows));
    }
    std::optional<Problem> batch = problem_of(source.spec, lengths, input, 0, params);
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

}  // namespace attnjit::kernel_test
