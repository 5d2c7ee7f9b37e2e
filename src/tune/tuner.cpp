// SPDX-License-Identifier: Apache-2.0
// Compiles, verifies and times the variants of a kernel, and chooses the fastest that is right.
#include "tune/tuner.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <mutex>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "verify/compare.h"
#include "verify/random_inputs.h"
#include "verify/reference.h"

namespace attnjit::tune {
namespace {

using verify::Problem;
using verify::ProblemRequest;

constexpr int kScreenPairs = 2;
constexpr double kFinalistsWithin = 1.10;
constexpr std::size_t kMaxFinalists = 8;
constexpr double kMinGain = 0.01;
constexpr double kMaxLoss = 0.02;
constexpr int kMaxLaunches = 1000;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

double geometric_mean(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += std::log(value);
  return std::exp(sum / static_cast<double>(values.size()));
}

std::string choice_text(const TuningValues& choose) {
  std::string text;
  for (const auto& [name, value] : choose) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text;
}

/// The median over pairs of blocks of the geometric mean of a pair's two ratios. The order turns
/// round within a pair, so a clock that falls steadily favours nobody.
double ratio_within_pairs(const std::vector<double>& times, const std::vector<double>& untuned) {
  std::vector<double> ratios;
  for (std::size_t block = 0; block + 1 < times.size(); block += 2) {
    ratios.push_back(
        std::sqrt(times[block] / untuned[block] * times[block + 1] / untuned[block + 1]));
  }
  return median(std::move(ratios));
}

class Tuner {
 public:
  Tuner(const TuneRequest& request, const Progress& progress)
      : request_(request), progress_(progress) {}

  Result<TuneResult> run(const ServiceFactory& services,
                         const std::function<Result<std::unique_ptr<TuningRig>>()>& open_rig) {
    Result<Variants> variants =
        enumerate_variants(request_.spec, request_.options, request_.max_variants);
    if (!variants) return std::move(variants).error();
    if (Status s = shape_problems(); !s) return std::move(s).error();
    Result<std::unique_ptr<TuningRig>> rig = open_rig();
    if (!rig) return std::move(rig).error();
    rig_ = std::move(*rig);
    result_.device = rig_->device();
    result_.illegal = variants->illegal;
    result_.duplicates = variants->duplicates;
    result_.left_out = variants->left_out;
    for (Variant& variant : variants->list) {
      result_.variants.emplace_back().variant = std::move(variant);
    }
    if (Status s = compile(services); !s) return std::move(s).error();
    if (rig_->times_wrong_kernels()) {
      if (Status s = time_all(); !s) return std::move(s).error();
      if (Status s = verify_all(finalists_); !s) return std::move(s).error();
    } else {
      if (Status s = verify_all(alive_); !s) return std::move(s).error();
      if (Status s = time_all(); !s) return std::move(s).error();
    }
    choose();
    return std::move(result_);
  }

 private:
  void report_progress(std::string_view stage, std::size_t done, std::size_t all) const {
    if (progress_) progress_(stage, done, all);
  }

  ProblemRequest problem_of(const TuneShape& shape) const {
    ProblemRequest problem = request_.values;
    problem.batch = shape.batch;
    problem.q_lens = {shape.q_len};
    problem.kv_lens = {shape.kv_len};
    return problem;
  }

  // Bad lengths are told before a GPU is looked for.
  Status shape_problems() {
    if (request_.shapes.empty()) return make_error(ErrorCode::kInvalid, "none given", "shape");
    for (const TuneShape& shape : request_.shapes) {
      Result<Problem> problem = verify::shape_problem(request_.spec, problem_of(shape));
      if (!problem) return std::move(problem).error();
      if (problem->total_q == 0 || problem->max_kv_len == 0) {
        return make_error(ErrorCode::kInvalid, "has no rows or no keys: nothing to time", "shape");
      }
    }
    return {};
  }

  // --- compile ----------------------------------------------------------------------------------

