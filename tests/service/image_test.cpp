// SPDX-License-Identifier: Apache-2.0
// Service without a GPU: preparing, compiling, one flight per key, deadlines, failures, prewarm.
#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>
#include <stdexcept>

#include "service/compile_budget.h"
#include "service_fixture.h"

namespace attnjit {
namespace {

using ImageTest = ServiceFixture;

TEST_F(ImageTest, EqualSpecsAreOneStateAndEqualKeysOneImage) {
  remake(options());
  const PreparedSpec a = prepare(*service_), b = prepare(*service_);
  EXPECT_EQ(a.state(), b.state());
  const PreparedSpec narrow = prepare(*service_, window_spec(128));
  const PreparedSpec wide = prepare(*service_, window_spec(4096));
  EXPECT_EQ(narrow.key().hex, wide.key().hex);
  EXPECT_NE(narrow.key().hex, a.key().hex);
  EXPECT_EQ(narrow.plan().spec->mask.window, 128);
  EXPECT_EQ(wide.plan().spec->mask.window, 4096);
  ASSERT_TRUE(service_->compile(narrow, in(seconds(10))).ok());
  const auto other = service_->compile(wide, in(seconds(10)));
  ASSERT_TRUE(other.ok());
  EXPECT_EQ(other->outcome, Outcome::kMemory);
  EXPECT_EQ(compiler_->compiles, 1);
}

TEST_F(ImageTest, PrepareReportsWhatIsWrongOrUnsupported) {
  remake(options());
  AttentionSpec bad = test_spec();
  bad.num_q_heads = 7;
  bad.qk_depth = -1;
  const auto invalid = service_->prepare(bad);
  ASSERT_FALSE(invalid.ok());
  EXPECT_EQ(invalid.error().code, ErrorCode::kInvalid);
  EXPECT_FALSE(invalid.error().others.empty());
  AttentionSpec odd = test_spec();
  odd.qk_depth = odd.ov_depth = 1024;
  const auto unsupported = service_->prepare(odd);
  ASSERT_FALSE(unsupported.ok());
  EXPECT_FALSE(unsupported.error().message.empty());
}

// JSON that leaves the architecture out is for the GPU at hand: never for one that it cannot run.
TEST_F(ImageTest, JsonWithoutAnArchitectureIsForTheGpuAtHand) {
  const auto arch_of = [&](const char* arch) -> Result<Arch> {
    const auto prepared =
        service_->prepare(std::string(R"({"num_q_heads": 8, "qk_depth": 64)") + arch + "}");
    if (!prepared) return prepared.error();
    return prepared->plan().spec->arch;
  };
  constexpr const char* kNative = R"(, "arch": "native")";
  fake::FakeDevice rtx{.name = "RTX", .major = 12, .minor = 0};
  fake::FakeDevice b200{.name = "B200", .major = 10, .minor = 0};
  remake(options());
  EXPECT_EQ(*arch_of(""), Arch::kSm90a);
  EXPECT_EQ(*arch_of(kNative), Arch::kSm90a);
  EXPECT_EQ(*arch_of(R"(, "arch": "sm_103a")"), Arch::kSm103a);
  cuda_.devices = {rtx, b200, fake::FakeDevice{}};
  EXPECT_EQ(*arch_of(""), Arch::kSm100a);
  // A thread's context says which GPU is its.
  const auto context = cuda_.create_context(2);
  EXPECT_EQ(*arch_of(""), Arch::kSm90a);
  cuda_.destroy_context(context);
  cuda_.devices = {rtx};
  EXPECT_EQ(arch_of("").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(arch_of("").error().field, "arch");
  EXPECT_EQ(arch_of(kNative).error().code, ErrorCode::kUnsupported);
  cuda_.devices.clear();
  EXPECT_EQ(arch_of("").error().code, ErrorCode::kInvalid);
  EXPECT_EQ(arch_of(kNative).error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(*arch_of(R"(, "arch": "sm_100a")"), Arch::kSm100a);
  ServiceOptions alone = options();
  alone.driver_path = "/nonexistent/libcuda.so";
  remake(alone);
  EXPECT_EQ(arch_of("").error().field, "arch");
  EXPECT_NE(arch_of("").error().message.find("sm_90a, sm_100a, sm_103a"), std::string::npos);
  EXPECT_EQ(arch_of(kNative).error().code, ErrorCode::kEnvironment);
}

TEST_F(ImageTest, OutcomesAreCompiledMemoryDisk) {
  ServiceOptions cached = options();
  cached.use_disk_cache = true;
  cached.cache_layers = {folder_.path()};
  {
    remake(cached);
    const PreparedSpec spec = prepare(*service_);
    const auto first = service_->compile(spec, in(seconds(10)));
    ASSERT_TRUE(first.ok()) << first.error().to_string();
    EXPECT_EQ(first->outcome, Outcome::kCompiled);
    EXPECT_EQ(first->image->usage.registers, 168);
    EXPECT_GT(first->total_ms, 0);
    const auto second = service_->compile(spec, in(seconds(10)));
    ASSERT_TRUE(second.ok());
    EXPECT_EQ(second->outcome, Outcome::kMemory);
    EXPECT_EQ(second->compile_ms, 0);
  }
  remake(cached);
  const auto third = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_TRUE(third.ok());
  EXPECT_EQ(third->outcome, Outcome::kDisk);
  EXPECT_EQ(third->compile_ms, 0);
  EXPECT_EQ(compiler_->compiles, 1);
  EXPECT_EQ(service_->statistics().disk_hits, 1U);
  EXPECT_EQ(to_string(third->outcome), "disk");
}

// Prewarm, hide NVRTC, verify: in the emulator that takes the PTX.
TEST_F(ImageTest, PrewarmedCacheHasThePtxOfItsKernels) {
  ServiceOptions cached = options();
  cached.use_disk_cache = true;
  cached.cache_layers = {folder_.path()};
  remake(cached);
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10)), PtxNeed::kSkip).ok());
  service_.reset();
  auto nothing = std::make_shared<FakeCompiler>();
  nothing->no_compiler = true;
  cached.compiler = nothing;
  remake(cached);
  const auto hit = service_->compile(prepare(*service_), in(seconds(10)), PtxNeed::kRequired);
  ASSERT_TRUE(hit.ok()) << hit.error().to_string();
  EXPECT_EQ(hit->outcome, Outcome::kDisk);
  EXPECT_EQ(hit->image->ptx, "// ptx");
}

