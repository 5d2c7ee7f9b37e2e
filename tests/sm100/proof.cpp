// SPDX-License-Identifier: Apache-2.0
// The proof of the sm_100a kernel: attentions by name and at random, run in the emulator under the
// isa model with every check, and compared with the float64 reference.
//
//     attnjit_sm100_proof [--only TEXT] [--sample N] [--seeds N] [--random COUNT] [--seed S]
//                         [--index I] [--random-seeds N] [--shard I/N] [--threads T]
//                         [--journal FILE] [--report FILE] [--summary FILE] [--commit NAME]
//
// Named attentions (whose name holds TEXT; every Nth) take every input and --seeds orders of time
// each; the --random attentions that the generator makes of seed S take one input by turns and
// --random-seeds orders;
// --index I: that one alone, with every input. What passed is written to the journal and not run
// again by the same program: an interrupted proof is resumed. Under isa, the order that the plan
// declares is granted (docs/sm100.md, "In-order issue"). --report: the full record, with every
// attention. --summary: the page docs/proof/sm100.md. Exit code 77: there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <thread>

#include "../gpu/verify_cases.h"
#include "attnjit/compile.h"
#include "base/sha256.h"
#include "report_stamp.h"
#include "run_case.h"

namespace attnjit::sm100 {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using emulator::CompileTo;
using verify::InputKind;

struct Options {
  std::string only, journal, report, summary, commit;
  std::size_t sample = 1, shard = 0, shards = 1;
  std::uint64_t seeds = 10, random = 0, random_seeds = 2, seed = 20261121;
  long long index = -1;
  unsigned threads = 0;
};

// A case with one input: what is run, judged and resumed as one.
struct Item {
  std::size_t of = 0;  // of the cases
  InputKind input = InputKind::kNormal;
  std::uint64_t seeds = 1;
};

std::string name_of(const ProofCase& one, const Item& item) {
  return fmt::format("{} | {}", one.name, verify::to_string(item.input));
}

std::string shape_text(const ProofShape& shape) {
  return fmt::format("batch {} q_len {} kv_len {} SMs {}", shape.batch, shape.q_len, shape.kv_len,
                     shape.sm_count);
}

// --- the journal ---------------------------------------------------------------------------------

// Names this program, its templates included, and its compiler: another one proves again.
std::string identity() {
  std::ifstream self("/proc/self/exe", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(self)), {});
  const Result<std::string> compiler = make_in_process_compiler()->build_id();
  return to_hex(sha256(bytes + (compiler ? *compiler : std::string()))).substr(0, 16);
}

class Journal {
 public:
  Journal(const std::string& path, const std::string& identity) : identity_(identity) {
    if (path.empty()) return;
    std::ifstream in(path);
    for (std::string line; std::getline(in, line);) {
      // NOTE: an interrupted proof may have left half a line.
      const Json json = Json::parse(line, nullptr, false);
      if (json.is_discarded() || json.value("by", "") != identity) continue;
      Judged judged;
      judged.passed = true;
      judged.rel_err = json.value("rel_err", 0.0);
      judged.max_row_err = json.value("max_row_err", 0.0);
      judged.lse_max_abs_err = json.value("lse_max_abs_err", 0.0);
      judged.steps = json.value("steps", std::uint64_t{0});
      judged.seconds = json.value("seconds", 0.0);
      judged.query_tiles = json.value("query_tiles", 0);
      passed_[json.value("name", "") + fmt::format("*{}", json.value("seeds", 0))] = judged;
    }
    out_.open(path, std::ios::app);
    out_ << '\n';
  }

  const Judged* find(const std::string& name, std::uint64_t seeds) const {
    const auto found = passed_.find(name + fmt::format("*{}", seeds));
    return found == passed_.end() ? nullptr : &found->second;
  }

  void add(const std::string& name, std::uint64_t seeds, const Judged& judged) {
    if (!out_.is_open()) return;
    Json json;
    json["by"] = identity_;
    json["name"] = name;
    json["seeds"] = seeds;
    json["rel_err"] = judged.rel_err;
    json["max_row_err"] = judged.max_row_err;
    json["lse_max_abs_err"] = judged.lse_max_abs_err;
    json["steps"] = judged.steps;
    json["seconds"] = judged.seconds;
    json["query_tiles"] = judged.query_tiles;
    out_ << json.dump() << std::endl;
  }

 private:
  std::string identity_;
  std::map<std::string, Judged> passed_;
  std::ofstream out_;
};

