// SPDX-License-Identifier: Apache-2.0
// Verdict: what became of a mutant; VerdictFile: the verdicts of runs before, so that a run that
// was cut off goes on, and one report covers several runs.
//
// Thread rules: VerdictFile needs external synchronisation.
#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>

namespace attnjit::emulator {

struct Verdict {
  bool caught = false;
  std::string by;          ///< a finding's kind, "numbers", "refused"; "-" of a survivor
  std::uint64_t seed = 0;  ///< the one that gave it away
  std::uint64_t steps = 0;
  double seconds = 0;  ///< of one core
};

/// A line per verdict. NOTE: it is found by the mutant's name and text alone: after a change of the
/// emulator, of a launch or of the number of seeds, the file is another one.
class VerdictFile {
 public:
  /// An empty path: nothing is known, nothing is kept.
  explicit VerdictFile(const std::string& path);
  std::optional<Verdict> find(const std::string& name, const std::string& text) const;
  void add(const std::string& name, const std::string& text, const Verdict& verdict);

 private:
  std::map<std::string, Verdict> known_;
  std::ofstream out_;
};

}  // namespace attnjit::emulator