TEST_F(ImageTest, PtxIsMadeWhereItIsRequired) {
  ServiceOptions cached = options();
  cached.use_disk_cache = false;
  remake(cached);
  const PreparedSpec spec = prepare(*service_);
  ASSERT_TRUE(service_->compile(spec, in(seconds(10))).ok());
  const auto with_ptx = service_->compile(spec, in(seconds(10)), PtxNeed::kRequired);
  ASSERT_TRUE(with_ptx.ok());
  EXPECT_EQ(with_ptx->image->ptx, "// ptx");
  EXPECT_EQ(compiler_->compiles, 2);
  const auto again = service_->compile(spec, in(seconds(10)), PtxNeed::kRequired);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->outcome, Outcome::kMemory);
}

TEST_F(ImageTest, PrewarmedCacheServesAMachineWithoutNvrtc) {
  ServiceOptions cached = options();
  cached.use_disk_cache = true;
  cached.cache_layers = {folder_.path()};
  remake(cached);
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  service_.reset();
  auto nothing = std::make_shared<FakeCompiler>();
  nothing->no_compiler = true;
  cached.compiler = nothing;
  remake(cached);
  const auto hit = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_TRUE(hit.ok()) << hit.error().to_string();
  EXPECT_EQ(hit->outcome, Outcome::kDisk);
  const auto miss = service_->compile(prepare(*service_, window_spec(128)), in(seconds(10)));
  ASSERT_FALSE(miss.ok());
  EXPECT_EQ(miss.error().code, ErrorCode::kEnvironment);
  EXPECT_EQ(nothing->compiles, 0);
}

