// SPDX-License-Identifier: Apache-2.0
// Manifest: reads a named list of specs.
#include "attnjit/manifest.h"

#include <fmt/format.h>

#include <cstddef>
#include <utility>

#include "spec/json_problems.h"
#include "spec/json_value.h"
#include "spec/spec_reader.h"

namespace attnjit {
namespace {

using spec::JsonMember;
using spec::JsonValue;

constexpr std::string_view kFields[] = {"name", "source", "specs"};
constexpr std::size_t kMaxSpecs = 65536;

Result<SpecDocument> read_entry(const JsonValue& entry, std::size_t index) {
  const std::string field = fmt::format("specs[{}]", index);
  spec::JsonProblems problems;
  if (entry.type != JsonValue::Type::kObject) {
    problems.add_wrong(field, entry, "an object with the spec's fields");
  }
  for (const JsonMember& member : entry.members) {
    if (member.name != "arch") continue;
    problems.add(field + ".arch", "is no field of a manifest's spec", member,
                 "leave it out: the architecture is chosen when the manifest is used");
  }
  if (!problems.found().empty()) return problems.take();
  Result<ResolvedSpec> read = spec::read_spec(entry, field + ".");
  if (!read) return std::move(read).error();
  return SpecDocument{read->given(), read->options()};
}

}  // namespace

Result<Manifest> manifest_from_json(std::string_view json) {
  spec::JsonLimits limits;
  limits.max_bytes = std::size_t{16} << 20;
  Result<JsonValue> root = spec::parse_json(json, limits);
  if (!root) return std::move(root).error();
  spec::JsonProblems problems;
  if (root->type != JsonValue::Type::kObject) {
    problems.add(
        "", "the manifest is " + describe(*root) + "; allowed: an object {name, source, specs}",
        *root);
    return problems.take();
  }
  Manifest manifest;
  problems.check_members("", *root, "a manifest", kFields);
  const auto text = [&](const char* field, std::string& into) {
    const JsonValue* value = root->find(field);
    if (value != nullptr) into = problems.string(field, *value).value_or("");
  };
  text("name", manifest.name);
  text("source", manifest.source);
  const JsonValue* specs = root->find("specs");
  const std::string allowed = fmt::format("an array of 1 to {} specs", kMaxSpecs);
  if (specs == nullptr) {
    problems.add("specs", "is missing; allowed: " + allowed, *root);
  } else if (specs->type != JsonValue::Type::kArray) {
    problems.add_wrong("specs", *specs, allowed);
  } else if (specs->items.empty() || specs->items.size() > kMaxSpecs) {
    problems.add("specs", fmt::format("has {} specs; allowed: {}", specs->items.size(), allowed),
                 *specs);
  }
  if (!problems.found().empty()) return problems.take();

  manifest.specs.reserve(specs->items.size());
  for (std::size_t i = 0; i < specs->items.size(); ++i) {
    manifest.specs.push_back(read_entry(specs->items[i], i));
  }
  return manifest;
}

}  // namespace attnjit
