// SPDX-License-Identifier: Apache-2.0
// What a mask's expression says of tiles holds for every score in them, and says enough.
#include "spec/expression_ranges.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "../in_proof.h"
#include "../sanitized.h"
#include "printed_cases.h"
#include "random_tiles.h"

namespace attnjit::spec {
namespace {

constexpr TileStatus kHidden{false, true}, kFull{true, false}, kPartial{true, true};

ScoreTile tile_of(CoordRange q_idx, CoordRange kv_idx, std::int32_t kv_len = 4096) {
  return {0, 0, {0, 0}, q_idx, kv_idx, kv_len, kv_len};
}

Expression parsed(const std::string& code, const std::vector<ParamSpec>& params = {}) {
  const Result<Expression> made = parse_expression(code, SnippetKind::kMask, params);
  EXPECT_TRUE(made) << code << ": " << (made ? "" : made.error().to_string());
  return made ? *made : *parse_expression("true", SnippetKind::kMask, {});
}

TileStatus status(const std::string& code, const ScoreTile& tile) {
  const Expression expression = parsed(code);
  return RangeEvaluator(expression, {}).status(tile);
}

TEST(ExpressionRanges, SayOfRandomTilesWhatHolds) {
  TileCounts counts;
  EXPECT_EQ(try_random_tiles(0, proof::in_proof() ? 20000 : 5000, counts), "");
  EXPECT_GT(counts.hidden, counts.pairs / 8);
  EXPECT_GT(counts.full, counts.pairs / 8);
  // NOTE: of u32 that are large an interpreter says less.
  EXPECT_GT(counts.decided_interpreted, counts.decided / 100 * 97);
}

TEST(ExpressionRanges, PrintedTextMeansTheSameWhenCompiled) {
  const random::Params params;
  TileGenerator tiles(7);
  int decided = 0;
  for (std::size_t n = 0; n < kPrintedCaseCount; ++n) {
    const Expression expression =
        *parse_expression(random::Generator(kPrintedCases[n].seed).mask()->text(),
                          SnippetKind::kMask, random::Params::declared());
    RangeEvaluator ranges(expression, params.views());
    for (int i = 0; i < 20; ++i) {
      const ScoreTile tile = tiles.tile(i % 2 == 0);
      const TileStatus said = ranges.status(tile);
      const auto range = [](const CoordRange& of) { return IntRange{of.lo, of.hi}; };
      const IntRange printed =
          kPrintedCases[n].ranges({tile.b, tile.kv_h, range(tile.h), range(tile.q_idx),
                                   range(tile.kv_idx), tile.q_len, tile.kv_len},
                                  params);
      ASSERT_EQ(said, (TileStatus{printed.hi != 0, printed.lo == 0}))
          << "seed " << kPrintedCases[n].seed << ": " << print_cuda_ranges(expression) << "\nover "
          << text_of(tile);
      decided += said != kPartial;
    }
  }
  EXPECT_GT(decided, 1000);
}

// What serving writes: all tiles of some launches are compared with their scores.
struct Recipe {
  const char* name;
  const char* code;
  std::vector<ParamSpec> params;
  std::vector<ParamView> values;
};

std::vector<Recipe> recipes() {
  static const std::vector<std::int32_t> prefix{400, 0};
  const auto number = [](std::int32_t value) {
    ParamView view;
    view.i32 = value;
    return view;
  };
  ParamView prefixes;
  prefixes.i32_data = prefix.data();
  prefixes.rows = 2;
  static const std::vector<std::int32_t> chosen = [] {
    std::vector<std::int32_t> made(144);
    for (std::size_t i = 0; i < made.size(); ++i) made[i] = i * 7 % 5 == 0 ? 1 : 0;
    return made;
  }();
  ParamView blocks;
  blocks.i32_data = chosen.data();
  blocks.rows = blocks.columns = 12;
  return {
      {"causal", "kv_idx <= q_idx", {}, {}},
      {"window",
       "kv_idx <= q_idx && q_idx - kv_idx < p.w",
       {{"w", ParamSpec::Type::kI32}},
       {number(300)}},
      {"two-sided window", "abs(q_idx - kv_idx) <= 200", {}, {}},
      {"documents of one length", "q_idx / 512 == kv_idx / 512 && kv_idx <= q_idx", {}, {}},
      {"documents by a shift", "q_idx >> 9 == kv_idx >> 9", {}, {}},
      {"prefix LM",
       "kv_idx <= q_idx || kv_idx < p.prefix[b]",
       {{"prefix", ParamSpec::Type::kI32Array}},
       {prefixes}},
      {"sinks and a window", "kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 256)", {}, {}},
      {"R-SWA",
       "kv_idx <= q_idx && (kv_idx < p.prefix[b] || q_idx - kv_idx < 200)",
       {{"prefix", ParamSpec::Type::kI32Array}},
       {prefixes}},
      {"dilated window",
       "q_idx >= kv_idx && q_idx - kv_idx < 512 && (q_idx - kv_idx) % 4 == 0",
       {},
       {}},
      {"strided blocks",
       "kv_idx <= q_idx && (kv_idx / 128 % 4 == 0 || q_idx - kv_idx < 128)",
       {},
       {}},
      {"blocks by bits", "(kv_idx & 0x300) == 0x100 || q_idx < kv_idx", {}, {}},
      {"a head in two", "(h & 1) == 0 ? kv_idx <= q_idx : q_idx - kv_idx < 64", {}, {}},
      {"block diagonal, floor",
       "kv_idx >= q_idx / 256 * 256 && kv_idx < q_idx / 256 * 256 + 256",
       {},
       {}},
      {"sparse blocks",
       "p.blocks[q_idx / 128][kv_idx / 384] != 0",
       {{"blocks", ParamSpec::Type::kI32Matrix}},
       {blocks}},
      {"by a float", "float(q_idx - kv_idx) * 0.5f < 100.0f", {}, {}},
  };
}

TEST(ExpressionRanges, DecideTheTilesOfWhatServingWrites) {
  constexpr std::int32_t kLength = 768;
  for (const Recipe& recipe : recipes()) {
    SCOPED_TRACE(recipe.name);
    const Expression expression = parsed(recipe.code, recipe.params);
    EXPECT_TRUE(decides_tiles(expression));
    Evaluator evaluator(expression, recipe.values);
    RangeEvaluator ranges(expression, recipe.values);
    int tiles = 0, undecided = 0;
    const std::pair<std::int32_t, std::int32_t> sizes[] = {{64, 96}, {128, 128}};
    for (const auto& [rows, keys] : sizes) {
      if (kSanitized && rows != keys) continue;
      for (std::int32_t q = 0; q < kLength; q += rows) {
        for (std::int32_t k = 0; k < kLength; k += keys) {
          if (kSanitized && (q / rows + k / keys) % 3 != 0) continue;
          ScoreTile tile = tile_of({q, q + rows - 1}, {k, k + keys - 1}, kLength);
          tile.b = q % 256 == 0 ? 0 : 1;
          tile.h = {tile.b, tile.b};
          const TileStatus said = ranges.status(tile);
          const TileStatus found = status_by_scores(evaluator, tile);
          ASSERT_TRUE(holds(said, found)) << text_of(tile);
          ++tiles;
          undecided += said != found;
        }
      }
    }
    EXPECT_LE(100 * undecided, 3 * tiles) << undecided << " of " << tiles;
  }
}

TEST(ExpressionRanges, KnowWhereNumbersWrap) {
  constexpr std::int32_t kMin = INT32_MIN, kMax = INT32_MAX;
  // All wrap alike: the order is kept. Some wrap: nothing is known.
  EXPECT_EQ(status("q_idx + 1 < 0", tile_of({kMax, kMax}, {0, 0})), kFull);
  EXPECT_EQ(status("q_idx + 1 < 0", tile_of({kMax - 1, kMax}, {0, 0})), kPartial);
  EXPECT_EQ(status("q_idx - kv_idx < 0", tile_of({kMax - 3, kMax}, {-9, -8})), kFull);
  EXPECT_EQ(status("q_idx * 65536 == 0", tile_of({65536, 65536}, {0, 0})), kFull);
  EXPECT_EQ(status("abs(q_idx) < 0", tile_of({kMin, kMin}, {0, 0})), kFull);
  EXPECT_EQ(status("abs(q_idx) >= 0", tile_of({kMin, kMin + 1}, {0, 0})), kPartial);
  EXPECT_EQ(status("-q_idx == q_idx", tile_of({kMin, kMin}, {0, 0})), kFull);
  // Of divisors that are not positive nothing is said but a remainder's sign.
  EXPECT_EQ(status("q_idx / -1 < 0", tile_of({kMin, kMin}, {0, 0})), kPartial);
  EXPECT_EQ(status("q_idx / -4 == 0", tile_of({1, 3}, {0, 0})), kPartial);
  EXPECT_EQ(status("q_idx / (kv_idx - 5) == 0", tile_of({1, 9}, {5, 5})), kPartial);
  EXPECT_EQ(status("q_idx % (kv_idx - 5) >= 0", tile_of({1, 9}, {5, 5})), kFull);
  EXPECT_EQ(status("q_idx % -4 <= 0", tile_of({-9, -1}, {0, 0})), kFull);
  EXPECT_EQ(status("q_idx / (kv_idx - 5) == 0", tile_of({1, 9}, {5, 6})), kPartial);
  // Towards zero, with the sign of the left.
  EXPECT_EQ(status("q_idx / 4 == 0", tile_of({-3, 3}, {0, 0})), kFull);
  EXPECT_EQ(status("q_idx / 2147483647 == 1", tile_of({kMax, kMax}, {0, 0})), kFull);
  EXPECT_EQ(status("q_idx / (kv_idx + 1) == 1", tile_of({7, 9}, {4, 4})), kFull);
  // One number is equal to itself alone; two ranges that meet may be.
  EXPECT_EQ(status("q_idx == kv_idx", tile_of({4, 4}, {4, 4})), kFull);
  EXPECT_EQ(status("q_idx == kv_idx", tile_of({4, 5}, {4, 4})), kPartial);
  EXPECT_EQ(status("q_idx == kv_idx", tile_of({4, 4}, {3, 4})), kPartial);
  EXPECT_EQ(status("q_idx == kv_idx", tile_of({5, 9}, {3, 4})), kHidden);
  EXPECT_EQ(status("q_idx % 4 <= 0", tile_of({-9, -1}, {0, 0})), kFull);
  EXPECT_EQ(status("q_idx % kv_idx >= 0", tile_of({1, 9}, {-3, 3})), kFull);
  EXPECT_EQ(status("q_idx % 2147483647 == q_idx", tile_of({0, 9}, {0, 0})), kPartial);
  // Counts of shifts are taken modulo 32.
  EXPECT_EQ(status("q_idx << kv_idx == q_idx << kv_idx - 32", tile_of({3, 3}, {33, 33})), kFull);
  EXPECT_EQ(status("q_idx >> kv_idx < 0", tile_of({-9, -1}, {0, 31})), kFull);
}

TEST(ExpressionRanges, KnowWhereFloatsAreNoNumbers) {
  // inf - inf and 0 * inf are NaN, of which only != is true.
  const std::string huge = "float(q_idx) * 1e38f * 10.0f";
  EXPECT_EQ(status(huge + " - " + huge + " != 0.0f", tile_of({1, 9}, {0, 0})), kPartial);
  EXPECT_EQ(status("sqrt(float(q_idx)) >= 0.0f", tile_of({-1, 9}, {0, 0})), kPartial);
  EXPECT_EQ(status("-abs(sqrt(float(q_idx))) < 1.0f", tile_of({-1, 9}, {0, 0})), kPartial);
  EXPECT_EQ(status("-abs(sqrt(float(q_idx))) <= 0.0f", tile_of({-1, 9}, {0, 0})), kPartial);
  EXPECT_EQ(status("sqrt(float(q_idx)) >= 2.0f", tile_of({4, 9}, {0, 0})), kFull);
  EXPECT_EQ(status("sqrt(-1.0f) < 0.0f || sqrt(-1.0f) >= 0.0f", tile_of({0, 0}, {0, 0})), kHidden);
  // Of 2^24 and more not every int is a float: the order is kept.
  EXPECT_EQ(status("float(q_idx) <= 16777216.0f", tile_of({16777216, 16777217}, {0, 0})), kFull);
  EXPECT_EQ(status("(int)(float(q_idx) * 1e9f) == 2147483647", tile_of({3, 9}, {0, 0})), kFull);
}

TEST(ExpressionRanges, ReadElementsThatAreTheSameInTheTile) {
  const Expression expression =
      parsed("kv_idx < p.prefix[b]", {{"prefix", ParamSpec::Type::kI32Array}});
  const std::vector<std::int32_t> prefix{64, 9};
  ParamView view;
  view.i32_data = prefix.data();
  view.rows = 2;
  RangeEvaluator ranges(expression, {view});
  ScoreTile tile = tile_of({0, 63}, {0, 63});
  EXPECT_EQ(ranges.status(tile), kFull);
  tile.b = 1;
  EXPECT_EQ(ranges.status(tile), kPartial);
  tile.b = 2;  // outside: 0
  EXPECT_EQ(ranges.status(tile), kHidden);
}

TEST(ExpressionRanges, TellWhatCanBeDecided) {
  const std::vector<ParamSpec> doc{{"doc", ParamSpec::Type::kI32Array}};
  EXPECT_FALSE(decides_tiles(parsed("p.doc[q_idx] == p.doc[kv_idx]", doc)));
  EXPECT_FALSE(decides_tiles(parsed("p.doc[kv_idx] + q_idx > 3", doc)));
  EXPECT_FALSE(decides_tiles(parsed("sin(float(q_idx)) > 0.0f")));
  EXPECT_TRUE(decides_tiles(parsed("p.doc[q_idx] == p.doc[kv_idx] && kv_idx <= q_idx", doc)));
  EXPECT_TRUE(decides_tiles(parsed("p.doc[b] < kv_idx", doc)));
  EXPECT_TRUE(decides_tiles(parsed("p.doc[p.doc[kv_h]] < kv_idx", doc)));
  EXPECT_TRUE(decides_tiles(parsed("p.doc[q_idx / 64] == kv_idx / 64", doc)));
  EXPECT_FALSE(decides_tiles(parsed("p.doc[q_row] == kv_idx", doc)));
  EXPECT_TRUE(decides_tiles(parsed("true")));
}

// What hangs on parameters is not decided where they come with the launch.
TEST(ExpressionRanges, OfParametersThatAreNotKnown) {
  const std::vector<ParamSpec> params{{"n", ParamSpec::Type::kI32},
                                      {"prefix", ParamSpec::Type::kI32Array}};
  const auto status = [&](const char* code, CoordRange keys) {
    const Expression expression = parsed(code, params);
    return RangeEvaluator(expression).status(tile_of({64, 127}, keys));
  };
  EXPECT_EQ(status("kv_idx < p.n", {0, 63}), (TileStatus{true, true}));
  EXPECT_EQ(status("kv_idx <= q_idx || kv_idx < p.prefix[b]", {0, 63}), (TileStatus{true, false}));
  EXPECT_EQ(status("kv_idx <= q_idx || kv_idx < p.prefix[b]", {128, 191}),
            (TileStatus{true, true}));
  EXPECT_EQ(status("kv_idx <= q_idx && kv_idx < p.n", {128, 191}), (TileStatus{false, true}));
}

TEST(ExpressionRanges, KnowWhetherTilesAreHiddenAgainAndAgain) {
  const std::vector<ParamSpec> params{{"a", ParamSpec::Type::kI32Array},
                                      {"m", ParamSpec::Type::kI32Matrix}};
  for (const char* const code :
       {"kv_idx / 128 % 4 == 0", "(kv_idx & 256) == 0 || kv_idx < 3", "p.a[kv_idx / 64] > 0",
        "p.m[q_idx / 128][kv_idx / 128] != 0", "(q_idx - kv_idx) % 4 == 0"}) {
    EXPECT_TRUE(hides_again(parsed(code, params))) << code;
  }
  for (const char* const code : {"kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < 256)",
                                 "kv_idx < p.a[b]", "q_idx / 512 == kv_idx / 512",
                                 "q_idx % 4 == 0 || kv_idx < 9", "(kv_idx < 4) & (q_idx > 3)"}) {
    EXPECT_FALSE(hides_again(parsed(code, params))) << code;
  }
}

TEST(ExpressionRanges, KnowWhichBlocksAreLookedUp) {
  const std::vector<ParamSpec> params{{"a", ParamSpec::Type::kI32Array},
                                      {"m", ParamSpec::Type::kI32Matrix},
                                      {"n", ParamSpec::Type::kI32}};
  const auto block = [&](const char* code, Coord coord) {
    return looked_up_block(parsed(code, params), coord);
  };
  const char* const chosen = "p.m[q_idx / 256][kv_idx / 128] != 0";
  EXPECT_EQ(block(chosen, Coord::kQIdx), 256);
  EXPECT_EQ(block(chosen, Coord::kKvIdx), 128);
  EXPECT_EQ(block(chosen, Coord::kQRow), 0);
  EXPECT_EQ(block("p.a[q_row >> 7] == p.a[q_row / 64]", Coord::kQRow), 64);
  for (const char* const code :
       {"p.a[q_idx] == p.a[kv_idx]", "q_idx / 128 == kv_idx / 128", "p.a[q_idx / p.n] > 0",
        "p.a[(q_idx + 1) / 128] > 0", "p.a[q_idx / -128] > 0", "p.a[q_idx >> 31] > 0"}) {
    EXPECT_EQ(block(code, Coord::kQIdx), 0) << code;
  }
}

// The longest and the deepest that the parser takes.
TEST(ExpressionRanges, EndInTimeForHostileExpressions) {
  std::string wide = "q_idx";
  for (int i = 0; i < 250; ++i) wide += i % 2 == 0 ? " * 65537" : " % 2147483647";
  std::string deep = "kv_idx";
  for (int i = 0; i < 120; ++i) deep = "(" + deep + " ^ 0x55555555)";
  const auto begin = std::chrono::steady_clock::now();
  for (const std::string& code : {wide + " > 0", deep + " > 0"}) {
    const Expression expression = parsed(code);
    RangeEvaluator ranges(expression, {});
    Evaluator evaluator(expression, {});
    const ScoreTile tile = tile_of({-3, 3}, {0, 9});
    EXPECT_TRUE(holds(ranges.status(tile), status_by_scores(evaluator, tile)));
    EXPECT_LT(print_cuda_ranges(expression).size(), 64U << 10);
    EXPECT_TRUE(decides_tiles(expression));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(1));
}

}  // namespace
}  // namespace attnjit::spec
