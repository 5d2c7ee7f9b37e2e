// SPDX-License-Identifier: Apache-2.0
// Pages behind a window, which are nobody's by then, on sm_90a.
#include "../evicted_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Evicted : public EvictedTest {
 protected:
  Sm90Evicted() : EvictedTest(Arch::kSm90a) {}
};

TEST_F(Sm90Evicted, WhateverTheyHold) {
  for (const Trial& trial : trials()) expect_untouched(trial);
}

}  // namespace
}  // namespace attnjit::sm90
