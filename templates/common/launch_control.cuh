// SPDX-License-Identifier: Apache-2.0
// Cluster launch control: a CTA that runs steals the work of one that has not started.
#pragma once

#include "common/ptx.cuh"

namespace attnjit {

/// Asks for a CTA of this grid that has not started, which will not start then. The answer comes to
/// 16 bytes at `answer`, a multiple of 16, and its bytes to `barrier`, which expects them. One
/// thread; never behind an answer of none. NOTE: the answer is written by the async proxy.
ATTNJIT_DEVICE void ask_for_cta(u32 answer, u32 barrier) {
  constexpr int kAnswerBytes = 16;
  mbarrier_arrive_expect_tx(barrier, kAnswerBytes);
  asm volatile(
      "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.b128 [%0], "
      "[%1];" ::"r"(answer),
      "r"(barrier)
      : "memory");
}

/// The CTA's blockIdx.x that an answer names; none: -1.
ATTNJIT_DEVICE int answered_cta(u32 answer) {
  int cta;
  asm volatile(
      "{\n.reg .b128 a;\n.reg .pred p;\n\t"
      "ld.shared.b128 a, [%1];\n\t"
      "clusterlaunchcontrol.query_cancel.is_canceled.pred.b128 p, a;\n\t"
      "mov.b32 %0, -1;\n\t"
      "@p clusterlaunchcontrol.query_cancel.get_first_ctaid::x.b32.b128 %0, a;\n}"
      : "=r"(cta)
      : "r"(answer)
      : "memory");
  return cta;
}

}  // namespace attnjit
