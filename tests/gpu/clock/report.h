// SPDX-License-Identifier: Apache-2.0
// The numbers that the clock's microbenchmarks measure, each with its spread, as JSON.
//
// Thread rules: confined to one thread.
#pragma once

#include <string>
#include <vector>

namespace attnjit::clock_bench {

struct Number {
  std::string name;             ///< dotted: the group comes first
  std::string unit;             ///< "cycles", "ns", "GB/s", ..
  std::vector<double> samples;  ///< in the order in which they were taken; never empty
};

class Report {
 public:
  void add(std::string name, std::string unit, std::vector<double> samples);
  void add(std::string name, std::string unit, double value) {
    add(std::move(name), std::move(unit), std::vector<double>{value});
  }
  /// Facts of the machine.
  void fact(const std::string& name, const std::string& value);
  std::string to_json() const;

 private:
  std::vector<Number> numbers_;
  std::vector<std::pair<std::string, std::string>> facts_;
};

double median(std::vector<double> samples);
/// (a - b) / n: what n more of something took, sample by sample.
std::vector<double> slope(const std::vector<double>& many, const std::vector<double>& few,
                          double more);

}  // namespace attnjit::clock_bench
