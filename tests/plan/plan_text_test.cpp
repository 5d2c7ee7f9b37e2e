// SPDX-License-Identifier: Apache-2.0
// The maps of `attnjit plan` are to scale, and its text holds for every spec.
#include "plan/print/plan_document.h"

#include <gtest/gtest.h>

#include <random>
#include <sstream>
#include <vector>

#include "plan/print/memory_map_text.h"
#include "printed_plan.h"

namespace attnjit {
namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// The glyphs of a line of UTF-8.
std::vector<std::string> glyphs_of(const std::string& line) {
  std::vector<std::string> glyphs;
  for (const char c : line) {
    if ((static_cast<unsigned char>(c) & 0xc0U) == 0x80U) {
      glyphs.back() += c;
    } else {
      glyphs.emplace_back(1, c);
    }
  }
  return glyphs;
}

TEST(MemoryMap, DrawsBoxesShadingAndOverlays) {
  EXPECT_EQ(draw_memory_map({{"S0", 0, 128}, {"O", 128, 64}}, {{"P", 0, 64}}, 256, 33, " "),
            " 0               128     192\n"
            " ┌───────────────┬───────┐\n"
            " │      S0       │   O   │░░░░░░░░\n"
            " └───────────────┴───────┘\n"
            " │   P   │\n"
            " └───────┘\n");
}

TEST(MemoryMap, ARangeBetweenGapsHasItsOwnBox) {
  EXPECT_EQ(draw_memory_map({{"A", 4, 4}, {"B", 12, 4}}, {}, 16, 17, ""),
            "    4       12  16\n"
            "    ┌───┐   ┌───┐\n"
            "░░░░│ A │░░░│ B │\n"
            "    └───┘   └───┘\n");
}

TEST(MemoryMap, BordersAreToScale) {
  std::mt19937 rng(1);
  for (int i = 0; i < 500; ++i) {
    const std::int64_t total = 1000 + static_cast<std::int64_t>(rng() % 300000);
    const int width = 40 + static_cast<int>(rng() % 80);
    std::vector<MapCell> cells;
    std::int64_t at = 0;
    while (cells.size() < 12) {
      const std::int64_t size = 1 + static_cast<std::int64_t>(rng() % (total / 8));
      if (at + size > total) break;
      cells.push_back({"cell", at, size});
      at += size;
    }
    const std::vector<std::string> bar =
        glyphs_of(lines_of(draw_memory_map(cells, {}, total, width, ""))[2]);
    for (const MapCell& cell : cells) {
      const double left =
          static_cast<double>(cell.begin) / static_cast<double>(total) * (width - 1);
      const double right =
          static_cast<double>(cell.begin + cell.size) / static_cast<double>(total) * (width - 1);
      if (right - left < 1.5) continue;
      bool found = false;
      for (std::size_t c = 0; c < bar.size(); ++c) {
        found = found || (bar[c] == "│" && std::abs(static_cast<double>(c) - left) <= 0.5001);
      }
      EXPECT_TRUE(found) << cell.begin << " of " << total;
    }
  }
}

TEST(MemoryMap, NothingToDrawIsNoCrash) {
  EXPECT_EQ(draw_memory_map({}, {}, 0, 10, ""), "");
  EXPECT_EQ(draw_memory_map({{"x", 0, 1}}, {}, 10, 0, ""), "");
  (void)draw_memory_map({{"much too long a label", 0, 1}}, {{"x", 0, 0}}, 10, 12, "");
  (void)draw_memory_map({{"beyond", 8, 100}}, {{"x", 20, 5}}, 10, 12, "");
}

TEST(PlanText, FitsATerminalForEverySpec) {
  std::mt19937 rng(2);
  for (int i = 0; i < 120; ++i) {
    AttentionSpec spec;
    const Arch archs[] = {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a};
    spec.arch = archs[rng() % 3];
    spec.num_q_heads = 16;
    const int groups[] = {1, 2, 4, 8, 16};
    spec.group = groups[rng() % 5];
    const int depths[] = {8, 64, 72, 96, 128, 192, 256, 512, 1000};
    spec.qk_depth = depths[rng() % 9];
    const Dtype dtypes[] = {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3};
    spec.qkv_dtype = dtypes[rng() % 3];
    const int pages[] = {0, 0, 16, 24, 128};
    spec.page_size = pages[rng() % 5];
    PlanOptions options;
    if (rng() % 2) options.num_qo = 1 + static_cast<int>(rng() % 2);
    const ConfigKind kinds[] = {ConfigKind::kAuto, ConfigKind::kFa4, ConfigKind::kMla,
                                ConfigKind::kDepth512, ConfigKind::kSm90};
    LaunchQuery query;
    if (rng() % 2) query.max_prompt_len = 100;
    const Result<PlanDocument> plan = document_of(spec, options, kinds[rng() % 5], query);
    ASSERT_TRUE(plan) << plan.error().to_string();
    for (const std::string& line : lines_of(plan_to_text(*plan))) {
      EXPECT_LE(glyphs_of(line).size(), 100U) << line;
    }
  }
}

TEST(PlanText, ShowsTheDeviationAndTheMaps) {
  AttentionSpec spec;
  spec.num_q_heads = 8;
  spec.qk_depth = 64;
  const std::string text = plan_to_text(document_of(spec).value());
  for (const char* part : {"config fa4: supported", "BN: 128 instead of 192",
                           "Tensor memory: 384 of 512 columns, one character is 8 columns",
                           "│      S0       │", "softmax 1", "k_map", "S0_cons (8)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

// There is no reference configuration, so the kernel alone is drawn.
TEST(PlanText, DrawsAbsorbedMla) {
  AttentionSpec spec;
  spec.mla = Mla::kDecode;
  spec.num_q_heads = spec.group = 128;
  spec.qk_depth = 576;
  spec.page_size = 64;
  const std::string text = plan_to_text(document_of(spec).value());
  for (const char* part : {"kernel: supported", "Tensor memory: 448 of 512 columns",
                           "│               O               │  S0   │  S1   │P0 │P1 │",
                           "│         K and V 0         │", "products S", "O 1 full (1)"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(PlanText, DrawsHeadDimAbove256) {
  AttentionSpec spec;
  spec.num_q_heads = 16;
  spec.group = 8;
  spec.qk_depth = 512;
  const std::string text = plan_to_text(document_of(spec).value());
  for (const char* part : {"config depth512: supported", "kernel: supported", "load V",
                           "MMA_M: 64 instead of 128", "V 0 block 7 empty"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(PlanText, NamesTheKernelsThatFollow) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 8;
  spec.qk_depth = 64;
  spec.return_lse = true;
  EXPECT_EQ(plan_to_text(document_of(spec).value()).find("Then"), std::string::npos);
  spec.accumulate = true;
  const PlanDocument two = document_of(spec).value();
  const std::string text = plan_to_text(two);
  EXPECT_NE(text.find("attnjit_merge"), std::string::npos);
  EXPECT_NE(text.find("partial_o, partial_lse"), std::string::npos);
  EXPECT_NE(plan_to_json(two).find("\"then\""), std::string::npos);
}

}  // namespace
}  // namespace attnjit
