// SPDX-License-Identifier: Apache-2.0
// Applies the rules to the lines of a kernel, and lists the mutants and what was spared.
#include "mutation.h"

#include <regex>

#include "template_subject.h"

namespace attnjit::emulator {
namespace {

struct Line {
  std::size_t begin = 0, length = 0;
  int number = 0;
};

// The lines of one entry: to the next one, or to the end.
std::vector<Line> lines_of(const std::string& ptx, const std::string& entry) {
  std::vector<Line> lines;
  bool inside = false;
  int number = 0;
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size());
    const std::string_view text(ptx.data() + at, end - at);
    ++number;
    if (text.find(".entry ") != std::string_view::npos) {
      inside = text.find(".entry " + entry + "(") != std::string_view::npos;
    }
    if (inside) lines.push_back({at, end - at, number});
    at = end + 1;
  }
  return lines;
}

}  // namespace

Context context_of(const std::string& ptx, int line) {
  constexpr int kLines = 30;
  Context context;
  int number = 0;
  for (std::size_t at = 0; at < ptx.size() && number <= line + kLines;) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size());
    const std::string_view text(ptx.data() + at, end - at);
    at = end + 1;
    ++number;
    if (number == line || number < line - kLines) continue;
    if (text.find_first_not_of("\t {}") == std::string_view::npos ||
        text.find("//") != std::string_view::npos || text.back() == ':') {
      continue;
    }
    (number < line ? context.before : context.after).append(text).append("\n");
  }
  return context;
}

Mutants mutants_of(const std::string& subject, const std::string& ptx, const std::string& entry) {
  const std::vector<Line> lines = lines_of(ptx, entry);
  Mutants result;
  std::vector<Mutant>& mutants = result.mutants;
  const bool from_template = subject.starts_with(kTemplatePrefix);
  for (const Rule& rule : from_template ? template_rules() : rules()) {
    if (!subject.starts_with(rule.subjects)) continue;
    const std::regex pattern(rule.pattern.begin(), rule.pattern.end());
    std::vector<Line> places;
    for (const Line& line : lines) {
      const std::string text = ptx.substr(line.begin, line.length);
      if (text.find(rule.find) == std::string::npos) continue;
      if (std::regex_search(text, pattern)) places.push_back(line);
    }
    const auto found = static_cast<int>(places.size());
    const int taken = std::min(found, rule.at_most);
    for (int i = 0; i < taken; ++i) {
      const int occurrence = taken == 1 ? 0 : i * (found - 1) / (taken - 1);
      const Line& line = places[static_cast<std::size_t>(occurrence)];
      Mutant mutant;
      mutant.subject = subject;
      mutant.kind = rule.kind;
      mutant.occurrence = occurrence;
      mutant.line = line.number;
      const std::string_view spares = from_template
                                          ? template_spares(rule.kind, context_of(ptx, line.number))
                                          : no_damage(subject, rule.kind, occurrence);
      if (!spares.empty()) {
        result.spared.push_back({mutant.name(), line.number, spares});
        continue;
      }
      mutant.ptx = ptx;
      mutant.ptx.replace(line.begin, line.length,
                         std::regex_replace(ptx.substr(line.begin, line.length), pattern,
                                            std::string(rule.replacement)));
      mutants.push_back(std::move(mutant));
    }
  }
  for (const LaunchRule& rule : from_template ? template_launch_rules() : launch_rules()) {
    if (!subject.starts_with(rule.subjects)) continue;
    Mutant mutant;
    mutant.subject = subject;
    mutant.kind = std::string(rule.kind) + ": " + std::string(rule.map);
    mutant.map = rule.map;
    mutant.swizzle = rule.swizzle;
    mutants.push_back(std::move(mutant));
  }
  return result;
}

}  // namespace attnjit::emulator
