// SPDX-License-Identifier: Apache-2.0
// The in-process compiler with the real NVRTC; skipped where there is none. Needs no GPU.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <optional>
#include <thread>

#include "../temporary_folder.h"
#include "compile/cubin.h"
#include "compile/nvrtc.h"
#include "compile/nvrtc_find.h"
#include "kernels.h"

namespace attnjit {
namespace {

using std::chrono::milliseconds;
using test::in;
using test::request_for;

class InProcess : public testing::Test {
 protected:
  void SetUp() override {
    compiler_ = make_in_process_compiler();
    if (const auto id = compiler_->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
  }
  Result<KernelImage> compile(const CompileRequest& request) {
    return compiler_->compile(request, in(milliseconds(60000)));
  }
  std::unique_ptr<Compiler> compiler_;
};

TEST_F(InProcess, CompilesForEachArchitecture) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a}) {
    CompileRequest request = request_for(test::kSmallKernel, arch);
    request.want_ptx = true;
    const auto image = compile(request);
    ASSERT_TRUE(image.ok()) << image.error().to_string();
    EXPECT_GT(image->usage.registers, 0);
    EXPECT_EQ(image->usage.static_smem_bytes, 256);
    EXPECT_EQ(image->usage.barriers, 1);
    EXPECT_EQ(image->usage.spill_bytes, 0);
    EXPECT_EQ(image->entries, request.source.entries);
    EXPECT_NE(image->ptx.find(".target " + std::string(to_string(arch))), std::string::npos);
    EXPECT_GE(std::count(image->nvrtc_version.begin(), image->nvrtc_version.end(), '.'), 1);
    EXPECT_GT(image->times.frontend_ms + image->times.optimizer_ms + image->times.ptxas_ms, 0);
    EXPECT_GE(image->times.total_ms, image->times.ptxas_ms);
    EXPECT_EQ(image->log.find('\0'), std::string::npos);
  }
}

TEST_F(InProcess, GivesPtxOnlyWhenAsked) {
  const auto image = compile(request_for(test::kSmallKernel));
  ASSERT_TRUE(image.ok());
  EXPECT_TRUE(image->ptx.empty());
}

