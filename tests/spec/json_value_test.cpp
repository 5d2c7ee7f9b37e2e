// SPDX-License-Identifier: Apache-2.0
// JsonValue: numbers that Python's json writes and that are not JSON, where they are allowed.
#include "spec/json_value.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

namespace attnjit::spec {
namespace {

constexpr JsonLimits kBare = {.bare_numbers = true};

TEST(BareNumbers, AreNumbersThatKnowTheirPlaces) {
  const std::string text =
      "{\"a\": [0.0, Infinity],\n \"b\": -Infinity, \"c\": NaN,\n\"NaN\": \"x\\\"Infinity\", "
      "\"d\": 7}";
  const Result<JsonValue> value = parse_json(text, kBare);
  ASSERT_TRUE(value.ok()) << value.error().to_string();
  const JsonValue& a = value->find("a")->items[1];
  EXPECT_EQ(a.type, JsonValue::Type::kReal);
  EXPECT_EQ(a.real, HUGE_VAL);
  EXPECT_EQ(describe(a), "Infinity");
  EXPECT_EQ(a.column, 13);
  EXPECT_EQ(value->find("b")->real, -HUGE_VAL);
  EXPECT_EQ(describe(*value->find("b")), "-Infinity");
  EXPECT_TRUE(std::isnan(value->find("c")->real));
  EXPECT_EQ(value->find("c")->line, 2);
  EXPECT_EQ(value->find("NaN")->text, "x\"Infinity");
  EXPECT_EQ(value->find("d")->integer, 7);
  EXPECT_EQ(value->find("d")->column, 28);
  EXPECT_TRUE(std::isnan(parse_json("NaN", kBare)->real));
}

TEST(BareNumbers, AreNoNamesAndNoPartsOfWords) {
  for (const char* text : {"{NaN: 1}", "{\"a\": Infinity1}", "{\"a\": -NaN}", "{\"a\": aNaN}",
                           "{\"a\": --Infinity}", "{\"a\": Infinity.0}", "{\"a\": infinity}"}) {
    const Result<JsonValue> value = parse_json(text, kBare);
    ASSERT_FALSE(value.ok()) << text;
    EXPECT_NE(value.error().to_string().find("is not valid JSON"), std::string::npos) << text;
  }
}

TEST(BareNumbers, AreNotJsonElsewhere) {
  for (const char* text : {"[Infinity]", "[-Infinity]", "[NaN]"}) {
    EXPECT_FALSE(parse_json(text).ok()) << text;
  }
}

}  // namespace
}  // namespace attnjit::spec
