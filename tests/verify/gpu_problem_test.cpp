// SPDX-License-Identifier: Apache-2.0
// What a problem's tensors take in device memory.
#include "verify/gpu_problem.h"

#include <gtest/gtest.h>

namespace attnjit::verify {
namespace {

TEST(GpuProblem, AbsorbedMlaHasNoVOfItsOwn) {
  AttentionSpec spec;
  spec.num_q_heads = spec.group = 16;
  spec.qk_depth = 192;
  spec.ov_depth = 128;
  ProblemRequest request;
  request.q_lens = {2};
  request.kv_lens = {100};
  const auto bytes = [&] { return GpuProblem::bytes_of(make_problem(spec, request).value()); };
  const std::int64_t with_v = bytes();
  spec.mla = Mla::kDecode;
  EXPECT_EQ(with_v - bytes(), 100 * 128 * 2);
}

}  // namespace
}  // namespace attnjit::verify