// A file that is there and has a build id, but is no NVRTC that can serve (another library, one too
// old for the architecture), is as good as none.
TEST_F(ImageTest, PrewarmedCacheServesAMachineWhoseNvrtcDoesNotOpen) {
  ServiceOptions cached = options();
  cached.use_disk_cache = true;
  cached.cache_layers = {folder_.path()};
  remake(cached);
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  ASSERT_TRUE(service_->compile(prepare(*service_, window_spec(128)), in(seconds(10))).ok());
  service_.reset();
  auto broken = std::make_shared<FakeCompiler>();
  broken->build = "a-library-that-is-no-nvrtc";
  broken->failure = make_error(ErrorCode::kEnvironment, "not NVRTC: functions are missing");
  cached.compiler = broken;
  remake(cached);
  const auto hit = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_TRUE(hit.ok()) << hit.error().to_string();
  EXPECT_EQ(hit->outcome, Outcome::kDisk);
  EXPECT_EQ(hit->compile_ms, 0);
  ASSERT_TRUE(service_->compile(prepare(*service_, window_spec(128)), in(seconds(10))).ok());
  {
    const std::lock_guard lock(log_mutex_);
    EXPECT_EQ(std::count_if(log_.begin(), log_.end(),
                            [](const std::string& line) {
                              return line.find("not NVRTC") != std::string::npos;
                            }),
              1)
        << "it is said, and once";
  }
  const auto miss = service_->compile(prepare(*service_, trusted_spec()), in(seconds(10)));
  ASSERT_FALSE(miss.ok());
  EXPECT_EQ(miss.error().code, ErrorCode::kEnvironment);
}

TEST_F(ImageTest, ForbiddenCompileIsItsOwnErrorAndHitsStillServe) {
  ServiceOptions cached = options();
  cached.use_disk_cache = true;
  cached.cache_layers = {folder_.path()};
  cached.forbid_compile = true;
  remake(cached);
  const auto refused = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, ErrorCode::kCompileForbidden);
  EXPECT_NE(refused.error().hint.find("prewarm"), std::string::npos);
  EXPECT_EQ(compiler_->compiles, 0);
  cached.forbid_compile = false;
  auto warm = make(cached);
  ASSERT_TRUE(warm->compile(prepare(*warm), in(seconds(10))).ok());
  EXPECT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok())
      << "a refusal is not remembered";
}

TEST_F(ImageTest, ManyThreadsMakeOneCompile) {
  compiler_->hold = true;
  remake(options());
  const PreparedSpec spec = prepare(*service_);
  constexpr int kThreads = 16;
  std::atomic<int> served{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      const auto compiled = service_->compile(spec, in(seconds(30)));
      if (compiled && compiled->outcome == Outcome::kCompiled) ++served;
    });
  }
  compiler_->await_start();
  while (service_->statistics().waits < kThreads - 1) std::this_thread::yield();
  compiler_->release();
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(served, kThreads);
  EXPECT_EQ(compiler_->compiles, 1);
  EXPECT_EQ(service_->statistics().waits, static_cast<std::uint64_t>(kThreads - 1));
  EXPECT_EQ(service_->statistics().compiles, 1U);
}

TEST_F(ImageTest, DifferentKeysCompileInParallel) {
  compiler_->hold = true;
  remake(options());
  AttentionSpec causal = test_spec();
  causal.mask.kind = MaskSpec::Kind::kCausal;
  const PreparedSpec a = prepare(*service_), b = prepare(*service_, causal);
  ASSERT_NE(a.key().hex, b.key().hex);
  std::thread first([&] { EXPECT_TRUE(service_->compile(a, in(seconds(30))).ok()); });
  std::thread second([&] { EXPECT_TRUE(service_->compile(b, in(seconds(30))).ok()); });
  compiler_->await_start(2);
  EXPECT_EQ(compiler_->most_at_once, 2);
  compiler_->release();
  first.join();
  second.join();
}

