// SPDX-License-Identifier: Apache-2.0
// The end of a Service: in time whatever compiles, silent afterwards, and harmless in a fork's
// child.
#include <sys/wait.h>
#include <unistd.h>

#include <future>
#include <random>

#include "service/gated_call.h"
#include "service_fixture.h"

namespace attnjit {
namespace {

using EndTest = ServiceFixture;

milliseconds time_to_end(std::unique_ptr<Service>& service) {
  const auto begin = std::chrono::steady_clock::now();
  service.reset();
  return std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begin);
}

TEST_F(EndTest, IdleServiceEndsAtOnce) {
  remake(options());
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  EXPECT_LT(time_to_end(service_), milliseconds(500));
}

TEST_F(EndTest, RunningCompileIsCancelledAndTheQueueDropped) {
  compiler_->hold = true;
  ServiceOptions single = options();
  single.compile_threads = 1;
  remake(single);
  const PreparedSpec first = prepare(*service_);
  AttentionSpec causal = test_spec();
  causal.mask.kind = MaskSpec::Kind::kCausal;
  const PreparedSpec second = prepare(*service_, causal);
  ASSERT_TRUE(service_->try_get(first).ok());
  compiler_->await_start();
  ASSERT_TRUE(service_->try_get(second).ok());
  EXPECT_EQ(service_->statistics().queued, 1U);
  EXPECT_LT(time_to_end(service_), milliseconds(1000));
  EXPECT_EQ(compiler_->compiles, 1) << "the second was never begun";
}

TEST_F(EndTest, CompileThatCannotBeStoppedDoesNotHoldTheEnd) {
  compiler_->hold = true;
  compiler_->heeds_cancel = false;
  std::atomic<int> events{0};
  {
    ServiceOptions watched = options();
    watched.on_compile = [&](const CompileEvent&) { ++events; };
    remake(watched);
  }
  ASSERT_TRUE(service_->try_get(prepare(*service_)).ok());
  compiler_->await_start();
  EXPECT_LT(time_to_end(service_), milliseconds(2000));
  const std::size_t lines = log_.size();
  // What was left behind ends on its own, and says nothing to a sink that may be gone.
  compiler_->release();
  while (compiler_->running > 0) std::this_thread::yield();
  while (compiler_.use_count() > 1) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(log_.size(), lines);
  EXPECT_EQ(events, 0);
}

// What the caller's function refers to may be gone, although a call of it hangs.
TEST(GatedCall, IsSilentBehindACallThatHangs) {
  std::atomic<int> calls{0};
  std::promise<void> begun, end;
  GatedCall<int> gate([&](int) {
    if (calls++ > 0) return;
    begun.set_value();
    end.get_future().wait();
  });
  std::thread hangs([call = gate.function()] { call(0); });
  begun.get_future().wait();
  gate.close();
  gate.function()(1);
  EXPECT_EQ(calls, 1);
  end.set_value();
  hangs.join();
}

TEST_F(EndTest, CallsThatWaitAreReleased) {
  compiler_->hold = true;
  remake(options());
  const PreparedSpec spec = prepare(*service_);
  std::atomic<int> cancelled{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, service = service_.get()] {
      const auto result = service->compile(spec, in(seconds(60)));
      if (!result && result.error().code == ErrorCode::kCancelled) ++cancelled;
    });
  }
  compiler_->await_start();
  while (service_->statistics().waits < 3) std::this_thread::yield();
  EXPECT_LT(time_to_end(service_), milliseconds(1500));
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(cancelled, 4);
}

TEST_F(EndTest, KernelsAreUnloadedEvenIfAPreparedSpecLivesOn) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  ASSERT_TRUE(service_->get(spec, in(seconds(10))).ok());
  service_.reset();
  EXPECT_EQ(cuda_.count("cuLibraryUnload"), 1);
  EXPECT_EQ(spec.key().hex.size(), 64U) << "key and plan stay readable";
}

TEST_F(EndTest, EndAfterTheDriverShutDownIsQuiet) {
  remake(options());
  cuda_.primary(0);
  ASSERT_TRUE(service_->get(prepare(*service_), in(seconds(10))).ok());
  cuda_.shut_down = true;
  service_.reset();
}

