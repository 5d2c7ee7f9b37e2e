// SPDX-License-Identifier: Apache-2.0
// Services over one remote tier: outcomes, statistics, the end, and an image that no driver takes.
#include "../cache/http_server.h"
#include "cache/remote_tier.h"
#include "cache/store_lease.h"
#include "service_fixture.h"

namespace attnjit {
namespace {

class RemoteServiceTest : public ServiceFixture {
 protected:
  ServiceOptions over_the_store() {
    ServiceOptions made = options();
    made.remote.url = store_.url();
    made.remote.lookup_budget = seconds(5);
    return made;
  }
  bool flush() { return service_->flush(in(seconds(20))); }

  cache::HttpServer store_;
};

TEST_F(RemoteServiceTest, TheSecondServiceFindsWhatTheFirstCompiled) {
  remake(over_the_store());
  auto image = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_TRUE(image.ok()) << image.error().to_string();
  EXPECT_EQ(image->outcome, Outcome::kCompiled);
  ASSERT_TRUE(flush());
  EXPECT_EQ(service_->statistics().remote.puts, 1U);

  remake(over_the_store());
  image = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_TRUE(image.ok());
  EXPECT_EQ(image->outcome, Outcome::kRemote);
  EXPECT_EQ(image->compile_ms, 0);
  EXPECT_EQ(to_string(image->outcome), "remote");
  EXPECT_EQ(service_->statistics().remote_hits, 1U);
  EXPECT_EQ(compiler_->compiles, 1);

  // Without NVRTC, and where compiles are forbidden.
  compiler_->no_compiler = true;
  ServiceOptions forbidden = over_the_store();
  forbidden.forbid_compile = true;
  remake(forbidden);
  image = service_->compile(prepare(*service_), in(seconds(10)));
  ASSERT_TRUE(image.ok()) << image.error().to_string();
  EXPECT_EQ(image->outcome, Outcome::kRemote);
}

// A host that stopped in the middle of its compile, and whose lease is not over yet.
TEST_F(RemoteServiceTest, AStuckLeaseLeavesTimeForACompile) {
  ServiceOptions leased = over_the_store();
  leased.lease.url = "remote";
  remake(leased);
  const PreparedSpec prepared = prepare(*service_);
  const auto id = cache::entry_id(prepared.key(), compiler_->build);
  const auto keeper = *cache::open_store_leases(leased.remote, milliseconds(1000));
  ASSERT_EQ(*keeper->take(cache::remote_path(*id).substr(std::string("ac/").size()), "stopped",
                          seconds(60)),
            cache::LeaseKeeper::Answer::kHeld);
  const auto image = service_->compile(prepared, in(seconds(6)));
  ASSERT_TRUE(image.ok()) << image.error().to_string();
  EXPECT_EQ(image->outcome, Outcome::kCompiled);
  EXPECT_EQ(service_->statistics().lease_waits, 1U);
  EXPECT_EQ(service_->statistics().alone, 1U);
}

TEST_F(RemoteServiceTest, AMissAsksTheStoreOnce) {
  remake(over_the_store());
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  EXPECT_EQ(store_.count("GET"), 1U);
}

TEST_F(RemoteServiceTest, UseRemoteAndTheUrlAreHeeded) {
  ServiceOptions without = over_the_store();
  without.use_remote = false;
  remake(without);
  ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
  EXPECT_TRUE(flush());
  EXPECT_TRUE(store_.seen().empty());
  ServiceOptions bad = options();
  bad.remote.url = "gopher://x";
  const auto made = Service::create(bad);
  ASSERT_FALSE(made.ok());
  EXPECT_EQ(made.error().code, ErrorCode::kInvalid);
  EXPECT_EQ(made.error().field, "remote");
}

TEST_F(RemoteServiceTest, TheEndWaitsForAStalledStoreOnlyWhereItIsAsked) {
  store_.behave({.stall = true});
  ServiceOptions hurried = over_the_store();
  hurried.remote.lookup_budget = milliseconds(20);
  for (const milliseconds patience : {milliseconds(0), milliseconds(300)}) {
    hurried.flush_at_end = patience;
    remake(hurried);
    ASSERT_TRUE(service_->compile(prepare(*service_), in(seconds(10))).ok());
    const auto begin = std::chrono::steady_clock::now();
    service_.reset();
    const auto took = std::chrono::steady_clock::now() - begin;
    EXPECT_GE(took, patience);
    EXPECT_LT(took, seconds(2));
  }
}

}  // namespace
}  // namespace attnjit
