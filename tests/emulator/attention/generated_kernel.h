// SPDX-License-Identifier: Apache-2.0
// Attention kernels as attnjit generates them, run in the emulator: the subject of the agreement
// with the H200 and of the mutations.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/emulator.h"
#include "attnjit/plan.h"
#include "attnjit/source.h"
#include "attnjit/tuning.h"
#include "verify/problem.h"

namespace attnjit::emulator {

/// How far a compile goes: to the PTX, which is all that the emulator reads, or through ptxas too,
/// which judges the kernel and takes two fifths of the time.
enum class CompileTo { kPtx, kImage };

struct GeneratedKernel {
  KernelPlan plan;
  std::string ptx;
  ResourceUsage usage;  ///< what ptxas says of it; none to the PTX
  std::string log;      ///< ptxas's, whole; empty to the PTX
};

/// Plans, renders and compiles a spec. `tuning` may be null. Errors: kEnvironment where there is no
/// NVRTC.
Result<GeneratedKernel> generate_kernel(const AttentionSpec& spec, const PlanOptions& options = {},
                                        const TemplateSet& templates = TemplateSet::embedded(),
                                        const Tuning* tuning = nullptr,
                                        CompileTo to = CompileTo::kPtx);

/// What one run of a kernel on a problem gave; outputs are uninitialised before.
struct KernelRun {
  EmulatorReport report;
  verify::Tensor o;
  std::optional<verify::Tensor> lse;
  std::map<std::string, std::vector<std::uint8_t>> workspaces;
};

/// `sequence` is plan_launch's for the problem, perhaps damaged. `workspaces` holds those that are
/// to be something before it runs.
Result<KernelRun> run_kernel(const PtxModule& module, const LaunchSequence& sequence,
                             const verify::Problem& problem, const EmulatorOptions& options,
                             std::map<std::string, std::vector<std::uint8_t>> workspaces = {});

/// The same of one launch.
inline Result<KernelRun> run_kernel(
    const PtxModule& module, const LaunchRecipe& launch, const verify::Problem& problem,
    const EmulatorOptions& options,
    std::map<std::string, std::vector<std::uint8_t>> workspaces = {}) {
  LaunchSequence sequence;
  sequence.launches = {launch};
  return run_kernel(module, sequence, problem, options, std::move(workspaces));
}

/// plan_launch with what the problem says.
Result<LaunchSequence> launch_of(const KernelPlan& plan, const verify::Problem& problem,
                                 const DeviceShape& device = {});

}  // namespace attnjit::emulator
