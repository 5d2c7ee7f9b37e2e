// SPDX-License-Identifier: Apache-2.0
// LAUNCH.json: what is written is read back, and bad files are refused with their field.
#include "plan/launch/launch_json.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

namespace attnjit {
namespace {

LaunchDocument sample() {
  LaunchDocument document;
  LaunchRecipe& recipe = document.sequence.launches.emplace_back();
  recipe.entry = "kernel";
  recipe.grid = {4, 2, 1};
  recipe.block = {384, 1, 1};
  recipe.cluster = {2, 1, 1};
  recipe.dynamic_smem = 1024;
  TensorMapDescription map;
  map.name = "q_map";
  map.buffer = "q";
  map.offset = 256;
  map.dtype = Dtype::kBf16;
  map.dims = {64, 100};
  map.strides = {128};
  map.box = {64, 8};
  map.element_strides = {1, 2};
  map.swizzle = 128;
  map.l2_bytes = 128;
  map.oob = TensorMapDescription::OutOfBounds::kNan;
  recipe.tensor_maps = {map};
  recipe.args = {{KernelArgument::TensorMap{"q_map"}},
                 {KernelArgument::Pointer{"q", 16}},
                 {KernelArgument::Pointer{"", 0}},
                 {std::int32_t{-5}},
                 {std::int64_t{1} << 40},
                 {0.1f},
                 {KernelArgument::Bytes{{0, 255, 16}}}};
  document.buffers = {{"q", Dtype::kBf16, "q.npy", {}, std::nullopt},
                      {"o", Dtype::kFp16, "", {3, 4}, std::nullopt},
                      {"w", Dtype::kI32, "", {7}, 0.0}};
  document.out = {{"o", "o.npy"}};
  document.seed = 42;
  document.max_steps = 1000000;
  return document;
}

TEST(LaunchJson, RoundTrips) {
  const LaunchDocument document = sample();
  const std::string text = launch_to_json(document);
  Result<LaunchDocument> read = launch_from_json(text);
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(*read, document);
  EXPECT_EQ(launch_to_json(*read), text);
}

// Words that a launch leaves zero: what a workspace says, and a file may.
TEST(LaunchJson, SaysWhatIsLeftZero) {
  LaunchDocument document = sample();
  document.sequence.workspaces = {{"tile_counters", 16, true}, {"partial_o", 64, false}};
  nlohmann::json json = nlohmann::json::parse(launch_to_json(document));
  EXPECT_EQ(json["buffers"]["tile_counters"]["left_zero"], true);
  EXPECT_FALSE(json["buffers"]["partial_o"].contains("left_zero"));
  EXPECT_FALSE(json["buffers"]["w"].contains("left_zero"));
  const Result<LaunchDocument> read = launch_from_json(json.dump());
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  for (const LaunchBuffer& buffer : read->buffers) {
    EXPECT_EQ(buffer.left_zero, buffer.name == "tile_counters") << buffer.name;
  }
  json["buffers"]["tile_counters"]["left_zero"] = 1;
  EXPECT_EQ(launch_from_json(json.dump()).error().field, "buffers.tile_counters.left_zero");
}

// The text as documented, field by field: readers elsewhere depend on it.
TEST(LaunchJson, SeveralLaunchesShareTheBuffers) {
  LaunchDocument document = sample();
  document.sequence.launches.push_back(document.sequence.launches[0]);
  document.sequence.launches[1].entry = "second";
  const nlohmann::json json = nlohmann::json::parse(launch_to_json(document));
  EXPECT_FALSE(json.contains("entry"));
  ASSERT_EQ(json["launches"].size(), 2U);
  EXPECT_EQ(json["launches"][1]["entry"], "second");
  EXPECT_FALSE(json["launches"][0].contains("buffers"));
  const Result<LaunchDocument> read = launch_from_json(json.dump());
  ASSERT_TRUE(read.ok()) << read.error().to_string();
  EXPECT_EQ(read->sequence, document.sequence);

  nlohmann::json bad = json;
  bad["launches"][1]["args"][1]["ptr"] = "nowhere";
  Result<LaunchDocument> refused = launch_from_json(bad.dump());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "launches[1].args[1].ptr");
  bad = json;
  bad["launches"][0]["seed"] = 1;
  refused = launch_from_json(bad.dump());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().field, "launches[0].seed");
}

