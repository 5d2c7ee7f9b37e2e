// SPDX-License-Identifier: Apache-2.0
// Damages kernels in small ways, one at a time, and runs each mutant in the emulator under the isa
// model until a finding or the numbers give it away: the test of the emulator's checks.
//
//     attnjit_mutations [--sample N] [--seeds N] [--subject TEXT] [--only TEXT] [--threads T]
//                       [--verbose 1] [--verdicts FILE] [--report FILE] [--summary FILE]
//                       [--commit NAME]
//     attnjit_mutations --spared 1 [--sample N] [--seeds N] [--subject TEXT] [--only TEXT] ...
//     attnjit_mutations --subject TEXT --write FILE.ptx
//     attnjit_mutations --subject TEXT --try FILE.ptx [--seeds N]
//
// First each kernel as it is must pass all the seeds without a finding. Exit code 1 where less than
// 97 % are caught (of a sample: where a survivor is not known) or an undamaged kernel fails.
// --sample N takes every Nth mutant, and one seed for the kernels as they are. --subject: kernels
// whose name begins with TEXT, or with one of several. --only: mutants whose name holds TEXT, or
// one of several, and their kernels. --verdicts: what FILE knows is not run again, and what is
// found is added to it (verdict.h). --spared: runs the changes that are said to be no damage, in
// place of the others; exit code 1 where one of them is caught, since what is said of it is untrue,
// or where a number is known of no place.
// --report: the full record, with every survivor. --summary: the page docs/proof/mutations.md.
// --write: the first such kernel as it is. --try: FILE, damaged by hand, in its place; exit code 0
// where it is caught. Exit code 77: there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

#include "generated_subjects.h"
#include "mutation.h"
#include "report_stamp.h"
#include "subject.h"
#include "verdict.h"

namespace attnjit::emulator {
namespace {

constexpr double kBar = 0.97;

struct Options {
  std::size_t sample = 1;
  std::uint64_t seeds = 20;
  std::vector<std::string> subjects;  ///< a kernel's name begins with one of them
  std::vector<std::string> only;      ///< a mutant's name holds one of them
  std::string verdicts, report, summary, commit, write, tried;
  unsigned threads = 0;
  bool verbose = false;
  bool spared = false;
};

struct Judged {
  Mutant mutant;
  Verdict verdict;
  std::string evidence;
};

// Which undamaged kernel a mutant is of, and how many steps that one takes.
struct Kernel {
  const Subject* subject = nullptr;
  std::uint64_t steps = 0;
};

// What runs of one thread take.
class CoreSeconds {
 public:
  double elapsed() const { return now() - begin_; }

