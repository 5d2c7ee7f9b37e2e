// SPDX-License-Identifier: Apache-2.0
// A case of the proof with damaged templates: that each damage is seen.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "../in_proof.h"
#include "damaged.h"
#include "run_case.h"

namespace attnjit::sm100 {

/// Why a problem of a case fails with these templates in any of so many orders; empty: it passes.
inline std::string failure(const ProofCase& one, const verify::Problem& problem,
                           std::uint64_t orders,
                           const TemplateSet& templates = TemplateSet::embedded()) {
  const Result<ProofKernel> kernel = make_kernel(one, templates);
  EXPECT_TRUE(kernel.ok()) << (kernel.ok() ? "" : kernel.error().to_string());
  return kernel ? judge(one.shape, *kernel, problem, orders).reason : "";
}

/// A text of a file of the templates, and what stands in its place.
struct Damage {
  const char* file;
  const char* from;
  const char* to;
};

/// Expects a case to pass as it is, and to fail with each damage; of usual runs, with some.
inline void expect_seen(const ProofCase& one, const std::vector<Damage>& damages,
                        std::uint64_t orders) {
  const verify::Problem problem = problem_of(one, verify::InputKind::kNormal, 5).value();
  ASSERT_EQ(failure(one, problem, orders), "");
  for (const auto& [file, from, to] : proof::some_of(damages)) {
    EXPECT_NE(failure(one, problem, orders, damaged(file, from, to)), "") << "passes: " << from;
  }
}

}  // namespace attnjit::sm100
