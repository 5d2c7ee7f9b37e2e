// SPDX-License-Identifier: Apache-2.0
// Holds the tables of the clock's numbers.
#include "clock/parameters.h"

#include <algorithm>

#include "base/architectures.h"

namespace attnjit::clock {
namespace {

using P = Parameters;

double sm_count(Arch arch) { return traits_of(arch).sm_count; }

std::vector<ParameterRow> hopper() {
  constexpr Source kV = Source::kVendor, kM = Source::kMeasurement, kP = Source::kPublished,
                   kC = Source::kCalibration, kA = Source::kAssumption;
  return {
      {"sms", &P::sms, sm_count(Arch::kSm90a), "", kV, "H200 SXM"},
      {"boost_mhz", &P::boost_mhz, 1800, "MHz", kM, "of SMs that multiply; others have 1980"},
      {"free_activity", &P::free_activity, 0.48, "", kC, "tiles on all SMs, 700 W"},
      {"hbm_activity", &P::hbm_activity, 1.6, "", kC, "dense cells of 1k"},
      {"hbm_gb_per_s", &P::hbm_gb_per_s, 4500, "GB/s", kC, "decodes; the data sheet has 4800"},
      {"l2_gb_per_s", &P::l2_gb_per_s, 7300, "GB/s", kC, "one head of 8000 rows, depth 256"},
      {"l2_hit_latency", &P::l2_hit_latency, 270, "cycles", kA, ""},
      {"hbm_extra_latency", &P::hbm_extra_latency, 350, "cycles", kA, ""},
      {"launch_ns", &P::launch_ns, 1800, "ns", kC, "dense cells of 1k"},
      {"dependent_launch_ns", &P::dependent_launch_ns, 700, "ns", kC, "decodes"},
      {"fma_cycles", &P::fma_cycles, 1, "cycles", kV, "128 results a cycle and SM"},
      {"fma_latency", &P::fma_latency, 4, "cycles", kM, "arithmetic.fma"},
      {"alu_cycles", &P::alu_cycles, 2, "cycles", kV, "64 results a cycle and SM"},
      {"alu_latency", &P::alu_latency, 4, "cycles", kM, "arithmetic.max, .compare_select"},
      {"xu_cycles", &P::xu_cycles, 8, "cycles", kV, "16 results a cycle and SM"},
      {"xu_latency", &P::xu_latency, 17, "cycles", kM, "arithmetic.ex2"},
      {"issue_turns", &P::issue_turns, 1, "", kM, "turns.max, .ex2; beside.*.warpgroups2"},
      {"schedule_window", &P::schedule_window, 12, "", kC, "beside.softmax.warpgroups1"},
      {"float_copy_slots", &P::float_copy_slots, 0, "", kM, "SASS of our kernels: ptxas renames"},
      {"branch_latency", &P::branch_latency, 10, "cycles", kA, ""},
      {"lsu_cycles", &P::lsu_cycles, 1, "cycles", kV, "128 bytes a cycle and SM"},
      {"shared_latency", &P::shared_latency, 28, "cycles", kM, "shared.latency4"},
      {"shuffle_latency", &P::shuffle_latency, 24, "cycles", kM, "arithmetic.shuffle"},
      {"mbarrier_latency", &P::mbarrier_latency, 20, "cycles", kA, ""},
      {"mbarrier_wake_latency", &P::mbarrier_wake_latency, 36, "cycles", kM,
       "barriers.mbarrier.handover"},
      {"barrier_latency", &P::barrier_latency, 24, "cycles", kM, "barriers.named"},
      {"fence_latency", &P::fence_latency, 14, "cycles", kM, "barriers.fence_proxy"},
      {"gpu_fence_latency", &P::gpu_fence_latency, 500, "cycles", kA,
       "a write to memory, and back"},
      {"peer_latency", &P::peer_latency, 180, "cycles", kP, "arXiv:2402.13499, an SM to another"},
      {"tensor_flop_per_cycle", &P::tensor_flop_per_cycle, 4096, "", kV, "dense bf16"},
      {"tensor_start_latency", &P::tensor_start_latency, 10, "cycles", kM, "products.count1"},
      {"tensor_end_latency", &P::tensor_end_latency, 10, "cycles", kM, "products.count1"},
      {"product_fence_latency", &P::product_fence_latency, 8, "cycles", kM, "barriers.wgmma_fence"},
      {"product_wait_latency", &P::product_wait_latency, 20, "cycles", kM,
       "barriers.wgmma_commit_wait"},
      {"operand_bytes_per_cycle", &P::operand_bytes_per_cycle, 128, "bytes", kV, "shared memory"},
      {"product_issue_columns", &P::product_issue_columns, 8, "columns", kM, "products.issue4"},
      {"product_issue_cycles", &P::product_issue_cycles, 2, "cycles", kM, "products.issue4"},
      {"product_port_columns", &P::product_port_columns, 4, "columns", kM, "beside.fma"},
      {"product_port_slack", &P::product_port_slack, 32, "slots", kC, "tiles of 3 consumers"},
      {"product_slows_alu", &P::product_slows_alu, 1.0, "", kM, "beside.max, .pack"},
      {"product_slows_xu", &P::product_slows_xu, 0.36, "", kM, "beside.ex2"},
      {"product_delays_xu", &P::product_delays_xu, 14, "cycles", kC, "beside.softmax.warpgroups1"},
      {"product_queue", &P::product_queue, 3, "", kC, "tiles on 8 SMs; products.issue4"},
      {"tma_issue", &P::tma_issue, 8, "cycles", kA, ""},
      {"tma_latency", &P::tma_latency, 700, "cycles", kC, "short sequences"},
      {"tma_bytes", &P::tma_bytes, 64, "bytes", kA, "L2 to one SM"},
      {"store_latency", &P::store_latency, 500, "cycles", kA, ""},
      {"cta_start", &P::cta_start, 800, "cycles", kA, ""},
  };
}

std::vector<ParameterRow> blackwell() {
  constexpr Source kV = Source::kVendor, kP = Source::kPublished, kC = Source::kCalibration,
                   kA = Source::kAssumption;
  return {
      {"sms", &P::sms, sm_count(Arch::kSm100a), "", kV, "B200"},
      {"boost_mhz", &P::boost_mhz, 1755, "MHz", kP,
       "locked for FlashAttention-4's figures (its PR 2605)"},
      {"free_activity", &P::free_activity, 0.5, "", kC,
       "FlashAttention-4, depth 128, none, 4k and 16k"},
      {"hbm_activity", &P::hbm_activity, 0.8, "", kC, "FlashAttention-4, depth 128, none, 1k"},
      {"hbm_gb_per_s", &P::hbm_gb_per_s, 7500, "GB/s", kA, "the data sheet has 8000"},
      {"l2_gb_per_s", &P::l2_gb_per_s, 10000, "GB/s", kA, ""},
      {"l2_hit_latency", &P::l2_hit_latency, 270, "cycles", kA, ""},
      {"hbm_extra_latency", &P::hbm_extra_latency, 350, "cycles", kA, ""},
      {"launch_ns", &P::launch_ns, 1800, "ns", kA, "as sm_90a"},
      {"dependent_launch_ns", &P::dependent_launch_ns, 700, "ns", kA, "as sm_90a"},
      {"fma_cycles", &P::fma_cycles, 1, "cycles", kV, "128 results a cycle and SM"},
      {"fma_latency", &P::fma_latency, 4, "cycles", kA, ""},
      {"alu_cycles", &P::alu_cycles, 2, "cycles", kV, "64 results a cycle and SM"},
      {"alu_latency", &P::alu_latency, 4, "cycles", kA, "as sm_90a"},
      {"xu_cycles", &P::xu_cycles, 8, "cycles", kV, "16 results a cycle and SM"},
      {"xu_latency", &P::xu_latency, 17, "cycles", kA, "as sm_90a"},
      {"issue_turns", &P::issue_turns, 1, "", kC, "FlashAttention-4, depth 64, none, 4k"},
      {"float_copy_slots", &P::float_copy_slots, 1, "", kA, "its SASS was not read for that"},
      {"branch_latency", &P::branch_latency, 10, "cycles", kA, ""},
      {"lsu_cycles", &P::lsu_cycles, 1, "cycles", kV, "128 bytes a cycle and SM"},
      {"shared_latency", &P::shared_latency, 29, "cycles", kA, ""},
      {"shuffle_latency", &P::shuffle_latency, 23, "cycles", kA, ""},
      {"mbarrier_latency", &P::mbarrier_latency, 20, "cycles", kA, ""},
      {"mbarrier_wake_latency", &P::mbarrier_wake_latency, 36, "cycles", kA, "as sm_90a"},
      {"barrier_latency", &P::barrier_latency, 24, "cycles", kA, "as sm_90a"},
      {"fence_latency", &P::fence_latency, 14, "cycles", kA, "as sm_90a"},
      {"gpu_fence_latency", &P::gpu_fence_latency, 500, "cycles", kA, "as sm_90a"},
      {"peer_latency", &P::peer_latency, 180, "cycles", kA, "as sm_90a"},
      {"tensor_flop_per_cycle", &P::tensor_flop_per_cycle, 8192, "", kV, "dense bf16"},
      {"tensor_start_latency", &P::tensor_start_latency, 10, "cycles", kA, "as sm_90a"},
      {"tensor_end_latency", &P::tensor_end_latency, 10, "cycles", kA, "as sm_90a"},
      {"operand_bytes_per_cycle", &P::operand_bytes_per_cycle, 128, "bytes", kV, "shared memory"},
      {"product_issue_columns", &P::product_issue_columns, 0, "columns", kV,
       "tcgen05 has no accumulators in registers"},
      {"product_issue_cycles", &P::product_issue_cycles, 0, "cycles", kV, "the same"},
      {"product_port_columns", &P::product_port_columns, 0, "columns", kV, "the same"},
      {"tensor_memory_bytes", &P::tensor_memory_bytes, 128, "bytes", kA, "of a sub-partition"},
      {"tensor_memory_latency", &P::tensor_memory_latency, 20, "cycles", kA, ""},
      {"tma_issue", &P::tma_issue, 8, "cycles", kA, ""},
      {"tma_latency", &P::tma_latency, 700, "cycles", kA, "as sm_90a"},
      {"tma_bytes", &P::tma_bytes, 64, "bytes", kA, "L2 to one SM"},
      {"store_latency", &P::store_latency, 500, "cycles", kA, ""},
      {"cta_start", &P::cta_start, 800, "cycles", kA, ""},
  };
}

/// GB300: what is not known to differ is a B200's.
std::vector<ParameterRow> blackwell_ultra() {
  constexpr Source kV = Source::kVendor, kP = Source::kPublished, kA = Source::kAssumption;
  const std::vector<ParameterRow> own = {
      {"sms", &P::sms, sm_count(Arch::kSm103a), "", kP,
       "GB300: facebookexperimental/triton, PR 2768"},
      {"boost_mhz", &P::boost_mhz, 1957, "MHz", kA,
       "the clock of FlashAttention-4's published figures of GB300"},
      {"xu_cycles", &P::xu_cycles, 4, "cycles", kV, "10.7 T exponentials a second, of 5 T"},
  };
  std::vector<ParameterRow> rows = blackwell();
  for (ParameterRow& row : rows) {
    const auto same = std::find_if(own.begin(), own.end(), [&](const ParameterRow& other) {
      return other.member == row.member;
    });
    if (same != own.end()) {
      row = *same;
    } else if (row.source != kV) {
      row.source = kA;
      row.from = "as sm_100a";
    }
  }
  return rows;
}

}  // namespace

std::string_view to_string(Source source) {
  switch (source) {
    case Source::kVendor:
      return "vendor";
    case Source::kMeasurement:
      return "measurement";
    case Source::kPublished:
      return "published";
    case Source::kCalibration:
      return "calibration";
    case Source::kAssumption:
      return "assumption";
  }
  return "?";
}

const std::vector<ParameterRow>& parameter_table(Arch arch) {
  static const std::vector<ParameterRow> h200 = hopper(), b200 = blackwell(),
                                         b300 = blackwell_ultra();
  return arch == Arch::kSm90a ? h200 : arch == Arch::kSm100a ? b200 : b300;
}

std::string_view error_of(Arch arch) {
  switch (arch) {
    case Arch::kSm90a:
      return "16 of 16 times of an H200 within 12 %";
    case Arch::kSm100a:
      return "10 of 11 published rates of a B200 within 12 %, and one 24 % too fast";
    case Arch::kSm103a:
      return "4 published rates of a GB300 are 19 to 51 % too fast here";
  }
  return "?";
}

Parameters parameters_of(Arch arch) {
  Parameters parameters;
  for (const ParameterRow& row : parameter_table(arch)) parameters.*row.member = row.value;
  return parameters;
}

}  // namespace attnjit::clock
