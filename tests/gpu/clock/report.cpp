// SPDX-License-Identifier: Apache-2.0
// Prints measured numbers: median, least and largest.
#include "report.h"

#include <algorithm>
#include <cstdio>

namespace attnjit::clock_bench {
namespace {

std::string text(double value) {
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%.6g", value);
  return buffer;
}

std::string quoted(const std::string& value) {
  std::string result = "\"";
  for (const char c : value) {
    if (c == '"' || c == '\\') result += '\\';
    result += static_cast<unsigned char>(c) < ' ' ? ' ' : c;
  }
  return result + '"';
}

}  // namespace

double median(std::vector<double> samples) {
  std::sort(samples.begin(), samples.end());
  const std::size_t half = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[half] : (samples[half - 1] + samples[half]) / 2;
}

std::vector<double> slope(const std::vector<double>& many, const std::vector<double>& few,
                          double more) {
  std::vector<double> result;
  const std::size_t count = std::min(many.size(), few.size());
  for (std::size_t i = 0; i < count; ++i) result.push_back((many[i] - few[i]) / more);
  return result;
}

void Report::add(std::string name, std::string unit, std::vector<double> samples) {
  std::fprintf(stderr, "%-44s %12s %s\n", name.c_str(), text(median(samples)).c_str(),
               unit.c_str());
  numbers_.push_back({std::move(name), std::move(unit), std::move(samples)});
}

void Report::fact(const std::string& name, const std::string& value) {
  facts_.emplace_back(name, value);
}

std::string Report::to_json() const {
  std::string json = "{\n";
  for (const auto& [name, value] : facts_)
    json += " " + quoted(name) + ": " + quoted(value) + ",\n";
  json += " \"numbers\": {\n";
  for (std::size_t i = 0; i < numbers_.size(); ++i) {
    const Number& n = numbers_[i];
    const auto [least, most] = std::minmax_element(n.samples.begin(), n.samples.end());
    json += "  " + quoted(n.name) + ": {\"median\": " + text(median(n.samples)) +
            ", \"min\": " + text(*least) + ", \"max\": " + text(*most) +
            ", \"samples\": " + std::to_string(n.samples.size()) + ", \"unit\": " + quoted(n.unit) +
            "}" + (i + 1 < numbers_.size() ? ",\n" : "\n");
  }
  return json + " }\n}\n";
}

}  // namespace attnjit::clock_bench
