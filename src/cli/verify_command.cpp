// SPDX-License-Identifier: Apache-2.0
// attnjit verify: runs a spec's kernel and compares its outputs with the reference.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <filesystem>

#include "cli/json.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/spec_source.h"
#include "cli/timing.h"
#include "clock/clock.h"
#include "plan/sm90/sm90_layout.h"
#include "plan/sm90/sm90_roles.h"
#include "verify/backend.h"
#include "verify/compare.h"
#include "verify/dump.h"
#include "verify/emulator_backend.h"
#include "verify/reference.h"

namespace attnjit::cli {
namespace {

using verify::Backend;

Result<std::unique_ptr<Backend>> choose_backend(const VerifyArguments& arguments, Arch arch) {
  const verify::EmulatorSettings settings{arguments.model.value_or("silicon"), arguments.waivers,
                                          arguments.seeds.value_or(1),
                                          arguments.sm_count.value_or(2)};
  // A setting of the emulator asks for it.
  const char* asked = arguments.model              ? "model"
                      : !arguments.waivers.empty() ? "waive"
                      : arguments.seeds            ? "seeds"
                      : arguments.sm_count         ? "sm_count"
                                                   : nullptr;
  if (arguments.backend == "gpu") {
    if (asked != nullptr) {
      return make_error(ErrorCode::kInvalid, "is a setting of the emulator, not of a GPU", asked);
    }
    return verify::make_gpu_backend(arch);
  }
  if (arguments.backend == "emulator" || asked != nullptr)
    return verify::make_emulator_backend(settings);
  Result<std::unique_ptr<Backend>> gpu = verify::make_gpu_backend(arch);
  if (gpu) return gpu;
  return verify::make_emulator_backend(settings);
}

// A kernel that takes no kv_lens would read every sequence at full length. With lists of keys it
// reads what they name.
Status check_kernel_takes(const KernelPlan& plan, const verify::Problem& problem) {
  if (!problem.kv_lens_differ() || problem.spec.topk > 0) return {};
  const bool takes = std::any_of(
      plan.main().parameters.begin(), plan.main().parameters.end(),
      [](const KernelParameter& p) { return p.name == "kv_lens" || p.name == "kv_offsets"; });
  if (takes) return {};
  return make_error(ErrorCode::kInvalid,
                    "lengths that differ need a spec with page_size, ragged or ragged_kv: this "
                    "kernel takes one kv_len",
                    "kv_len");
}

// Told before the work, not after it.
Status check_dump(const std::optional<std::string>& folder) {
  if (!folder) return {};
  std::error_code failure;
  const std::filesystem::file_status status = std::filesystem::status(*folder, failure);
  if (std::filesystem::exists(status) && !std::filesystem::is_directory(status)) {
    return make_error(ErrorCode::kInvalid, fmt::format("{} is no folder", *folder), "dump");
  }
  return {};
}

template <class T>
std::string joined(const std::vector<T>& values) {
  return fmt::format("{}", fmt::join(values, ","));
}

double milliseconds_since(std::chrono::steady_clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
      .count();
}

struct Verified {
  std::string backend, device, key;
  CompiledKernel compiled;
  verify::Comparison comparison;
  verify::BackendRun run;
  double reference_ms = 0;
};

Report describe(const Verified& verified, const verify::Problem& problem,
                const verify::ProblemRequest& request) {
  const verify::Comparison& comparison = verified.comparison;
  const bool passed = comparison.passed && verified.run.findings.empty();
  std::string reason = comparison.reason;
  if (reason.empty() && !verified.run.findings.empty()) reason = verified.run.findings.front();

  Json json;
  json["backend"] = verified.backend;
  json["device"] = verified.device;
  json["passed"] = passed;
  json["reason"] = reason.empty() ? Json() : Json(reason);
  json["max_abs_err"] = comparison.max_abs_err;
  json["rel_err"] = comparison.rel_err;
  json["max_row_err"] = comparison.max_row_err;
  json["lse_max_abs_err"] = comparison.lse_max_abs_err ? Json(*comparison.lse_max_abs_err) : Json();
  json["tolerance"] = comparison.tolerance;
  json["findings"] = verified.run.findings;
  json["model"] = verified.run.model.empty() ? Json() : Json(verified.run.model);
  json["waivers"] = verified.run.waivers;
  json["key"] = verified.key;
  json["arch"] = std::string(to_string(problem.spec.arch));
  json["outcome"] = std::string(to_string(verified.compiled.outcome));
  json["batch"] = problem.batch;
  json["q_len"] = problem.q_lens;
  json["kv_len"] = problem.kv_lens;
  json["seed"] = request.seed;
  json["input"] = std::string(to_string(request.input));
  json["kernel_ms"] = verified.run.kernel_ms;
  json["reference_ms"] = verified.reference_ms;

  std::string model;
  if (!verified.run.model.empty()) model = fmt::format(", {} model", verified.run.model);
  if (!verified.run.waivers.empty()) {
    model += fmt::format(" with {} waived", joined(verified.run.waivers));
  }
  Report report;
  report.json = to_text(json);
  report.text = fmt::format(
      "{} on {}{}: batch {}, q_len {}, kv_len {}, {} inputs, seed {}\n"
      "rel_err {:.2e} (at most {:.0e}), max_row_err {:.2e} (at most {:.0e}), max_abs_err {:.2e}{}\n"
      "{}\n",
      verified.backend, verified.device, model, problem.batch, joined(problem.q_lens),
      joined(problem.kv_lens), to_string(request.input), request.seed, comparison.rel_err,
      comparison.tolerance, comparison.max_row_err, 4 * comparison.tolerance,
      comparison.max_abs_err,
      comparison.lse_max_abs_err
          ? fmt::format(", lse_max_abs_err {:.2e}", *comparison.lse_max_abs_err)
          : "",
      !passed                ? "FAILED: " + reason
      : problem.total_q == 0 ? "passed: there are no queries, so nothing was launched"
                             : "passed");
  if (!passed) {
    report.exit_code = 1;
    report.note = "verification failed: " + reason;
    for (const std::string& finding : verified.run.findings) report.note += "\n  " + finding;
  }
  return report;
}

/// A clock looks at nothing that is a setting of a run or of what follows it.
Status check_alone(const VerifyArguments& arguments, Arch arch) {
  if (arguments.timing.arch.empty()) return {};
  const char* other = arguments.dump               ? "dump"
                      : arguments.model            ? "model"
                      : !arguments.waivers.empty() ? "waive"
                      : arguments.seeds            ? "seeds"
                      : arguments.sm_count         ? "sm_count"
                      : arguments.backend == "gpu" ? "backend"
                                                   : nullptr;
  if (other != nullptr) {
    return make_error(ErrorCode::kInvalid, "has no meaning with --timing, which compares nothing",
                      other);
  }
  if (*clock::timing_arch(arguments.timing.arch) != arch) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("is {}; the spec is for {}", arguments.timing.arch, to_string(arch)), "timing");
  }
  return {};
}

