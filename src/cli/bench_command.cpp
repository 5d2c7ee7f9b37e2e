// attnjit bench: times a kernel on the GPU with events, over buffers that rotate past the L2 cache.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/json.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/spec_source.h"
#include "verify/draw.h"
#include "verify/gpu_device.h"
#include "verify/gpu_problem.h"
#include "verify/meaning.h"

namespace attnjit::cli {
namespace {

using verify::GpuProblem;
using verify::Problem;

constexpr double kSampleMs = 2;  // launches are grouped to samples of about this length
constexpr int kMaxGroup = 200;
constexpr int kMaxSets = 16;

struct Timing {
  int sets = 1, group = 1;
  std::vector<double> samples;  // milliseconds a launch, sorted
  double median() const { return samples[samples.size() / 2]; }
};

// Pairs of a query and a key that the mask's row ranges hold: exact for null, causal, window, chunk
// and `and` of them, an upper bound for others.
double count_pairs(const Problem& problem, const verify::Meaning& meaning) {
  double pairs = 0;
  for (int b = 0; b < problem.batch; ++b) {
    const std::int64_t kv_len = problem.kv_lens[b];
    for (int row = 0; row < problem.q_lens[b]; ++row) {
      const verify::KeyRange range =
          meaning.visible_range(row + problem.kv_lens[b] - problem.q_lens[b], problem.kv_lens[b]);
      const std::int64_t begin = std::clamp<std::int64_t>(range.begin, 0, kv_len);
      const std::int64_t end = std::clamp<std::int64_t>(range.end, 0, kv_len);
      pairs += static_cast<double>(std::max<std::int64_t>(0, end - begin));
    }
  }
  return pairs;
}

class Bench {
 public:
  Bench(const Device& device, const Kernel& kernel, const Problem& problem)
      : device_(device), kernel_(kernel), problem_(problem) {}

  Result<Timing> run(int warmup, int repeats) {
    Timing timing;
    if (Status s = prepare(timing); !s) return std::move(s).error();
    Result<double> once = sample(std::max(1, warmup));
    if (!once) return std::move(once).error();
    once = sample(3);
    if (!once) return std::move(once).error();
    timing.group =
        std::clamp(static_cast<int>(std::ceil(kSampleMs / std::max(1e-4, *once))), 1, kMaxGroup);
    for (int i = 0; i < repeats; ++i) {
      Result<double> ms = sample(timing.group);
      if (!ms) return std::move(ms).error();
      timing.samples.push_back(*ms);
    }
    std::sort(timing.samples.begin(), timing.samples.end());
    return timing;
  }

 private:
  Status prepare(Timing& timing) {
    Result<DeviceStream> stream = device_.create_stream();
    if (!stream) return std::move(stream).error();
    stream_ = std::move(*stream);
    Result<std::int64_t> free = device_.free_bytes();
    if (!free) return std::move(free).error();
    const std::int64_t bytes = GpuProblem::bytes_of(problem_);
    const std::int64_t wanted =
        2 * device_.properties().l2_bytes / std::max<std::int64_t>(1, bytes) + 2;
    const std::int64_t fit =
        std::max<std::int64_t>(1, *free / 2 / std::max<std::int64_t>(1, bytes));
    timing.sets = static_cast<int>(std::min({wanted, fit, std::int64_t{kMaxSets}}));
    for (int i = 0; i < timing.sets; ++i) {
      Result<GpuProblem> set = GpuProblem::upload(device_, problem_, stream_.stream());
      if (!set) return std::move(set).error();
      if (Status s = set->prepare(device_, kernel_); !s) return s;
      sets_.push_back(std::move(*set));
    }
    states_.resize(sets_.size());
    for (DeviceEvent* event : {&begin_, &end_}) {
      Result<DeviceEvent> made = device_.create_event();
      if (!made) return std::move(made).error();
      *event = std::move(*made);
    }
    return {};
  }

  Result<double> sample(int launches) {
    void* stream = stream_.stream();
    if (Status s = device_.record(begin_, stream); !s) return std::move(s).error();
    for (int i = 0; i < launches; ++i) {
      next_ = (next_ + 1) % sets_.size();
      if (Status s = kernel_.launch(sets_[next_].args(), states_[next_]); !s) {
        return std::move(s).error();
      }
    }
    if (Status s = device_.record(end_, stream); !s) return std::move(s).error();
    Result<double> ms = device_.elapsed_ms(begin_, end_);
    if (!ms) return ms;
    return *ms / launches;
  }

  const Device& device_;
  const Kernel& kernel_;
  const Problem& problem_;
  DeviceStream stream_;
  DeviceEvent begin_, end_;
  std::vector<GpuProblem> sets_;
  std::vector<LaunchState> states_;
  std::size_t next_ = 0;
};

}  // namespace

Result<Report> run_bench(const BenchArguments& arguments) {
  for (const auto& [flag, value, least] :
       {std::tuple{"warmup", arguments.warmup, 0}, std::tuple{"repeats", arguments.repeats, 1}}) {
    if (value < least || value > 1000000) {
      return make_error(ErrorCode::kInvalid,
                        fmt::format("is {}; allowed: {} to 1000000", value, least), flag);
    }
  }
  Result<SpecDocument> document = read_spec(arguments.spec);
  if (!document) return std::move(document).error();
  Result<verify::ProblemRequest> request = read_problem(arguments.problem, document->spec);
  if (!request) return std::move(request).error();
  Result<Problem> problem = verify::shape_problem(document->spec, *request);
  if (!problem) return std::move(problem).error();
  Result<std::shared_ptr<const Tuning>> tuning = read_tuning(arguments.spec.tuning);
  if (!tuning) return std::move(tuning).error();
  Result<std::unique_ptr<Service>> service = open_service(std::move(*tuning));
  if (!service) return std::move(service).error();
  Result<PreparedSpec> prepared = (*service)->prepare(document->spec, document->options);
  if (!prepared) return std::move(prepared).error();
  Result<verify::GpuChoice> gpu = verify::open_gpu(document->spec.arch);
  if (!gpu) return std::move(gpu).error();
  verify::draw_tensors(*problem, *request);
  Result<verify::Meaning> meaning = verify::Meaning::of(*problem);
  if (!meaning) return std::move(meaning).error();
  Result<CompiledKernel> compiled = (*service)->compile(*prepared, compile_deadline());
  if (!compiled) return std::move(compiled).error();
  Result<std::unique_ptr<Kernel>> kernel = gpu->driver->load(compiled->image, prepared->plan());
  if (!kernel) return std::move(kernel).error();
  Result<Timing> timing =
      Bench(gpu->device, **kernel, *problem).run(arguments.warmup, arguments.repeats);
  if (!timing) return std::move(timing).error();

  const AttentionSpec& spec = problem->spec;
  const double pairs = count_pairs(*problem, *meaning) * spec.num_q_heads;
  const double flops = 2.0 * pairs * (spec.qk_depth + spec.ov_depth);
  const double ms = timing->median();
  const auto bytes = static_cast<double>(GpuProblem::bytes_of(*problem));
  const double tflops = flops / ms * 1e-9;
  Json json;
  json["device"] = gpu->device.properties().name;
  json["arch"] = std::string(to_string(spec.arch));
  json["key"] = prepared->key().hex;
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