  struct Compiled {
    Status status;
    std::string key;
    std::shared_ptr<const KernelImage> image;
  };

  Compiled compile_one(const ServiceFactory& services, const Variant& variant) const {
    Compiled compiled;
    const auto failed = [&](Error error) {
      compiled.status = std::move(error);
      return std::move(compiled);
    };
    auto service = services(std::make_shared<const Tuning>(table_of(variant.choose)));
    if (!service) return failed(std::move(service).error());
    auto prepared = (*service)->prepare(request_.spec, request_.options);
    if (!prepared) return failed(std::move(prepared).error());
    compiled.key = prepared->key().hex;
    auto kernel = (*service)->compile(
        *prepared, std::chrono::steady_clock::now() + std::chrono::minutes(5), rig_->needs_ptx());
    if (!kernel) return failed(std::move(kernel).error());
    compiled.image = kernel->image;
    return compiled;
  }

  Status compile(const ServiceFactory& services) {
    const std::size_t count = result_.variants.size();
    std::vector<Compiled> compiled(count);
    std::atomic<std::size_t> next{0};
    std::mutex told;
    std::size_t done = 0;
    report_progress("compiled", 0, count);
    const auto work = [&] {
      for (std::size_t i = next++; i < count; i = next++) {
        compiled[i] = compile_one(services, result_.variants[i].variant);
        const std::lock_guard lock(told);
        report_progress("compiled", ++done, count);
      }
    };
    std::vector<std::thread> threads;
    const std::size_t wanted =
        std::min<std::size_t>(count, std::max(1U, std::thread::hardware_concurrency()));
    for (std::size_t i = 1; i < wanted; ++i) threads.emplace_back(work);
    work();
    for (std::thread& thread : threads) thread.join();

    if (!compiled.front().status) return std::move(compiled.front().status).error();
    result_.nvrtc_version = compiled.front().image->nvrtc_version;
    std::set<std::string> keys;
    for (std::size_t i = 0; i < count; ++i) {
      Measured& measured = result_.variants[i];
      measured.key = compiled[i].key;
      if (!compiled[i].status) {
        measured.fate = Fate::kNotCompiled;
        measured.reason = compiled[i].status.error().to_string();
        continue;
      }
      Status loaded = rig_->load(i, measured.variant.plan, compiled[i].image);
      if (loaded) {
        alive_.push_back(i);
      } else if (i == 0) {
        return loaded;
      } else {
        measured.fate = Fate::kNotCompiled;
        measured.reason = loaded.error().to_string();
      }
    }
    return {};
  }

  // --- verify -----------------------------------------------------------------------------------

  // Problems that end within a tile, and have several tiles of any size.
  std::vector<std::pair<TuneShape, verify::InputKind>> small_problems() const {
    using verify::InputKind;
    std::vector<std::pair<TuneShape, InputKind>> problems{
        {{2, 200, 600}, InputKind::kNormal}, {{1, 333, 333}, InputKind::kLarge},
        {{1, 65, 1100}, InputKind::kRising}, {{1, 70, 1100}, InputKind::kFalling},
        {{1, 129, 700}, InputKind::kSpike},  {{1, 130, 700}, InputKind::kRaised},
        {{1, 129, 600}, InputKind::kSmall},  {{1, 130, 600}, InputKind::kZero},
        {{1, 129, 500}, InputKind::kFar},    {{3, 100, 500}, InputKind::kStray},
    };
    const std::int64_t most = request_.spec.max_seq_len;
    for (auto& [shape, input] : problems) {
      // Absorbed MLA's tiles have rows of many heads for each query.
      if (request_.spec.mla == Mla::kDecode) shape.q_len = (shape.q_len + 31) / 32;
      if (most > 0) shape.q_len = std::min(shape.q_len, most);
      if (most > 0) shape.kv_len = std::min(shape.kv_len, most);
    }
    return problems;
  }

