// SPDX-License-Identifier: Apache-2.0
// Damages kernels in small ways, one at a time, and runs each mutant in the emulator under the isa
// model until a finding or the numbers give it away: the test of the emulator's checks.
//
//     attnjit_mutations [--sample N] [--seeds N] [--only TEXT] [--threads T] [--verbose 1]
//                       [--report FILE --commit NAME]
//
// First each kernel as it is must pass all the seeds without a finding. Exit code 1 where less than
// 97 % are caught (of a sample: where a survivor is not known) or an undamaged kernel fails.
// --sample N takes every Nth mutant, and one seed for the kernels as they are. --only: mutants
// whose name holds TEXT, or one of several, and their kernels. Exit code 77: there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <map>
#include <mutex>
#include <thread>

#include "generated_subjects.h"
#include "mutation.h"
#include "report_stamp.h"
#include "subject.h"

namespace attnjit::emulator {
namespace {

constexpr double kBar = 0.97;

struct Options {
  std::size_t sample = 1;
  std::uint64_t seeds = 20;
  std::vector<std::string> only;  ///< a mutant's name holds one of them
  std::string report, commit;
  unsigned threads = 0;
  bool verbose = false;
};

struct Judged {
  Mutant mutant;
  Outcome outcome;
  std::uint64_t seed = 0;
};

// Which undamaged kernel a mutant is of, and how many steps that one takes.
struct Kernel {
  const Subject* subject = nullptr;
  std::uint64_t steps = 0;
};

Judged judge(const Kernel& kernel, Mutant mutant, std::uint64_t seeds) {
  Judged judged;
  judged.mutant = std::move(mutant);
  LaunchRecipe recipe = kernel.subject->recipe();
  for (TensorMapDescription& map : recipe.tensor_maps) {
    if (map.name == judged.mutant.map || map.buffer == judged.mutant.map) {
      map.swizzle = judged.mutant.swizzle;
    }
  }
  const std::string& text = judged.mutant.ptx.empty() ? kernel.subject->ptx() : judged.mutant.ptx;
  Result<PtxModule> module = PtxModule::load(text);
  if (!module) {
    judged.outcome = {true, "refused", module.error().to_string(), 0};
    return judged;
  }
  // A mutant that never ends takes more than that; all that end take much less.
  const std::uint64_t max_steps = 20 * kernel.steps;
  for (; judged.seed < seeds; ++judged.seed) {
    judged.outcome = kernel.subject->run(*module, recipe, judged.seed, max_steps);
    if (judged.outcome.caught) break;
  }
  return judged;
}

template <class Work>
void in_parallel(std::size_t count, unsigned threads, const Work& work) {
  std::atomic<std::size_t> next{0};
  const auto loop = [&] {
    for (std::size_t i = next++; i < count; i = next++) work(i);
  };
  std::vector<std::thread> pool;
  for (unsigned i = 1; i < threads; ++i) pool.emplace_back(loop);
  loop();
  for (std::thread& thread : pool) thread.join();
}

struct Summary {
  std::size_t caught = 0;
  std::vector<const Judged*> survivors;
  std::map<std::string, std::map<std::string, int>> by_kind;  // kind -> how caught -> how many
  std::map<std::string, std::pair<int, int>> by_subject;      // caught, all
};

Summary summarise(const std::vector<Judged>& all) {
  Summary summary;
  for (const Judged& judged : all) {
    auto& of_subject = summary.by_subject[judged.mutant.subject];
    ++of_subject.second;
    ++summary.by_kind[judged.mutant.kind][judged.outcome.caught ? judged.outcome.by : "survived"];
    if (judged.outcome.caught) {
      ++summary.caught;
      ++of_subject.first;
    } else {
      summary.survivors.push_back(&judged);
    }
  }
  return summary;
}

std::string report_of(const std::vector<Judged>& all, const std::vector<Spared>& spared,
                      const Options& options, double seconds) {
  const Summary summary = summarise(all);
  std::string text = fmt::format(
      "# Mutations\n\n"
      "Written by `attnjit_mutations --report` (tests/emulator/mutations); not edited by hand.\n\n"
      "{} of {} mutants caught ({:.1f} %; the bar is 97 %) under the isa model within {} seeds. "
      "Every "
      "kernel as it is\npasses the same seeds without a finding. {}, {}, commit {}, {:.0f} s.\n\n"
      "| kernel | caught | mutants |\n|---|---|---|\n",
      summary.caught, all.size(),
      100.0 * static_cast<double>(summary.caught) / static_cast<double>(all.size()), options.seeds,
      today(), machine(), options.commit.empty() ? "unknown" : options.commit, seconds);
  for (const auto& [subject, counts] : summary.by_subject) {
    text += fmt::format("| {} | {} | {} |\n", subject, counts.first, counts.second);
  }
  text += "\n## Survivors\n\n";
  if (summary.survivors.empty()) text += "None.\n";
  for (const Judged* judged : summary.survivors) {
    const std::string_view reason = reason_of(judged->mutant);
    text += fmt::format("- {} (PTX line {}): {}\n", judged->mutant.name(), judged->mutant.line,
                        reason.empty() ? "not explained" : reason);
  }
  text +=
      "\n## Places where the same change is no damage\n\nFound as survivors, then read: not run, "
      "not counted.\n\n";
  for (const Spared& place : spared) {
    text += fmt::format("- {} (PTX line {}): {}\n", place.name, place.line, place.reason);
  }
  text += "\n## How each damage was seen\n\n| damage | seen as (mutants) |\n|---|---|\n";
  for (const auto& [kind, seen] : summary.by_kind) {
    std::string list;
    for (const auto& [by, count] : seen) {
      list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", by, count);
    }
    text += fmt::format("| {} | {} |\n", kind, list);
  }
  return text;
}

bool asked_for(const Options& options, const std::string& name) {
  return options.only.empty() ||
         std::any_of(options.only.begin(), options.only.end(),
                     [&](const std::string& text) { return name.find(text) != std::string::npos; });
}

int run(const Options& options) {
  const auto begin = std::chrono::steady_clock::now();
  Result<std::vector<std::unique_ptr<Subject>>> subjects = make_generated_subjects();
  for (const auto make : {&make_written_subjects, &make_sequence_subjects}) {
    if (!subjects) break;
    Result<std::vector<std::unique_ptr<Subject>>> more = make();
    if (!more) {
      subjects = std::move(more).error();
    } else {
      for (std::unique_ptr<Subject>& subject : *more) subjects->push_back(std::move(subject));
    }
  }
  if (!subjects) {
    std::fprintf(stderr, "%s\n", subjects.error().to_string().c_str());
    return subjects.error().code == ErrorCode::kEnvironment ? 77 : 1;
  }
  const unsigned threads =
      options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  std::mutex mutex;
  bool good = true;

  std::vector<Kernel> kernels;
  kernels.reserve(subjects->size());
  std::vector<std::pair<const Kernel*, Mutant>> mutants;
  std::vector<Spared> spared;
  std::size_t number = 0;
  for (const std::unique_ptr<Subject>& subject : *subjects) {
    const std::size_t before = mutants.size() + spared.size();
    kernels.push_back({subject.get(), 0});
    Mutants found = mutants_of(subject->name(), subject->ptx(), subject->recipe().entry);
    for (Mutant& mutant : found.mutants) {
      if (number++ % options.sample != 0 || !asked_for(options, mutant.name())) continue;
      mutants.emplace_back(&kernels.back(), std::move(mutant));
    }
    for (Spared& place : found.spared) {
      if (asked_for(options, place.name)) spared.push_back(std::move(place));
    }
    if (mutants.size() + spared.size() == before) kernels.pop_back();
  }

  // The kernels as they are.
  const std::uint64_t clean_seeds = options.sample > 1 ? 1 : options.seeds;
  in_parallel(kernels.size() * clean_seeds, threads, [&](std::size_t i) {
    Kernel& kernel = kernels[i / clean_seeds];
    Outcome outcome;
    Result<PtxModule> module = PtxModule::load(kernel.subject->ptx());
    if (module) {
      outcome = kernel.subject->run(*module, kernel.subject->recipe(), i % clean_seeds, 1u << 31);
    } else {
      outcome = {true, "refused", module.error().to_string(), 0};
    }
    const std::lock_guard lock(mutex);
    kernel.steps = std::max(kernel.steps, outcome.steps);
    if (!outcome.caught) return;
    good = false;
    std::printf("FAILED: %s as it is, seed %zu: %s: %s\n", kernel.subject->name().c_str(),
                i % clean_seeds, outcome.by.c_str(), outcome.evidence.c_str());
  });
  if (!good) return 1;

  std::vector<Judged> all(mutants.size());
  in_parallel(mutants.size(), threads, [&](std::size_t i) {
    all[i] = judge(*mutants[i].first, std::move(mutants[i].second), options.seeds);
    const Judged& judged = all[i];
    if (judged.outcome.caught && !options.verbose) return;
    const std::lock_guard lock(mutex);
    std::printf("%-10s %s (line %d, seed %llu) %s\n",
                judged.outcome.caught ? judged.outcome.by.c_str() : "SURVIVED",
                judged.mutant.name().c_str(), judged.mutant.line,
                static_cast<unsigned long long>(judged.seed),
                judged.outcome.evidence.substr(0, 160).c_str());
    std::fflush(stdout);
  });

  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  const Summary summary = summarise(all);
  for (const auto& [subject, counts] : summary.by_subject) {
    std::printf("%-22s %3d of %3d caught\n", subject.c_str(), counts.first, counts.second);
  }
  std::printf("%zu of %zu mutants caught, %.0f s\n", summary.caught, all.size(), seconds);
  if (!options.report.empty())
    std::ofstream(options.report) << report_of(all, spared, options, seconds);
  if (all.empty()) return 1;
  // A sample is too small for a rate: each of its survivors must be a known one.
  if (options.sample > 1) {
    return std::all_of(summary.survivors.begin(), summary.survivors.end(),
                       [](const Judged* judged) { return !reason_of(judged->mutant).empty(); })
               ? 0
               : 1;
  }
  return static_cast<double>(summary.caught) >= kBar * static_cast<double>(all.size()) ? 0 : 1;
}

}  // namespace
}  // namespace attnjit::emulator

int main(int argc, char** argv) {
  attnjit::emulator::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    const std::uint64_t number = std::strtoull(value, nullptr, 10);
    if (flag == "--sample" && number > 0) {
      options.sample = number;
    } else if (flag == "--seeds" && number > 0) {
      options.seeds = number;
    } else if (flag == "--threads") {
      options.threads = static_cast<unsigned>(number);
    } else if (flag == "--only") {
      options.only.emplace_back(value);
    } else if (flag == "--report") {
      options.report = value;
    } else if (flag == "--commit") {
      options.commit = value;
    } else if (flag == "--verbose") {
      options.verbose = number != 0;
    } else {
      std::fprintf(stderr, "unknown flag or value: %s %s\n", flag.c_str(), value);
      return 2;
    }
  }
  return attnjit::emulator::run(options);
}
