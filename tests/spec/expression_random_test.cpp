// SPDX-License-Identifier: Apache-2.0
// Random expressions: what is parsed and evaluated here means what each says by itself, and what is
// printed, compiled for the host when this test was built, means it too.
#include <gtest/gtest.h>

#include <string>

#include "../in_proof.h"
#include "interpreted.h"
#include "printed_cases.h"

namespace attnjit::spec {

namespace {

constexpr int kPlaces = 20;

TEST(RandomExpressions, EvaluateToWhatTheyMean) {
  const random::Params params;
  const std::uint32_t seeds = proof::in_proof() ? 6000 : 1500;
  std::uint32_t parsed_count = 0;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    random::Generator generator(seed);
    const auto tree = generator.mask();
    const std::string text = tree->text();
    const Result<Expression> parsed =
        parse_expression(text, SnippetKind::kMask, random::Params::declared());
    if (!parsed) {
      ASSERT_TRUE(random::is_expected_refusal(parsed.error())) << text << "\n"
                                                               << parsed.error().to_string();
      continue;
    }
    ++parsed_count;
    Evaluator evaluator(*parsed, params.views());
    for (int i = 0; i < kPlaces; ++i) {
      const Coordinates at = generator.place();
      ASSERT_EQ(evaluator.visible(at), random::as_bool(tree->value(at, params)))
          << "seed " << seed << ": " << text << "\nat b " << at.b << " h " << at.h << " kv_h "
          << at.kv_h << " q_idx " << at.q_idx << " kv_idx " << at.kv_idx << " q_len " << at.q_len
          << " kv_len " << at.kv_len;
    }
  }
  EXPECT_GT(parsed_count, seeds / 3 * 2);
}

TEST(RandomExpressions, PrintedTextMeansTheSameWhenCompiled) {
  const random::Params params;
  ASSERT_GT(kPrintedCaseCount, 300U);
  for (std::size_t n = 0; n < kPrintedCaseCount; ++n) {
    random::Generator generator(kPrintedCases[n].seed);
    const auto tree = generator.mask();
    for (int i = 0; i < kPlaces; ++i) {
      const Coordinates at = generator.place();
      ASSERT_EQ(kPrintedCases[n].visible(at, params), random::as_bool(tree->value(at, params)))
          << "seed " << kPrintedCases[n].seed << ": " << tree->text();
    }
  }
}

TEST(RandomExpressions, MeanTheSameInterpreted) {
  const random::Params params;
  const std::uint32_t seeds = proof::in_proof() ? 12000 : 3000;
  std::uint32_t compiled_count = 0, refused_count = 0;
  for (std::uint32_t seed = 0; seed < seeds; ++seed) {
    random::Generator generator(seed);
    const auto tree = generator.mask();
    const Result<Expression> parsed =
        parse_expression(tree->text(), SnippetKind::kMask, random::Params::declared());
    if (!parsed) continue;
    const Result<StackProgram> code = compile_stack_code(&*parsed, nullptr, params.views());
    if (!code) {
      ASSERT_EQ(code.error().code, ErrorCode::kUnsupported) << tree->text();
      ++refused_count;
      continue;
    }
    ++compiled_count;
    const Interpreted interpreted(*parsed, params.views());
    for (int i = 0; i < kPlaces; ++i) {
      const Coordinates at = generator.place();
      ASSERT_EQ(interpreted.visible(at), random::as_bool(tree->value(at, params)))
          << "seed " << seed << ": " << tree->text() << "\nat b " << at.b << " h " << at.h
          << " kv_h " << at.kv_h << " q_idx " << at.q_idx << " kv_idx " << at.kv_idx << " q_len "
          << at.q_len << " kv_len " << at.kv_len;
    }
  }
  EXPECT_GT(compiled_count, seeds / 3 * 2);
  EXPECT_EQ(refused_count, 0U);
}

TEST(RandomExpressions, PrintingIsDeterministic) {
  for (std::uint32_t seed = 0; seed < 200; ++seed) {
    const std::string text = random::Generator(seed).mask()->text();
    const auto once = parse_expression(text, SnippetKind::kMask, random::Params::declared());
    const auto again = parse_expression(text, SnippetKind::kMask, random::Params::declared());
    if (once && again) {
      EXPECT_EQ(print_cuda(*once), print_cuda(*again));
    }
  }
}

/// Cuts, swaps and repeats bytes of good snippets: each is refused with a place or parses, and what
/// parses can be printed and evaluated.
TEST(RandomExpressions, MangledSnippetsNeverMisbehave) {
  const random::Params params;
  std::mt19937 random(11);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (std::uint32_t seed = 0; seed < 6000; ++seed) {
    std::string text = random::Generator(seed).mask()->text();
    for (int edits = 0; edits < 3; ++edits) {
      const std::size_t at = below(text.size());
      switch (below(4)) {
        case 0:
          text.erase(at, 1 + below(4));
          break;
        case 1:
          text.insert(at, 1, static_cast<char>(random()));
          break;
        case 2:
          text.insert(at, text.substr(below(text.size()), below(8)));
          break;
        default:
          text[at] = "()[]+-*/%<>!~&|^?:.,p0"[below(22)];
          break;
      }
      if (text.empty()) text = "h";
    }
    const auto parsed = parse_expression(text, SnippetKind::kMask, random::Params::declared());
    if (!parsed) {
      ASSERT_EQ(parsed.error().code, ErrorCode::kInvalid);
      ASSERT_GT(parsed.error().line, 0) << text;
      ASSERT_GT(parsed.error().column, 0) << text;
      continue;
    }
    ASSERT_FALSE(print_cuda(*parsed).empty());
    Evaluator evaluator(*parsed, params.views());
    (void)evaluator.visible({});
  }
}

}  // namespace
}  // namespace attnjit::spec
