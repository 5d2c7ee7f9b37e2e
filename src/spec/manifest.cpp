// SPDX-License-Identifier: Apache-2.0
// Manifest: reads a named list of specs.
#include "attnjit/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <utility>

#include "spec/json_value.h"
#include "spec/spec_fields.h"
#include "spec/spec_reader.h"
#include "spec/text.h"

namespace attnjit {
namespace {

using spec::JsonMember;
using spec::JsonValue;

constexpr std::string_view kFields[] = {"name", "source", "specs"};
constexpr std::size_t kMaxSpecs = 65536;

Error problem(std::string field, std::string message, int line, int column, std::string hint = {}) {
  Error error =
      make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint));
  error.line = line;
  error.column = column;
  return error;
}

Result<SpecDocument> read_entry(const JsonValue& entry, std::size_t index) {
  const std::string path = fmt::format("specs[{}].", index);
  if (entry.type != JsonValue::Type::kObject) {
    return problem(fmt::format("specs[{}]", index),
                   "is " + describe(entry) + "; allowed: an object with the spec's fields",
                   entry.line, entry.column);
  }
  for (const JsonMember& member : entry.members) {
    if (member.name != "arch") continue;
    return problem(path + "arch", "is no field of a manifest's spec", member.line, member.column,
                   "leave it out: the architecture is chosen when the manifest is used");
  }
  Result<ResolvedSpec> read = spec::read_spec(entry, path);
  if (!read) return std::move(read).error();
  return SpecDocument{read->given(), read->options()};
}

}  // namespace

Result<Manifest> manifest_from_json(std::string_view json) {
  spec::JsonLimits limits;
  limits.max_bytes = std::size_t{16} << 20;
  Result<JsonValue> root = spec::parse_json(json, limits);
  if (!root) return std::move(root).error();
  if (root->type != JsonValue::Type::kObject) {
    return problem(
        "", "the manifest is " + describe(*root) + "; allowed: an object {name, source, specs}",
        root->line, root->column);
  }

  std::vector<Error> problems;
  Manifest manifest;
  for (const JsonMember& member : root->members) {
    if (problems.size() >= static_cast<std::size_t>(spec::kMaxProblems)) break;
    const bool known =
        std::find(std::begin(kFields), std::end(kFields), member.name) != std::end(kFields);
    if (member.duplicate) {
      problems.push_back(problem(spec::printable(member.name), "is given twice; allowed: once",
                                 member.line, member.column));
    } else if (!known) {
      const std::string_view best = spec::closest(member.name, kFields);
      problems.push_back(problem(spec::printable(member.name),
                                 "is no field of a manifest; allowed: " + spec::join(kFields),
                                 member.line, member.column,
                                 best.empty() ? "" : fmt::format("did you mean `{}`?", best)));
    }
  }
  const auto text = [&](std::string_view field, std::string& into) {
    const JsonValue* value = root->find(field);
    if (value != nullptr && value->type == JsonValue::Type::kString) {
      into = value->text;
    } else if (value != nullptr) {
      problems.push_back(problem(std::string(field),
                                 "is " + describe(*value) + "; allowed: a string", value->line,
                                 value->column));
    }
  };
  text("name", manifest.name);
  text("source", manifest.source);

  const JsonValue* specs = root->find("specs");
  if (specs == nullptr || specs->type != JsonValue::Type::kArray || specs->items.empty() ||
      specs->items.size() > kMaxSpecs) {
    const JsonValue& at = specs == nullptr ? *root : *specs;
    std::string is = "is missing";
    if (specs != nullptr) {
      is = specs->type == JsonValue::Type::kArray ? fmt::format("has {} specs", specs->items.size())
                                                  : "is " + describe(*specs);
    }
    problems.push_back(problem("specs",
                               fmt::format("{}; allowed: an array of 1 to {} specs", is, kMaxSpecs),
                               at.line, at.column));
  }
  if (!problems.empty()) return spec::combine(std::move(problems));

  manifest.specs.reserve(specs->items.size());
  for (std::size_t i = 0; i < specs->items.size(); ++i) {
    manifest.specs.push_back(read_entry(specs->items[i], i));
  }
  return manifest;
}

}  // namespace attnjit