TEST_F(InProcess, SameBytesInEveryFolderAndThread) {
  const auto first = compile(request_for(test::kSmallKernel));
  ASSERT_TRUE(first.ok());
  const std::filesystem::path before = std::filesystem::current_path();
  const test::TemporaryFolder folder;
  std::filesystem::current_path(folder.path());
  const auto elsewhere = compile(request_for(test::kSmallKernel));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "a compile left a file";
  std::filesystem::current_path(before);
  ASSERT_TRUE(elsewhere.ok());
  EXPECT_EQ(first->cubin, elsewhere->cubin);
  std::vector<std::vector<std::uint8_t>> cubins(4);
  std::vector<std::thread> threads;
  for (auto& cubin : cubins) {
    threads.emplace_back([&cubin, this] {
      const auto image = compile(request_for(test::kSmallKernel));
      if (image.ok()) cubin = image->cubin;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& cubin : cubins) EXPECT_EQ(cubin, first->cubin);
}

// Variables that compilers and loaders take flags and folders from, and the locale.
TEST_F(InProcess, TheEnvironmentDoesNotReachTheCompiler) {
  const auto request = request_for(test::kSmallKernel);
  const auto plain = compile(request);
  ASSERT_TRUE(plain.ok()) << plain.error().to_string();
  const std::pair<const char*, const char*> hostile[] = {
      {"CPATH", "/tmp"},          {"CPLUS_INCLUDE_PATH", "/tmp"},
      {"C_INCLUDE_PATH", "/tmp"}, {"NVCC_PREPEND_FLAGS", "-DEVIL -G"},
      {"CUDA_HOME", "/tmp"},      {"NVCC_APPEND_FLAGS", "-DEVIL -G -O0"},
      {"CUDA_PATH", "/tmp"},      {"NVRTC_FLAGS", "-G"},
      {"TMPDIR", "/nonexistent"}, {"LC_ALL", "tr_TR.UTF-8"},
      {"LANG", "de_DE.UTF-8"},    {"SOURCE_DATE_EPOCH", "1"}};
  std::vector<std::pair<const char*, std::optional<std::string>>> before;
  for (const auto& [name, value] : hostile) {
    const char* old = std::getenv(name);
    before.emplace_back(name, old != nullptr ? std::optional<std::string>(old) : std::nullopt);
    setenv(name, value, 1);
  }
  const auto changed = make_in_process_compiler()->compile(request, in(milliseconds(60000)));
  for (const auto& [name, value] : before) {
    value ? setenv(name, value->c_str(), 1) : unsetenv(name);
  }
  ASSERT_TRUE(changed.ok()) << changed.error().to_string();
  EXPECT_EQ(changed->cubin, plain->cubin);
}

TEST_F(InProcess, FindsHeadersInMemoryOnly) {
  CompileRequest request =
      request_for("#include \"common/a.cuh\"\n" + std::string(test::kSmallKernel));
  request.source.headers =
      HeaderSet(std::vector<SourceFile>{{"common/a.cuh", "#include \"common/b.cuh\"\n"},
                                        {"common/b.cuh", "constexpr int kX = 3;\n"}});
  EXPECT_TRUE(compile(request).ok());
  const test::TemporaryFolder folder;
  std::ofstream(folder / "secret.cuh") << "constexpr int kSecret = 1;\n";
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder.path());
  const auto image =
      compile(request_for("#include \"secret.cuh\"\n" + std::string(test::kSmallKernel)));
  std::filesystem::current_path(before);
  EXPECT_FALSE(image.ok());
}

TEST_F(InProcess, PointsAtTheUsersLineAndColumn) {
  const auto image = compile(request_for(test::with_user_code("  int x = 1;\n  return x + nope;")));
  ASSERT_FALSE(image.ok());
  const Error& error = image.error();
  EXPECT_EQ(error.code, ErrorCode::kCompileFailed);
  EXPECT_EQ(error.field, "mask.code");
  EXPECT_EQ(error.line, 2);
  EXPECT_EQ(error.column, 14);
  EXPECT_NE(error.message.find("nope"), std::string::npos);
}

TEST_F(InProcess, IgnoredSetmaxnregIsAFailure) {
  // No launch bounds: ptxas ignores it and says so in a remark only.
  const auto image = compile(
      request_for("extern \"C\" __global__ void attnjit_kernel(int* p) {\n"
                  "  asm volatile(\"setmaxnreg.dec.sync.aligned.u32 40;\");\n  *p = 1;\n}\n"));
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.error().message.find("setmaxnreg"), std::string::npos)
      << image.error().to_string();
}

TEST_F(InProcess, SerialisedWgmmaIsAFailure) {
  // The accumulator is read while the product is in flight, which ptxas repairs by itself.
  CompileRequest request = request_for(
      "extern \"C\" __global__ void __launch_bounds__(128, 1) attnjit_kernel(float* p, "
      "unsigned long long d) {\n"
      "  float a = p[0], b = p[1], c = p[2], e = p[3];\n"
      "  for (int i = 0; i < 4; ++i) {\n"
      "    asm volatile(\"wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 \"\n"
      "        \"{%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0;\" : \"+f\"(a), \"+f\"(b), \"+f\"(c), "
      "\"+f\"(e) : \"l\"(d), \"l\"(d));\n"
      "    a += 1.0f;\n  }\n"
      "  p[threadIdx.x] = a + b + c + e;\n}\n");
  // Also where a lack of registers may have them serialised: this is none.
  for (const bool may_serialise : {false, true}) {
    request.source.may_serialise = may_serialise;
    const auto image = compile(request);
    ASSERT_FALSE(image.ok());
    EXPECT_NE(image.error().message.find("ptxas did not keep to"), std::string::npos)
        << image.error().to_string();
  }
}

TEST_F(InProcess, ASecondKernelIsRefused) {
  const auto image = compile(request_for(
      std::string(test::kSmallKernel) + "extern \"C\" __global__ void evil(int* p) { *p = 1; }\n"));
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.error().message.find("evil"), std::string::npos);
}

TEST_F(InProcess, AMissingKernelIsRefused) {
  CompileRequest request = request_for(test::kSmallKernel);
  request.source.entries = {"other"};
  ASSERT_FALSE(compile(request).ok());
}