TEST(LaunchJson, Format) {
  const nlohmann::json json = nlohmann::json::parse(launch_to_json(sample()));
  EXPECT_EQ(json["grid"], (nlohmann::json{4, 2, 1}));
  EXPECT_EQ(json["dynamic_smem"], 1024);
  EXPECT_EQ(json["buffers"]["q"], (nlohmann::json{{"file", "q.npy"}, {"dtype", "bf16"}}));
  EXPECT_EQ(json["buffers"]["o"],
            (nlohmann::json{{"shape", {3, 4}}, {"dtype", "fp16"}, {"fill", "uninitialised"}}));
  EXPECT_EQ(json["buffers"]["w"]["fill"], 0.0);
  EXPECT_EQ(json["tensor_maps"]["q_map"]["strides"], nlohmann::json::array({128}));
  EXPECT_EQ(json["tensor_maps"]["q_map"]["oob"], "nan");
  EXPECT_EQ(json["args"][0], (nlohmann::json{{"tensor_map", "q_map"}}));
  EXPECT_EQ(json["args"][1], (nlohmann::json{{"ptr", "q"}, {"offset", 16}}));
  EXPECT_EQ(json["args"][3], (nlohmann::json{{"i32", -5}}));
  EXPECT_EQ(json["args"][6], (nlohmann::json{{"bytes", "00ff10"}}));
  EXPECT_EQ(json["out"]["o"], "o.npy");
}

TEST(LaunchJson, FloatsAreExactAndNonFiniteOnesTravelAsBytes) {
  LaunchDocument document = sample();
  for (const float value : {0.1f, -0.0f, 1e-45f, 3.4e38f}) {
    document.sequence.launches[0].args = {{value}};
    Result<LaunchDocument> read = launch_from_json(launch_to_json(document));
    ASSERT_TRUE(read.ok());
    const float back = std::get<float>(read->sequence.launches[0].args[0].value);
    EXPECT_EQ(std::signbit(back), std::signbit(value));
    EXPECT_EQ(back, value);
  }
  document.sequence.launches[0].args = {{std::numeric_limits<float>::infinity()}};
  Result<LaunchDocument> read = launch_from_json(launch_to_json(document));
  ASSERT_TRUE(read.ok());
  EXPECT_EQ(std::get<KernelArgument::Bytes>(read->sequence.launches[0].args[0].value).data,
            (std::vector<std::uint8_t>{0, 0, 0x80, 0x7f}));
}

TEST(LaunchJson, WorkspacesBecomeBuffers) {
  LaunchDocument document = sample();
  document.sequence.workspaces = {{"semaphore", 64, true}, {"partials", 128, false}};
  const nlohmann::json json = nlohmann::json::parse(launch_to_json(document));
  EXPECT_EQ(json["buffers"]["semaphore"],
            (nlohmann::json{{"shape", {64}}, {"dtype", "u8"}, {"fill", 0.0}, {"left_zero", true}}));
  EXPECT_EQ(json["buffers"]["partials"]["fill"], "uninitialised");
}

TEST(LaunchJson, ABadFileIsRefusedWithItsField) {
  const auto refused = [](auto change) {
    nlohmann::json json = nlohmann::json::parse(launch_to_json(sample()));
    change(json);
    const Result<LaunchDocument> read = launch_from_json(json.dump());
    EXPECT_FALSE(read.ok()) << json.dump();
    return read.ok() ? std::string() : read.error().field;
  };
  EXPECT_EQ(refused([](auto& j) { j.erase("entry"); }), "entry");
  EXPECT_EQ(refused([](auto& j) { j["gird"] = 1; }), "gird");
  EXPECT_EQ(refused([](auto& j) { j["grid"] = {1, 2}; }), "grid");
  EXPECT_EQ(refused([](auto& j) { j["grid"][0] = -1; }), "grid");
  EXPECT_EQ(refused([](auto& j) { j["block"][0] = 1.5; }), "block");
  EXPECT_EQ(refused([](auto& j) { j["buffers"]["q"]["dtype"] = "f7"; }), "buffers.q.dtype");
  EXPECT_EQ(refused([](auto& j) { j["buffers"]["q"]["fill"] = 0; }), "buffers.q");
  EXPECT_EQ(refused([](auto& j) { j["buffers"]["o"].erase("fill"); }), "buffers.o.fill");
  EXPECT_EQ(refused([](auto& j) {
              j["buffers"]["o"]["shape"] = {1 << 30, 1 << 30};
            }),
            "buffers.o.shape");
  EXPECT_EQ(refused([](auto& j) { j["tensor_maps"]["q_map"]["buffer"] = "x"; }),
            "tensor_maps.q_map.buffer");
  EXPECT_EQ(refused([](auto& j) { j["tensor_maps"]["q_map"]["l2_bytes"] = 96; }),
            "tensor_maps.q_map.l2_bytes");
  EXPECT_EQ(refused([](auto& j) { j["tensor_maps"]["q_map"]["swizzle"] = 96; }),
            "tensor_maps.q_map.swizzle");
  EXPECT_EQ(refused([](auto& j) { j["tensor_maps"]["q_map"]["box"] = {64}; }), "tensor_maps.q_map");
  EXPECT_EQ(refused([](auto& j) { j["args"][0]["tensor_map"] = "x"; }), "args[0].tensor_map");
  EXPECT_EQ(refused([](auto& j) { j["args"][1]["ptr"] = "x"; }), "args[1].ptr");
  EXPECT_EQ(refused([](auto& j) { j["args"][3]["i32"] = std::int64_t{1} << 40; }), "args[3].i32");
  EXPECT_EQ(refused([](auto& j) { j["args"][3]["i64"] = 1; }), "args[3]");
  EXPECT_EQ(refused([](auto& j) { j["args"][6]["bytes"] = "0g"; }), "args[6].bytes");
  EXPECT_EQ(refused([](auto& j) { j["out"]["x"] = "x.npy"; }), "out.x");
  EXPECT_EQ(refused([](auto& j) { j["max_steps"] = -1; }), "max_steps");
}