 private:
  static double now() {
    timespec time{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
  }
  double begin_ = now();
};

// The seeds from the first on, until one gives the kernel away.
Judged judge(const Subject& subject, Mutant mutant, std::uint64_t first_seed, std::uint64_t seeds,
             std::uint64_t max_steps) {
  const CoreSeconds time;
  Judged judged;
  judged.mutant = std::move(mutant);
  LaunchRecipe recipe = subject.recipe();
  for (TensorMapDescription& map : recipe.tensor_maps) {
    if (map.name == judged.mutant.map || map.buffer == judged.mutant.map) {
      map.swizzle = judged.mutant.swizzle;
    }
  }
  Verdict& verdict = judged.verdict;
  const Result<PtxModule> module =
      PtxModule::load(judged.mutant.ptx.empty() ? subject.ptx() : judged.mutant.ptx);
  if (!module) {
    verdict = {true, "refused", 0, 0, time.elapsed()};
    judged.evidence = module.error().to_string();
    return judged;
  }
  for (verdict.seed = first_seed; verdict.seed < first_seed + seeds && !verdict.caught;
       ++verdict.seed) {
    const Outcome outcome = subject.run(*module, recipe, verdict.seed, max_steps);
    verdict.caught = outcome.caught;
    verdict.by = outcome.by;
    verdict.steps = outcome.steps;
    judged.evidence = outcome.evidence;
  }
  --verdict.seed;  // the last one
  verdict.seconds = time.elapsed();
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
    ++summary.by_kind[judged.mutant.kind][judged.verdict.caught ? judged.verdict.by : "survived"];
    if (judged.verdict.caught) {
      ++summary.caught;
      ++of_subject.first;
    } else {
      summary.survivors.push_back(&judged);
    }
  }
  return summary;
}

// What the record and the summary both begin with.
std::string opening_of(const char* what, const Summary& summary, std::size_t mutants,
                       const Options& options, double seconds) {
  return fmt::format(
      "# Mutations: the {}\n\n"
      "`attnjit_mutations` (tests/emulator/mutations) wrote this page; do not edit it.\n\n"
      "The emulator caught {} of {} damaged kernels ({:.1f} %; the bar is {:.0f} %) under the isa "
      "model within {} seeds.\nEvery undamaged kernel passes the same seeds without a finding. "
      "{}, {}, commit {}, {:.0f} core-minutes.\n\n",
      what, summary.caught, mutants,
      100.0 * static_cast<double>(summary.caught) / static_cast<double>(mutants), 100 * kBar,
      options.seeds, today(), machine(), options.commit.empty() ? "unknown" : options.commit,
      seconds / 60);
}

std::string report_of(const std::vector<Judged>& all, const std::vector<Spared>& spared,
                      const Options& options, double seconds) {
  const Summary summary = summarise(all);
  std::string text = fmt::format("{}| kernel | caught | mutants |\n|---|---|---|\n",
                                 opening_of("record", summary, all.size(), options, seconds));
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
    text += fmt::format("- {} (PTX line {}): {}\n", place.mutant.name(), place.mutant.line,
                        place.reason);
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

// The kernels that a row of the summary counts together.
std::string_view group_of(std::string_view subject) {
  if (subject.starts_with("sm_100a")) return "generated for sm_100a";
  if (subject.starts_with("sm100")) return "written by hand for sm_100a";
  if (subject == "merge") return "the merge of partial results";
  return "generated for sm_90a";
}

// Counts alone: what a document keeps of a record.
std::string summary_of(const std::vector<Judged>& all, const std::vector<Spared>& spared,
                       const Options& options, double seconds) {
  struct Group {
    int kernels = 0, caught = 0, mutants = 0;
  };
  const Summary summary = summarise(all);
  std::map<std::string_view, Group> groups;
  for (const auto& [subject, counts] : summary.by_subject) {
    Group& group = groups[group_of(subject)];
    ++group.kernels;
    group.caught += counts.first;
    group.mutants += counts.second;
  }
  std::map<std::string, int> seen;
  for (const auto& [kind, ways] : summary.by_kind) {
    for (const auto& [by, count] : ways) seen[by] += count;
  }
  const auto explained =
      std::count_if(summary.survivors.begin(), summary.survivors.end(),
                    [](const Judged* judged) { return !reason_of(judged->mutant).empty(); });
  std::string text =
      opening_of("summary", summary, all.size(), options, seconds) +
      "A mutant is a kernel's PTX with one change that breaks it: a wait, a fence or an arrival "
      "removed, a number\nor an address changed, an operand exchanged.\n\n"
      "| kernels | how many | caught | mutants |\n|---|---|---|---|\n";
  for (const auto& [name, group] : groups) {
    text +=
        fmt::format("| {} | {} | {} | {} |\n", name, group.kernels, group.caught, group.mutants);
  }
  text += fmt::format("\n{} kinds of damage were seen as:\n\n| seen as | mutants |\n|---|---|\n",
                      summary.by_kind.size());
  for (const auto& [by, count] : seen) text += fmt::format("| {} | {} |\n", by, count);
  return text +
         fmt::format(
             "\nOf {} survivors {} are explained. {} more changes were read and do no damage; "
             "they are not counted, and\n`attnjit_mutations --spared 1` checks that no seed "
             "catches them.\n\nThe record lists each survivor, each harmless change and each kind "
             "of damage. To make both:\n\n"
             "    attnjit_mutations --report build/mutations.md --summary "
             "docs/proof/mutations.md\n",
             summary.survivors.size(), explained, spared.size());
}

// One text in a kernel's place.
int try_one(const Subject& subject, const Options& options) {
  std::ifstream in(options.tried, std::ios::binary);
  Mutant mutant;
  mutant.ptx.assign(std::istreambuf_iterator<char>(in), {});
  const Judged judged = judge(subject, std::move(mutant), 0, options.seeds, std::uint64_t{1} << 31);
  std::printf("%s: %s, seed %llu: %s\n", options.tried.c_str(),
              judged.verdict.caught ? judged.verdict.by.c_str() : "SURVIVED",
              static_cast<unsigned long long>(judged.verdict.seed), judged.evidence.c_str());
  return judged.verdict.caught ? 0 : 1;
}

bool asked_for(const Options& options, const std::string& name) {
  return options.only.empty() ||
         std::any_of(options.only.begin(), options.only.end(),
                     [&](const std::string& text) { return name.find(text) != std::string::npos; });
}

int run(const Options& options) {
  const Wanted wanted = [&](std::string_view name) {
    return options.subjects.empty() ||
           std::any_of(options.subjects.begin(), options.subjects.end(),
                       [&](const std::string& text) { return name.starts_with(text); });
  };
  Result<std::vector<std::unique_ptr<Subject>>> subjects = make_generated_subjects(wanted);
  for (const auto make : {&make_mla_subjects, &make_eight_bit_subjects, &make_written_subjects,
                          &make_sequence_subjects}) {
    if (!subjects) break;
    Result<std::vector<std::unique_ptr<Subject>>> more = make(wanted);
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
  if (!subjects->empty() && !options.write.empty()) {
    std::ofstream(options.write) << subjects->front()->ptx();
    return 0;
  }
  if (!subjects->empty() && !options.tried.empty()) return try_one(*subjects->front(), options);
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
    Mutants found =
        mutants_of(subject->name(), subject->ptx(), subject->recipe(), subject->entries());
    std::vector<Mutant> tried = std::move(found.mutants);
    if (options.spared) tried.clear();
    for (Spared& place : found.spared) {
      if (!asked_for(options, place.mutant.name())) continue;
      if (options.spared) tried.push_back(place.mutant);
      place.mutant.ptx.clear();
      spared.push_back(std::move(place));
    }
    for (Mutant& mutant : tried) {
      if (number++ % options.sample != 0 || !asked_for(options, mutant.name())) continue;
      mutants.emplace_back(&kernels.back(), std::move(mutant));
    }
    if (mutants.size() + spared.size() == before) kernels.pop_back();
  }
  if (options.spared && options.subjects.empty() && options.only.empty()) {
    for (const std::string& name : stale_numbers(spared)) {
      good = false;
      std::printf("STALE      %s: no such place is spared\n", name.c_str());
    }
    if (!good) return 1;
  }

  VerdictFile verdicts(options.verdicts);
  double seconds = 0;
  // What the file knows of it, or what a run finds.
  const auto judged_once = [&](const Kernel& kernel, Mutant mutant, const std::string& name,
                               std::uint64_t first_seed, std::uint64_t seeds,
                               std::uint64_t max_steps) {
    const std::string text = mutant.ptx.empty() ? kernel.subject->ptx() : mutant.ptx;
    {
      const std::lock_guard lock(mutex);
      if (const std::optional<Verdict> known = verdicts.find(name, text)) {
        seconds += known->seconds;
        return Judged{std::move(mutant), *known, "known"};
      }
    }
    Judged judged = judge(*kernel.subject, std::move(mutant), first_seed, seeds, max_steps);
    const std::lock_guard lock(mutex);
    verdicts.add(name, text, judged.verdict);
    seconds += judged.verdict.seconds;
    return judged;
  };

  // The kernels as they are.
  const std::uint64_t clean_seeds = options.sample > 1 ? 1 : options.seeds;
  in_parallel(kernels.size() * clean_seeds, threads, [&](std::size_t i) {
    Kernel& kernel = kernels[i / clean_seeds];
    const std::uint64_t seed = i % clean_seeds;
    const std::string name = fmt::format("{} as it is, seed {}", kernel.subject->name(), seed);
    const Judged judged = judged_once(kernel, {}, name, seed, 1, std::uint64_t{1} << 31);
    const std::lock_guard lock(mutex);
    kernel.steps = std::max(kernel.steps, judged.verdict.steps);
    if (!judged.verdict.caught) return;
    good = false;
    std::printf("FAILED: %s: %s: %s\n", name.c_str(), judged.verdict.by.c_str(),
                judged.evidence.c_str());
  });
  if (!good) return 1;

  std::vector<Judged> all(mutants.size());
  in_parallel(mutants.size(), threads, [&](std::size_t i) {
    const Kernel& kernel = *mutants[i].first;
    const std::string name = mutants[i].second.name();
    // A mutant that never ends takes more than that; all that end take much less.
    all[i] = judged_once(kernel, std::move(mutants[i].second), name, 0, options.seeds,
                         20 * kernel.steps);
    const Judged& judged = all[i];
    if (judged.verdict.caught != options.spared && !options.verbose) return;
    const std::lock_guard lock(mutex);
    std::printf("%-10s %s (line %d, seed %llu) %s\n",
                judged.verdict.caught ? judged.verdict.by.c_str() : "SURVIVED", name.c_str(),
                judged.mutant.line, static_cast<unsigned long long>(judged.verdict.seed),
                judged.evidence.substr(0, 160).c_str());
    std::fflush(stdout);
  });

  const Summary summary = summarise(all);
  for (const auto& [subject, counts] : summary.by_subject) {
    std::printf("%-22s %3d of %3d caught\n", subject.c_str(), counts.first, counts.second);
  }
  std::printf("%zu of %zu mutants caught, %.1f core-minutes\n", summary.caught, all.size(),
              seconds / 60);
  if (!options.report.empty())
    std::ofstream(options.report) << report_of(all, spared, options, seconds);
  if (!options.summary.empty())
    std::ofstream(options.summary) << summary_of(all, spared, options, seconds);
  if (all.empty()) return 1;
  if (options.spared) return summary.caught == 0 ? 0 : 1;
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
    } else if (flag == "--subject") {
      options.subjects.emplace_back(value);
    } else if (flag == "--verdicts") {
      options.verdicts = value;
    } else if (flag == "--write") {
      options.write = value;
    } else if (flag == "--try") {
      options.tried = value;
    } else if (flag == "--only") {
      options.only.emplace_back(value);
    } else if (flag == "--report") {
      options.report = value;
    } else if (flag == "--summary") {
      options.summary = value;
    } else if (flag == "--commit") {
      options.commit = value;
    } else if (flag == "--spared") {
      options.spared = number != 0;
    } else if (flag == "--verbose") {
      options.verbose = number != 0;
    } else {
      std::fprintf(stderr, "unknown flag or value: %s %s\n", flag.c_str(), value);
      return 2;
    }
  }
  return attnjit::emulator::run(options);
}
