// SPDX-License-Identifier: Apache-2.0
// --param and --dump.
#include "verify/params.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "../temporary_folder.h"
#include "verify/dump.h"
#include "verify/npy.h"
#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

const std::vector<ParamSpec> kDeclared{{"n", ParamSpec::Type::kI32},
                                       {"x", ParamSpec::Type::kF32},
                                       {"doc", ParamSpec::Type::kI32Array},
                                       {"w", ParamSpec::Type::kF32Array},
                                       {"m", ParamSpec::Type::kI32Matrix}};

TEST(Param, Scalars) {
  const ParamArgument n = parse_param("n=-17", kDeclared).value();
  EXPECT_EQ(n.name, "n");
  EXPECT_EQ(n.value.dtype, Dtype::kI32);
  EXPECT_TRUE(n.value.shape.empty());
  EXPECT_EQ(*n.value.as<std::int32_t>(), -17);
  EXPECT_EQ(*parse_param("x=2.5", kDeclared).value().value.as<float>(), 2.5F);
  EXPECT_EQ(*parse_param("x=1e-3", kDeclared).value().value.as<float>(), 1e-3F);
}

TEST(Param, BadOnesAreNamed) {
  for (const char* text :
       {"n", "=1", "n=", "n=1.5", "n=99999999999", "n=1 ", "n= 1", "x=abc", "x=1e999", "doc=3",
        "m=1", "nope=1", "doc=@/nonexistent.npy", "doc=@/dev/zero", "doc=@", "n=@", ""}) {
    Result<ParamArgument> argument = parse_param(text, kDeclared);
    ASSERT_FALSE(argument.ok()) << text;
    EXPECT_EQ(argument.error().code, ErrorCode::kInvalid);
    EXPECT_FALSE(argument.error().message.empty());
  }
  EXPECT_NE(parse_param("nope=1", kDeclared).error().message.find("doc"), std::string::npos);
  EXPECT_FALSE(parse_param("n=1", {}).ok());
}

// An array that is given takes its own bytes, not those of one as long as the longest length in
// each dimension.
TEST(Param, AnArrayThatIsGivenIsCountedAsItIs) {
  AttentionSpec spec;
  spec.num_q_heads = 1;
  spec.qk_depth = 64;
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "m";
  spec.mask.custom.code = "p.m[0][kv_idx] == 1";
  spec.mask.custom.params = {{"m", ParamSpec::Type::kI32Matrix}};
  ProblemRequest request;
  request.q_lens = {1};
  request.kv_lens = {70000};
  request.max_bytes = std::int64_t{1} << 28;
  const auto made = shape_problem(spec, request);
  ASSERT_FALSE(made.ok());
  EXPECT_NE(made.error().message.find("18.3 GiB"), std::string::npos) << made.error().message;
  request.params = {{"m", make_tensor(Dtype::kI32, {1, 70000})}};
  EXPECT_TRUE(shape_problem(spec, request).ok());
  request.params = {{"m", make_tensor(Dtype::kI32, {1000, 70000})}};
  EXPECT_FALSE(shape_problem(spec, request).ok());  // 267 MiB
}

TEST(Param, FilesAreConvertedWhereNothingIsLost) {
  const test::TemporaryFolder temporary;
  const std::string path = temporary / "array.npy";
  Tensor wide = make_tensor(Dtype::kI64, {3});
  for (int i = 0; i < 3; ++i) wide.as<std::int64_t>()[i] = i - 1;
  ASSERT_TRUE(write_npy(path, wide).ok());
  const ParamArgument doc = parse_param("doc=@" + path, kDeclared).value();
  EXPECT_EQ(doc.value.dtype, Dtype::kI32);
  EXPECT_EQ(doc.value.as<std::int32_t>()[0], -1);
  EXPECT_FALSE(parse_param("w=@" + path, kDeclared).ok());  // integers for floats
  EXPECT_FALSE(parse_param("m=@" + path, kDeclared).ok());  // rank 1 for a matrix
  EXPECT_FALSE(parse_param("n=@" + path, kDeclared).ok());  // rank 1 for a scalar
  wide.as<std::int64_t>()[2] = std::int64_t{1} << 31;
  ASSERT_TRUE(write_npy(path, wide).ok());
  EXPECT_FALSE(parse_param("doc=@" + path, kDeclared).ok());
  std::filesystem::remove(path);
}

TEST(Dump, WritesEverythingThatExists) {
  AttentionSpec spec;
  spec.num_q_heads = 4;
  spec.group = 2;
  spec.qk_depth = 64;
  spec.page_size = 16;
  spec.ragged = true;
  spec.sink = true;
  spec.return_lse = true;
  spec.mask.kind = MaskSpec::Kind::kSlidingWindow;
  ProblemRequest request;
  request.q_lens = {3, 5};
  request.kv_lens = {17, 40};
  request.scalars["window"] = 9;
  const Problem problem = make_problem(spec, request).value();
  Tensor o = make_tensor(Dtype::kBf16, problem.o_shape());
  store_float(o, 0, 1.5F);
  const Tensor lse = make_tensor(Dtype::kF32, problem.lse_shape());
  const test::TemporaryFolder temporary;
  const std::string folder = temporary / "dump/deep";
  ASSERT_TRUE(dump(folder, problem, {}, o, &lse).ok());

  const auto shape = [&](const char* name) { return read_npy(folder + "/" + name).value().shape; };
  using Shape = std::vector<std::int64_t>;
  EXPECT_EQ(shape("q.npy"), (Shape{8, 4, 64}));
  EXPECT_EQ(shape("k.npy"), (Shape{problem.num_pages, 16, 2, 64}));
  EXPECT_EQ(shape("v.npy"), (Shape{problem.num_pages, 16, 2, 64}));
  EXPECT_EQ(shape("o.npy"), (Shape{8, 4, 64}));
  EXPECT_EQ(shape("lse.npy"), (Shape{4, 8}));
  EXPECT_EQ(shape("page_table.npy"), (Shape{2, problem.max_pages}));
  EXPECT_EQ(shape("kv_lens.npy"), (Shape{2}));
  EXPECT_EQ(shape("q_offsets.npy"), (Shape{3}));
  EXPECT_EQ(shape("sink.npy"), (Shape{4}));
  EXPECT_EQ(shape("scale.npy"), (Shape{}));
  const Tensor written = read_npy(folder + "/o.npy").value();
  EXPECT_EQ(written.dtype, Dtype::kF32);
  EXPECT_EQ(written.as<float>()[0], 1.5F);
  EXPECT_EQ(*read_npy(folder + "/scale.npy").value().as<float>(), 0.125F);

  std::ifstream file(folder + "/spec.json");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  Result<SpecDocument> again = spec_from_json(text);
  ASSERT_TRUE(again.ok()) << again.error().to_string();
  EXPECT_EQ(again->spec.mask.window, 9);
}

TEST(Dump, AFolderThatCannotBeMadeIsAnError) {
  AttentionSpec spec;
  spec.num_q_heads = 1;
  spec.qk_depth = 64;
  const Problem problem = make_problem(spec, {}).value();
  EXPECT_EQ(dump("/dev/null/x", problem, {}, make_tensor(Dtype::kBf16, problem.o_shape()), nullptr)
                .error()
                .code,
            ErrorCode::kIo);
}

}  // namespace
}  // namespace attnjit::verify