/// Of a kernel with two bodies: whether the launch is of the second one.
bool runs_small_tiles(const PlannedKernel& kernel, const LaunchRecipe& launch) {
  for (std::size_t i = 0; i < kernel.parameters.size(); ++i) {
    const auto* number = std::get_if<LaunchNumber>(&kernel.parameters[i].source);
    if (number != nullptr && *number == LaunchNumber::kSmallTile)
      return std::get<std::int32_t>(launch.args.at(i).value) != 0;
  }
  return false;
}

constexpr std::string_view kBarriers = "barriers";  ///< as maps of shared memory call them

void name_small_tiles(const Sm90Plan& low, TimedKernel& kernel) {
  kernel.roles = sm90_roles(low);
  kernel.barriers = low.barriers.all();
  kernel.barriers_begin = low.smem.begin_of(Region::kBarriers);
}

/// What the compiler and the plan say of the kernels, by launch.
std::vector<TimedKernel> timed_kernels(const CompiledKernel& compiled, const KernelPlan& plan,
                                       const LaunchSequence& sequence) {
  std::vector<TimedKernel> kernels;
  const KernelImage& image = *compiled.image;
  for (const LaunchRecipe& launch : sequence.launches) {
    TimedKernel kernel;
    if (launch.kernel < image.entry_usage.size()) {
      kernel.registers = static_cast<unsigned>(image.entry_usage[launch.kernel].registers);
    }
    const PlannedKernel& planned = plan.kernels.at(launch.kernel);
    if (runs_small_tiles(planned, launch)) {
      name_small_tiles(*plan.sm90->small_tile, kernel);
    } else {
      kernel.roles = planned.roles;
      kernel.barriers = planned.barriers;
      for (const MemoryRange& range : planned.smem_map)
        if (range.name == kBarriers) kernel.barriers_begin = range.begin;
    }
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

/// The launch on a GPU of the clock's, which is not compared with the reference.
Result<Report> time_problem(Session& session, const TimingArguments& timing,
                            verify::Problem& problem, const verify::ProblemRequest& request) {
  const PreparedSpec& prepared = session.prepared;
  Result<CompiledKernel> compiled =
      session.service->compile(prepared, compile_deadline(), PtxNeed::kRequired);
  if (!compiled) return std::move(compiled).error();
  Result<PtxModule> module = PtxModule::load(compiled->image->ptx);
  if (!module) return std::move(module).error();
  if (Status s = verify::fill_problem(request, problem); !s) return std::move(s).error();
  DeviceShape device;
  device.sm_count = clock::sms_of(*clock::timing_arch(timing.arch));
  Result<LaunchSequence> sequence =
      plan_launch(prepared.plan(), problem.launch_shapes(), problem.launch_scalars(),
                  problem.param_values(), device);
  if (!sequence) return std::move(sequence).error();
  std::vector<EmulatorBuffer> buffers = verify::emulator_buffers(problem);
  problem.tensors.clear();  // copied
  return time_for_report(*module, *sequence, buffers, timing,
                         timed_kernels(*compiled, prepared.plan(), *sequence));
}

}  // namespace

Result<Report> run_verify(const VerifyArguments& arguments) {
  if (arguments.backend != "auto" && arguments.backend != "gpu" &&
      arguments.backend != "emulator") {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("is '{}'; allowed: auto, gpu, emulator", arguments.backend.substr(0, 64)),
        "backend");
  }
  Result<ResolvedSpec> spec = read_spec(arguments.spec, arguments.timing.arch);
  if (!spec) return std::move(spec).error();
  if (Status s = check_dump(arguments.dump); !s) return std::move(s).error();
  if (Status s = check_timing(arguments.timing, false); !s) return std::move(s).error();
  if (Status s = check_alone(arguments, (*spec)->arch); !s) return std::move(s).error();
  Result<verify::ProblemRequest> request = read_problem(arguments.problem, spec->given());
  if (!request) return std::move(request).error();
  // Bad input is told before what is unsupported, and that before what the environment lacks.
  Result<verify::Problem> problem = verify::shape_problem(spec->given(), *request);
  if (!problem) return std::move(problem).error();
  Result<Session> session = open_session(arguments.spec, *spec);
  if (!session) return std::move(session).error();
  const PreparedSpec& prepared = session->prepared;
  if (Status s = check_kernel_takes(prepared.plan(), *problem); !s) return std::move(s).error();
  if (!arguments.timing.arch.empty())
    return time_problem(*session, arguments.timing, *problem, *request);
  Result<std::unique_ptr<Backend>> backend = choose_backend(arguments, (*spec)->arch);
  if (!backend) return std::move(backend).error();

  Verified verified;
  verified.backend = (*backend)->name();
  verified.device = (*backend)->device();
  verified.key = prepared.key().hex;
  Result<CompiledKernel> compiled = session->service->compile(
      prepared, compile_deadline(), (*backend)->needs_ptx() ? PtxNeed::kRequired : PtxNeed::kSkip);
  if (!compiled) return std::move(compiled).error();
  verified.compiled = std::move(*compiled);
  if (Status s = verify::fill_problem(*request, *problem); !s) return std::move(s).error();
  Result<verify::BackendRun> run =
      (*backend)->run(prepared.plan(), verified.compiled.image, *problem);
  if (!run) return std::move(run).error();
  verified.run = std::move(*run);
  const verify::Tensor* lse = verified.run.lse ? &*verified.run.lse : nullptr;
  if (arguments.dump) {
    Status status = verify::dump(*arguments.dump, *problem, spec->options(), verified.run.o, lse);
    if (!status) return std::move(status).error();
  }
  const auto begin = std::chrono::steady_clock::now();
  Result<verify::Reference> reference = verify::compute_reference(*problem);
  if (!reference) return std::move(reference).error();
  verified.reference_ms = milliseconds_since(begin);
  verified.comparison = verify::compare(*problem, *reference, verified.run.o, lse,
                                        verify::tolerance_of(problem->spec));
  return describe(verified, *problem, *request);
}

}  // namespace attnjit::cli