// --- the report ----------------------------------------------------------------------------------

// What of a mask or score modification a table counts.
void count_mask(const MaskSpec& mask, std::map<std::string, int>& counts) {
  static constexpr const char* kNames[] = {"null", "causal", "sliding_window", "chunked",
                                           "and",  "or",     "materialized",   "custom"};
  ++counts[std::string("mask ") + kNames[static_cast<std::size_t>(mask.kind)]];
  for (const MaskSpec& child : mask.of) count_mask(child, counts);
}

std::map<std::string, int> features_of(const ProofCase& one) {
  static constexpr const char* kMods[] = {"identity", "alibi", "softcap", "custom"};
  std::map<std::string, int> counts;
  count_mask(one.spec.mask, counts);
  ++counts[std::string("score_mod ") + kMods[static_cast<std::size_t>(one.spec.score_mod.kind)]];
  ++counts[fmt::format("depth {}",
                       one.spec.ov_depth == 0 || one.spec.ov_depth == one.spec.qk_depth
                           ? fmt::format("{}", one.spec.qk_depth)
                           : fmt::format("{}/{}", one.spec.qk_depth, one.spec.ov_depth))];
  ++counts[fmt::format("group {}", one.spec.group)];
  ++counts[std::string(to_string(one.spec.arch))];
  ++counts[std::string(to_string(one.spec.qkv_dtype))];
  if (one.spec.sink) ++counts["sink"];
  if (one.spec.ragged) ++counts["ragged"];
  if (one.spec.page_size > 0) ++counts[fmt::format("page_size {}", one.spec.page_size)];
  if (one.spec.return_lse) ++counts["LSE"];
  if (one.shape.kv_len == 0) ++counts["kv_len 0"];
  if (one.shape.kv_len == 1) ++counts["kv_len 1"];
  if (one.shape.q_len > one.shape.kv_len) ++counts["q_len > kv_len"];
  return counts;
}

struct Reports {
  std::string record;   // every attention, and how often which feature came up
  std::string summary;  // counts and the worst errors of each type of output
};

