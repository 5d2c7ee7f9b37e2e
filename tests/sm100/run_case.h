// SPDX-License-Identifier: Apache-2.0
// Runs a case of the proof: compiled, executed in the emulator under the isa model with every
// check, and judged by the numbers.
//
// Thread rules: pure functions; a ProofKernel is immutable and may be shared.
#pragma once

#include <cstdint>
#include <string>

#include "../emulator/attention/generated_kernel.h"
#include "proof_cases.h"
#include "verify/problem.h"

namespace attnjit::sm100 {

struct ProofKernel {
  emulator::GeneratedKernel generated;
  PtxModule module;
};

/// Errors: kEnvironment where there is no NVRTC; kUnsupported for what the template does not serve.
Result<ProofKernel> make_kernel(const ProofCase& one,
                                const TemplateSet& templates = TemplateSet::embedded(),
                                emulator::CompileTo to = emulator::CompileTo::kPtx);

struct Judged {
  bool passed = false;
  std::string reason;  ///< a finding, or what is wrong with the numbers
  double rel_err = 0, max_row_err = 0, lse_max_abs_err = 0;
  std::uint64_t steps = 0;  ///< warp instructions over all orders
  double seconds = 0;
  int query_tiles = 0;  ///< a CTA: the body that ran
};

/// The emulator's options of the proof: isa, every check, and the orders that the plan declares
/// that its kernel relies on (docs/sm100.md, "In-order issue").
EmulatorOptions proof_options(const KernelPlan& plan, std::uint64_t order);

/// The inputs of a case. Errors: make_problem's.
Result<verify::Problem> problem_of(const ProofCase& one, verify::InputKind input,
                                   std::uint64_t seed);

/// Runs orders 0, 1, .. of time on a problem and compares each with the float64 reference.
Judged judge(const ProofShape& shape, const ProofKernel& kernel, const verify::Problem& problem,
             std::uint64_t orders);

}  // namespace attnjit::sm100