TEST_F(ImageTest, DeadlineEndsTheWaitAndTheCompileGoesOn) {
  compiler_->hold = true;
  remake(options());
  const PreparedSpec spec = prepare(*service_);
  const auto begin = std::chrono::steady_clock::now();
  const auto late = service_->compile(spec, in(milliseconds(50)));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, seconds(2));
  // A waiter's deadline counts as well.
  const auto waiter = service_->compile(spec, in(milliseconds(20)));
  ASSERT_FALSE(waiter.ok());
  EXPECT_EQ(waiter.error().code, ErrorCode::kTimeout);
  compiler_->release();
  EXPECT_TRUE(service_->compile(spec, in(seconds(30))).ok());
  EXPECT_EQ(compiler_->compiles, 1);
  // And with a deadline long past, what is in memory is served.
  EXPECT_TRUE(service_->compile(spec, in(seconds(-1))).ok());
}

TEST_F(ImageTest, EachCompileIsAnEvent) {
  struct Seen {
    std::string key;
    Arch arch;
    int registers;
    std::string error;
  };
  std::mutex mutex;
  std::vector<Seen> seen;
  ServiceOptions watched = options();
  watched.failure_ttl = seconds(0);
  watched.use_disk_cache = true;
  watched.cache_layers = {folder_.path()};
  watched.on_compile = [&](const CompileEvent& event) {
    const std::lock_guard lock(mutex);
    seen.push_back({std::string(event.key), event.arch,
                    event.image == nullptr ? 0 : event.image->usage.registers,
                    event.error == nullptr ? "" : event.error->message});
    EXPECT_GE(event.compile_ms, 0);
    throw std::runtime_error("what a callback throws is dropped");
  };
  remake(watched);
  const PreparedSpec spec = prepare(*service_);
  compiler_->failure = make_error(ErrorCode::kCompileFailed, "no such name", "mask");
  EXPECT_FALSE(service_->compile(spec, in(seconds(10))).ok());
  compiler_->failure.reset();
  EXPECT_TRUE(service_->compile(spec, in(seconds(10))).ok());
  EXPECT_TRUE(service_->compile(spec, in(seconds(10))).ok());  // from memory
  ASSERT_EQ(seen.size(), 2U);
  EXPECT_EQ(seen[0].key, spec.key().hex);
  EXPECT_EQ(seen[0].error, "no such name");
  EXPECT_EQ(seen[1].key, spec.key().hex);
  EXPECT_EQ(seen[1].arch, spec.plan().spec->arch);
  EXPECT_EQ(seen[1].registers, 168);
  EXPECT_EQ(seen[1].error, "");
  remake(watched);
  EXPECT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());  // from disk
  EXPECT_EQ(seen.size(), 2U);
}

TEST_F(ImageTest, StatisticsAreTextForPrometheus) {
  remake(options());
  const PreparedSpec spec = prepare(*service_);
  ASSERT_TRUE(service_->compile(spec, in(seconds(10))).ok());
  ServiceStatistics now = service_->statistics();
  now.compile_ms_total = 1500;
  now.queued = 3;
  now.remote.puts = 7;
  const std::string text = to_prometheus(now);
  for (const char* line :
       {"# TYPE attnjit_compiles_total counter\nattnjit_compiles_total 1\n",
        "\nattnjit_compile_seconds_total 1.500000\n", "# TYPE attnjit_queued gauge\n",
        "\nattnjit_queued 3\n", "\nattnjit_remote_puts_total 7\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << text;
  }
  // Every line is a comment or a name with a number, and no name comes twice.
  std::set<std::string> names;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("# ")) continue;
    const std::size_t space = line.find(' ');
    ASSERT_NE(space, std::string::npos) << line;
    EXPECT_TRUE(names.insert(line.substr(0, space)).second) << line;
    EXPECT_EQ(line.find_first_not_of("0123456789.", space + 1), std::string::npos) << line;
  }
  EXPECT_GE(names.size(), 20U);
}

