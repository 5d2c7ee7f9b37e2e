// SPDX-License-Identifier: Apache-2.0
// Follows the #include lines of template files.
#include "codegen/include_closure.h"

#include <fmt/format.h>

#include <map>

namespace attnjit {
namespace {

std::string_view trim_left(std::string_view text) {
  const std::size_t at = text.find_first_not_of(" \t");
  return at == std::string_view::npos ? std::string_view() : text.substr(at);
}

/// The names that a file includes, each with its line.
struct Include {
  std::string_view name;
  int line;
};

Result<std::vector<Include>> includes_of(std::string_view file, std::string_view text) {
  std::vector<Include> found;
  int line = 0;
  while (!text.empty()) {
    ++line;
    const std::size_t end = text.find('\n');
    std::string_view row = trim_left(text.substr(0, end));
    text = end == std::string_view::npos ? std::string_view() : text.substr(end + 1);
    if (row.substr(0, 1) != "#") continue;
    row = trim_left(row.substr(1));
    if (row.substr(0, 7) != "include") continue;
    row = trim_left(row.substr(7));
    const std::size_t close = row.substr(0, 1) == "\"" ? row.find('"', 1) : std::string_view::npos;
    if (close == std::string_view::npos || close == 1) {
      Error error = make_error(
          ErrorCode::kInternal,
          fmt::format("{} includes something that is not \"a template's name\"", file), "template");
      error.line = line;
      error.column = 1;
      return error;
    }
    found.push_back({row.substr(1, close - 1), line});
  }
  return found;
}

}  // namespace

Error incomplete_templates(std::string_view missing) {
  return make_error(ErrorCode::kEnvironment, fmt::format("the templates hold no {}", missing),
                    "templates",
                    "the folder must hold what the project's templates/ holds; unset "
                    "ATTNJIT_TEMPLATES to use the embedded ones");
}

Result<std::vector<SourceFile>> include_closure(const TemplateSet& templates, std::string_view name,
                                                std::string_view text) {
  std::map<std::string_view, const SourceFile*> reached;
  struct Pending {
    std::string_view name;
    std::string_view text;
  };
  std::vector<Pending> pending{{name, text}};
  while (!pending.empty()) {
    const Pending file = pending.back();
    pending.pop_back();
    Result<std::vector<Include>> includes = includes_of(file.name, file.text);
    if (!includes) return includes.error();
    for (const Include& include : *includes) {
      const SourceFile* header = templates.find(include.name);
      if (header == nullptr) {
        Error error = incomplete_templates(include.name);
        error.message += fmt::format(", which {} includes", file.name);
        error.line = include.line;
        error.column = 1;
        return error;
      }
      if (reached.emplace(header->name, header).second) {
        pending.push_back({header->name, header->text});
      }
    }
  }
  std::vector<SourceFile> files;
  files.reserve(reached.size());
  for (const auto& [key, file] : reached) files.push_back(*file);
  return files;
}

}  // namespace attnjit
