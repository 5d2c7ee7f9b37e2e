// SPDX-License-Identifier: Apache-2.0
// Reads and writes verdicts: digest, by, seed, steps, seconds, name, with tabs between.
#include "verdict.h"

#include <fmt/format.h>

#include <sstream>

#include "base/sha256.h"

namespace attnjit::emulator {
namespace {

std::string digest_of(const std::string& name, const std::string& text) {
  return to_hex(sha256(name + '\n' + text));
}

constexpr const char* kSurvived = "-";

}  // namespace

VerdictFile::VerdictFile(const std::string& path) {
  if (path.empty()) return;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string digest;
    Verdict verdict;
    if (!(words >> digest >> verdict.by >> verdict.seed >> verdict.steps >> verdict.seconds)) {
      continue;  // a cut left it unfinished
    }
    verdict.caught = verdict.by != kSurvived;
    known_[digest] = verdict;
  }
  out_.open(path, std::ios::app);
}

std::optional<Verdict> VerdictFile::find(const std::string& name, const std::string& text) const {
  const auto known = known_.find(digest_of(name, text));
  if (known == known_.end()) return std::nullopt;
  return known->second;
}

void VerdictFile::add(const std::string& name, const std::string& text, const Verdict& verdict) {
  if (!out_.is_open()) return;
  out_ << fmt::format("{}\t{}\t{}\t{}\t{:.2f}\t{}\n", digest_of(name, text),
                      verdict.caught ? verdict.by : kSurvived, verdict.seed, verdict.steps,
                      verdict.seconds, name);
  out_.flush();
}

}  // namespace attnjit::emulator
