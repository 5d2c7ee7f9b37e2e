// SPDX-License-Identifier: Apache-2.0
// Sinks of any size, -inf and inf among them, on one architecture: what they leave of O, and the
// LSE.
#pragma once

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "kernel_fixture.h"

namespace attnjit::kernel_test {

class SinksTest : public KernelTest {
 protected:
  explicit SinksTest(Arch arch) : arch_(arch) {}

  /// Of eight heads: kernels that end rows by themselves, and merges of parts and of what o and lse
  /// hold.
  std::vector<Trial> trials() const {
    AttentionSpec dense = base_spec(arch_, 8, 4, 64);
    AttentionSpec parts = of_sequences(base_spec(arch_, 8, 8, 64), 16, false);
    parts.num_partitions = 3;
    AttentionSpec apart = parts;
    apart.lse_includes_sink = false;
    AttentionSpec accumulates = dense;
    accumulates.accumulate = true;
    AttentionSpec absorbed = absorbed_spec(arch_, 8, 192, 64);
    absorbed.num_partitions = 1;
    absorbed.return_lse = true;
    AttentionSpec absorbed_parts = absorbed;
    absorbed_parts.num_partitions = 2;
    return {{dense, {{{40}, {33}}}},       {parts, {{{1}, {200, 0}}}},
            {apart, {{{1}, {200, 70}}}},   {accumulates, {{{9}, {70}}}},
            {absorbed, {{{1}, {130, 0}}}}, {absorbed_parts, {{{1}, {200, 64}}}}};
  }

  /// A head each: nothing, two that count, one beside which all else is small, and four beside
  /// which it vanishes. The product of the last three with log2(e) is beyond f32.
  static std::vector<float> sinks() {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    return {-kInfinity, -5, 2, 100, 1e5F, 2.4e38F, 3.4e38F, kInfinity};
  }
  static constexpr std::size_t kFirstAlone = 4;

  static void expect_any_sink(const Trial& trial) {
    AttentionSpec spec = trial.spec;
    spec.sink = true;
    SCOPED_TRACE(spec_to_json(spec));
    const auto kernel = compiled(spec);
    ASSERT_TRUE(kernel);
    const auto problem = problem_of(spec, trial.batches.front());
    ASSERT_TRUE(problem);
    Problem own = *problem;
    std::copy_n(sinks().begin(), sinks().size(), own.tensors.at("sink").as<float>());
    // What the LSE is that counts no sink, or small ones.
    Problem without = *problem;
    std::fill_n(without.tensors.at("sink").as<float>(), sinks().size(),
                -std::numeric_limits<float>::infinity());
    const LaunchSequence sequence = launches_of(*kernel, own, own.launch_shapes(), 132);
    const auto done = run(*kernel, own, sequence);
    const auto small = run(*kernel, without, sequence);
    ASSERT_TRUE(done && small);
    expect_right(without, *small);
    for (int b = 0; b < own.batch; ++b) {
      for (int row = 0; row < own.q_lens[b]; ++row) {
        for (std::size_t h = 0; h < sinks().size(); ++h) {
          const auto head = static_cast<int>(h);
          SCOPED_TRACE("head " + std::to_string(h) + ", row " + std::to_string(row));
          const std::int64_t at = own.lse_index(b, head, row);
          const float lse = done->lse->as<float>()[at], other = small->lse->as<float>()[at];
          if (!spec.lse_includes_sink) {
            EXPECT_TRUE(std::abs(lse - other) < 1e-3F || lse == other) << lse << " " << other;
          } else if (h >= kFirstAlone || other == -std::numeric_limits<float>::infinity()) {
            EXPECT_EQ(lse, sinks()[h]);
          } else {
            const double sum = std::exp(double{other}) + std::exp(double{sinks()[h]});
            EXPECT_NEAR(lse, std::log(sum), 1e-3);
          }
          const std::int64_t first =
              ((own.first_q_row(b) + row) * own.spec.num_q_heads + head) * own.spec.ov_depth;
          for (int d = 0; d < own.spec.ov_depth; ++d) {
            const float value = verify::load_float(done->o, first + d);
            if (h >= kFirstAlone) {
              ASSERT_EQ(value, 0) << d;
            } else {
              ASSERT_TRUE(std::isfinite(value)) << d;
            }
          }
        }
      }
    }
  }

 private:
  Arch arch_;
};

}  // namespace attnjit::kernel_test
