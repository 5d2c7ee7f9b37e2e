// SPDX-License-Identifier: Apache-2.0
// Replays the kernels that were recorded on an H200 (conformance/): the emulator must answer with
// the same bits, or within the PTX ISA's stated error for approximate functions.
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "../emulator_model/recorded.h"
#include "emulator_fixture.h"
#include "plan/launch/launch_json.h"

namespace attnjit::emulator {
namespace {

struct Replay {
  EmulatorReport report;
  std::vector<EmulatorBuffer> buffers;
  bool ran = false;
};

const PtxModule& module_of(const std::string& ptx) {
  static std::map<std::string, PtxModule> modules;
  auto it = modules.find(ptx);
  if (it == modules.end())
    it = modules.emplace(ptx, load_module(test_file("conformance/" + ptx))).first;
  return it->second;
}

Replay replay(const Recorded& recorded, const nlohmann::json& c, std::uint64_t seed) {
  Replay r;
  nlohmann::json launch = c.at("launch");
  nlohmann::json& buffers = launch["buffers"];
  buffers = nlohmann::json::object();
  for (const auto& [name, at] : c.at("inputs").items()) {
    buffers[name] = {{"shape", {at[1].get<std::int64_t>()}}, {"dtype", "u8"}, {"fill", 0}};
    EmulatorBuffer b;
    b.name = name;
    b.dtype = Dtype::kU8;
    b.data = recorded.buffer(c, "inputs", name);
    b.shape = {b.data.size()};
    r.buffers.push_back(std::move(b));
  }
  auto document = launch_from_json(launch.dump());
  if (!document) {
    ADD_FAILURE() << c.at("name") << ": " << document.error().to_string();
    return r;
  }
  EmulatorOptions options;
  options.seed = seed;
  auto report =
      emulate(module_of(c.at("ptx").get<std::string>()), document->sequence, r.buffers, options);
  if (!report) {
    ADD_FAILURE() << c.at("name") << ": " << report.error().to_string();
    return r;
  }
  r.report = std::move(report).value();
  r.ran = true;
  return r;
}

class Conformance : public ::testing::TestWithParam<const char*> {};

TEST_P(Conformance, AnswersAsTheGpuDid) {
  const Recorded recorded(GetParam());
  std::uint64_t seed = 0;
  int compared = 0;
  for (const auto& c : recorded.cases()) {
    const auto name = c.at("name").get<std::string>();
    SCOPED_TRACE(name);
    const Replay r = replay(recorded, c, seed++ % 8);
    if (!r.ran) continue;
    if (c.contains("fault")) {
      EXPECT_FALSE(r.report.passed);
      continue;
    }
    // Two recorded kernels do on purpose what a finding is for.
    if (name == "shuffles") {
      EXPECT_TRUE(has_finding(r.report, FindingKind::kUninitialised))
          << "reads of lanes that do not take part";
    } else if (name.find("expecting 1040 bytes") != std::string::npos) {
      EXPECT_TRUE(has_finding(r.report, FindingKind::kRace))
          << "a phase that ends before the copy does";
    } else {
      EXPECT_TRUE(r.report.passed) << words(r.report).substr(0, 1500);
    }
    if (c.contains("unstable")) continue;
    for (const auto& [buffer, how] : c.at("compare").items()) {
      if (!how.is_string()) continue;  // approximate functions: below
      const std::vector<std::uint8_t> expected = recorded.buffer(c, "expect", buffer);
      for (const EmulatorBuffer& b : r.buffers) {
        if (b.name != buffer) continue;
        ++compared;
        std::string differences;
        int different = 0;
        for (std::size_t i = 0; i + 4 <= expected.size(); i += 4) {
          std::uint32_t ours = 0, theirs = 0;
          std::memcpy(&ours, b.data.data() + i, 4);
          std::memcpy(&theirs, expected.data() + i, 4);
          if (ours == theirs) continue;
          // Which of several f64 NaNs a result is, PTX leaves open.
          if (name == "wide_binary" || name == "wide_ternary") {
            double x = 0, y = 0;
            std::memcpy(&x, b.data.data() + i / 8 * 8, 8);
            std::memcpy(&y, expected.data() + i / 8 * 8, 8);
            if (std::isnan(x) && std::isnan(y)) continue;
          }
          if (++different > 20) continue;
          char text[96];
          std::snprintf(text, sizeof(text), "\n  byte %zu: %08x, the GPU has %08x", i, ours,
                        theirs);
          differences += text;
        }
        EXPECT_EQ(different, 0) << buffer << differences;
      }
    }
  }
  EXPECT_GT(compared, 0);
}
INSTANTIATE_TEST_SUITE_P(Groups, Conformance,
                         ::testing::Values("scalar", "warp", "memory", "tma", "mma", "wgmma"),
                         [](const auto& p) { return std::string(p.param); });

// The PTX ISA's bounds: units in the last place, or absolute where it says so.
TEST(Conformance, ApproximateFunctionsAreWithinTheIsasError) {
  const Recorded recorded("scalar");
  for (const auto& c : recorded.cases()) {
    for (const auto& [buffer, how] : c.at("compare").items()) {
      if (how.is_string()) continue;
      const auto functions = how.at("approx").get<std::vector<std::string>>();
      const Replay r = replay(recorded, c, 1);
      ASSERT_TRUE(r.ran);
      EXPECT_TRUE(r.report.passed) << words(r.report).substr(0, 1500);
      const auto expected = recorded.array<float>(c, "expect", buffer);
      std::vector<float> ours;
      for (const EmulatorBuffer& b : r.buffers) {
        if (b.name == buffer) ours = values_of<float>(b);
      }
      ASSERT_EQ(ours.size(), expected.size());
      const std::size_t n = ours.size() / functions.size();
      const auto inputs = recorded.array<float>(c, "inputs", "a");
      for (std::size_t i = 0; i < ours.size(); ++i) {
        const std::string& f = functions[i / n];
        // The ISA bounds sin and cos in [-pi, pi]; beyond, the GPU's range reduction shows.
        if ((f.find("sin") == 0 || f.find("cos") == 0) && !(std::fabs(inputs[i % n]) <= 3.15f))
          continue;
        if (std::isnan(expected[i])) {
          EXPECT_TRUE(std::isnan(ours[i])) << f << " " << i;
          continue;
        }
        if (std::isinf(expected[i])) {
          EXPECT_EQ(ours[i], expected[i]) << f << " " << i;
          continue;
        }
        const double bound =
            f.find("sin") == 0 || f.find("cos") == 0
                ? 0x1p-19 * std::max(1.0, std::fabs(static_cast<double>(expected[i])))
            : f.find("tanh") == 0 ? 0x1p-10 * std::fabs(static_cast<double>(expected[i])) + 1e-37
            : f.find("lg2") == 0
                ? 0x1p-21 * std::max(1.0, std::fabs(static_cast<double>(expected[i])))
                : 0x1p-21 * std::fabs(static_cast<double>(expected[i])) + 0x1p-146;
        EXPECT_NEAR(ours[i], expected[i], bound) << f << " " << i;
      }
    }
  }
}

// Seen on an H200: a store whose box begins before the tensor is an illegal instruction (PTX ISA
// 9.7.9.27.1.1), where a load's reads zeros. Past the end both are clipped.
TEST(TensorStore, ABoxThatBeginsBeforeTheTensorIsAFinding) {
  TensorMapDescription map;
  map.name = map.buffer = "global";
  map.dtype = Dtype::kF32;
  map.dims = {4, 8};
  map.strides = {16};
  map.box = {4, 4};
  map.element_strides = {1, 1};
  const auto stored_at = [&](std::int32_t column, std::int32_t row) {
    std::vector<EmulatorBuffer> buffers{f32_buffer("global", std::vector<float>(32, 0.0f)),
                                        f32_buffer("in", std::vector<float>(16, 1.0f))};
    LaunchRecipe recipe = recipe_of("store_2", {1, 1, 1}, {64, 1, 1},
                                    {map_argument("global"), pointer("in"), scalar(column),
                                     scalar(row), scalar(0), scalar(0), scalar(0), scalar(64)});
    recipe.dynamic_smem = 64;
    recipe.tensor_maps = {map};
    const EmulatorReport report = run(module_of("tma.ptx"), recipe, buffers);
    double sum = 0;
    for (const float value : values_of<float>(buffers[0])) sum += value;
    return std::pair{report, sum};
  };
  for (const auto& [row, sum] : {std::pair{0, 16.0}, {6, 8.0}, {8, 0.0}}) {
    const auto [report, stored] = stored_at(0, row);
    EXPECT_TRUE(report.passed) << words(report);
    EXPECT_EQ(stored, sum) << row;
  }
  for (const auto& [column, row] : {std::pair{0, -1}, {-4, 0}}) {
    const EmulatorReport report = stored_at(column, row).first;
    EXPECT_TRUE(has_finding(report, FindingKind::kBounds)) << words(report);
  }
}

}  // namespace
}  // namespace attnjit::emulator