TEST_F(ImageTest, FailureIsRememberedUntilItsTimeIsOver) {
  ServiceOptions short_memory = options();
  short_memory.failure_ttl = seconds(1);
  remake(short_memory);
  const PreparedSpec spec = prepare(*service_);
  compiler_->failure = make_error(ErrorCode::kCompileFailed, "no such name", "mask");
  for (int i = 0; i < 3; ++i) {
    const auto failed = service_->compile(spec, in(seconds(10)));
    ASSERT_FALSE(failed.ok());
    EXPECT_EQ(failed.error().code, ErrorCode::kCompileFailed);
    EXPECT_EQ(failed.error().field, "mask");
  }
  EXPECT_EQ(compiler_->compiles, 1);
  EXPECT_EQ(service_->statistics().failures, 1U);
  compiler_->failure.reset();
  std::this_thread::sleep_for(milliseconds(1050));
  EXPECT_TRUE(service_->compile(spec, in(seconds(10))).ok());
  EXPECT_EQ(compiler_->compiles, 2);
}

TEST_F(ImageTest, FailureIsRememberedForAsLongAsNoClockCounts) {
  ServiceOptions long_memory = options();
  long_memory.failure_ttl = seconds::max();
  remake(long_memory);
  const PreparedSpec spec = prepare(*service_);
  compiler_->failure = make_error(ErrorCode::kCompileFailed, "no such name", "mask");
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(service_->compile(spec, in(seconds(10))).ok());
  EXPECT_EQ(compiler_->compiles, 1);
}

TEST_F(ImageTest, ThrowingLogSinkStopsNothing) {
  ServiceOptions throwing = options();
  std::atomic<int> messages{0};
  throwing.log = [&](LogLevel, std::string_view) {
    ++messages;
    throw 42;
  };
  remake(throwing);
  const PreparedSpec spec = prepare(*service_);
  compiler_->failure = make_error(ErrorCode::kCompileFailed, "no such name", "mask");
  EXPECT_FALSE(service_->compile(spec, in(seconds(10))).ok());
  EXPECT_GE(messages, 1);
  service_.reset();
}

TEST_F(ImageTest, EnvironmentFailureIsNotRemembered) {
  remake(options());
  const PreparedSpec spec = prepare(*service_);
  compiler_->no_compiler = true;
  const auto failed = service_->compile(spec, in(seconds(10)));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kEnvironment);
  compiler_->no_compiler = false;
  EXPECT_TRUE(service_->compile(spec, in(seconds(10))).ok());
}

TEST_F(ImageTest, ThrowingCompilerIsAnError) {
  class Throwing final : public Compiler {
   public:
    Result<std::string> build_id() override { return std::string("x"); }
    Result<KernelImage> compile(const CompileRequest&, Deadline) override { throw 42; }
    void cancel() override {}
  };
  ServiceOptions throwing = options();
  throwing.compiler = std::make_shared<Throwing>();
  remake(throwing);
  const auto failed = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kInternal);
}

TEST_F(ImageTest, TrustedCodeGoesToTheHelper) {
  auto helper = std::make_shared<FakeCompiler>();
  ServiceOptions both = options();
  both.helper_compiler = helper;
  remake(both);
  ASSERT_TRUE(service_->compile(prepare(*service_, trusted_spec()), in(seconds(10))).ok());
  EXPECT_EQ(helper->compiles, 1);
  EXPECT_TRUE(helper->last_source_trusted);
  EXPECT_EQ(compiler_->compiles, 0);
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  EXPECT_EQ(compiler_->compiles, 1);
  both.compile_in_helper = true;
  remake(both);
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  EXPECT_EQ(helper->compiles, 2);
  EXPECT_EQ(compiler_->compiles, 1);
}

