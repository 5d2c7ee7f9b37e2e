// SPDX-License-Identifier: Apache-2.0
// The tables of masks and score modifications, and what is derived from them.
#include "spec/kinds.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <set>

#include "spec/names.h"
#include "spec/scalars.h"

namespace attnjit::spec {
namespace {

MaskSpec mask_of(MaskSpec::Kind kind) {
  MaskSpec mask;
  mask.kind = kind;
  return mask;
}

AttentionSpec base_spec() {
  AttentionSpec spec;
  spec.num_q_heads = 4;
  spec.qk_depth = 64;
  return spec;
}

/// A spec with one mask, or one score modification, of a kind.
AttentionSpec spec_with(MaskSpec mask) {
  AttentionSpec spec = base_spec();
  spec.mask = std::move(mask);
  return spec;
}
AttentionSpec spec_with(ScoreModSpec mod) {
  AttentionSpec spec = base_spec();
  spec.score_mod = std::move(mod);
  return spec;
}

TEST(SpecScalars, AreNumberedInPreorderByName) {
  MaskSpec window = mask_of(MaskSpec::Kind::kSlidingWindow);
  window.window = 7;
  MaskSpec chunk = mask_of(MaskSpec::Kind::kChunked);
  chunk.chunk = 9;
  chunk.constant = true;
  MaskSpec inner = mask_of(MaskSpec::Kind::kOr);
  inner.of = {chunk, window};
  MaskSpec tree = mask_of(MaskSpec::Kind::kAnd);
  tree.of = {window, inner, mask_of(MaskSpec::Kind::kSlidingWindow)};
  AttentionSpec spec = spec_with(tree);
  spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
  spec.score_mod.cap = 1.5;

  const std::vector<SpecScalar> scalars = spec_scalars(spec);
  ASSERT_EQ(scalars.size(), 5u);
  const char* names[] = {"window", "chunk", "window_1", "window_2", "cap"};
  const char* constants[] = {"kWindow", "kChunk", "kWindow_1", "kWindow_2", "kCap"};
  const double values[] = {7, 9, 7, 0, 1.5};
  for (std::size_t i = 0; i < scalars.size(); ++i) {
    EXPECT_EQ(scalars[i].name, names[i]);
    EXPECT_EQ(scalars[i].constant_name, constants[i]);
    EXPECT_EQ(scalars[i].value, values[i]);
    EXPECT_EQ(scalars[i].constant, i == 1);
    EXPECT_EQ(scalars[i].is_integer, i != 4);
  }
}

/// Everything that the table promises of one kind's numbers, through JSON and the validator.
template <class Node>
void check_numbers() {
  for (const KindRow<Node>& row : kinds<Node>()) {
    for (const KindScalar<Node>& scalar : row.scalars) {
      SCOPED_TRACE(fmt::format("{}.{}", row.name, scalar.name));
      EXPECT_TRUE(is_allowed(scalar, scalar.sample));
      Node node;
      node.kind = row.kind;
      const std::string path = std::is_same_v<Node, MaskSpec> ? "mask" : "score_mod";
      const std::string field = fmt::format("{}.{}", path, scalar.name);
      const bool may_be_any = scalar.beside != Beside::kNothing;
      for (const double value :
           {scalar.min, scalar.max, scalar.sample, may_be_any ? -1.0 : scalar.min, 0.0}) {
        scalar.set(node, value);
        const AttentionSpec spec = spec_with(node);
        EXPECT_TRUE(validate(spec).empty()) << value;
        const Result<SpecDocument> read = spec_from_json(spec_to_json(spec));
        ASSERT_TRUE(read.ok()) << read.error().to_string();
        EXPECT_EQ(read->spec, spec) << value;
      }
      // Not given, and yet compiled in.
      node.constant = true;
      ASSERT_EQ(validate(spec_with(node)).size(), 1u);
      if (!scalar.may_be_absent()) {
        EXPECT_EQ(validate(spec_with(node)).front().field, field);
      }
      node.constant = false;
      for (const double value :
           {scalar.min - 1, scalar.max * 2, may_be_any ? -2 : scalar.max * 2}) {
        if (is_allowed(scalar, value) || (value == 0 && scalar.may_be_absent())) continue;
        scalar.set(node, value);
        const std::vector<Error> problems = validate(spec_with(node));
        ASSERT_EQ(problems.size(), value == 0 ? 0u : 1u) << value;
        const std::string json =
            fmt::format(R"({{"num_q_heads": 1, "qk_depth": 64, "{}": {{"kind": "{}", "{}": {}}}}})",
                        path, row.name, scalar.name, value);
        const Result<SpecDocument> read = spec_from_json(json);
        ASSERT_FALSE(read.ok()) << json;
        EXPECT_EQ(read.error().field, field);
        EXPECT_NE(read.error().message.find(allowed(scalar)), std::string::npos);
      }
    }
  }
}

TEST(Kinds, NumbersKeepToTheirRange) {
  check_numbers<MaskSpec>();
  check_numbers<ScoreModSpec>();
}

// A kernel's parameter of that name, or a name of the coordinates, would hide the number.
TEST(Kinds, NumbersHaveNamesOfTheirOwn) {
  std::set<std::string_view> taken(coord_names().begin(), coord_names().end());
  for (const char* name :
       {"scale", "batch", "total_q", "num_q_heads", "o", "lse", "sink", "mask"}) {
    taken.insert(name);
  }
  for (const ScalarFlag& flag : scalar_flags()) {
    EXPECT_TRUE(taken.insert(flag.traits.name).second) << flag.traits.name;
  }
}

TEST(DeclaredParams, AreEachThereOnceMaskFirst) {
  MaskSpec first = mask_of(MaskSpec::Kind::kCustom);
  first.custom.params = {{"a", ParamSpec::Type::kI32Array}, {"b", ParamSpec::Type::kF32}};
  MaskSpec second = first;
  second.custom.params = {{"c", ParamSpec::Type::kI32}, {"a", ParamSpec::Type::kI32Array}};
  // What is no custom code declares nothing, whatever was left in it.
  MaskSpec causal = second;
  causal.kind = MaskSpec::Kind::kCausal;
  causal.custom.params = {{"unused", ParamSpec::Type::kI32}};
  MaskSpec tree = mask_of(MaskSpec::Kind::kAnd);
  tree.of = {causal, first, second};
  AttentionSpec spec = spec_with(tree);
  spec.score_mod.custom.params = {{"unused", ParamSpec::Type::kI32}};
  const auto names = [&] {
    std::vector<std::string> all;
    for (const ParamSpec& param : declared_params(spec)) all.push_back(param.name);
    return all;
  };
  EXPECT_EQ(names(), (std::vector<std::string>{"a", "b", "c"}));
  spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
  spec.score_mod.custom.params = {{"b", ParamSpec::Type::kF32}, {"d", ParamSpec::Type::kI32}};
  EXPECT_EQ(names(), (std::vector<std::string>{"a", "b", "c", "d"}));
}

}  // namespace
}  // namespace attnjit::spec