Reports reports_of(const std::vector<ProofCase>& cases, const std::vector<Item>& items,
                   const std::vector<Judged>& all, const Options& options) {
  struct Of {
    std::size_t items = 0, passed = 0;
    double rel_err = 0, max_row_err = 0, lse = 0;
    int query_tiles = 0;
  };
  std::map<std::string, Of> by_input, by_output;
  std::vector<Of> by_case(cases.size());
  std::uint64_t runs = 0, steps = 0;
  std::size_t failures = 0;
  double seconds = 0;
  for (std::size_t i = 0; i < items.size(); ++i) {
    const AttentionSpec& spec = cases[items[i].of].spec;
    const std::string output(to_string(spec.output_dtype.value_or(spec.qkv_dtype)));
    const std::string by = fmt::format("{}, {}", output, verify::to_string(items[i].input));
    for (Of* of : {&by_input[by], &by_output[output], &by_case[items[i].of]}) {
      ++of->items;
      of->passed += all[i].passed ? 1 : 0;
      of->rel_err = std::max(of->rel_err, all[i].rel_err);
      of->max_row_err = std::max(of->max_row_err, all[i].max_row_err);
      of->lse = std::max(of->lse, all[i].lse_max_abs_err);
      of->query_tiles = all[i].query_tiles;
    }
    runs += items[i].seeds;
    steps += all[i].steps;
    seconds += all[i].seconds;
    failures += all[i].passed ? 0 : 1;
  }
  const std::size_t named = cases.size() - options.random;
  const auto rows = [](const std::map<std::string, Of>& of) {
    std::string text;
    for (const auto& [name, one] : of) {
      text += fmt::format("| {} | {} of {} | {:.1e} | {:.1e} | {:.1e} |\n", name, one.passed,
                          one.items, one.rel_err, one.max_row_err, one.lse);
    }
    return text;
  };
  const std::string opening = fmt::format(
      "`attnjit_sm100_proof` (tests/sm100) wrote this page; do not edit it.\n\n"
      "The proof runs {} named attentions with every input and {} orders of time each, and {} "
      "random ones\n(seed {}) with one input and {} orders each: {} runs, {:.1f} thousand million "
      "warp instructions.\n**{} of {} passed** under the isa model with every check. A thread's "
      "products are granted their issue order\n(docs/sm100.md). {}, {}, commit {}, {:.0f} "
      "core-minutes.\n\n",
      named, options.seeds, options.random, options.seed, options.random_seeds, runs,
      static_cast<double>(steps) / 1e9, items.size() - failures, items.size(), today(), machine(),
      options.commit.empty() ? "unknown" : options.commit, seconds / 60);
  const std::string summary = fmt::format(
      "# The sm_100a kernel in the emulator: the summary\n\n{}"
      "O and the LSE are compared with a float64 reference of the same inputs.\n\n"
      "| type of O | passed | worst rel_err | worst row | worst LSE |\n|---|---|---|---|---|\n{}\n"
      "The record lists every attention with its shape and error. To make both:\n\n"
      "    attnjit_sm100_proof --seeds {} --random {} --seed {} --random-seeds {} \\\n"
      "        --report build/sm100_proof.md --summary docs/proof/sm100.md\n\n"
      "`--only NAME` runs one named attention, `--seed S --index I` one of the random ones.\n",
      opening, rows(by_output), options.seeds, options.random, options.seed, options.random_seeds);
  std::string text = fmt::format(
      "# The sm_100a kernel in the emulator: the record\n\n{}"
      "| output, input | passed | worst rel_err | worst row | worst LSE "
      "|\n|---|---|---|---|---|\n{}",
      opening, rows(by_input));
  if (failures > 0) text += "\n## Failed\n\n";
  for (std::size_t i = 0; i < items.size(); ++i) {
    if (all[i].passed) continue;
    text += fmt::format("- {}: {}\n", name_of(cases[items[i].of], items[i]), all[i].reason);
  }
  text +=
      "\n## By name\n\n| attention | batch, q_len, kv_len | query tiles a CTA | passed | worst "
      "rel_err |\n"
      "|---|---|---|---|---|\n";
  std::map<std::string, int> counts;
  for (std::size_t i = 0; i < cases.size(); ++i) {
    const ProofCase& one = cases[i];
    if (i >= named) {
      for (const auto& [feature, count] : features_of(one)) counts[feature] += count;
      ++counts[fmt::format("{} query tile{} a CTA", by_case[i].query_tiles,
                           by_case[i].query_tiles == 1 ? "" : "s")];
      continue;
    }
    text += fmt::format("| {} | {}, {}, {} | {} | {} of {} | {:.1e} |\n", one.name, one.shape.batch,
                        one.shape.q_len, one.shape.kv_len, by_case[i].query_tiles,
                        by_case[i].passed, by_case[i].items, by_case[i].rel_err);
  }
  text += "\n## At random\n\nHow often what came up: ";
  std::string list;
  for (const auto& [feature, count] : counts) {
    list += fmt::format("{}{} ({})", list.empty() ? "" : ", ", feature, count);
  }
  return {text + list + ".\n", summary};
}

// --- the run -------------------------------------------------------------------------------------

