// SPDX-License-Identifier: Apache-2.0
// Reads what bounded waits left in a launch's buffer.
#include "plan/launch/wait_records.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnjit {
namespace {

constexpr std::size_t kCountWord = 0;
constexpr std::size_t kHeaderWords = 8;
constexpr std::size_t kRecordWords = 8;

}  // namespace

std::vector<WaitRecord> wait_records(std::span<const std::uint32_t> words) {
  std::vector<WaitRecord> records;
  if (words.size() < kHeaderWords) return records;
  const std::size_t room = (words.size() - kHeaderWords) / kRecordWords;
  const std::size_t count = std::min<std::size_t>(words[kCountWord], room);
  for (std::size_t i = 0; i < count; ++i) {
    const auto word = words.subspan(kHeaderWords + i * kRecordWords, kRecordWords);
    records.push_back(
        {word[0], word[1], static_cast<std::int32_t>(word[2]), word[3], word[4], word[5]});
  }
  return records;
}

std::string describe_waits(const KernelPlan& plan, std::span<const std::uint32_t> words) {
  std::string text;
  const std::vector<BarrierPlan>& barriers = plan.main().barriers;
  const std::vector<WaitRecord> records = wait_records(words);
  for (const WaitRecord& record : records) {
    text += fmt::format(
        "CTA {}, warp {}, work tile {}: waits for parity {} of barrier {} ({})\n", record.cta,
        record.warp, record.work_tile, record.parity, record.barrier,
        record.barrier < barriers.size() ? barriers[record.barrier].name : "which the plan lacks");
  }
  if (!words.empty() && words[kCountWord] > records.size()) {
    text += fmt::format("and {} more\n", words[kCountWord] - records.size());
  }
  return text;
}

}  // namespace attnjit