TEST(LaunchJson, AnEmptyOrImpossibleGridIsRefused) {
  for (const auto& [grid, value] : std::vector<std::pair<std::string, std::string>>{
           {"[0, 1, 1]", "x is 0"},
           {"[1, 0, 1]", "y is 0"},
           {"[1, 1, 65536]", "z is 65536"},
           {"[1, 70000, 1]", "y is 70000"},
           {"[2147483648, 1, 1]", "x is 2147483648"}}) {
    const Result<LaunchDocument> read =
        launch_from_json("{\"entry\": \"k\",\n \"grid\": " + grid + ", \"block\": [32, 1, 1]}");
    ASSERT_FALSE(read.ok()) << grid;
    EXPECT_EQ(read.error().field, "grid");
    EXPECT_EQ(read.error().line, 2);
    EXPECT_EQ(read.error().column, 10);
    EXPECT_NE(read.error().message.find(value), std::string::npos) << read.error().message;
  }
  EXPECT_TRUE(
      launch_from_json(R"({"entry": "k", "grid": [2147483647, 65535, 65535], "block": [1, 1, 1]})")
          .ok());
}

TEST(LaunchJson, BytesThatAreNoneAreRefusedWhereTheyStand) {
  const Result<LaunchDocument> read = launch_from_json(R"({"entry": "k", "grid": [1, 1, 1],
  "block": [32, 1, 1], "args": [{"bytes": "0g"}]})");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().field, "args[0].bytes");
  EXPECT_EQ(read.error().line, 2);
  EXPECT_EQ(read.error().column, 43);
}

TEST(LaunchJson, WhatIsGivenTwiceIsRefusedWhereItStands) {
  const Result<LaunchDocument> read = launch_from_json(R"({"entry": "k", "grid": [1, 1, 1],
  "block": [32, 1, 1], "buffers": {"q": {"shape": [1], "dtype": "f32", "fill": 0},
  "q": {"shape": [1], "dtype": "f32", "dtype": "i32", "fill": 0}}})");
  ASSERT_FALSE(read.ok());
  EXPECT_EQ(read.error().field, "buffers.q");
  EXPECT_EQ(read.error().line, 3);
  EXPECT_EQ(read.error().column, 3);
  ASSERT_EQ(read.error().others.size(), 1U);
  EXPECT_EQ(read.error().others[0].field, "buffers.q.dtype");
  EXPECT_EQ(read.error().others[0].column, 39);
  const Result<LaunchDocument> text = launch_from_json("{\"entry\": \"k\",\n}");
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.error().line, 2);
}

// A launch file is anybody's: damaged text must be refused or read, never crash.
TEST(LaunchJson, SurvivesDamage) {
  const std::string good = launch_to_json(sample());
  std::mt19937 random(7);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (int i = 0; i < 3; ++i) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 20);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 20));
      }
    }
    (void)launch_from_json(text);
  }
  EXPECT_FALSE(launch_from_json("").ok());
  EXPECT_FALSE(launch_from_json(std::string(100000, '[')).ok());
  EXPECT_FALSE(launch_from_json("[1]").ok());
}

}  // namespace
}  // namespace attnjit
