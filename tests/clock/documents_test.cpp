// SPDX-License-Identifier: Apache-2.0
// docs/clock.md says what the code has: every number with its source, and which cells judge the
// model.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "clock/parameters.h"
#include "source_dir.h"

namespace attnjit::clock {
namespace {

std::string file(const std::string& name) {
  std::ifstream in(std::string(ATTNJIT_SOURCE_DIR) + "/" + name);
  EXPECT_TRUE(in.good()) << name;
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

nlohmann::json cells(const char* name) {
  return nlohmann::json::parse(file(std::string("bench/clock/") + name)).at("cells");
}

TEST(ClockDocuments, EveryNumberStandsThereWithItsSource) {
  const std::string page = file("docs/clock.md");
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a}) {
    const std::size_t table = page.find(fmt::format("### {}\n", to_string(arch)));
    ASSERT_NE(table, std::string::npos);
    for (const ParameterRow& row : parameter_table(arch)) {
      // What is assumed to be another architecture's is not repeated, and is that.
      if (row.from == "as sm_90a" || row.from == "as sm_100a") {
        const Arch other = row.from == "as sm_90a" ? Arch::kSm90a : Arch::kSm100a;
        for (const ParameterRow& of : parameter_table(other)) {
          if (of.name != row.name) continue;
          EXPECT_EQ(of.value, row.value) << row.name;
        }
        continue;
      }
      const std::string line =
          fmt::format("\n| `{}` | {}{}{} | {} | {} |\n", row.name, row.value,
                      row.unit.empty() ? "" : " ", row.unit, to_string(row.source), row.from);
      EXPECT_NE(page.find(line, table), std::string::npos) << line;
    }
  }
  EXPECT_NE(page.find(fmt::format("Model {}", kModelVersion)), std::string::npos);
  // And what reports say of each model's error.
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a})
    EXPECT_NE(page.find(fmt::format("| {} |", error_of(arch))), std::string::npos)
        << to_string(arch);
}

TEST(ClockDocuments, TheCellsThatJudgeAreNamedAndNoneWasFitted) {
  const std::string page = file("docs/clock.md");
  const nlohmann::json held_out = cells("held_out.json"), fitted = cells("calibration.json");
  EXPECT_EQ(held_out.size(), 16u);
  std::set<std::string> seen;
  for (const auto& cell : fitted) seen.insert(cell.at("spec").dump() + cell.at("problem").dump());
  for (const auto& cell : held_out) {
    const auto name = cell.at("name").get<std::string>();
    EXPECT_NE(page.find("| " + name + " |"), std::string::npos) << name;
    EXPECT_EQ(seen.count(cell.at("spec").dump() + cell.at("problem").dump()), 0u) << name;
  }
}

}  // namespace
}  // namespace attnjit::clock