// A kernel with so much static shared memory and so many local variables.
std::string kernel_with(int shared_words, int local_words) {
  return "extern \"C\" __global__ void attnjit_kernel(int* p) {\n  __shared__ int s[" +
         std::to_string(shared_words) + "];\n  volatile int x[" + std::to_string(local_words) +
         "];\n  for (int i = 0; i < " + std::to_string(local_words) +
         "; ++i) x[i] = p[i];\n  s[threadIdx.x] = x[p[0]];\n  __syncthreads();\n"
         "  p[threadIdx.x] = s[p[1]];\n}\n";
}

TEST_F(InProcess, WhatNoGpuCanLaunchIsRefusedWithItsNumbers) {
  struct Row {
    int shared_words, local_words;
    EntryLaunch launch;
    std::vector<std::string> told;  // empty: it is taken
  };
  const std::vector<Row> rows = {
      {64, 4, {128, 232448 - 256}, {}},
      {64, 4, {128, 232448 - 255}, {"256 bytes of static", "232193 of dynamic", "232448"}},
      {16, 4, {128, 232448}, {"64 bytes of static", "232448 of dynamic"}},
      {50000, 4, {128, 99264}, {"200000 bytes of static", "99264 of dynamic", "299264"}},
      {64, 4, {1024, 0}, {}},
      {64, 4, {1025, 0}, {"1025 threads", "1024"}},
      {64, 120000, {128, 0}, {}},
      {64, 140000, {128, 0}, {"bytes of local memory", "524288"}},
  };
  for (const Row& row : rows) {
    CompileRequest request = request_for(kernel_with(row.shared_words, row.local_words));
    request.source.launches = {row.launch};
    const auto image = compile(request);
    if (row.told.empty()) {
      EXPECT_TRUE(image.ok()) << image.error().to_string();
      continue;
    }
    ASSERT_FALSE(image.ok()) << row.told.front();
    EXPECT_EQ(image.error().code, ErrorCode::kCompileFailed);
    for (const std::string& part : row.told) {
      EXPECT_NE(image.error().message.find(part), std::string::npos) << image.error().message;
    }
  }
}

TEST_F(InProcess, RegistersOfACtaAreCounted) {
  // 96 numbers that live at once: no product is known before all of them are.
  CompileRequest request = request_for(
      "extern \"C\" __global__ void attnjit_kernel(float* p) {\n  float x[96], sum = 0;\n"
      "#pragma unroll\n  for (int i = 0; i < 96; ++i) {\n"
      "    x[i] = p[i * 1024 + threadIdx.x];\n    sum += x[i];\n  }\n"
      "  __syncthreads();\n#pragma unroll\n"
      "  for (int i = 0; i < 96; ++i) p[i * 1024 + threadIdx.x] = sum * x[i];\n}\n");
  request.source.launches = {{512, 0}};
  const auto fits = compile(request);
  ASSERT_TRUE(fits.ok()) << fits.error().to_string();
  EXPECT_GT(fits->usage.registers, 64);
  request.source.launches = {{1024, 0}};
  const auto too_many = compile(request);
  ASSERT_FALSE(too_many.ok());
  EXPECT_EQ(too_many.error().code, ErrorCode::kCompileFailed);
  EXPECT_NE(too_many.error().message.find("for the 1024 threads of a CTA, which has 65536"),
            std::string::npos)
      << too_many.error().message;
}

TEST_F(InProcess, PtxasErrorsAreReported) {
  const auto image =
      compile(request_for("extern \"C\" __global__ void attnjit_kernel(int* p) { asm "
                          "volatile(\"bogus;\"); *p = 1; }\n"));
  ASSERT_FALSE(image.ok());
  EXPECT_NE(image.error().message.find("ptxas"), std::string::npos);
}

TEST_F(InProcess, TrustedCodeIsRefused) {
  CompileRequest request = request_for(test::kSmallKernel);
  request.source.trusted = true;
  const auto image = compile(request);
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kInvalid);
}

TEST_F(InProcess, APassedDeadlineAndACancelAreNamed) {
  const auto late = compiler_->compile(request_for(test::kSmallKernel), in(milliseconds(-1)));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
  compiler_->cancel();
  const auto cancelled = compile(request_for(test::kSmallKernel));
  ASSERT_FALSE(cancelled.ok());
  EXPECT_EQ(cancelled.error().code, ErrorCode::kCancelled);
}

