// SPDX-License-Identifier: Apache-2.0
// attnjit bench: times a kernel on the GPU with events, over buffers that rotate past the L2 cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/json.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/spec_source.h"
#include "verify/gpu_device.h"
#include "verify/gpu_problem.h"
#include "verify/gpu_timer.h"
#include "verify/mask_and_score_mod.h"

namespace attnjit::cli {
namespace {

using verify::GpuProblem;
using verify::Problem;

constexpr double kSampleMs = 2;  // launches are grouped to samples of about this length
constexpr int kMaxGroup = 200;

struct Timing {
  int sets = 1, group = 1;
  std::vector<double> samples;  // milliseconds per launch, sorted
  double median() const { return samples[samples.size() / 2]; }
};

// Pairs of a query and a key that the mask's row ranges hold: exact where a row sees every key of
// its range, an upper bound elsewhere. A list of keys has topk places, whatever the sequence has.
double count_pairs(const Problem& problem, const verify::MaskAndScoreMod& rules) {
  double pairs = 0;
  if (problem.spec.topk > 0) {
    for (const int rows : problem.q_lens) pairs += static_cast<double>(rows) * problem.spec.topk;
    return pairs;
  }
  for (int b = 0; b < problem.batch; ++b) {
    const std::int64_t kv_len = problem.kv_lens[b];
    for (int row = 0; row < problem.q_lens[b]; ++row) {
      const verify::KeyRange range =
          rules.visible_range(row + problem.kv_lens[b] - problem.q_lens[b], problem.kv_lens[b]);
      const std::int64_t begin = std::clamp<std::int64_t>(range.begin, 0, kv_len);
      const std::int64_t end = std::clamp<std::int64_t>(range.end, 0, kv_len);
      pairs += static_cast<double>(std::max<std::int64_t>(0, end - begin));
    }
  }
  return pairs;
}

Result<Timing> run(const Device& device, const Kernel& kernel, const Problem& problem, int warmup,
                   int repeats) {
  Result<verify::GpuTimer> timer = verify::GpuTimer::make(device, problem);
  if (!timer) return std::move(timer).error();
  verify::GpuTimer::States states;
  Timing timing;
  timing.sets = timer->sets();
  // NOTE: once more before the group is sized: the first launches load and encode.
  Result<double> once = timer->time(kernel, states, std::max(1, warmup));
  if (once) once = timer->time(kernel, states, 3);
  if (!once) return std::move(once).error();
  timing.group =
      std::clamp(static_cast<int>(std::ceil(kSampleMs / std::max(1e-4, *once))), 1, kMaxGroup);
  for (int i = 0; i < repeats; ++i) {
    Result<double> ms = timer->time(kernel, states, timing.group);
    if (!ms) return std::move(ms).error();
    timing.samples.push_back(*ms);
  }
  std::sort(timing.samples.begin(), timing.samples.end());
  return timing;
}

}  // namespace

Result<Report> run_bench(const BenchArguments& arguments) {
  for (const auto& [flag, value, least] :
       {std::tuple{"warmup", arguments.warmup, 0}, std::tuple{"repeats", arguments.repeats, 1}}) {
    if (value < least || value > 1000000) {
      return make_error(ErrorCode::kInvalid,
                        fmt::format("is {}; allowed: {} to 1000000", value, least), flag);
    }
  }
  Result<ResolvedSpec> spec = read_spec(arguments.spec);
  if (!spec) return std::move(spec).error();
  Result<verify::ProblemRequest> request = read_problem(arguments.problem, spec->given());
  if (!request) return std::move(request).error();
  Result<Problem> problem = verify::shape_problem(spec->given(), *request);
  if (!problem) return std::move(problem).error();
  Result<Session> session = open_session(arguments.spec, *spec);
  if (!session) return std::move(session).error();
  const PreparedSpec& prepared = session->prepared;
  Result<verify::GpuChoice> gpu = verify::open_gpu((*spec)->arch);
  if (!gpu) return std::move(gpu).error();
  if (Status s = verify::fill_problem(*request, *problem); !s) return std::move(s).error();
  Result<verify::MaskAndScoreMod> rules = verify::MaskAndScoreMod::of(*problem);
  if (!rules) return std::move(rules).error();
  Result<CompiledKernel> compiled = session->service->compile(prepared, compile_deadline());
  if (!compiled) return std::move(compiled).error();
  Result<std::unique_ptr<Kernel>> kernel = gpu->driver->load(compiled->image, prepared.plan());
  if (!kernel) return std::move(kernel).error();
  Result<Timing> timing = run(gpu->device, **kernel, *problem, static_cast<int>(arguments.warmup),
                              static_cast<int>(arguments.repeats));
  if (!timing) return std::move(timing).error();

  const AttentionSpec& attention = problem->spec;
  const double pairs = count_pairs(*problem, *rules) * attention.num_q_heads;
  const double flops = 2.0 * pairs * (attention.qk_depth + attention.ov_depth);
  const double ms = timing->median();
  const auto bytes = static_cast<double>(GpuProblem::bytes_of(*problem));
  const double tflops = flops / ms * 1e-9;
  Json json;
  json["device"] = gpu->device.properties().name;
  json["arch"] = std::string(to_string(attention.arch));
  json["key"] = prepared.key().hex;
  json["batch"] = problem->batch;
  json["q_len"] = problem->q_lens;
  json["kv_len"] = problem->kv_lens;
  json["input"] = std::string(to_string(request->input));
  json["ms"] = ms;
  json["ms_min"] = timing->samples.front();
  json["ms_max"] = timing->samples.back();
  json["tflops"] = tflops;
  json["flops"] = flops;
  json["gb_per_s"] = bytes / ms * 1e-6;
  json["repeats"] = arguments.repeats;
  json["launches_per_sample"] = timing->group;
  json["buffer_sets"] = timing->sets;
  Report report;
  report.json = to_text(json);
  report.text =
      fmt::format("{}: {:.4f} ms (median of {}, {:.4f} to {:.4f}), {:.1f} TFLOP/s, {:.0f} GB/s\n",
                  gpu->device.properties().name, ms, timing->samples.size(),
                  timing->samples.front(), timing->samples.back(), tflops, bytes / ms * 1e-6);
  return report;
}

}  // namespace attnjit::cli
