// SPDX-License-Identifier: Apache-2.0
// Sinks of any size on sm_100a.
#include "../sinks_fixture.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100Sinks : public SinksTest {
 protected:
  Sm100Sinks() : SinksTest(Arch::kSm100a) {}
};

TEST_F(Sm100Sinks, OfAnySize) {
  for (const Trial& trial : trials()) expect_any_sink(trial);
}

}  // namespace
}  // namespace attnjit::sm100
