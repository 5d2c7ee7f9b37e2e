// SPDX-License-Identifier: Apache-2.0
// The damages to how runs over sequences are found and merged
// (templates/common/sequence_ranges.cuh), of both architectures.
#include "mutation.h"

namespace attnjit::emulator {

// clang-format off
const std::vector<Rule>& run_rules() {
  static const std::vector<Rule> list = [] {
    std::vector<Rule> all;
    for (const char* const subjects : {"sm90 runs", "sm_100a runs"}) {
      const std::vector<Rule> rules = {
          // ---- sums over sequences, a lane each, and the sequence in which a run begins
          {subjects, "lanes before left out of a sum", "shfl.sync.up", R"(shfl\.sync\.up\.b32\s+(%r\d+)\|%p\d+, .*;)", "mov.b32 $1, 0;", 10},
          {subjects, "the lane's own for a warp's sum", "redux.sync.add", R"(redux\.sync\.add\.s32\s+(%r\d+), (%r\d+), .*;)", "mov.b32 $1, $2;"},
          {subjects, "least of a warp for the most", "redux.sync.max", R"(redux\.sync\.max(.*;))", "redux.sync.min$1", 2},
          {subjects, "first lane of a vote left out", "vote.sync.ballot", R"(vote\.sync\.ballot\.b32\s+(%r\d+), .*;)",
           "$& { .reg .b32 rest; sub.s32 rest, $1, 1; and.b32 $1, $1, rest; }", 3},
          // ---- what the finder stashes for the warps that load: the first store of four words
          {subjects, "a run's first unit and sequence exchanged", "st.shared.v4.b32", R"(st\.shared\.v4\.b32 \[(\S+)\], \{(%r\d+), (%r\d+), (.*);)",
           "st.shared.v4.b32 [$1], {$3, $2, $4;"},
          {subjects, "a run taken for uniform splits", "st.shared.v4.b32", R"(st\.shared\.v4\.b32 \[(\S+)\], \{(%r\d+), (%r\d+), (%r\d+), (%r\d+)\};)",
           "{ .reg .b32 none; mov.b32 none, 0; st.shared.v4.b32 [$1], {$2, $3, $4, none}; }"},
          {subjects, "step of a shuffle left out", "shfl.sync.bfly", R"(shfl\.sync\.bfly\.b32\s+(%r\d+)\|%p\d+, (%r\d+),.*;)", "mov.b32 $1, $2;", 12},
      };
      all.insert(all.end(), rules.begin(), rules.end());
    }
    return all;
  }();
  return list;
}
// clang-format on

}  // namespace attnjit::emulator
