// SPDX-License-Identifier: Apache-2.0
// Sinks of any size on sm_90a.
#include "../sinks_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

class Sm90Sinks : public SinksTest {
 protected:
  Sm90Sinks() : SinksTest(Arch::kSm90a) {}
};

TEST_F(Sm90Sinks, OfAnySize) {
  for (const Trial& trial : trials()) expect_any_sink(trial);
}

}  // namespace
}  // namespace attnjit::sm90
