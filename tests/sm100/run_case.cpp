// SPDX-License-Identifier: Apache-2.0
// Compiles a case of the proof, runs it in the emulator and judges its answer.
#include "run_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "../gpu/verify_cases.h"
#include "plan/sm100/sm100_plan.h"
#include "verify/compare.h"

namespace attnjit::sm100 {
namespace {

// The query tiles a CTA of the body that a launch chooses.
int query_tiles_of(const KernelPlan& plan, const LaunchSequence& sequence) {
  for (const LaunchRecipe& recipe : sequence.launches) {
    if (recipe.entry != plan.main().entry) continue;
    for (std::size_t i = 0; i < recipe.args.size(); ++i) {
      if (plan.main().parameters[i].name == "one_query") {
        return std::get<std::int32_t>(recipe.args[i].value) != 0 ? 1 : 2;
      }
    }
  }
  // Of head_dim above 256 a CTA has 64 rows.
  return plan.sm100 == nullptr ? 1 : static_cast<int>(plan.sm100->variants.front().num_qo);
}

}  // namespace

Result<ProofKernel> make_kernel(const ProofCase& one, const TemplateSet& templates,
                                emulator::CompileTo to) {
  const Result<Tuning> walks = tuning_from_json(R"({"rows": [{"choose": {"persistent": 1}}]})");
  if (!walks) return walks.error();
  Result<emulator::GeneratedKernel> kernel = emulator::generate_kernel(
      one.spec, one.options, templates, one.persistent ? &*walks : nullptr, to);
  if (!kernel) return std::move(kernel).error();
  Result<PtxModule> module = PtxModule::load(kernel->ptx);
  if (!module) return std::move(module).error();
  return ProofKernel{std::move(*kernel), std::move(*module)};
}

EmulatorOptions proof_options(const KernelPlan& plan, std::uint64_t order) {
  EmulatorOptions options;
  options.model = EmulatorModel::kIsa;
  for (const Waiver& waiver : plan.waivers) options.in_order_issue |= waiver.name == "in-order-mma";
  options.seed = order;
  options.threads = 1;
  return options;
}

Result<verify::Problem> problem_of(const ProofCase& one, verify::InputKind input,
                                   std::uint64_t seed) {
  verify::ProblemRequest request;
  request.batch = one.shape.batch;
  request.q_lens = {one.shape.q_len};
  request.kv_lens = {one.shape.kv_len};
  if (one.spec.ragged) request.q_lens = verify::mixed_lengths(one.shape.q_len, one.shape.batch, 0);
  if (one.spec.ragged || one.spec.page_size > 0) {
    request.kv_lens = verify::mixed_lengths(one.shape.kv_len, one.shape.batch, seed);
  }
  request.input = input;
  request.seed = seed;
  request.threads = 1;
  return verify::make_problem(one.spec, request);
}

Judged judge(const ProofShape& shape, const ProofKernel& kernel, const verify::Problem& problem,
             std::uint64_t orders) {
  Judged judged;
  const auto begin = std::chrono::steady_clock::now();
  const auto failed = [&](std::string reason) {
    judged.reason = std::move(reason);
    return judged;
  };
  const Result<verify::Reference> reference = verify::compute_reference(problem, 1);
  if (!reference) return failed(reference.error().to_string());
  DeviceShape device;
  device.sm_count = shape.sm_count;
  const Result<LaunchSequence> sequence =
      emulator::launch_of(kernel.generated.plan, problem, device);
  if (!sequence) return failed(sequence.error().to_string());
  judged.query_tiles = query_tiles_of(kernel.generated.plan, *sequence);
  for (std::uint64_t order = 0; order < orders; ++order) {
    const Result<emulator::KernelRun> run = emulator::run_kernel(
        kernel.module, *sequence, problem, proof_options(kernel.generated.plan, order));
    if (!run) return failed(run.error().to_string());
    if (!run->report.findings.empty()) {
      const Finding& finding = run->report.findings.front();
      return failed(fmt::format("order {}: {} at PTX line {}: {}", order, to_string(finding.kind),
                                finding.ptx_line, finding.text));
    }
    const verify::Comparison comparison =
        verify::compare(problem, *reference, run->o, run->lse ? &*run->lse : nullptr,
                        verify::tolerance_of(problem.spec));
    if (!comparison.passed) return failed(fmt::format("order {}: {}", order, comparison.reason));
    judged.steps += run->report.steps;
    judged.rel_err = std::max(judged.rel_err, comparison.rel_err);
    judged.max_row_err = std::max(judged.max_row_err, comparison.max_row_err);
    judged.lse_max_abs_err =
        std::max(judged.lse_max_abs_err, comparison.lse_max_abs_err.value_or(0));
  }
  judged.passed = true;
  judged.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return judged;
}

}  // namespace attnjit::sm100