int run(const Options& options) {
  if (Result<std::string> compiler = make_in_process_compiler()->build_id(); !compiler) {
    std::fprintf(stderr, "%s\n", compiler.error().to_string().c_str());
    return 77;
  }
  std::vector<ProofCase> cases;
  if (options.index < 0) {
    std::size_t number = 0;
    for (ProofCase& one : named_cases()) {
      const bool taken =
          number++ % options.sample == 0 && one.name.find(options.only) != std::string::npos;
      if (taken) cases.push_back(std::move(one));
    }
    for (std::uint64_t i = 0; i < options.random; ++i) {
      cases.push_back(random_case(options.seed, i));
    }
  } else {
    cases.push_back(random_case(options.seed, static_cast<std::uint64_t>(options.index)));
    std::printf("%s\n%s\n", spec_to_json(cases[0].spec, cases[0].options).c_str(),
                shape_text(cases[0].shape).c_str());
  }
  std::vector<Item> items;
  std::vector<std::vector<std::size_t>> items_of(cases.size());
  const std::size_t named = cases.size() - (options.index < 0 ? options.random : 0);
  for (std::size_t i = 0; i < cases.size(); ++i) {
    if (i % options.shards != options.shard) continue;
    const auto add = [&](InputKind input, std::uint64_t seeds) {
      items_of[i].push_back(items.size());
      items.push_back({i, input, seeds});
    };
    if (i < named) {
      for (const InputKind input : verify::kInputKinds) add(input, options.seeds);
    } else {
      add(verify::kInputKinds[(i - named) % verify::kInputKinds.size()], options.random_seeds);
    }
  }
  std::vector<Judged> all(items.size());
  Journal journal(options.journal, options.journal.empty() ? std::string() : identity());
  std::mutex mutex;
  std::atomic<std::size_t> next{0};
  std::size_t failures = 0, resumed = 0;
  const auto begin = Clock::now();
  const auto work = [&] {
    for (std::size_t i = next++; i < cases.size(); i = next++) {
      const ProofCase& one = cases[i];
      std::optional<Result<ProofKernel>> kernel;
      for (const std::size_t at : items_of[i]) {
        const Item& item = items[at];
        const std::string name = name_of(one, item);
        {
          const std::lock_guard lock(mutex);
          if (const Judged* known = journal.find(name, item.seeds)) {
            all[at] = *known;
            ++resumed;
            continue;
          }
        }
        if (!kernel) kernel = make_kernel(one, TemplateSet::embedded(), CompileTo::kImage);
        const Result<verify::Problem> problem = problem_of(one, item.input, i);
        if (!kernel->ok()) {
          all[at].reason = kernel->error().to_string();
        } else if (!problem) {
          all[at].reason = problem.error().to_string();
        } else {
          all[at] = judge(one.shape, **kernel, *problem, item.seeds);
        }
        const std::lock_guard lock(mutex);
        if (all[at].passed) {
          journal.add(name, item.seeds, all[at]);
          continue;
        }
        ++failures;
        std::printf("FAILED: %s (%s): %s\n  again: %s\n  %s\n", name.c_str(),
                    shape_text(one.shape).c_str(), all[at].reason.c_str(),
                    i < named
                        ? fmt::format("--only '{}'", one.name).c_str()
                        : fmt::format("--seed {} --index {}", options.seed, i - named).c_str(),
                    spec_to_json(one.spec, one.options).c_str());
        std::fflush(stdout);
      }
    }
  };
  const unsigned threads =
      options.threads > 0 ? options.threads : std::max(1u, std::thread::hardware_concurrency());
  std::vector<std::thread> pool;
  for (unsigned i = 1; i < threads; ++i) pool.emplace_back(work);
  work();
  for (std::thread& thread : pool) thread.join();
  double worst = 0, core_seconds = 0;
  for (const Judged& judged : all) {
    worst = std::max(worst, judged.rel_err);
    core_seconds += judged.seconds;
  }
  std::printf(
      "%zu of %zu passed (%zu of them before), worst rel_err %.1e, %.0f core-seconds, %.0f s\n",
      items.size() - failures, items.size(), resumed, worst, core_seconds,
      std::chrono::duration<double>(Clock::now() - begin).count());
  const Reports reports = reports_of(cases, items, all, options);
  if (!options.report.empty()) std::ofstream(options.report) << reports.record;
  if (!options.summary.empty()) std::ofstream(options.summary) << reports.summary;
  return failures == 0 && !items.empty() ? 0 : 1;
}

}  // namespace
}  // namespace attnjit::sm100

int main(int argc, char** argv) {
  attnjit::sm100::Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string flag = argv[i];
    const char* value = i + 1 < argc ? argv[i + 1] : "";
    const std::uint64_t number = std::strtoull(value, nullptr, 10);
    if (flag == "--only") {
      options.only = value;
    } else if (flag == "--sample" && number > 0) {
      options.sample = number;
    } else if (flag == "--seeds" && number > 0) {
      options.seeds = number;
    } else if (flag == "--random") {
      options.random = number;
    } else if (flag == "--random-seeds" && number > 0) {
      options.random_seeds = number;
    } else if (flag == "--seed") {
      options.seed = number;
    } else if (flag == "--index") {
      options.index = static_cast<long long>(number);
    } else if (flag == "--threads") {
      options.threads = static_cast<unsigned>(number);
    } else if (flag == "--journal") {
      options.journal = value;
    } else if (flag == "--report") {
      options.report = value;
    } else if (flag == "--summary") {
      options.summary = value;
    } else if (flag == "--commit") {
      options.commit = value;
    } else if (flag == "--shard" &&
               std::sscanf(value, "%zu/%zu", &options.shard, &options.shards) == 2 &&
               options.shard < options.shards) {
      continue;
    } else {
      std::fprintf(stderr, "unknown flag or value: %s %s\n", flag.c_str(), value);
      return 2;
    }
  }
  return attnjit::sm100::run(options);
}
