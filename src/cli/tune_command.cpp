// SPDX-License-Identifier: Apache-2.0
// attnjit tune: finds which variant of a spec's kernel is fastest on the GPU at hand, or by the
// clock's model of one.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <string>

#include "attnjit/tuning.h"
#include "cli/files.h"
#include "cli/json.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/spec_source.h"
#include "clock/clock.h"
#include "clock/parameters.h"
#include "tune/table.h"
#include "tune/tuner.h"

namespace attnjit::cli {
namespace {

using tune::Measured;
using tune::TuneRequest;
using tune::TuneResult;
using tune::TuneShape;

constexpr std::int64_t kMaxTableBytes = 16 << 20;
constexpr std::int64_t kTokens = 16384;  // of each shape where none are given
constexpr std::int64_t kDefaultPairs = 9, kDefaultTimedSms = 2, kMostTimedSms = 1 << 10;

constexpr std::chrono::seconds kBetweenLines{5};  // of progress, where there is no terminal

Result<TuneShape> read_shape(const std::string& text) {
  TuneShape shape;
  const char* at = text.data();
  const char* end = at + text.size();
  for (std::int64_t* value : {&shape.batch, &shape.q_len, &shape.kv_len}) {
    const auto [stop, status] = std::from_chars(at, end, *value);
    const bool last = value == &shape.kv_len;
    if (status != std::errc{} || (last ? stop != end : stop == end || *stop != ':')) {
      return make_error(ErrorCode::kInvalid,
                        fmt::format("'{}' is no BATCH:Q_LEN:KV_LEN", text.substr(0, 64)), "shape");
    }
    at = last ? stop : stop + 1;
  }
  return shape;
}

Result<std::vector<TuneShape>> read_shapes(const std::vector<std::string>& texts,
                                           std::int64_t max_seq_len) {
  std::vector<TuneShape> shapes;
  for (const std::string& text : texts) {
    Result<TuneShape> shape = read_shape(text);
    if (!shape) return std::move(shape).error();
    shapes.push_back(*shape);
  }
  if (!shapes.empty()) return shapes;
  const std::int64_t most = max_seq_len > 0 ? max_seq_len : kTokens;
  for (const std::int64_t length : {1024, 4096, 16384}) {
    if (length <= most) shapes.push_back({kTokens / length, length, length});
  }
  if (shapes.empty()) shapes.push_back({kTokens / most, most, most});
  return shapes;
}

Status check_range(const char* flag, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return {};
  return make_error(ErrorCode::kInvalid,
                    fmt::format("is {}; allowed: {} to {}", value, least, most), flag);
}

/// The text of a table that is there; empty where there is none.
Result<std::string> read_table(const std::string& path) {
  if (::access(path.c_str(), F_OK) != 0) return std::string();
  Result<std::string> text = read_file(path, kMaxTableBytes);
  if (!text) return text;
  if (Result<Tuning> table = tuning_from_json(*text); !table) {
    Error error = std::move(table).error();
    error.field = path + (error.field.empty() ? "" : ": " + error.field);
    return error;
  }
  return text;
}

std::string choice_text(const TuningValues& choose, const TuningValues& untuned) {
  std::string text;
  for (const auto& [name, value] : choose) {
    const auto before = untuned.find(name);
    if (before != untuned.end() && before->second == value) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name, value);
  }
  return text.empty() ? "untuned" : text;
}

/// What the flags of a model mean, and which architecture's it is; none: a GPU.
Result<std::optional<Arch>> model_of(const TuneArguments& arguments, Arch arch) {
  if (arguments.model.empty()) {
    if (!arguments.timed_sms) return std::optional<Arch>();
    return make_error(ErrorCode::kInvalid, "needs --model", "timed-sms");
  }
  const Result<Arch> model = clock::timing_arch(arguments.model);
  if (!model) {
    Error error = model.error();
    error.field = "model";
    return error;
  }
  if (*model != arch) {
    return make_error(ErrorCode::kInvalid,
                      fmt::format("is {}; the spec is for {}", arguments.model, to_string(arch)),
                      "model");
  }
  if (arguments.pairs) {
    return make_error(ErrorCode::kInvalid,
                      "has no meaning with --model, whose times are the same each time", "pairs");
  }
  if (arguments.timed_sms) {
    if (Status s = check_range("timed-sms", *arguments.timed_sms, 1, kMostTimedSms); !s)
      return std::move(s).error();
  }
  return std::optional<Arch>(*model);
}

Json result_json(const TuneRequest& request, const TuneResult& result) {
  const Measured& winner = result.variants[result.winner];
  Json json;
  json["device"] = result.device.name;
  json["model_version"] =
      result.device.model_version != 0 ? Json(result.device.model_version) : Json();
  json["model_error"] =
      result.device.model_version != 0 ? Json(clock::error_of(request.spec.arch)) : Json();
  json["sm_count"] = result.device.sm_count;
  json["driver"] = result.device.driver;
  json["nvrtc_version"] = result.nvrtc_version;
  json["arch"] = std::string(to_string(request.spec.arch));
  json["key"] = winner.key;
  json["untuned_key"] = result.variants.front().key;
  json["choose"] = winner.variant.choose;
  json["ratio"] = winner.ratio;
  json["control"] = result.control;
  json["shapes"] = Json::array();
  for (const TuneShape& shape : request.shapes) {
    json["shapes"].push_back(
        {{"batch", shape.batch}, {"q_len", shape.q_len}, {"kv_len", shape.kv_len}});
  }
  json["variants"] = Json::array();
  for (const Measured& measured : result.variants) {
    Json variant;
    variant["choose"] = measured.variant.choose;
    variant["key"] = measured.key.empty() ? Json() : Json(measured.key);
    variant["outcome"] = std::string(to_string(measured.fate));
    variant["reason"] = measured.reason.empty() ? Json() : Json(measured.reason);
    variant["ms"] = measured.ms;
    variant["ratios"] = measured.ratios;
    variant["ratio"] = measured.ratios.empty() ? Json() : Json(measured.ratio);
    json["variants"].push_back(std::move(variant));
  }
  json["illegal"] = result.illegal;
  json["duplicates"] = result.duplicates;
  json["left_out"] = result.left_out;
  return json;
}

std::string result_text(const TuneRequest& request, const TuneResult& result) {
  const TuningValues& untuned = result.variants.front().variant.choose;
  std::string text = fmt::format(
      "{}, {} SMs, {}; {} variants\nms per launch at (batch:q_len:kv_len)", result.device.name,
      result.device.sm_count, result.device.driver, result.variants.size());
  for (const TuneShape& shape : request.shapes) {
    text += fmt::format(" {}:{}:{}", shape.batch, shape.q_len, shape.kv_len);
  }
  text += "; times the untuned kernel's\n";
  std::vector<const Measured*> order;
  for (const Measured& measured : result.variants) order.push_back(&measured);
  std::stable_sort(order.begin(), order.end(), [](const Measured* a, const Measured* b) {
    if (a->fate != b->fate) return a->fate < b->fate;
    return a->ratio < b->ratio;
  });
  for (const Measured* measured : order) {
    text += fmt::format("{:<12}", to_string(measured->fate));
    for (const double ms : measured->ms) text += fmt::format(" {:8.4f}", ms);
    if (!measured->ratios.empty()) text += fmt::format(" {:6.3f}", measured->ratio);
    text += fmt::format("  {}{}{}\n", choice_text(measured->variant.choose, untuned),
                        measured->reason.empty() ? "" : ": ", measured->reason);
  }
  if (result.device.model_version != 0) {
    text += fmt::format("the model's error: {}\n", clock::error_of(request.spec.arch));
  } else {
    text += fmt::format("the untuned kernel beside itself: {:.3f}\n", result.control);
  }
  return text;
}

}  // namespace