TEST_F(ImageTest, TwoServicesShareNothing) {
  remake(options());
  auto other = make(options());
  const PreparedSpec spec = prepare(*service_);
  ASSERT_TRUE(service_->compile(spec, in(seconds(10))).ok());
  const auto foreign = other->compile(spec, in(seconds(10)));
  ASSERT_FALSE(foreign.ok());
  EXPECT_EQ(foreign.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(other->find(spec), nullptr);
  ASSERT_TRUE(other->compile(prepare(*other), in(seconds(10))).ok());
  EXPECT_EQ(compiler_->compiles, 2);
}

TEST(CompileBudget, IsOnePerCoreAndFitsIntoHalfOfTheMemory) {
  EXPECT_EQ(compiles_at_once({4, std::int64_t{64} << 30}), 4);
  EXPECT_EQ(compiles_at_once({128, std::int64_t{2} << 30}), 4);
  EXPECT_EQ(compiles_at_once({128, 1 << 20}), 1) << "one is always allowed";
}

TEST_F(ImageTest, APrewarmThatDoesNotSayKeepsToTheBudget) {
  ServiceOptions one_at_a_time = options();
  one_at_a_time.compile_threads = 1;
  remake(one_at_a_time);
  compiler_->hold = true;
  std::vector<SpecDocument> specs(3, {test_spec(), {}});
  specs[1].spec = window_spec(64);
  specs[2].spec.qk_depth = 64;
  specs[2].spec.ov_depth = 64;
  std::thread warming([&] { service_->prewarm(specs, 0); });
  compiler_->await_start();
  std::this_thread::sleep_for(milliseconds(100));
  EXPECT_EQ(compiler_->running, 1);
  compiler_->release();
  warming.join();
  EXPECT_EQ(compiler_->compiles, 3);
}

TEST_F(ImageTest, PrewarmServesAllAndReportsInOrder) {
  remake(options());
  std::vector<SpecDocument> specs;
  for (int i = 0; i < 6; ++i) specs.push_back({test_spec(), {}});
  specs[1].spec = window_spec(64);
  specs[2].spec = window_spec(128);
  specs[3].spec.num_q_heads = -3;
  specs[4].spec.arch = Arch::kSm100a;
  specs[4].spec.num_partitions = 0;
  int reports = 0;
  std::atomic<int> inside{0};
  const auto results = service_->prewarm(specs, 3, [&](const PrewarmResult& result) {
    EXPECT_EQ(++inside, 1) << "one thread at a time";
    EXPECT_LT(result.index, specs.size());
    ++reports;
    --inside;
  });
  ASSERT_EQ(results.size(), specs.size());
  EXPECT_EQ(reports, 6);
  for (std::size_t i = 0; i < results.size(); ++i) EXPECT_EQ(results[i].index, i);
  EXPECT_TRUE(results[0].outcome.has_value());
  EXPECT_EQ(results[1].key, results[2].key);
  ASSERT_TRUE(results[3].error.has_value());
  EXPECT_EQ(results[3].error->code, ErrorCode::kInvalid);
  EXPECT_EQ(results[4].arch, Arch::kSm100a);
  // A call whose flight a thread of the queue ended at once has still compiled.
  EXPECT_EQ(results[4].outcome, Outcome::kCompiled);
  EXPECT_EQ(compiler_->compiles.load(), 3);
  EXPECT_TRUE(service_->prewarm({}, 4).empty());
}

TEST_F(ImageTest, ThrowingProgressDoesNotStopPrewarm) {
  remake(options());
  const auto results = service_->prewarm({{test_spec(), {}}}, 1,
                                         [](const PrewarmResult&) { throw std::bad_alloc(); });
  EXPECT_TRUE(results[0].outcome.has_value());
}

TEST_F(ImageTest, WrongOptionsAreRefused) {
  ServiceOptions bad = options();
  bad.compile_threads = -1;
  const auto negative = Service::create(bad);
  ASSERT_FALSE(negative.ok());
  EXPECT_EQ(negative.error().field, "compile_threads");
  bad = options();
  bad.templates_folder = "/nonexistent/templates";
  EXPECT_FALSE(Service::create(bad).ok());
}

}  // namespace
}  // namespace attnjit
