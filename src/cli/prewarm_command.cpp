// SPDX-License-Identifier: Apache-2.0
// attnjit prewarm: compiles every spec of the manifests into the cache.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "attnjit/manifest.h"
#include "base/architectures.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/progress.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/spec_source.h"
#include "driver/native_arch.h"

namespace attnjit::cli {
namespace {

// One row of the answer: a spec of a manifest for one architecture.
struct Row {
  std::size_t index = 0;  ///< of the spec, over all manifests
  std::string manifest;
  std::string place;  ///< of the spec: the manifest's file and the index in it
  Arch arch = Arch::kSm100a;
  std::optional<std::size_t> request;  ///< index into what the Service is asked for
  std::string key;
  std::optional<Outcome> outcome;
  std::optional<Error> error;
  bool stored = false;
};

Result<std::vector<Arch>> read_archs(const std::string& text) {
  const auto at_hand = [](spec::ArchFrom asked) {
    return native_arch(asked, [] { return Driver::open(); });
  };
  std::vector<Arch> archs;
  if (text.empty()) {
    const Result<Arch> native = at_hand(spec::ArchFrom::kNothing);
    if (!native) return native.error();
    archs.push_back(*native);
    return archs;
  }
  for (std::size_t at = 0; at <= text.size();) {
    const std::size_t comma = std::min(text.find(',', at), text.size());
    const std::string name = text.substr(at, comma - at);
    std::optional<Arch> arch = arch_from_string(name);
    if (name == spec::kNativeArch) {
      const Result<Arch> native = at_hand(spec::ArchFrom::kNative);
      if (!native) return native.error();
      arch = *native;
    }
    if (!arch) {
      return make_error(ErrorCode::kInvalid,
                        fmt::format("is '{}'; allowed: {}, native, with commas between",
                                    name.substr(0, 64), architecture_names()),
                        "arch", architecture_hint(name));
    }
    // Named twice, it is done once.
    if (std::find(archs.begin(), archs.end(), *arch) == archs.end()) archs.push_back(*arch);
    at = comma + 1;
  }
  return archs;
}

Status read_rows(const PrewarmArguments& arguments, const std::vector<Arch>& archs,
                 std::vector<Row>& rows, std::vector<SpecDocument>& requests) {
  std::size_t index = 0;
  for (const std::string& path : arguments.manifests) {
    const Result<Manifest> manifest = read_manifest(path);
    if (!manifest) return manifest.error();
    for (std::size_t i = 0; i < manifest->specs.size(); ++i) {
      const Result<SpecDocument>& spec = manifest->specs[i];
      for (const Arch arch : archs) {
        Row row;
        row.index = index;
        row.manifest = manifest->name;
        row.place = fmt::format("{}: specs[{}]", path, i);
        row.arch = arch;
        if (spec) {
          row.request = requests.size();
          requests.push_back(*spec);
          requests.back().spec.arch = arch;
        } else {
          row.error = spec.error();
          row.error->field = fmt::format("{}: {}", path, row.error->field);
          for (Error& other : row.error->others) {
            other.field = fmt::format("{}: {}", path, other.field);
          }
        }
        rows.push_back(std::move(row));
      }
      ++index;
    }
  }
  return {};
}

std::string outcome_name(const Row& row) {
  if (!row.error) return std::string(to_string(*row.outcome));
  return row.error->code == ErrorCode::kUnsupported ? "unsupported" : "failed";
}

/// What came of the bundles.
struct Imported {
  std::int64_t entries = 0;
  std::vector<CacheFinding> left_out;
};

Result<Imported> import_bundles(const std::vector<std::string>& bundles) {
  Imported imported;
  for (const std::string& path : bundles) {
    const auto cache = open_command_cache();
    if (!cache) return cache.error();
    const auto report = (*cache)->import_bundle(path);
    if (!report) return report.error();
    imported.entries += report->entries;
    for (const auto* findings : {&report->bad, &report->unreadable}) {
      imported.left_out.insert(imported.left_out.end(), findings->begin(), findings->end());
    }
  }
  return imported;
}

/// "num_q_heads 8, qk_depth 64, mask causal": the fields without the architecture.
std::string spec_text(const AttentionSpec& spec) {
  Json fields = Json::parse(spec_to_json(spec));
  fields.erase("arch");
  std::string text;
  for (const auto& [name, value] : fields.items()) {
    text += (text.empty() ? "" : ", ") + name + ' ' +
            (value.is_string() ? value.get<std::string>() : value.dump());
  }
  return text;
}

/// What progress calls the requests: which each is, and what it says.
std::vector<std::string> names_of(const std::vector<Row>& rows,
                                  const std::vector<SpecDocument>& requests) {
  std::vector<std::string> names(requests.size());
  for (const Row& row : rows) {
    if (!row.request) continue;
    names[*row.request] = fmt::format("{}[{}] {} {}", row.manifest, row.index, to_string(row.arch),
                                      spec_text(requests[*row.request].spec));
  }
  return names;
}

/// Compiles or finds what the rows want, and writes into them what came of it.
/// @return how long that took
std::chrono::milliseconds fill_rows(Service& service, const std::vector<SpecDocument>& requests,
                                    int jobs, std::vector<Row>& rows) {
  Progress progress(names_of(rows, requests));
  const std::vector<PrewarmResult> results = service.prewarm(
      requests, jobs, [&](const PrewarmResult& result) { progress.done(result.index); });
  for (Row& row : rows) {
    if (!row.request) continue;
    const PrewarmResult& result = results[*row.request];
    row.key = result.key;
    row.outcome = result.outcome;
    row.error = result.error;
    row.stored = result.stored;
    // Where the planner or the compiler names a field, it is the spec's.
    if (row.error && row.error->code == ErrorCode::kInvalid) {
      row.error->field =
          fmt::format("{}{}{}", row.place, row.error->field.empty() ? "" : ".", row.error->field);
    }
  }
  return progress.elapsed();
}

/// What came of each architecture, for whoever watched.
std::string summary_table(const std::vector<Row>& rows, std::chrono::milliseconds took) {
  struct Counts {
    std::size_t compiled = 0, found = 0, failed = 0, unsupported = 0;
  };
  std::map<std::string, Counts> by_arch;
  for (const Row& row : rows) {
    Counts& counts = by_arch[std::string(to_string(row.arch))];
    if (row.error) {
      ++(row.error->code == ErrorCode::kUnsupported ? counts.unsupported : counts.failed);
    } else {
      ++(*row.outcome == Outcome::kCompiled ? counts.compiled : counts.found);
    }
  }
  std::string table = fmt::format("{:<10}{:>10}{:>8}{:>8}{:>13}\n", "", "compiled", "found",
                                  "failed", "unsupported");
  for (const auto& [arch, counts] : by_arch) {
    table += fmt::format("{:<10}{:>10}{:>8}{:>8}{:>13}\n", arch, counts.compiled, counts.found,
                         counts.failed, counts.unsupported);
  }
  return table + fmt::format("{} specs in {}\n", rows.size(), duration_text(took));
}

Json row_json(const Row& row) {
  return {{"index", row.index},
          {"manifest", row.manifest},
          {"key", row.key.empty() ? Json() : Json(row.key)},
          {"arch", std::string(to_string(row.arch))},
          {"outcome", outcome_name(row)},
          {"stored", row.stored},
          {"error", row.error ? error_json(*row.error) : Json()}};
}

/// `imported` null: there were no bundles.
Report report_of(const std::vector<Row>& rows, const Imported* imported) {
  Report report;
  Json json;
  json["specs"] = Json::array();
  std::size_t compiled = 0, hits = 0, bad = 0, failed = 0, unsupported = 0, stored = 0;
  std::size_t lacking = 0;  // of those that failed: what the environment lacks
  for (const Row& row : rows) {
    if (!row.error) {
      ++(*row.outcome == Outcome::kCompiled ? compiled : hits);
      stored += row.stored ? 1 : 0;
    } else {
      ++(row.error->code == ErrorCode::kUnsupported ? unsupported : failed);
      bad += row.error->code == ErrorCode::kInvalid ? 1 : 0;
      lacking += row.error->code == ErrorCode::kEnvironment ? 1 : 0;
    }
    json["specs"].push_back(row_json(row));
    report.text += fmt::format("{:>4} {} {} {}{}\n", row.index, row.manifest, to_string(row.arch),
                               outcome_name(row), row.error || row.stored ? "" : ", not stored");
  }
  if (imported != nullptr) {
    json["imported"] = imported->entries;
    json["left_out"] = findings_json(imported->left_out);
  }
  json["compiled"] = compiled;
  json["hits"] = hits;
  json["failed"] = failed;
  json["unsupported"] = unsupported;
  json["stored"] = stored;
  report.text += fmt::format("{} compiled, {} found, {} failed, {} unsupported, {} stored\n",
                             compiled, hits, failed, unsupported, stored);
  report.json = to_text(json);
  const std::size_t lost = compiled + hits - stored;
  if (bad > 0) {
    report.exit_code = exit_code(ErrorCode::kInvalid);
    report.note = fmt::format("{} of {} specs are bad input", bad, rows.size());
  } else if (failed > 0) {
    report.exit_code = failed == lacking ? exit_code(ErrorCode::kEnvironment) : 1;
    report.note = fmt::format("{} of {} specs failed", failed, rows.size());
  } else if (unsupported > 0) {
    report.exit_code = exit_code(ErrorCode::kUnsupported);
    report.note = fmt::format("{} of {} specs are unsupported", unsupported, rows.size());
  } else if (lost > 0) {
    report.exit_code = exit_code(ErrorCode::kEnvironment);
    report.note = fmt::format(
        "{} of {} kernels are not in the cache now; see attnjit doctor and attnjit cache stats",
        lost, rows.size());
  }
  for (const Row& row : rows) {
    if (!row.error) continue;
    report.note +=
        fmt::format("\n  {} {}: {}", row.place, to_string(row.arch), row.error->to_string());
  }
  if (imported != nullptr && !imported->left_out.empty()) {
    report.note += fmt::format("{}{} entries of bundles were left out",
                               report.note.empty() ? "" : "\n", imported->left_out.size());
    for (const CacheFinding& finding : imported->left_out) {
      report.note += fmt::format("\n  {}: {}", finding.path, finding.problem);
    }
  }
  return report;
}

}  // namespace

Result<Report> run_prewarm(const PrewarmArguments& arguments) {
  Result<std::vector<Arch>> archs = read_archs(arguments.archs);
  if (!archs) return std::move(archs).error();
  if (arguments.jobs < 0 || arguments.jobs > 1024) {
    return make_error(
        ErrorCode::kInvalid,
        fmt::format("is {}; allowed: 0 (what cores and memory allow) to 1024", arguments.jobs),
        "jobs");
  }
  std::vector<Row> rows;
  std::vector<SpecDocument> requests;
  if (Status s = read_rows(arguments, *archs, rows, requests); !s) return std::move(s).error();
  Result<std::shared_ptr<const Tuning>> tuning = read_tuning(arguments.tuning);
  if (!tuning) return std::move(tuning).error();
  const Result<Imported> imported = import_bundles(arguments.bundles);
  if (!imported) return imported.error();
  Result<std::unique_ptr<Service>> service =
      open_service(std::move(*tuning), arguments.accept_unconfined_helper);
  if (!service) return std::move(service).error();
  const auto took = fill_rows(**service, requests, static_cast<int>(arguments.jobs), rows);
  if (::isatty(STDERR_FILENO) != 0) (void)write_all(STDERR_FILENO, summary_table(rows, took));
  return report_of(rows, arguments.bundles.empty() ? nullptr : &*imported);
}

}  // namespace attnjit::cli