Result<Report> run_tune(const TuneArguments& arguments) {
  const std::int64_t pairs = arguments.pairs.value_or(kDefaultPairs);
  if (Status s = check_range("pairs", pairs, 5, 1000); !s) return std::move(s).error();
  const std::int64_t max_variants = arguments.max_variants.value_or(tune::kMaxVariants);
  if (Status s = check_range("max_variants", max_variants, 1, 4096); !s) {
    return std::move(s).error();
  }
  Result<ResolvedSpec> spec = read_spec(arguments.spec, arguments.model);
  if (!spec) return std::move(spec).error();
  const Result<std::optional<Arch>> model = model_of(arguments, (*spec)->arch);
  if (!model) return model.error();
  Result<verify::ProblemRequest> values = read_problem(arguments.problem, spec->given());
  if (!values) return std::move(values).error();
  TuneRequest request;
  request.spec = spec->given();
  request.options = spec->options();
  request.values = std::move(*values);
  request.pairs = static_cast<int>(pairs);
  request.max_variants = static_cast<std::size_t>(max_variants);
  Result<std::vector<TuneShape>> shapes = read_shapes(arguments.shapes, (*spec)->max_seq_len);
  if (!shapes) return std::move(shapes).error();
  request.shapes = std::move(*shapes);
  if (!arguments.output.empty()) {
    // A table that cannot be kept or written is told before anything is measured.
    if (Result<std::string> text = read_table(arguments.output); !text) {
      return std::move(text).error();
    }
    if (Status s = check_replaceable(arguments.output); !s) return std::move(s).error();
  }

  // On a terminal a line that changes; elsewhere lines, of which a log takes the begins and the
  // ends of stages and one now and then.
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  auto told = std::chrono::steady_clock::now();
  const auto progress = [&](std::string_view stage, std::size_t done, std::size_t all) {
    const auto now = std::chrono::steady_clock::now();
    if (!terminal && done > 0 && done < all && now - told < kBetweenLines) return;
    told = now;
    const std::string text = fmt::format("{} {} of {}", stage, done, all);
    (void)std::fputs((terminal ? "\r" + text + "\033[K" : text + "\n").c_str(), stderr);
  };
  const auto services = [&](std::shared_ptr<const Tuning> tuning) {
    return open_service(std::move(tuning), arguments.spec.accept_unconfined_helper);
  };
  const auto open_rig = [&] {
    return *model
               ? tune::make_model_rig(
                     **model, static_cast<unsigned>(arguments.timed_sms.value_or(kDefaultTimedSms)))
               : tune::make_gpu_rig(request.spec.arch);
  };
  const Result<TuneResult> result = tune::tune(request, services, open_rig, progress);
  if (terminal) (void)std::fputs("\r\033[K", stderr);
  if (!result) return result.error();

  Report report;
  Json json = result_json(request, *result);
  report.text = result_text(request, *result);
  if (!arguments.output.empty()) {
    const std::string date = fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(std::time(nullptr)));
    // Read again: another row may have been measured meanwhile.
    Result<std::string> existing = read_table(arguments.output);
    if (!existing) return std::move(existing).error();
    Result<std::string> table = tune::table_with(*existing, request, *result, date);
    if (!table) return std::move(table).error();
    if (Status s = replace_file(arguments.output, *table); !s) return std::move(s).error();
    json["file"] = arguments.output;
    report.text += fmt::format("written: {}\n", arguments.output);
  }
  report.json = to_text(json);
  return report;
}

}  // namespace attnjit::cli