TEST_F(InProcess, AForkedChildRefuses) {
  ASSERT_TRUE(compile(request_for(test::kSmallKernel)).ok());
  const pid_t child = fork();
  if (child == 0) {
    const auto image = compile(request_for(test::kSmallKernel));
    const auto id = compiler_->build_id();
    _exit(!image.ok() && image.error().code == ErrorCode::kForked && !id.ok() &&
                  id.error().code == ErrorCode::kForked
              ? 0
              : 1);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

TEST_F(InProcess, LineInfoChangesNoInstruction) {
  CompileRequest request = request_for(test::kSmallKernel);
  request.want_ptx = true;
  const auto plain = compile(request);
  request.line_info = true;
  const auto lines = compile(request);
  ASSERT_TRUE(plain.ok() && lines.ok());
  EXPECT_NE(lines->ptx.find(".loc"), std::string::npos);
  const auto instructions = [](const std::string& ptx) {
    std::string out;
    std::istringstream in(ptx);
    for (std::string line; std::getline(in, line);) {
      const std::size_t begin = line.find_first_not_of(" \t");
      if (begin != std::string::npos && line.back() == ';' && line[begin] != '.')
        out += line + '\n';
    }
    return out;
  };
  EXPECT_EQ(instructions(plain->ptx), instructions(lines->ptx));
}

TEST_F(InProcess, PtxOnlyIsTheSameTextWithoutAnImage) {
  CompileRequest request = request_for(test::kSmallKernel);
  request.want_ptx = true;
  const auto whole = compile(request);
  request.want_ptx = false;
  request.ptx_only = true;
  const auto ptx = compile(request);
  ASSERT_TRUE(whole.ok() && ptx.ok());
  EXPECT_EQ(ptx->ptx, whole->ptx);
  EXPECT_TRUE(ptx->cubin.empty());
  EXPECT_TRUE(ptx->entry_usage.empty());
  EXPECT_EQ(ptx->times.ptxas_ms, 0);
  EXPECT_GT(whole->times.ptxas_ms, 0);
}

TEST_F(InProcess, BuildIdIsHexAndStable) {
  const auto id = compiler_->build_id();
  ASSERT_TRUE(id.ok());
  EXPECT_GE(id->size(), 16u);
  EXPECT_EQ(id->find_first_not_of("0123456789abcdef"), std::string::npos);
  EXPECT_EQ(*make_in_process_compiler()->build_id(), *id);
}

// ---- Without NVRTC -----------------------------------------------------------------------------

TEST(NvrtcFind, AGivenPathIsTheOnlyOneTried) {
  const auto compiler = make_in_process_compiler("/nonexistent/libnvrtc.so");
  const auto id = compiler->build_id();
  ASSERT_FALSE(id.ok());
  EXPECT_EQ(id.error().code, ErrorCode::kEnvironment);
  EXPECT_NE(id.error().message.find("/nonexistent/libnvrtc.so"), std::string::npos);
  const auto image = compiler->compile(request_for(test::kSmallKernel), in(milliseconds(1000)));
  ASSERT_FALSE(image.ok());
  EXPECT_EQ(image.error().code, ErrorCode::kEnvironment);
}

TEST(NvrtcFind, TellsEverythingThatWasLookedFor) {
  NvrtcSearch search;
  search.folders = {{"/nonexistent/one", {}}, {"/nonexistent/two", {}}};
  search.paths = {{"/nonexistent/three.so", {}}};
  search.system_names = false;
  const auto found = find_nvrtc(search);
  ASSERT_FALSE(found.ok());
  EXPECT_EQ(found.error().code, ErrorCode::kEnvironment);
  for (const char* place : {"/nonexistent/one", "/nonexistent/two", "/nonexistent/three.so"}) {
    EXPECT_NE(found.error().message.find(place), std::string::npos) << place;
  }
}

TEST(NvrtcFind, FilesThatAreNoLibraryAreRefused) {
  const test::TemporaryFolder folder;
  std::ofstream(folder / "libnvrtc.so.13") << "not a library";
  EXPECT_FALSE(library_build_id(folder / "libnvrtc.so.13").ok());
  EXPECT_FALSE(library_build_id(folder.path()).ok());
  EXPECT_FALSE(library_build_id("/dev/zero").ok());
}

TEST(NvrtcFind, ALibraryThatIsNotNvrtcIsAnError) {
  const auto nvrtc = Nvrtc::open("libm.so.6");
  ASSERT_FALSE(nvrtc.ok());
  EXPECT_EQ(nvrtc.error().code, ErrorCode::kEnvironment);
}

}  // namespace
}  // namespace attnjit
