// SPDX-License-Identifier: Apache-2.0
// The recipes of docs/masks.md, and the pictures that attnjit plan --draw-mask makes of masks.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../cookbook.h"
#include "../spec/tile_check.h"
#include "../temporary_folder.h"
#include "attnjit/plan.h"
#include "cli/report.h"
#include "plan/sm90/sm90_plan.h"
#include "spec/interpreted_code.h"
#include "spec/names.h"
#include "spec/spec_fields.h"
#include "verify/npy.h"

namespace attnjit::cli {
namespace {

using cookbook::Array;
using cookbook::kLength;
using cookbook::Recipe;
using cookbook::recipes;
using cookbook::score_mods;

std::string spec_of(const Recipe& recipe, const std::string& arch = "sm_90a") {
  return "{\"arch\": \"" + arch +
         "\", \"num_q_heads\": 2, \"qk_depth\": 64, \"mask\": " + recipe.mask + "}";
}

PlanArguments draw(const std::string& mask, const std::vector<std::string>& params = {}) {
  PlanArguments arguments;
  arguments.spec.flags = {
      {"arch", "sm_90a"}, {"num_q_heads", "2"}, {"qk_depth", "64"}, {"mask", mask}};
  arguments.draw_mask = true;
  arguments.problem.q_len = arguments.problem.kv_len = std::to_string(kLength);
  arguments.problem.params = params;
  return arguments;
}

/// The same with a file for each array, in a folder.
PlanArguments draw(const Recipe& recipe, const test::TemporaryFolder& folder) {
  PlanArguments arguments = draw(recipe.mask, recipe.params);
  arguments.problem.q_len = std::to_string(recipe.q_len);
  for (const Array& array : recipe.arrays) {
    const auto rows = static_cast<std::int64_t>(array.rows.size());
    const auto columns = static_cast<std::int64_t>(array.rows.front().size());
    std::vector<std::int64_t> shape{columns};
    if (array.matrix) shape.insert(shape.begin(), rows);
    // What the command reads is of the parameter's type: 32 bits in each.
    const bool words = recipe.mask.find("u32") != std::string::npos;
    verify::Tensor tensor = verify::make_tensor(words ? Dtype::kU32 : Dtype::kI32, shape);
    for (std::int64_t i = 0; i < tensor.elements(); ++i) {
      tensor.as<std::int32_t>()[i] = array.rows.at(i / columns).at(i % columns);
    }
    const std::string path = folder / (array.name + ".npy");
    EXPECT_TRUE(verify::write_npy(path, tensor));
    arguments.problem.params.push_back(array.name + "=@" + path);
  }
  return arguments;
}

TEST(Cookbook, RecipesAreMasksOfBothFamilies) {
  ASSERT_GE(recipes().size(), 12U);
  for (const Recipe& recipe : recipes()) {
    for (const char* const arch : {"sm_90a", "sm_100a"}) {
      const Result<ResolvedSpec> spec = ResolvedSpec::from_json(spec_of(recipe, arch));
      ASSERT_TRUE(spec) << recipe.mask << ": " << spec.error().to_string();
      EXPECT_TRUE(plan(*spec)->supported);
    }
  }
}

TEST(Cookbook, TheBiasIsReadByRowHeadAndDistance) {
  const std::vector<nlohmann::json> all = score_mods();
  ASSERT_EQ(all.size(), 2U);
  nlohmann::json document = all.front();
  document["num_q_heads"] = 2;
  document["qk_depth"] = 64;
  document["ragged"] = true;
  document["mask"] = "causal";
  for (const char* const arch : {"sm_90a", "sm_100a"}) {
    document["arch"] = arch;
    const Result<ResolvedSpec> spec = ResolvedSpec::from_json(document.dump());
    ASSERT_TRUE(spec) << spec.error().to_string();
    EXPECT_TRUE(plan(*spec)->supported);
  }
  const Result<ResolvedSpec> spec = ResolvedSpec::from_json(document.dump());
  const Result<spec::Expression> bias =
      spec::parse_expression((*spec)->score_mod.custom.code, spec::SnippetKind::kScoreMod,
                             (*spec)->score_mod.custom.params);
  ASSERT_TRUE(bias);
  // Two sequences of 2 and 3 rows.
  constexpr int kRows = 5, kHeads = 2, kDistances = 1024;
  std::vector<float> table(std::size_t{kRows} * kHeads * kDistances);
  for (std::size_t i = 0; i < table.size(); ++i) table[i] = static_cast<float>(i);
  std::vector<spec::ParamView> views(1);
  views[0].f32_data = table.data();
  views[0].planes = kRows;
  views[0].rows = kHeads;
  views[0].columns = kDistances;
  spec::Evaluator evaluator(*bias, views);
  const auto at = [&](int b, int h, int row, int kv_idx) {
    const int q_len = b == 0 ? 2 : 3, kv_len = 1500;
    const int first_row = b == 0 ? 0 : 2;
    return evaluator.score({b, h, h, row + kv_len - q_len, kv_idx, q_len, kv_len, first_row}, 0.5);
  };
  EXPECT_EQ(at(0, 0, 1, 1499), 0.5 + 1 * kHeads * kDistances);
  EXPECT_EQ(at(1, 1, 2, 1490), 0.5 + ((2 + 2) * kHeads + 1) * kDistances + 9);
  EXPECT_EQ(at(1, 1, 2, 400), 0.5);  // too far
}

TEST(Cookbook, PicturesAreTheCommands) {
  for (const Recipe& recipe : recipes()) {
    const test::TemporaryFolder folder;
    const Result<Report> report = run_plan(draw(recipe, folder));
    ASSERT_TRUE(report) << report.error().to_string();
    const nlohmann::json json = nlohmann::json::parse(report->json);
    EXPECT_EQ(json["rows"], nlohmann::json(recipe.picture)) << report->text;
    EXPECT_EQ(json["tile_queries"], 64);
    EXPECT_EQ(json["tile_keys"], 128);
  }
}

/// The values of a recipe's picture.
struct Values {
  std::vector<std::vector<std::int32_t>> arrays;
  std::vector<spec::ParamView> views;
};

Values values_of(const spec::Expression& mask, const Recipe& recipe) {
  Values made;
  for (const ParamSpec& param : mask.params) {
    spec::ParamView& view = made.views.emplace_back();
    for (const std::string& text : recipe.params) {
      if (text.starts_with(param.name + "=")) view.i32 = std::stoi(text.substr(text.find('=') + 1));
    }
    for (const Array& given : recipe.arrays) {
      if (given.name != param.name) continue;
      std::vector<std::int32_t>& array = made.arrays.emplace_back();
      for (const auto& row : given.rows) array.insert(array.end(), row.begin(), row.end());
      view.i32_data = array.data();
      view.columns = static_cast<std::int64_t>(given.rows.front().size());
      view.rows = given.matrix ? static_cast<std::int64_t>(given.rows.size()) : view.columns;
    }
  }
  return made;
}

TEST(Cookbook, WhatIsSaidOfTilesHolds) {
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.mask);
    const Result<ResolvedSpec> spec = ResolvedSpec::from_json(spec_of(recipe));
    ASSERT_TRUE(spec);
    const Result<spec::Expression> mask = spec::mask_expression(*spec);
    ASSERT_TRUE(mask);
    const Values values = values_of(*mask, recipe);
    spec::Evaluator evaluator(*mask, values.views);
    spec::RangeEvaluator ranges(*mask, values.views);
    spec::RangeEvaluator known(*mask, values.views, spec::ArrayRanges::kKnown);
    int tiles = 0, undecided = 0;
    ASSERT_EQ(recipe.picture.size(), static_cast<std::size_t>(recipe.q_len + 63) / 64);
    for (std::int32_t row = 0; row < recipe.q_len; row += 64) {
      const std::int32_t q = kLength - recipe.q_len + row;
      const std::string& line = recipe.picture[row / 64];
      ASSERT_EQ(line.size(), kLength / 128U);
      for (std::int32_t k = 0; k < kLength; k += 128) {
        const spec::ScoreTile tile{
            0, 0, {0, 0}, {q, std::min(q + 63, kLength - 1)}, {k, k + 127}, recipe.q_len, kLength};
        const spec::TileStatus found = spec::status_by_scores(evaluator, tile);
        for (spec::RangeEvaluator* said : {&ranges, &known}) {
          ASSERT_TRUE(spec::holds(said->status(tile), found)) << spec::text_of(tile);
        }
        const char drawn = line[k / 128];
        ASSERT_TRUE(spec::holds({drawn != '.', drawn != '#'}, found)) << spec::text_of(tile);
        ++tiles;
        undecided += drawn == '/' && !spec::is_partial(found);
      }
    }
    EXPECT_LE(100 * undecided, 3 * tiles) << undecided << " of " << tiles;
  }
}

