// SPDX-License-Identifier: Apache-2.0
// Reads the spec, the shapes and the tuning table that a command line names.
#include "cli/spec_source.h"

#include <fmt/format.h>
#include <unistd.h>

#include <charconv>
#include <cmath>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "cli/files.h"
#include "driver/native_arch.h"
#include "spec/names.h"
#include "spec/scalars.h"
#include "spec/spec_flags.h"
#include "verify/params.h"

namespace attnjit::cli {
namespace {

constexpr std::int64_t kMaxSpecBytes = 1 << 20;
constexpr std::int64_t kMaxTuningBytes = 16 << 20;

Result<std::vector<std::int64_t>> read_lengths(const char* flag, const std::string& text) {
  std::vector<std::int64_t> lengths;
  const char* at = text.data();
  const char* end = at + text.size();
  while (true) {
    std::int64_t value = 0;
    const auto [stop, status] = std::from_chars(at, end, value);
    if (status != std::errc{} || (stop != end && *stop != ',')) {
      return invalid(flag, fmt::format("'{}' is no length, or lengths with commas between",
                                       text.substr(0, 64)));
    }
    lengths.push_back(value);
    if (stop == end) return lengths;
    at = stop + 1;
  }
}

Status read_scale(const std::optional<double>& from, std::optional<float>& to) {
  if (!from) return {};
  const auto value = static_cast<float>(*from);
  if (!std::isfinite(value) || !(value > 0)) {
    return invalid("scale", fmt::format("is {}; allowed: 1e-45 to 3.4e38, as an f32", *from));
  }
  to = value;
  return {};
}

Status read_scalars(const std::map<std::string, double>& from,
                    std::map<std::string, double, std::less<>>& to) {
  for (const spec::ScalarFlag& flag : spec::scalar_flags()) {
    const auto given = from.find(std::string(flag.traits.name));
    if (given == from.end()) continue;
    if (!spec::is_allowed(flag.traits, flag.is_integer, given->second)) {
      return invalid(given->first, fmt::format("is {}; allowed: {}", given->second,
                                               spec::allowed(flag.traits, flag.is_integer)));
    }
    to.insert(*given);
  }
  return {};
}

/// MANIFEST#N as the manifest's name and the number of one of its specs; nothing for other names,
/// and for a file that is called so.
std::optional<std::pair<std::string, std::size_t>> place_in_manifest(const std::string& name) {
  const std::size_t mark = name.rfind('#');
  if (mark == std::string::npos || mark == 0 || ::access(name.c_str(), F_OK) == 0) return {};
  std::size_t index = 0;
  const char* end = name.data() + name.size();
  const auto [stop, status] = std::from_chars(name.data() + mark + 1, end, index);
  if (status != std::errc{} || stop != end) return {};
  return std::pair(name.substr(0, mark), index);
}

/// Errors: kInvalid, named after the file.
Result<spec::SpecInput> read_input(const std::string& name) {
  const auto place = place_in_manifest(name);
  Result<std::string> text =
      place ? read_file(place->first, kMaxManifestBytes) : read_file(name, kMaxSpecBytes);
  if (!text) return std::move(text).error();
  Result<spec::SpecInput> read = place ? spec::SpecInput::from_manifest(*text, place->second)
                                       : spec::SpecInput::from_json(*text);
  if (read) return read;
  Error error = std::move(read).error();
  const std::string file = place ? place->first : name;
  error.field = error.field.empty() ? file : file + ": " + error.field;
  return error;
}

/// Below a problem of a snippet, its line and a caret.
void show_excerpt(const spec::SpecInput& input, Error& error) {
  std::string excerpt = input.excerpt(error);
  if (excerpt.empty()) return;
  excerpt.pop_back();  // the last line's end
  error.hint += "\n" + excerpt;
}

}  // namespace

Result<Manifest> read_manifest(const std::string& path) {
  const Result<std::string> text = read_file(path, kMaxManifestBytes);
  if (!text) return text.error();
  Result<Manifest> manifest = manifest_from_json(*text);
  if (manifest) return manifest;
  Error error = std::move(manifest).error();
  error.field = error.field.empty() ? path : path + ": " + error.field;
  return error;
}

Result<ResolvedSpec> read_spec(const SpecArguments& arguments, const std::string& modelled) {
  spec::SpecInput input;
  if (!arguments.file.empty()) {
    Result<spec::SpecInput> read = read_input(arguments.file);
    if (!read) return std::move(read).error();
    input = std::move(*read);
  }
  for (const auto& [field, value] : arguments.flags) {
    if (Status status = input.set(field, value); !status) return std::move(status).error();
  }
  Result<ResolvedSpec> read = input.read();
  if (read && read->state().arch_from == spec::ArchFrom::kNothing) {
    if (const auto arch = arch_from_string(modelled)) return spec::with_arch(*read, *arch);
  }
  if (read) return with_native_arch(*read, [] { return Driver::open(); });
  Error error = std::move(read).error();
  show_excerpt(input, error);
  for (Error& other : error.others) show_excerpt(input, other);
  return error;
}

Result<verify::ProblemRequest> read_problem(const ProblemArguments& arguments,
                                            const AttentionSpec& spec) {
  verify::ProblemRequest request;
  request.batch = arguments.batch;
  if (arguments.pairs && !spec.merge) {
    return invalid("pairs", fmt::format("is {}, but the spec is of no merge", *arguments.pairs));
  }
  request.pairs = arguments.pairs.value_or(request.pairs);
  using Map = verify::GivenMapKind;
  if (arguments.given_map == "mask") {
    request.given_map = Map::kOfMask;
  } else if (arguments.given_map == "random") {
    request.given_map = Map::kRandom;
  } else if (arguments.given_map != "none") {
    return invalid("given_map", fmt::format("is '{}'; allowed: mask, random",
                                            arguments.given_map.substr(0, 64)));
  }
  const char* end = arguments.seed.data() + arguments.seed.size();
  const auto [stop, parsed] = std::from_chars(arguments.seed.data(), end, request.seed);
  if (parsed != std::errc{} || stop != end) {
    return invalid("seed", fmt::format("is '{}'; allowed: 0 to 18446744073709551615",
                                       arguments.seed.substr(0, 64)));
  }
  for (const auto& [flag, text, lengths] :
       {std::tuple{"q_len", &arguments.q_len, &request.q_lens},
        std::tuple{"kv_len", &arguments.kv_len, &request.kv_lens}}) {
    if (!*text) continue;
    Result<std::vector<std::int64_t>> read = read_lengths(flag, **text);
    if (!read) return std::move(read).error();
    *lengths = std::move(*read);
  }
  const auto input = verify::input_kind_from_string(arguments.input);
  if (!input) {
    return invalid("input", fmt::format("is '{}'; allowed: {}", arguments.input.substr(0, 64),
                                        verify::input_kind_names()));
  }
  request.input = *input;
  if (Status status = read_scale(arguments.scale, request.scale); !status) return status.error();
  if (Status status = read_scalars(arguments.scalars, request.scalars); !status) {
    return status.error();
  }
  const std::vector<ParamSpec> declared = spec::declared_params(spec);
  for (const std::string& text : arguments.params) {
    Result<verify::ParamArgument> param = verify::parse_param(text, declared);
    if (!param) return std::move(param).error();
    request.params.push_back(std::move(*param));
  }
  return request;
}

Result<std::shared_ptr<const Tuning>> read_tuning(const std::string& path) {
  if (path.empty()) return std::shared_ptr<const Tuning>();
  Result<std::string> text = std::string(path);
  if (path != kModelledTuning) text = read_file(path, kMaxTuningBytes);
  if (!text) return std::move(text).error();
  Result<Tuning> tuning = tuning_from_json(*text);
  if (tuning) return std::shared_ptr<const Tuning>(std::make_shared<Tuning>(std::move(*tuning)));
  Error error = std::move(tuning).error();
  error.field = error.field.empty() ? path : path + ": " + error.field;
  return error;
}

}  // namespace attnjit::cli
