// SPDX-License-Identifier: Apache-2.0
// Pages behind a window, which are nobody's by then, on sm_100a.
#include "../evicted_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Evicted : public EvictedTest {
 protected:
  Sm100Evicted() : EvictedTest(Arch::kSm100a) {}
};

TEST_F(Sm100Evicted, WhateverTheyHold) {
  for (const Trial& trial : trials()) expect_untouched(trial);
}

}  // namespace
}  // namespace attnjit::sm100