TEST(DrawMask, BuiltInMasksAndTrees) {
  const auto first_row = [](const std::string& mask) {
    const Result<Report> report = run_plan(draw(mask));
    EXPECT_TRUE(report) << report.error().to_string();
    return report ? nlohmann::json::parse(report->json)["rows"][3].get<std::string>() : "";
  };
  // Queries 192 to 255; tiles of 128 keys, or of built-in masks of as many as the plan has.
  EXPECT_EQ(first_row("causal"), "#/......");
  EXPECT_EQ(first_row(R"({"kind": "sliding_window", "window": 70})"), "//......");
  EXPECT_EQ(first_row(R"({"kind": "chunked", "chunk": 128})"), ".#......");
  EXPECT_EQ(first_row(R"({"kind": "or", "of": [{"kind": "causal"},
      {"kind": "custom", "name": "late", "code": "kv_idx >= 800"}]})"),
            "#/..../#");
}

TEST(DrawMask, SaysWhatItLacks) {
  const auto error = [](const PlanArguments& arguments) {
    const Result<Report> report = run_plan(arguments);
    EXPECT_FALSE(report);
    return report ? Error{} : report.error();
  };
  const std::string window =
      R"({"kind": "custom", "name": "w", "code": "kv_idx < p.w", "params": [{"name": "w", "type": "i32"}]})";
  EXPECT_EQ(error(draw(window)).field, "param w");
  // A number that the spec leaves to the launch, for whole tiles and for scores.
  PlanArguments number = draw(R"({"kind": "sliding_window"})");
  EXPECT_EQ(error(number).field, "window");
  number.tile = "1x1";
  EXPECT_EQ(error(number).field, "window");
  const std::string trusted =
      R"({"kind": "custom", "name": "t", "trusted": true, "code": "return true;"})";
  EXPECT_EQ(error(draw(trusted)).code, ErrorCode::kUnsupported);
  PlanArguments merge = draw("null");
  merge.spec.flags.emplace_back("merge", "true");
  EXPECT_EQ(error(merge).field, "merge");
  PlanArguments large = draw("causal");
  large.problem.kv_len = "1000000";
  EXPECT_EQ(error(large).field, "kv_len");
  PlanArguments no_picture = draw("causal");
  no_picture.draw_mask = false;
  no_picture.picture = "mask.svg";
  EXPECT_EQ(error(no_picture).field, "output");
}

