// SPDX-License-Identifier: Apache-2.0
// Kernels whose waits are bounded (debug_waits): they compute the same under random sleeps, and a
// lost arrival is told by the barrier that waits for it. Skipped without NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "generated_kernel.h"
#include "plan/launch/wait_records.h"
#include "verify/compare.h"
#include "verify/reference.h"

namespace attnjit::emulator {
namespace {

using Words = std::vector<std::uint32_t>;

std::vector<std::uint8_t> bytes_of(const Words& words) {
  std::vector<std::uint8_t> bytes(4 * words.size());
  std::memcpy(bytes.data(), words.data(), bytes.size());
  return bytes;
}

Words words_of(const std::vector<std::uint8_t>& bytes) {
  Words words(bytes.size() / 4);
  std::memcpy(words.data(), bytes.data(), 4 * words.size());
  return words;
}

// The text from the `rank`-th `what` (from 0) to the end of its statement, replaced.
std::string replace_statement(std::string ptx, std::string_view what, int rank,
                              std::string_view with) {
  std::size_t at = ptx.find(what);
  for (; rank > 0 && at != std::string::npos; --rank) at = ptx.find(what, at + 1);
  if (at == std::string::npos) return {};
  const std::size_t end = ptx.find(';', at);
  return ptx.replace(at, end + 1 - at, with);
}

class DebugWaits : public testing::TestWithParam<Arch> {
 protected:
  void SetUp() override {
    if (const auto id = make_in_process_compiler()->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
    AttentionSpec spec;
    spec.arch = GetParam();
    spec.num_q_heads = 1;
    spec.qk_depth = 64;
    spec.mask.kind = MaskSpec::Kind::kCausal;
    PlanOptions options;
    options.debug_waits = true;
    auto kernel = generate_kernel(spec, options);
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    kernel_ = *std::move(kernel);
    verify::ProblemRequest request;
    request.q_lens = {200};
    request.kv_lens = {300};
    request.seed = 3;
    auto problem = verify::make_problem(kernel_.plan.spec, request);
    ASSERT_TRUE(problem.ok()) << problem.error().to_string();
    problem_ = *std::move(problem);
  }

  KernelRun run(const std::string& ptx, std::uint32_t sleeps, std::uint32_t microseconds) {
    auto module = PtxModule::load(ptx);
    EXPECT_TRUE(module.ok()) << module.error().to_string();
    const auto recipe = launch_of(kernel_.plan, problem_);
    EXPECT_TRUE(recipe.ok()) << recipe.error().to_string();
    Words words(kWaitRecordsWords);
    words[kWaitSeedWord] = sleeps;
    words[kWaitMicrosecondsWord] = microseconds;
    EmulatorOptions options;
    options.in_order_issue = true;
    auto ran = run_kernel(*module, *recipe, problem_, options, {{"wait_records", bytes_of(words)}});
    EXPECT_TRUE(ran.ok()) << ran.error().to_string();
    return *std::move(ran);
  }

  // The barriers that waits were written down for, by name.
  std::vector<std::string> told(const KernelRun& run) {
    std::vector<std::string> names;
    for (const WaitRecord& record : wait_records(words_of(run.workspaces.at("wait_records")))) {
      names.push_back(kernel_.plan.main().barriers.at(record.barrier).name);
      EXPECT_LT(record.warp, static_cast<std::uint32_t>(kernel_.plan.main().threads / 32));
      EXPECT_GE(record.work_tile, 0);
    }
    return names;
  }

  GeneratedKernel kernel_;
  verify::Problem problem_;
};

TEST_P(DebugWaits, RandomSleepsChangeNoNumber) {
  const auto reference = verify::compute_reference(problem_);
  ASSERT_TRUE(reference.ok());
  for (const std::uint32_t sleeps : {0U, 1U, 77U}) {
    const KernelRun ran = run(kernel_.ptx, sleeps, 0);
    EXPECT_TRUE(ran.report.passed)
        << (ran.report.findings.empty() ? std::string() : ran.report.findings.front().text);
    const auto comparison =
        verify::compare(problem_, *reference, ran.o, nullptr, verify::tolerance_of(problem_.spec));
    EXPECT_TRUE(comparison.passed) << comparison.reason;
    EXPECT_TRUE(told(ran).empty());
  }
}

// One arrival more is awaited than comes: at each kind of barrier that a wait stands at.
TEST_P(DebugWaits, ALostArrivalIsToldByItsBarrier) {
  const bool hopper = GetParam() == Arch::kSm90a;
  const std::vector<std::string> names =
      hopper ? std::vector<std::string>{"Q 0 of 0 full", "K 0 full", "V 1 full", "K 0 empty"}
             : std::vector<std::string>{"S0_prod", "S0_cons[1]", "O0_prod", "O_staged[0]"};
  for (const std::string& name : names) {
    const auto& barriers = kernel_.plan.main().barriers;
    const auto found = std::find_if(barriers.begin(), barriers.end(),
                                    [&](const BarrierPlan& b) { return b.name == name; });
    ASSERT_NE(found, barriers.end()) << name;
    // Barriers are initialised in the order of the plan: on sm_90a one after another, elsewhere one
    // a lane, so that the first statement is for 32 of them.
    const auto rank = static_cast<int>(found - barriers.begin());
    const int statement = hopper ? rank : rank / 32;
    std::size_t at = kernel_.ptx.find("mbarrier.init");
    for (int i = 0; i < statement; ++i) at = kernel_.ptx.find("mbarrier.init", at + 1);
    ASSERT_NE(at, std::string::npos);
    const std::size_t comma = kernel_.ptx.find(',', at), end = kernel_.ptx.find(';', at);
    ASSERT_LT(comma, end);
    const std::string init = kernel_.ptx.substr(at, comma - at);
    const std::string count = kernel_.ptx.substr(comma + 1, end - comma - 1);
    const std::string one_more =
        hopper ? fmt::format("{}, {};", init, found->arrivals + 1)
               : fmt::format(
                     "{{ .reg .pred here; .reg .b32 count; mov.u32 count, %laneid; setp.eq.u32 "
                     "here, count, {}; selp.u32 count, 1, 0, here; add.u32 count, {}, count; {}, "
                     "count; }}",
                     rank % 32, count, init);
    const std::string damaged =
        replace_statement(kernel_.ptx, "mbarrier.init", statement, one_more);
    const KernelRun ran = run(damaged, 0, 300);
    EXPECT_FALSE(ran.report.passed) << name;
    const std::vector<std::string> waits = told(ran);
    EXPECT_NE(std::find(waits.begin(), waits.end(), name), waits.end())
        << name << "; told: " << fmt::format("{}", fmt::join(waits, ", "));
    const std::string text =
        describe_waits(kernel_.plan, words_of(ran.workspaces.at("wait_records")));
    EXPECT_NE(text.find("(" + name + ")"), std::string::npos) << text;
  }
}

// The arrival itself taken out: the expect_tx of the first consumer's Q, the second of the kernel.
TEST_P(DebugWaits, ARemovedArrivalIsToldByItsBarrier) {
  if (GetParam() != Arch::kSm90a) GTEST_SKIP() << "the order of sm_90a's arrivals";
  const std::string damaged = replace_statement(kernel_.ptx, "mbarrier.arrive.expect_tx", 1, "");
  ASSERT_FALSE(damaged.empty());
  const std::vector<std::string> waits = told(run(damaged, 0, 300));
  EXPECT_NE(std::find(waits.begin(), waits.end(), "Q 0 of 0 full"), waits.end())
      << fmt::format("{}", fmt::join(waits, ", "));
}

TEST_P(DebugWaits, OffTheOptionChangesNothing) {
  PlanOptions off;
  off.debug_waits = false;
  const auto with = generate_kernel(kernel_.plan.spec, off);
  const auto without = generate_kernel(kernel_.plan.spec);
  ASSERT_TRUE(with.ok() && without.ok());
  EXPECT_EQ(with->ptx, without->ptx);
  EXPECT_NE(with->ptx, kernel_.ptx);
  EXPECT_EQ(with->ptx.find("globaltimer"), std::string::npos);
}

// Shared memory that begins where swizzled tiles cannot: 16 bytes of another variable before it.
TEST_P(DebugWaits, MisalignedSharedMemoryTraps) {
  const auto kernel = generate_kernel(kernel_.plan.spec);
  ASSERT_TRUE(kernel.ok());
  std::string ptx = kernel->ptx;
  const std::size_t at = ptx.find(".extern .shared .align 1024");
  ASSERT_NE(at, std::string::npos);
  ptx.replace(at, std::strlen(".extern .shared .align 1024"), ".extern .shared .align 16");
  ptx.insert(at, ".shared .align 16 .b8 another[16];\n");
  const std::size_t body = ptx.find("\n{\n", ptx.find(".entry"));
  ASSERT_NE(body, std::string::npos);
  ptx.insert(body + 3, "{ .reg .u32 used; mov.u32 used, another; }\n");
  auto module = PtxModule::load(ptx);
  ASSERT_TRUE(module.ok()) << module.error().to_string();
  const auto recipe = launch_of(kernel->plan, problem_);
  ASSERT_TRUE(recipe.ok());
  const auto ran = run_kernel(*module, *recipe, problem_, {});
  ASSERT_TRUE(ran.ok()) << ran.error().to_string();
  ASSERT_FALSE(ran->report.findings.empty());
  EXPECT_NE(ran->report.findings.front().text.find("trap"), std::string::npos)
      << ran->report.findings.front().text;
}

INSTANTIATE_TEST_SUITE_P(Families, DebugWaits, testing::Values(Arch::kSm90a, Arch::kSm100a),
                         [](const auto& param) { return std::string(to_string(param.param)); });

}  // namespace
}  // namespace attnjit::emulator