  // Context for an error that ends the tuning: after it the GPU's context is of no more use.
  Error fatal(Error error, std::size_t variant) const {
    error.message = fmt::format(
        "the variant {}: {}", choice_text(result_.variants[variant].variant.choose), error.message);
    return error;
  }

  /// Leaves those that are right.
  Status verify_all(std::vector<std::size_t>& variants) {
    const auto problems = small_problems();
    std::size_t done = 0, problems_done = 0;
    report_progress("verified", 0, variants.size() * problems.size());
    for (const auto& [shape, input] : problems) {
      // Of runs that are left, and those that were: a variant that is wrong has no more.
      const std::size_t all = done + variants.size() * (problems.size() - problems_done++);
      ProblemRequest asked = problem_of(shape);
      asked.input = input;
      Result<Problem> problem = verify::make_problem(request_.spec, asked);
      if (!problem) return std::move(problem).error();
      Result<verify::Reference> reference = verify::compute_reference(*problem);
      if (!reference) return std::move(reference).error();
      std::vector<std::size_t> right;
      for (const std::size_t i : variants) {
        Result<std::string> wrong = why_wrong(i, *problem, *reference);
        if (!wrong) return fatal(std::move(wrong).error(), i);
        report_progress("verified", ++done, all);
        if (wrong->empty()) {
          right.push_back(i);
          continue;
        }
        if (i == 0) {
          return make_error(ErrorCode::kInternal,
                            fmt::format("the untuned kernel is wrong: {} inputs, {}",
                                        verify::to_string(input), *wrong),
                            {}, "see attnjit verify");
        }
        result_.variants[i].fate = Fate::kWrong;
        result_.variants[i].reason = fmt::format("{} inputs: {}", verify::to_string(input), *wrong);
      }
      variants = std::move(right);
    }
    return {};
  }

  /// Empty: the variant passes.
  Result<std::string> why_wrong(std::size_t variant, const Problem& problem,
                                const verify::Reference& reference) {
    Result<verify::BackendRun> run = rig_->run(variant, problem);
    if (!run) return std::move(run).error();
    if (!run->findings.empty()) return run->findings.front();
    const verify::Comparison comparison =
        verify::compare(problem, reference, run->o, run->lse ? &*run->lse : nullptr,
                        verify::tolerance_of(problem.spec));
    return comparison.passed ? std::string() : comparison.reason;
  }

  // --- time -------------------------------------------------------------------------------------

  /// Blocks of every variant in turn, the untuned kernel once more at the end as its own control.
  /// Adds a median and a ratio to each, and the control's ratio to `controls`. `told` hears of
  /// each variant that ran first.
  Status time_shape(const std::vector<std::size_t>& variants, int pairs,
                    std::vector<double>& controls, const std::function<void()>& told) {
    std::vector<std::size_t> order = variants;
    order.push_back(0);
    std::vector<int> launches(order.size(), 1);
    for (std::size_t at = 0; at < order.size(); ++at) {
      // NOTE: twice: the first launches load and encode.
      Result<double> once = rig_->time(order[at], 2);
      if (once) once = rig_->time(order[at], 2);
      if (!once) return fatal(std::move(once).error(), order[at]);
      launches[at] = static_cast<int>(
          std::clamp(request_.block_ms / std::max(1e-4, *once), 2.0, double{kMaxLaunches}));
      if (at + 1 != order.size()) told();
    }
    // times[at][block]: an even block forth, an odd one back.
    std::vector<std::vector<double>> times(order.size());
    for (int block = 0; block < 2 * pairs; ++block) {
      for (std::size_t step = 0; step < order.size(); ++step) {
        const std::size_t at = block % 2 == 0 ? step : order.size() - 1 - step;
        Result<double> ms = rig_->time(order[at], launches[at]);
        if (!ms) return fatal(std::move(ms).error(), order[at]);
        times[at].push_back(*ms);
      }
    }
    for (std::size_t at = 0; at < order.size(); ++at) {
      const double ratio = ratio_within_pairs(times[at], times.front());
      if (at + 1 == order.size()) {
        controls.push_back(ratio);
      } else {
        Measured& measured = result_.variants[order[at]];
        measured.ms.push_back(median(times[at]));
        measured.ratios.push_back(ratio);
      }
    }
    return {};
  }