std::string svg_of(PlanArguments arguments) {
  const test::TemporaryFolder folder;
  arguments.picture = folder / "mask.svg";
  const Result<Report> report = run_plan(arguments);
  EXPECT_TRUE(report) << report.error().to_string();
  std::ifstream file(arguments.picture);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// The values of an attribute, in their order.
std::vector<double> numbers_of(const std::string& svg, const std::string& element,
                               const std::string& attribute) {
  std::vector<double> numbers;
  for (std::size_t at = svg.find(element); at != std::string::npos;
       at = svg.find(element, at + 1)) {
    const std::size_t value = svg.find(" " + attribute + "=\"", at);
    numbers.push_back(std::stod(svg.substr(value + attribute.size() + 3)));
  }
  return numbers;
}

TEST(DrawMask, TheSvgHasTrueProportionsAxesAndALegend) {
  PlanArguments arguments = draw("causal");
  arguments.problem.q_len = "512";  // and 1024 keys
  const std::string svg = svg_of(arguments);
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  for (const char* const part :
       {"<title>causal: 512 queries and 1,024 keys", ">keys</text>", ">queries</text>",
        ">1,024</text>", ">hidden: not loaded: ", ">partial: loaded and masked: ",
        ">full: loaded, and not masked: ", "prefers-color-scheme:dark"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << " is not in " << svg;
  }
  // 1024 keys are 640 px wide, half as many queries half as high, and tiles as their share of them.
  EXPECT_NE(svg.find("M76 60h640v320h-640z"), std::string::npos) << svg;
  const nlohmann::json json = nlohmann::json::parse(run_plan(arguments)->json);
  EXPECT_NEAR(numbers_of(svg, "<rect class=\"partial\"", "width").at(0),
              json["tile_keys"].get<double>() * 0.625, 0.01);
  // Rules are the picture's alone.
  const std::string style = svg.substr(svg.find("<style>"), svg.find("</style>"));
  EXPECT_EQ(style.find("\ntext{"), std::string::npos);
  EXPECT_EQ(style.find("\n.full"), std::string::npos);
}

TEST(DrawMask, ANumberOfTheLaunchIsInTheTitle) {
  PlanArguments arguments = draw(R"({"kind": "sliding_window"})");
  arguments.problem.scalars["window"] = 200;
  for (const char* const tile : {"", "64x64"}) {
    arguments.tile = tile;
    EXPECT_NE(svg_of(arguments).find("<title>sliding_window of window 200: "), std::string::npos);
  }
}

TEST(DrawMask, AThinSvgIsStretchedAndSaysSo) {
  PlanArguments arguments = draw("causal");
  arguments.problem.q_len = "1";
  arguments.problem.kv_len = "4096";
  const std::string svg = svg_of(arguments);
  EXPECT_NE(svg.find("the axes' scales differ"), std::string::npos) << svg;
  EXPECT_EQ(numbers_of(svg, "<rect class=\"full\"", "height").at(0), 24);
}

std::vector<std::string> rows_of(const PlanArguments& arguments) {
  const Result<Report> report = run_plan(arguments);
  EXPECT_TRUE(report) << report.error().to_string();
  if (!report) return {};
  return nlohmann::json::parse(report->json)["rows"].get<std::vector<std::string>>();
}

TEST(DrawMask, TilesOfAnySizeAreAskedScoreByScore) {
  PlanArguments arguments = draw("causal");
  arguments.tile = "1x1";
  arguments.problem.q_len = "3";
  arguments.problem.kv_len = "5";
  EXPECT_EQ(rows_of(arguments), (std::vector<std::string>{"###..", "####.", "#####"}));
  arguments.tile = "2x2";
  EXPECT_EQ(rows_of(arguments), (std::vector<std::string>{"#/.", "###"}));
  // Whose scores: what names the head is its own.
  arguments = draw(R"({"kind": "custom", "name": "w", "code": "kv_idx == h"})");
  arguments.tile = "1x1";
  arguments.problem.q_len = "1";
  arguments.problem.kv_len = "3";
  EXPECT_EQ(rows_of(arguments), std::vector<std::string>{"#.."});
  arguments.head = 1;
  EXPECT_EQ(rows_of(arguments), std::vector<std::string>{".#."});
  arguments.head = 2;
  EXPECT_EQ(run_plan(arguments).error().field, "head");
  arguments.head = 0;
  arguments.sequence = 1;
  EXPECT_EQ(run_plan(arguments).error().field, "sequence");
  for (const char* const bad : {"", "3", "0x1", "1x0", "1x1x1", "-1x1", "x"}) {
    arguments.tile = bad;
    EXPECT_EQ(run_plan(arguments).error().field, "tile") << bad;
  }
  arguments = draw("causal");
  arguments.tile = "1x1";
  arguments.problem.q_len = arguments.problem.kv_len = "100000";
  EXPECT_EQ(run_plan(arguments).error().code, ErrorCode::kInvalid);
}

PlanArguments draw_score_mod(const std::string& mod) {
  PlanArguments arguments = draw("causal");
  arguments.spec.flags.emplace_back("score_mod", mod);
  arguments.draw_mask = false;
  arguments.draw_score_mod = true;
  arguments.problem.q_len = "2";
  arguments.problem.kv_len = "3";
  return arguments;
}

TEST(DrawScoreMod, SaysWhatBecomesOfAScore) {
  PlanArguments arguments = draw_score_mod("alibi");  // of two heads: slopes of 1/16 and 1/256
  arguments.score = 2;
  const nlohmann::json json = nlohmann::json::parse(run_plan(arguments)->json);
  EXPECT_EQ(json["rows"].dump(), "[[1.9375,2.0,null],[1.875,1.9375,2.0]]");
  EXPECT_EQ(json["before"].front(), -100);
  ASSERT_EQ(json["curves"].size(), 3u);  // the key in the middle is a quarter's and a half's
  EXPECT_EQ(json["curves"][0]["after"].back(), 100);
  EXPECT_EQ(json["curves"][2]["kv_idx"], 0);
  EXPECT_EQ(json["curves"][2]["after"].back(), 99.875);
  arguments.head = 1;
  EXPECT_EQ(nlohmann::json::parse(run_plan(arguments)->json)["rows"][1][0], 2 - 2 / 256.0);
  // What is the same at all places is one curve.
  const std::string cap = R"({"kind": "softcap", "cap": 8})";
  EXPECT_EQ(nlohmann::json::parse(run_plan(draw_score_mod(cap))->json)["curves"].size(), 1u);
}

TEST(DrawScoreMod, TheSvgHasShadesAndCurves) {
  const std::string svg = svg_of(draw_score_mod("alibi"));
  EXPECT_TRUE(svg.starts_with("<svg ")) << svg;
  for (const char* const part :
       {"<title>alibi: what it makes of scores</title>", ">score before</text>", ">keys</text>",
        "what becomes of a score of 0:", ">key 2</text>", "prefers-color-scheme:dark"}) {
    EXPECT_NE(svg.find(part), std::string::npos) << part << " is not in " << svg;
  }
  const std::vector<double> shades = numbers_of(svg, "<rect class=\"cell\"", "fill-opacity");
  ASSERT_EQ(shades.size(), 5u);  // of six places one is hidden
  EXPECT_EQ(shades[1], 1);
  EXPECT_EQ(shades[2], 0.12);
}

TEST(DrawScoreMod, SaysWhatItLacks) {
  const auto field = [](const PlanArguments& arguments) {
    const Result<Report> report = run_plan(arguments);
    EXPECT_FALSE(report);
    return report ? std::string() : report.error().field;
  };
  EXPECT_EQ(field(draw_score_mod(R"({"kind": "softcap"})")), "cap");
  EXPECT_EQ(field(draw_score_mod(R"({"kind": "alibi", "slopes": true})")), "slopes");
  PlanArguments arguments = draw_score_mod("alibi");
  arguments.head = 2;
  EXPECT_EQ(field(arguments), "head");
  arguments.head = 0;
  arguments.problem.q_len = "0";
  EXPECT_EQ(field(arguments), "q_len");
  arguments.draw_mask = true;
  EXPECT_EQ(field(arguments), "draw_score_mod");
  arguments = draw("causal");
  arguments.score = 1;
  EXPECT_EQ(field(arguments), "score");
}

TEST(DrawMask, ATensorThatIsGivenIsDrawn) {
  const test::TemporaryFolder folder;
  PlanArguments arguments = draw(R"({"kind": "materialized", "dtype": "u8"})");
  arguments.tile = "1x1";
  arguments.problem.q_len = "2";
  arguments.problem.kv_len = "3";
  EXPECT_EQ(run_plan(arguments).error().field, "mask");  // which nobody has given
  verify::Tensor mask = verify::make_tensor(Dtype::kU8, {1, 1, 2, 3});
  mask.bytes = {0, 1, 0, 1, 0, 2};
  ASSERT_TRUE(verify::write_npy(folder / "mask.npy", mask));
  arguments.inputs = folder.path();
  EXPECT_EQ(rows_of(arguments), (std::vector<std::string>{".#.", "#.#"}));
  arguments.problem.kv_len = "4";
  EXPECT_EQ(run_plan(arguments).error().field, "mask");  // its rows are too short
  arguments.problem.kv_len = "3";
  ASSERT_TRUE(verify::write_npy(folder / "stray.npy", mask));
  EXPECT_EQ(run_plan(arguments).error().field, "stray");
  arguments.inputs = folder / "none";
  EXPECT_EQ(run_plan(arguments).error().field, folder / "none");
}

}  // namespace
}  // namespace attnjit::cli
