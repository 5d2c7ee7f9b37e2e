// SPDX-License-Identifier: Apache-2.0
// The numbers of the clock's model of a GPU, each with what it was taken from (docs/clock.md).
//
// Thread rules: plain values.
#pragma once

#include <string_view>
#include <vector>

#include "attnjit/types.h"

namespace attnjit::clock {

/// Where a number comes from.
enum class Source : unsigned char {
  kVendor,       ///< the vendor's documents
  kMeasurement,  ///< ours, by a kernel of tests/gpu/clock
  kPublished,    ///< others' measurement, which is named
  kCalibration,  ///< fitted to bench/clock/calibration.json, or to what is named
  kAssumption,   ///< a guess
};
std::string_view to_string(Source source);

/// Times are in cycles of the SM's clock, rates in bytes per cycle and SM, unless a name says
/// otherwise.
struct Parameters {
  // The chip.
  double sms = 0;
  double boost_mhz = 0;            ///< the clock while the chip draws less than its power limit
  double free_activity = 0;        ///< activity up to which the clock is boost_mhz
  double hbm_activity = 0;         ///< by which HBM at its full rate adds to that of products
  double hbm_gb_per_s = 0;         ///< that copies reach
  double l2_gb_per_s = 0;          ///< the same of L2
  double l2_hit_latency = 0;       ///< of a thread's load
  double hbm_extra_latency = 0;    ///< of a miss in L2
  double launch_ns = 0;            ///< from launch to launch, beside what the SMs do
  double dependent_launch_ns = 0;  ///< the same, of a launch that the one before lets begin
  // A sub-partition: cycles that an instruction of a warp keeps a pipe, and its result's latency.
  double fma_cycles = 0, fma_latency = 0;
  double alu_cycles = 0, alu_latency = 0;
  double xu_cycles = 0, xu_latency = 0;
  /// 0: of warps that can issue at once, the oldest does. 1: the one that issued longest ago.
  double issue_turns = 0;
  /// Places of PTX's order up to which ptxas is taken to put an instruction ahead. 0: any number.
  double schedule_window = 0;
  double branch_latency = 0;    ///< until the instruction behind a branch
  double float_copy_slots = 1;  ///< of a mov.f32 between registers; 0: both are one place
  // What the sub-partitions share.
  double lsu_cycles = 0;  ///< of a wavefront of 128 bytes
  double shared_latency = 0, shuffle_latency = 0;
  // Barriers.
  double mbarrier_latency = 0;       ///< of an mbarrier's test
  double mbarrier_wake_latency = 0;  ///< from a phase's end until a waiting warp tests again
  double barrier_latency = 0;    ///< of a named barrier, for the last to come and those it wakes
  double fence_latency = 0;      ///< fence.proxy.async and the like
  double gpu_fence_latency = 0;  ///< of a fence that other SMs are to see
  // Clusters.
  double peer_latency = 0;  ///< of what crosses from one SM of a cluster to another, and of loads
  // Tensor cores.
  double tensor_flop_per_cycle = 0;    ///< an SM's, of 16-bit operands
  double tensor_start_latency = 0;     ///< from a product's issue to its begin
  double tensor_end_latency = 0;       ///< from its end to when a waiting warp is awake
  double product_fence_latency = 0;    ///< of a wgmma.fence
  double product_wait_latency = 0;     ///< of a wgmma.wait_group, also where nothing is waited for
  double operand_bytes_per_cycle = 0;  ///< at which products read shared memory
  /// Columns of a wgmma per cycle that its issue keeps the warp, and cycles beside those. 0: none.
  double product_issue_columns = 0, product_issue_cycles = 0;
  /// Columns of a wgmma per slot that it needs while it runs, since its accumulators are registers;
  /// other instructions have theirs first. 0: none.
  double product_port_columns = 0;
  double product_port_slack = 0;  ///< such slots that products may lack before one waits for them
  /// By how much of it an instruction that is issued while a wgmma runs keeps its pipe longer.
  double product_slows_alu = 0, product_slows_xu = 0;
  double product_delays_xu = 0;  ///< cycles by which a result of the XU comes later beside a wgmma
  /// Products of a warpgroup that are issued and did not begin, at most: the next one's warp waits.
  /// 0: any number.
  double product_queue = 0;
  double tensor_memory_bytes = 0;  ///< per cycle and sub-partition, tcgen05.ld and st
  double tensor_memory_latency = 0;
  // Copies.
  double tma_issue = 0;    ///< cycles between the boxes that one SM's engine begins
  double tma_latency = 0;  ///< of a box that is in L2, beside its bytes
  double tma_bytes = 0;    ///< of an SM that loads alone
  double store_latency = 0;
  // CTAs.
  double cta_start = 0;  ///< from a free slot to the first instruction
};

struct ParameterRow {
  std::string_view name;
  double Parameters::*member;
  double value;
  std::string_view unit;
  Source source;
  std::string_view from;
};

/// The table of an architecture: what docs/clock.md shows.
const std::vector<ParameterRow>& parameter_table(Arch arch);
/// Its values.
Parameters parameters_of(Arch arch);
/// How far off its times were, of what they were held to: a phrase for reports.
std::string_view error_of(Arch arch);
/// Grows with each change of a number or of the model: what was timed by another is not compared.
inline constexpr int kModelVersion = 11;

}  // namespace attnjit::clock