  Status time_round(const std::vector<std::size_t>& variants, int pairs, std::string_view stage) {
    std::vector<double> controls;
    for (const std::size_t i : variants) {
      result_.variants[i].ms.clear();
      result_.variants[i].ratios.clear();
    }
    std::size_t done = 0;
    const std::size_t all = variants.size() * request_.shapes.size();
    report_progress(stage, 0, all);
    for (const TuneShape& shape : request_.shapes) {
      ProblemRequest asked = problem_of(shape);
      asked.input = verify::InputKind::kNormal;
      Result<Problem> problem = verify::make_problem(request_.spec, asked);
      if (!problem) return std::move(problem).error();
      if (Status s = rig_->use(*problem); !s) return s;
      const auto told = [&] { report_progress(stage, ++done, all); };
      if (Status s = time_shape(variants, pairs, controls, told); !s) return s;
    }
    for (const std::size_t i : variants) {
      result_.variants[i].ratio = geometric_mean(result_.variants[i].ratios);
    }
    result_.control = geometric_mean(controls);
    return {};
  }

  Status time_all() {
    if (Status s = time_round(alive_, kScreenPairs, "screened"); !s) return s;
    std::vector<std::size_t> fastest(alive_.begin() + 1, alive_.end());
    std::stable_sort(fastest.begin(), fastest.end(), [&](std::size_t a, std::size_t b) {
      return result_.variants[a].ratio < result_.variants[b].ratio;
    });
    const double best = fastest.empty() ? 1 : std::min(1.0, ratio_of(fastest.front()));
    finalists_ = {0};
    for (const std::size_t i : fastest) {
      if (finalists_.size() >= kMaxFinalists || ratio_of(i) > best * kFinalistsWithin) break;
      if (worst_of(i) <= 1 + kMaxLoss) finalists_.push_back(i);
    }
    return time_round(finalists_, request_.pairs, "timed");
  }

  double ratio_of(std::size_t variant) const { return result_.variants[variant].ratio; }

  double worst_of(std::size_t variant) const {
    const std::vector<double>& ratios = result_.variants[variant].ratios;
    return *std::max_element(ratios.begin(), ratios.end());
  }

  void choose() {
    const double needed = 1 - std::max(kMinGain, std::fabs(result_.control - 1));
    result_.winner = 0;
    for (const std::size_t i : finalists_) {
      Measured& measured = result_.variants[i];
      measured.fate = Fate::kSlower;
      if (measured.ratio <= needed && worst_of(i) <= 1 + kMaxLoss &&
          measured.ratio < ratio_of(result_.winner)) {
        result_.winner = i;
      }
    }
    result_.variants[result_.winner].fate = Fate::kChosen;
  }

  const TuneRequest& request_;
  const Progress& progress_;
  std::unique_ptr<TuningRig> rig_;
  TuneResult result_;
  std::vector<std::size_t> alive_;  // right so far; the untuned one first
  std::vector<std::size_t> finalists_;
};

}  // namespace

std::string_view to_string(Fate fate) {
  switch (fate) {
    case Fate::kChosen:
      return "chosen";
    case Fate::kSlower:
      return "slower";
    case Fate::kScreenedOut:
      return "screened out";
    case Fate::kWrong:
      return "wrong";
    case Fate::kNotCompiled:
      return "not compiled";
  }
  return "";
}

Result<TuneResult> tune(const TuneRequest& request, const ServiceFactory& services,
                        const std::function<Result<std::unique_ptr<TuningRig>>()>& open_rig,
                        const Progress& progress) {
  return Tuner(request, progress).run(services, open_rig);
}

}  // namespace attnjit::tune
