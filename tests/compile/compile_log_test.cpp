// SPDX-License-Identifier: Apache-2.0
// The log parser, on logs as NVRTC 13.0 writes them. Needs no NVRTC.
#include "compile/compile_log.h"

#include <gtest/gtest.h>

#include "compile/check_output.h"
#include "kernels.h"

namespace attnjit {
namespace {

const std::vector<std::string_view> kFiles = {"attention.cu", "common/ptx.cuh"};

TEST(CompileLog, ReadsResourceUsage) {
  const ParsedLog log = parse_log(
      "ptxas info    : 8 bytes gmem\n"
      "ptxas info    : Compiling entry function 'k' for 'sm_90a'\n"
      "ptxas info    : Function properties for k\n"
      "ptxas         .     72 bytes stack frame, 28 bytes spill stores, 36 bytes spill loads\n"
      "ptxas info    : Used 168 registers, used 3 barriers, 256 bytes smem\n"
      "ptxas info    : Compile time = 2.812 ms\n"
      "ptxas info    : Function properties for rec\n"
      "ptxas         .     8 bytes stack frame, 4 bytes spill stores, 4 bytes spill loads\n",
      kFiles);
  ASSERT_EQ(log.functions.size(), 2u);
  EXPECT_EQ(log.functions[0].name, "k");
  EXPECT_TRUE(log.functions[0].entry);
  EXPECT_EQ(log.functions[0].registers, 168);
  EXPECT_EQ(log.functions[0].barriers, 3);
  EXPECT_EQ(log.functions[0].static_smem_bytes, 256);
  EXPECT_EQ(log.functions[0].stack_bytes, 72);
  EXPECT_EQ(log.functions[0].spill_bytes, 64);
  EXPECT_FALSE(log.functions[1].entry);
  EXPECT_EQ(log.functions[1].spill_bytes, 8);
  EXPECT_TRUE(log.advisories.empty());
  EXPECT_TRUE(log.ptxas_errors.empty());
}

TEST(CompileLog, ReadsPlacesInUserCode) {
  const ParsedLog log = parse_log(
      "user:mask.code(2): error: class \"Coord\" has no member \"q_idxx\"\n"
      "  \t  \tif (c.q_idxx > 3) return 1;\n"
      "  \t  \t      ^\n"
      "\n"
      "user:mask.of[1].code(1): warning #177-D: variable \"x\" was declared but never referenced\n"
      "    int x = 1;\n"
      "        ^\n"
      "\n"
      "Remark: The warnings can be suppressed with \"-diag-suppress <warning-number>\"\n"
      "\n"
      "1 error detected in the compilation of \"attention.cu\".\n",
      kFiles);
  ASSERT_EQ(log.messages.size(), 2u);
  EXPECT_EQ(log.messages[0].file, "user:mask.code");
  EXPECT_EQ(log.messages[0].line, 2);
  EXPECT_EQ(log.messages[0].column, 11);
  EXPECT_TRUE(log.messages[0].error);
  EXPECT_EQ(log.messages[0].text, "class \"Coord\" has no member \"q_idxx\"");
  EXPECT_EQ(log.messages[1].file, "user:mask.of[1].code");
  EXPECT_EQ(log.messages[1].column, 7);
  EXPECT_FALSE(log.messages[1].error);
}

TEST(CompileLog, FollowsAnInstantiationBackToUserCode) {
  const ParsedLog log = parse_log(
      "common/ptx.cuh(3): error: expression must have class type but it has type \"int\"\n"
      "  template <class T> T helper(T x) { return x.foo(); }\n"
      "                                            ^\n"
      "          detected during instantiation of \"T helper(T) [with T=int]\" at line 4 of "
      "user:mask.code\n"
      "\n",
      kFiles);
  ASSERT_EQ(log.messages.size(), 1u);
  EXPECT_EQ(log.messages[0].origin_file, "user:mask.code");
  EXPECT_EQ(log.messages[0].origin_line, 4);
}

TEST(CompileLog, LeavesOutForeignFilesWithWhatTheyEcho) {
  const ParsedLog log = parse_log(
      "/etc/passwd(1): error: identifier \"root\" is undefined\n"
      "  root:x:0:0:root:/root:/bin/bash\n"
      "  ^\n"
      "\n"
      "attention.cu(3): error: expected a \";\"\n"
      "  }\n"
      "  ^\n"
      "\n",
      kFiles);
  ASSERT_EQ(log.messages.size(), 1u);
  EXPECT_EQ(log.messages[0].file, "attention.cu");
  EXPECT_EQ(log.text.find("root"), std::string::npos);
}

TEST(CompileLog, SeesWhatPtxasIgnoredOrRepaired) {
  for (const char* line :
       {"ptxas info    : (C7508) Potential Performance Loss: 'setmaxnreg' ignored; unable to "
        "determine register count at entry.",
        "ptxas info    : (C7504) Potential Performance Loss: 'setmaxnreg' ignored to maintain "
        "minimum register requirements.",
        "ptxas info    : (C7510) Potential Performance Loss: wgmma.mma_async instructions are "
        "serialized due to non wgmma instructions",
        "ptxas info    : (C7519) warpgroup.arrive is injected in around line 12 by compiler"}) {
    EXPECT_EQ(parse_log(line, kFiles).advisories.size(), 1u) << line;
  }
}

TEST(CompileLog, SeesPtxasErrors) {
  const ParsedLog log = parse_log(
      "ptxas application ptx input, line 24; error   : Unknown modifier '.instr'\n"
      "ptxas fatal   : Ptx assembly aborted due to errors\n",
      kFiles);
  EXPECT_EQ(log.ptxas_errors.size(), 2u);
}

TEST(CompileLog, TakesTheTimesOut) {
  const ParsedLog log = parse_log(
      "ptxas info    : 0 bytes gmem\n"
      "File name, phase name, metric, unit\n"
      "a, b.cu, CUDA C++ Frontend, 29, ms\n"
      "attention.cu, NVVM Optimizer, 10.5, ms\n"
      "attention.cu, PTX Translation, 7, ms\n"
      "attention.cu, PTX Translation, x, ms\nbroken\n, ms\n,, , ms\n"
      "\n"
      "attention.cu, PTX Translation, 900, ms\n",
      kFiles);
  EXPECT_DOUBLE_EQ(log.times.frontend_ms, 29);
  EXPECT_DOUBLE_EQ(log.times.optimizer_ms, 10.5);
  EXPECT_DOUBLE_EQ(log.times.ptxas_ms, 7);
  EXPECT_EQ(log.text.find("Frontend"), std::string::npos);
  EXPECT_NE(log.text.find("gmem"), std::string::npos);
}

TEST(CompileLog, SurvivesAnyText) {
  const std::string log =
      "(1): error: x\n():  error\nfile(99999999999999999999): error: x\nfile(1): error\n"
      "user:(0): error: \n  ^\nuser:a(1): error #: y\n at line  of \nptxas\nptxas info : Used\n"
      "ptxas info : Used 99999999999999999999 registers\nCompiling entry function '\n\xff\xfe(\n";
  for (std::size_t size = 0; size <= log.size(); ++size) {
    static_cast<void>(parse_log(std::string_view(log).substr(0, size), kFiles));
  }
}

// ---- The gate --------------------------------------------------------------------------------

TEST(CheckOutput, EmptyImageWithSuccessIsAFailure) {
  const CompileRequest request = test::request_for("");
  const auto image = check_output(request, CompileOutput{});
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kCompileFailed);
}

TEST(CheckOutput, UserErrorsComeFirstAndAlone) {
  CompileOutput output;
  output.result = kNvrtcCompilation;
  output.log =
      "attention.cu(10): error: no suitable constructor\n\n"
      "user:mask.code(2): error: first\n    ab\n     ^\n\n"
      "user:mask.code(3): error: second\n\n"
      "attention.cu(11): error: noise\n\n";
  const auto image = check_output(test::request_for(""), std::move(output));
  ASSERT_FALSE(image.ok());
  const Error& error = image.error();
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_EQ(error.field, "mask.code");
  EXPECT_EQ(error.line, 2);
  EXPECT_EQ(error.column, 4);
  EXPECT_EQ(error.message, "first");
  ASSERT_EQ(error.others.size(), 1u);
  EXPECT_EQ(error.others[0].line, 3);
}

TEST(CheckOutput, OwnFaultsAreInternalDefectsWithTheLog) {
  CompileOutput output;
  output.result = kNvrtcCompilation;
  output.log = "attention.cu(10): error: static assertion failed with \"no\"\n\n";
  const auto image = check_output(test::request_for(""), std::move(output));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kInternal);
  EXPECT_NE(image.error().message.find("static assertion"), std::string::npos);
  EXPECT_FALSE(image.error().hint.empty());
}

TEST(CheckOutput, RequestsWithNulBytesAreRefused) {
  CompileRequest request = test::request_for(std::string("int x;\0int y;", 13));
  ASSERT_FALSE(check_request(request).ok());
  request = test::request_for("int x;");
  EXPECT_TRUE(check_request(request).ok());
  request.source.headers = HeaderSet(std::vector<SourceFile>{{"a", std::string(1, '\0')}});
  EXPECT_FALSE(check_request(request).ok());
  request.source.headers = {};
  request.source.entries.clear();
  EXPECT_FALSE(check_request(request).ok());
}

}  // namespace
}  // namespace attnjit
