// SPDX-License-Identifier: Apache-2.0
// The renderer is strict both ways and never scans a value.
#include "codegen/renderer.h"

#include <gtest/gtest.h>

namespace attnjit {
namespace {

TEST(Renderer, ReplacesEveryPlaceholder) {
  const auto out = render("a /*{x}*/ b /*{y}*/ c /*{x}*/\n", {{"x", "1"}, {"y", "2"}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, "a 1 b 2 c 1\n");
}

TEST(Renderer, LeavesOrdinaryCommentsAlone) {
  const std::string text = "/* { */ /** doc */ // }*/ x\n";
  const auto out = render(text, {});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, text);
}

TEST(Renderer, NeverScansAValueAgain) {
  const auto out = render("/*{x}*/|/*{y}*/", {{"x", "/*{y}*/"}, {"y", "/*{x}*/ /*{"}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, "/*{y}*/|/*{x}*/ /*{");
}

TEST(Renderer, NeverJoinsAValueWithTextToAPlaceholder) {
  const auto out = render("/*{x}*/{y}*/", {{"x", "/*"}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, "/*{y}*/");
}

TEST(Renderer, PlaceholderWithoutValueIsAnError) {
  const auto out = render("one\n two /*{missing}*/", {});
  ASSERT_FALSE(out.ok());
  EXPECT_EQ(out.error().code, ErrorCode::kInternal);
  EXPECT_EQ(out.error().line, 2);
  EXPECT_NE(out.error().message.find("'missing'"), std::string::npos);
}

TEST(Renderer, ValueWithoutPlaceholderIsAnError) {
  const auto out = render("x", {{"surplus", "1"}});
  ASSERT_FALSE(out.ok());
  EXPECT_NE(out.error().message.find("'surplus'"), std::string::npos);
}

TEST(Renderer, TwoValuesOfOneNameAreAnError) {
  EXPECT_FALSE(render("/*{x}*/", {{"x", "1"}, {"x", "1"}}).ok());
}

TEST(Renderer, MalformedPlaceholdersAreErrors) {
  for (const char* text : {"/*{", "/*{x", "/*{x}", "/*{x}*", "/*{}*/", "/*{X}*/", "/*{ x}*/",
                           "/*{x }*/", "/*{1x}*/", "/*{x\n}*/", "/*{a b}*/ /*{x}*/"}) {
    EXPECT_FALSE(render(text, {{"x", "1"}}).ok()) << text;
  }
}

TEST(Renderer, EmptyValueAloneOnItsLineTakesTheLine) {
  const auto out = render("a\n/*{x}*/\nb\n  /*{x}*/\n", {{"x", ""}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, "a\nb\n  \n");
}

TEST(Renderer, TellsTheLineOfEachValue) {
  const auto out = render("/*{x}*/\n/*{y}*/ /*{x}*/", {{"x", "1\n2"}, {"y", "\n"}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, "1\n2\n\n 1\n2");
  ASSERT_EQ(out->positions.size(), 3u);
  EXPECT_EQ(out->positions[0].line, 1);
  EXPECT_EQ(out->positions[1].line, 3);
  EXPECT_EQ(out->positions[2].name, "x");
  EXPECT_EQ(out->positions[2].line, 4);
}

TEST(Renderer, KeepsEveryByteOfTextAndValues) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  const auto out = render(all + "/*{x}*/", {{"x", all}});
  ASSERT_TRUE(out.ok());
  EXPECT_EQ(out->text, all + all);
}

}  // namespace
}  // namespace attnjit
