// SPDX-License-Identifier: Apache-2.0
// Makes mutants: finds the places of each rule in a kernel's text and changes them one at a time.
#include "mutation.h"

#include <algorithm>
#include <optional>
#include <regex>

#include "generated_subjects.h"

namespace attnjit::emulator {
namespace {

struct Line {
  std::size_t begin = 0, length = 0;
  int number = 0;
};

// The lines of some entries: of each to the next one, or to the end.
std::vector<Line> lines_of(const std::string& ptx, const std::vector<std::string>& entries) {
  std::vector<Line> lines;
  bool inside = false;
  int number = 0;
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size());
    const std::string_view text(ptx.data() + at, end - at);
    ++number;
    if (text.find(".entry ") != std::string_view::npos) {
      inside = std::any_of(entries.begin(), entries.end(), [&](const std::string& entry) {
        return text.find(".entry " + entry + "(") != std::string_view::npos;
      });
    }
    if (inside) lines.push_back({at, end - at, number});
    at = end + 1;
  }
  return lines;
}

class Maker {
 public:
  Maker(const std::string& subject, const std::string& ptx, const LaunchRecipe& launch,
        const std::vector<std::string>& entries)
      : subject_(subject), ptx_(ptx), launch_(launch), lines_(lines_of(ptx, entries)) {}

  void apply(const Rule& rule) {
    if (!subject_.starts_with(rule.subjects)) return;
    const std::regex pattern(rule.pattern.begin(), rule.pattern.end());
    std::vector<Place> places;
    for (const Line& line : lines_) {
      const std::string text = text_of(line);
      if (text.find(rule.find) == std::string::npos) continue;
      if (std::regex_search(text, pattern)) places.push_back({&line, nullptr});
    }
    take(rule.kind, places, rule.at_most, [&](const Place& place) {
      std::string ptx = ptx_;
      ptx.replace(place.line->begin, place.line->length,
                  std::regex_replace(text_of(*place.line), pattern, std::string(rule.replacement)));
      return ptx;
    });
  }

  void apply(const MoveRule& rule) {
    if (!subject_.starts_with(rule.subjects)) return;
    const std::regex pattern(rule.pattern.begin(), rule.pattern.end());
    const std::regex across(rule.across.begin(), rule.across.end());
    std::vector<Place> places;
    for (std::size_t i = 0; i < lines_.size(); ++i) {
      if (!std::regex_search(text_of(lines_[i]), pattern)) continue;
      if (const Line* target = neighbour(i, rule.down, across)) {
        places.push_back({&lines_[i], target});
      }
    }
    take(rule.kind, places, rule.at_most, [&](const Place& place) {
      const std::string moved = text_of(*place.line) + "\n";
      std::string ptx = ptx_;
      if (rule.down) {
        ptx.insert(place.target->begin + place.target->length + 1, moved);
        ptx.erase(place.line->begin, moved.size());
      } else {
        ptx.erase(place.line->begin, moved.size());
        ptx.insert(place.target->begin, moved);
      }
      return ptx;
    });
  }

  void apply(const LaunchRule& rule) {
    if (!subject_.starts_with(rule.subjects)) return;
    const auto& maps = launch_.tensor_maps;
    if (std::none_of(maps.begin(), maps.end(), [&](const TensorMapDescription& map) {
          return (map.name == rule.map || map.buffer == rule.map) && map.swizzle != rule.swizzle;
        })) {
      return;
    }
    Mutant mutant;
    mutant.subject = subject_;
    mutant.kind = std::string(rule.kind) + ": " + std::string(rule.map);
    mutant.map = rule.map;
    mutant.swizzle = rule.swizzle;
    result_.mutants.push_back(std::move(mutant));
  }

  Mutants result() && { return std::move(result_); }

 private:
  struct Place {
    const Line* line;
    const Line* target;  // what a line is moved across
  };

  std::string text_of(const Line& line) const { return ptx_.substr(line.begin, line.length); }

  // The nearest line that matches, within what belongs together.
  const Line* neighbour(std::size_t at, bool down, const std::regex& across) const {
    constexpr std::size_t kNear = 60;
    for (std::size_t step = 1; step <= kNear; ++step) {
      if (down ? at + step >= lines_.size() : step > at) return nullptr;
      const Line& line = lines_[down ? at + step : at - step];
      if (std::regex_search(text_of(line), across)) return &line;
    }
    return nullptr;
  }

  template <class Change>
  void take(std::string_view kind, const std::vector<Place>& places, int at_most,
            const Change& change) {
    const auto found = static_cast<int>(places.size());
    const int taken = std::min(found, at_most);
    for (int i = 0; i < taken; ++i) {
      const int occurrence = taken == 1 ? 0 : i * (found - 1) / (taken - 1);
      const Place& place = places[static_cast<std::size_t>(occurrence)];
      Mutant mutant;
      mutant.subject = subject_;
      mutant.kind = kind;
      mutant.occurrence = occurrence;
      mutant.line = place.line->number;
      mutant.ptx = change(place);
      const std::string_view spares =
          no_damage(subject_, kind, occurrence, context_of(ptx_, mutant.line));
      if (spares.empty()) {
        result_.mutants.push_back(std::move(mutant));
      } else {
        result_.spared.push_back({std::move(mutant), spares});
      }
    }
  }

  const std::string& subject_;
  const std::string& ptx_;
  const LaunchRecipe& launch_;
  const std::vector<Line> lines_;
  Mutants result_;
};

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
    if (number == line) context.line = text;
    if (number == line || number < line - kLines) continue;
    if (text.find_first_not_of("\t {}") == std::string_view::npos ||
        text.find("//") != std::string_view::npos || text.back() == ':') {
      continue;
    }
    (number < line ? context.before : context.after).append(text).append("\n");
  }
  return context;
}

Mutants mutants_of(const std::string& subject, const std::string& ptx, const LaunchRecipe& launch,
                   const std::vector<std::string>& entries) {
  Maker maker(subject, ptx, launch, entries);
  const bool from_template = subject.starts_with(kTemplatePrefix);
  for (const Rule& rule : from_template ? template_rules() : rules()) maker.apply(rule);
  for (const Rule& rule : order_rules()) maker.apply(rule);
  for (const Rule& rule : run_rules()) maker.apply(rule);
  for (const MoveRule& rule : move_rules()) maker.apply(rule);
  for (const LaunchRule& rule : from_template ? template_launch_rules() : launch_rules()) {
    maker.apply(rule);
  }
  return std::move(maker).result();
}

}  // namespace attnjit::emulator
