// SPDX-License-Identifier: Apache-2.0
// What the tests of split launches share: sinks, and numbers of partitions chosen at launch.
#pragma once

#include <vector>

#include "kernel_fixture.h"

namespace attnjit::kernel_test {

class SplitTest : public KernelTest {
 protected:
  // The sink counts once, whatever the number of partitions. `dense`: of several partitions.
  static void expect_sinks_count_once(AttentionSpec dense) {
    for (const bool in_lse : {false, true}) {
      if (!in_proof() && in_lse != (dense.arch == Arch::kSm90a)) continue;
      AttentionSpec spec = of_sequences(dense, 16, true);
      spec.num_partitions = 3;
      spec.sink = true;
      spec.lse_includes_sink = in_lse;
      expect_passes(spec, {{{1, 20}, {300, 5}}});
    }
    dense.sink = true;
    dense.return_lse = false;
    expect_passes(dense, {{{20}, {150}}});
  }

  struct Chosen {
    int sm_count;
    std::size_t launches;  ///< 1: written as O and LSE; 2: a merge follows
  };
  // A launch on so many SMs has so many kernels, and is right.
  static void expect_chosen(const Kernel& kernel, const Problem& problem,
                            const std::vector<Chosen>& cases) {
    for (const auto& [sm_count, launches] : cases) {
      SCOPED_TRACE(sm_count);
      const LaunchSequence sequence =
          launches_of(kernel, problem, problem.launch_shapes(), sm_count);
      ASSERT_EQ(sequence.launches.size(), launches);
      EXPECT_EQ(sequence.workspaces.at(1).bytes > 0, launches == 2);
      const auto done = run(kernel, problem, sequence);
      ASSERT_TRUE(done);
      expect_right(problem, *done);
    }
  }
};

}  // namespace attnjit::kernel_test