/// Runs `child` in a fork and expects it to return true within 10 s.
template <class Child>
void in_child(Child child) {
  const pid_t pid = fork();
  ASSERT_GE(pid, 0);
  if (pid == 0) {
    alarm(10);  // a hang ends here
    _exit(child() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(pid, &status, 0), pid);
  EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(EndTest, ChildRefusesToCompileAndFindStillFinds) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec loaded = prepare(*service_);
  ASSERT_TRUE(service_->get(loaded, in(seconds(10))).ok());
  const PreparedSpec missing = prepare(*service_, window_spec(5));
  in_child([&] {
    const auto forked = [](const auto& result) {
      return !result.ok() && result.error().code == ErrorCode::kForked;
    };
    const auto prewarmed = service_->prewarm({{test_spec(), {}}}, 2);
    const bool right =
        service_->find(loaded) != nullptr && service_->get(loaded, in(seconds(1))).ok() &&
        service_->find(missing) == nullptr && forked(service_->get(missing, in(seconds(1)))) &&
        forked(service_->try_get(missing)) && forked(service_->compile(missing, in(seconds(1)))) &&
        forked(service_->compile(loaded, in(seconds(1)))) && prewarmed.size() == 1 &&
        prewarmed[0].error && prewarmed[0].error->code == ErrorCode::kForked &&
        service_->statistics().compiles == 1;
    const auto prepared = service_->prepare(window_spec(6));
    const bool unserved = prepared.ok() && service_->find(*prepared) == nullptr &&
                          forked(service_->get(*prepared, in(seconds(1))));
    return right && unserved;
  });
  EXPECT_TRUE(service_->compile(missing, in(seconds(10))).ok()) << "the parent goes on";
}

TEST_F(EndTest, ChildsDestructorDoesNotHangWhileTheParentCompiles) {
  compiler_->hold = true;
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_);
  ASSERT_TRUE(service_->try_get(spec).ok());
  compiler_->await_start();
  std::thread waiter([&] { (void)service_->compile(spec, in(seconds(30))); });
  while (service_->statistics().waits < 1) std::this_thread::yield();
  in_child([&] {
    const auto begin = std::chrono::steady_clock::now();
    service_.reset();
    return std::chrono::steady_clock::now() - begin < seconds(2) &&
           cuda_.count("cuLibraryUnload") == 0;
  });
  compiler_->release();
  waiter.join();
}

TEST_F(EndTest, ManyThreadsDoEverythingAtOnce) {
  ServiceOptions busy = options();
  busy.use_disk_cache = true;
  busy.cache_layers = {folder_.path()};
  compiler_->delay = milliseconds(2);
  for (int round = 0; round < 3; ++round) {
    remake(busy);
    cuda_.primary(0);
    std::vector<std::thread> threads;
    std::atomic<int> wrong{0};
    const std::string entry = prepare(*service_).plan().main().entry;
    for (unsigned t = 0; t < 8; ++t) {
      threads.emplace_back([&, t] {
        std::minstd_rand random(t + 1);
        cuda_.primary(0);
        for (int i = 0; i < 60; ++i) {
          AttentionSpec spec = window_spec(1 + static_cast<int>(random() % 4));
          spec.return_lse = random() % 2 == 0;
          const auto prepared = service_->prepare(spec);
          if (!prepared) {
            ++wrong;
            continue;
          }
          switch (random() % 4) {
            case 0:
              wrong += service_->get(*prepared, in(seconds(30))).ok() ? 0 : 1;
              break;
            case 1:
              wrong += service_->try_get(*prepared).ok() ? 0 : 1;
              break;
            case 2:
              wrong += service_->compile(*prepared, in(seconds(30))).ok() ? 0 : 1;
              break;
            default: {
              const Kernel* kernel = service_->find(*prepared);
              if (kernel != nullptr && kernel->plan().spec->mask.window != spec.mask.window)
                ++wrong;
              (void)service_->statistics();
            }
          }
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    EXPECT_LT(time_to_end(service_), seconds(2));
  }
  EXPECT_EQ(compiler_->compiles, 2) << "two keys, whatever the windows";
}

}  // namespace
}  // namespace attnjit
