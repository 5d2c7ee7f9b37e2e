// SPDX-License-Identifier: Apache-2.0
// Damages of how threads wait for one another, which every kernel has places for.
#include "mutation.h"

namespace attnjit::emulator {

// clang-format off
const std::vector<Rule>& order_rules() {
  // $& is the whole match. Inserted registers live in a scope of their own.
  static const std::vector<Rule> list = {
      {"", "arrival made relaxed", "mbarrier.arrive", R"(mbarrier\.arrive(?:\.release\.cluster)?\.shared)", "mbarrier.arrive.relaxed.cluster.shared", 10},
      {"", "wait made relaxed", "mbarrier.try_wait", R"(mbarrier\.try_wait\.parity(?:\.acquire\.cluster)?\.shared)", "mbarrier.try_wait.parity.relaxed.cluster.shared", 10},
      {"", "retry loop removed", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)", "$& setp.eq.u32 $2, 0, 0;", 12},
      {"", "parity of a wait always 0", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)", "mbarrier.try_wait$1 $2, [$3], 0;", 3},
      {"", "parity of a wait always 1", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)", "mbarrier.try_wait$1 $2, [$3], 1;", 3},
      {"", "arrival twice", "mbarrier.arrive", R"((@\S+ )?mbarrier\.arrive(\.release\.cluster)?\.shared\S+ _, \[\S+\];)", "$& $&", 4},
      {"sm90 exchange", "arrival removed", "mbarrier.arrive", R"(mbarrier\.arrive\S+ _, \[\S+\];)", ";", 2},
      {"sm90 exchange", "cluster barrier removed", "barrier.cluster.wait", R"(barrier\.cluster\.wait\S*;)", ";", 2},
      {"", "arrival count doubled", "mbarrier.init", R"(mbarrier\.init(\S+) \[(\S+)\], (\S+);)",
       "{ .reg .b32 count; shl.b32 count, $3, 1; mbarrier.init$1 [$2], count; }", 3},
      {"", "expect_tx of half the bytes", "expect_tx", R"((mbarrier\.arrive\.expect_tx\S+ _, \[\S+\]), (\S+);)",
       "{ .reg .b32 bytes; shr.u32 bytes, $2, 1; $1, bytes; }", 2},
      {"", "expect_tx of twice the bytes", "expect_tx", R"((mbarrier\.arrive\.expect_tx\S+ _, \[\S+\]), (\S+);)",
       "{ .reg .b32 bytes; shl.b32 bytes, $2, 1; $1, bytes; }", 2},
      {"", "barrier of a warp removed", "bar.warp.sync", R"(bar\.warp\.sync\s+-1;)", ";", 20},
      {"", "wait at CTA scope", ".acquire.cluster", R"((mbarrier\.try_wait\S*)\.acquire\.cluster)", "$1.acquire.cta", 6},
      {"", "arrival at CTA scope", ".release.cluster", R"((mbarrier\.arrive\S*)\.release\.cluster)", "$1.release.cta", 6},
      {"", "cluster barrier's arrival made relaxed", "barrier.cluster.arrive", R"(barrier\.cluster\.arrive\.aligned;)", "barrier.cluster.arrive.relaxed.aligned;", 3},
      {"", "griddepcontrol.wait removed", "griddepcontrol.wait", R"(griddepcontrol\.wait;)", ";", 4},
      {"", "fence.proxy.async of another state space", "fence.proxy.async", R"(fence\.proxy\.async\.shared::cta;)", "fence.proxy.async.global;", 2},
  };
  return list;
}

const std::vector<MoveRule>& move_rules() {
  static const std::vector<MoveRule> list = {
      {"", "fence.mbarrier_init below the barrier", R"(fence\.mbarrier_init)", true, R"(bar\.sync|barrier\.cluster\.wait)", 2},
      {"", "fence.proxy.async below the arrival", R"(fence\.proxy\.async)", true, R"(mbarrier\.arrive|bar\.sync|barrier\.sync|barrier\.arrive)", 3},
      {"", "tcgen05.fence::before below the arrival", R"(tcgen05\.fence::before)", true, R"(mbarrier\.arrive|bar\.sync|barrier\.arrive)", 8},
      {"", "tcgen05.fence::after above the wait", R"(tcgen05\.fence::after)", false, R"(mbarrier\.try_wait|bar\.sync|barrier\.sync)", 8},
      {"", "tcgen05.wait::st below the arrival", R"(tcgen05\.wait::st)", true, R"(mbarrier\.arrive)", 3},
      {"", "wgmma.wait_group below the arrival", R"(wgmma\.wait_group)", true, R"(mbarrier\.arrive)", 3},
      {"", "wgmma.fence below the product", R"(wgmma\.fence)", true, R"(wgmma\.mma_async)", 3},
      {"", "bulk wait_group below the barrier", R"(cp\.async\.bulk\.wait_group)", true, R"(barrier\.sync|mbarrier\.arrive)", 3},
      {"sm90 listed", "note stored behind the arrival", R"(st\.shared\.u32)", true, R"(mbarrier\.arrive)", 3},
      {"", "commit above the product", R"(tcgen05\.commit)", false, R"(tcgen05\.mma)", 3},
  };
  return list;
}
// clang-format on

}  // namespace attnjit::emulator
