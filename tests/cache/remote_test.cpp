// SPDX-License-Identifier: Apache-2.0
// The remote tier against a server that is sound, slow, stalled, cut off, lying, full or dead.
#include <gtest/gtest.h>

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>

#include "../temporary_folder.h"
#include "cache/breaker.h"
#include "cache/entry_format.h"
#include "cache/remote_store.h"
#include "cache/remote_tier.h"
#include "cache_test_util.h"
#include "http_server.h"

extern char** environ;

namespace attnjit::cache {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using Manner = HttpServer::Manner;

class RemoteTest : public ::testing::Test {
 protected:
  /// The cache of a machine: a folder of its own over the one server.
  std::unique_ptr<CubinCache> machine(const std::string& name,
                                      milliseconds budget = milliseconds(2000)) {
    CacheOptions options;
    options.layers = {base + "/" + name};
    options.remote.url = server->url() + "/cache";
    options.remote.lookup_budget = budget;
    options.log = log.sink();
    return attnjit::open_cache(options);
  }

  struct Got {
    bool right = false;
    ImageOrigin origin = ImageOrigin::kCompiled;
    milliseconds took{};
  };
  static Got get(CubinCache& cache, int number) {
    Got got;
    const auto begin = Clock::now();
    const auto image = cache.get_or_compile(
        make_key(number), kBuild, BuildPolicy::kExact, in_a_minute(),
        [&]() -> Result<KernelImage> { return make_image(number); }, &got.origin);
    got.took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    got.right = image.ok() && same_image(*image, make_image(number));
    return got;
  }
  static bool flush(CubinCache& cache) { return cache.flush(Clock::now() + milliseconds(20000)); }
  static std::string path_of(int number) {
    return "/cache/" + remote_path(*entry_id(make_key(number), kBuild));
  }
  static std::string newest_path_of(int number) {
    return "/cache/" + remote_path_of_newest(entry_id(make_key(number), kBuild)->key);
  }
  /// The server has the entry of `number`.
  void publish(int number) {
    const auto cache = machine("publisher");
    ASSERT_TRUE(cache->store(make_key(number), kBuild, make_image(number)).ok());
    ASSERT_TRUE(flush(*cache));
  }

  const test::TemporaryFolder temporary;
  const std::string& base = temporary.path();
  LogLines log;
  std::unique_ptr<HttpServer> server = std::make_unique<HttpServer>();
};

TEST_F(RemoteTest, OneMachineCompilesAndTheOthersFetch) {
  const auto first = machine("a");
  Got got = get(*first, 1);
  EXPECT_TRUE(got.right);
  EXPECT_EQ(got.origin, ImageOrigin::kCompiled);
  ASSERT_TRUE(flush(*first));
  EXPECT_EQ(first->statistics().remote.puts, 1U);

  const auto second = machine("b");
  got = get(*second, 1);
  EXPECT_TRUE(got.right);
  EXPECT_EQ(got.origin, ImageOrigin::kRemote);
  EXPECT_EQ(second->statistics().remote.hits, 1U);
  EXPECT_EQ(second->statistics().compiles, 0U);
  // It was kept: the server is not asked again.
  ASSERT_TRUE(flush(*second));
  const std::size_t gets = server->count("GET");
  EXPECT_EQ(get(*machine("b"), 1).origin, ImageOrigin::kDisk);
  EXPECT_EQ(server->count("GET"), gets);
  EXPECT_TRUE(second->verify().bad.empty());
}

// The layout is a contract with whoever fills or reads such a store.
TEST_F(RemoteTest, ObjectsHaveTheNamesAndBytesOfTheLayout) {
  publish(1);
  const RequestKey key = make_key(1);
  const std::string build = to_hex(sha256(std::string_view(kBuild))).substr(0, 32);
  const std::string path = "/cache/ac/" + to_hex(sha256(key.hex + "." + build));
  const std::string newest = "/cache/ac/" + to_hex(sha256(key.hex + ".any"));
  const auto objects = server->objects();
  ASSERT_EQ(objects.size(), 2U);
  ASSERT_TRUE(objects.contains(path) && objects.contains(newest));
  EXPECT_EQ(objects.at(path), objects.at(newest));
  EXPECT_TRUE(decode_entry(objects.at(path)).ok());
  for (const HttpServer::Seen& request : server->seen()) {
    if (request.method != "PUT") continue;
    EXPECT_NE(request.headers.find("Content-Length: "), std::string::npos);
    EXPECT_EQ(request.headers.find("chunked"), std::string::npos);
    EXPECT_EQ(request.bytes, objects.at(path).size());
  }
}

TEST_F(RemoteTest, AHostWithoutNvrtcTakesTheNewestImage) {
  publish(1);
  const auto cache = machine("b");
  ImageOrigin origin{};
  const auto image = cache->find(make_key(1), {}, BuildPolicy::kExact, PtxNeed::kSkip, &origin);
  ASSERT_TRUE(image.has_value());
  EXPECT_EQ(origin, ImageOrigin::kRemote);
  EXPECT_EQ(image->cubin, make_image(1).cubin);
  EXPECT_TRUE(image->ptx.empty());
  // And one with another NVRTC does where its policy allows it.
  const auto other = machine("c");
  EXPECT_FALSE(other->find(make_key(1), "NVRTC 99", BuildPolicy::kExact).has_value());
  EXPECT_TRUE(other->find(make_key(1), "NVRTC 98", BuildPolicy::kAny).has_value());
}

TEST_F(RemoteTest, AMissIsNotAskedForAgainAtOnce) {
  const auto cache = machine("a");
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact).has_value());
  EXPECT_TRUE(get(*cache, 1).right);  // as a Service does after a miss
  EXPECT_EQ(server->count("GET"), 1U);
}

TEST_F(RemoteTest, ALookUpMayTakeTheLongestTime) {
  publish(1);
  CacheOptions options;
  options.remote.url = server->url() + "/cache";
  options.remote.lookup_budget = milliseconds::max();  // more than a clock counts
  options.remote.transfer_timeout = milliseconds::max();
  EXPECT_EQ(get(*attnjit::open_cache(options), 1).origin, ImageOrigin::kRemote);
}

TEST_F(RemoteTest, WhatIsThereIsNotSentAgain) {
  publish(1);
  const std::size_t puts = server->count("PUT");
  CacheOptions options;
  options.remote.url = server->url() + "/cache";
  options.remote.lookup_budget = milliseconds(0);  // the look-up comes too late
  const auto cache = attnjit::open_cache(options);
  EXPECT_EQ(get(*cache, 1).origin, ImageOrigin::kCompiled);
  ASSERT_TRUE(flush(*cache));
  EXPECT_EQ(cache->statistics().remote.put_present, 1U);
  EXPECT_EQ(server->count("PUT"), puts);
}

TEST_F(RemoteTest, ItServesWithoutAFolder) {
  publish(1);
  CacheOptions options;
  options.remote.url = server->url() + "/cache";
  options.remote.lookup_budget = milliseconds(2000);
  const auto cache = attnjit::open_cache(options);
  EXPECT_EQ(get(*cache, 1).origin, ImageOrigin::kRemote);
  EXPECT_EQ(get(*cache, 2).origin, ImageOrigin::kCompiled);
  ASSERT_TRUE(flush(*cache));
  EXPECT_TRUE(server->objects().contains(path_of(2)));
}

TEST_F(RemoteTest, ALieIsNeverServedAndIsReplaced) {
  publish(1);
  publish(2);
  const std::string other = server->objects().at(path_of(2));
  const std::vector<std::pair<const char*, std::function<void(std::string&)>>> lies = {
      {"another entry", [&](std::string& body) { body = other; }},
      {"nothing", [](std::string& body) { body.clear(); }},
      {"a page", [](std::string& body) { body = "<html>please log in</html>"; }},
      {"cut", [](std::string& body) { body.resize(body.size() - 1); }},
      {"longer", [](std::string& body) { body += '\0'; }},
      {"a bit of the header", [](std::string& body) { body[40] ^= 1; }},
      {"a bit of the cubin", [](std::string& body) { body[body.size() - 400] ^= 1; }},
      {"a bit of the PTX", [](std::string& body) { body.back() ^= 1; }},
  };
  std::uint64_t number = 0;
  for (const auto& [what, lie] : lies) {
    server->behave({.lie = [&lie](const std::string&, std::string& body) { lie(body); }});
    const auto cache = machine("liar" + std::to_string(number++));
    const Got got = get(*cache, 1);
    EXPECT_TRUE(got.right) << what;
    EXPECT_EQ(got.origin, ImageOrigin::kCompiled) << what;
    EXPECT_EQ(cache->statistics().remote.rejected, 1U) << what;
    // Its own image goes there, although something is there.
    ASSERT_TRUE(flush(*cache));
    EXPECT_EQ(cache->statistics().remote.puts, 1U) << what;
    EXPECT_TRUE(cache->verify().bad.empty()) << what;
  }
  EXPECT_EQ(log.count(LogLevel::kWarning, "is not used"), lies.size())
      << "said once for each cache";
}

TEST_F(RemoteTest, ATransferThatIsCutServesNothing) {
  publish(1);
  server->behave({.cut = true});
  const auto cache = machine("b");
  const Got got = get(*cache, 1);
  EXPECT_TRUE(got.right);
  EXPECT_EQ(got.origin, ImageOrigin::kCompiled);
  EXPECT_EQ(cache->statistics().remote.errors, 1U);
}

TEST_F(RemoteTest, ASlowServerCostsItsBudgetAndItsAnswerIsKept) {
  publish(1);
  server->behave({.delay = milliseconds(1000)});
  const auto cache = machine("b", milliseconds(50));
  const auto begin = Clock::now();
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact).has_value());
  const auto took = Clock::now() - begin;
  EXPECT_GE(took, milliseconds(50));
  EXPECT_LT(took, milliseconds(900)) << "it waited for the answer";
  EXPECT_EQ(cache->statistics().remote.overdue, 1U);
  ASSERT_TRUE(flush(*cache));
  EXPECT_EQ(get(*cache, 1).origin, ImageOrigin::kDisk);
}

TEST_F(RemoteTest, AStalledServerCostsThreeBudgetsAndThenNothing) {
  server->behave({.stall = true});
  auto cache = machine("a", milliseconds(30));
  for (int number = 1; number <= Breaker::kThreshold; ++number) {
    EXPECT_FALSE(cache->find(make_key(number), kBuild, BuildPolicy::kExact).has_value());
  }
  EXPECT_EQ(cache->statistics().remote.breaker_opened, 1U);
  const auto begin = Clock::now();
  for (int number = 100; number < 200; ++number) {
    EXPECT_FALSE(cache->find(make_key(number), kBuild, BuildPolicy::kExact).has_value());
  }
  EXPECT_LT(Clock::now() - begin, milliseconds(1500)) << "100 look-ups that wait take 3 s";
  EXPECT_EQ(cache->statistics().remote.skipped, 100U);
  EXPECT_EQ(log.count(LogLevel::kWarning), 1U);
  // Whoever ends such a cache does not wait for the server.
  const auto end = Clock::now();
  cache.reset();
  EXPECT_LT(Clock::now() - end, milliseconds(1000));
}

TEST_F(RemoteTest, AfterThePauseAProbeClosesTheBreaker) {
  publish(1);
  server->behave({.hang_up = true});
  const auto cache = machine("b");
  for (int number = 10; number < 10 + Breaker::kThreshold; ++number) {
    EXPECT_FALSE(cache->find(make_key(number), kBuild, BuildPolicy::kExact).has_value());
  }
  server->behave({});
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact).has_value()) << "too early";
  std::this_thread::sleep_for(Breaker::kFirstPause * 3 / 2);
  // The probe's own requester does not wait for it; the next one is served.
  EXPECT_FALSE(cache->find(make_key(1), kBuild, BuildPolicy::kExact).has_value());
  ASSERT_TRUE(flush(*cache));
  EXPECT_EQ(get(*cache, 1).origin, ImageOrigin::kDisk);
  publish(2);
  EXPECT_EQ(get(*cache, 2).origin, ImageOrigin::kRemote);
}

TEST_F(RemoteTest, ADeadServerIsNoError) {
  const std::string url = server->url();
  server.reset();
  CacheOptions options;
  options.layers = {base + "/a"};
  options.remote.url = url;
  options.log = log.sink();
  const auto cache = attnjit::open_cache(options);
  for (int number = 1; number <= 20; ++number) {
    const Got got = get(*cache, number);
    EXPECT_TRUE(got.right);
    EXPECT_EQ(got.origin, ImageOrigin::kCompiled);
  }
  ASSERT_TRUE(flush(*cache));
  EXPECT_EQ(cache->statistics().remote.put_failures, 20U);
  EXPECT_EQ(cache->statistics().remote.puts, 0U);
  EXPECT_EQ(log.count(LogLevel::kWarning), 1U);
}

TEST_F(RemoteTest, AFullServerIsAskedOncePerEntry) {
  server->behave({.put_status = 507});
  const auto full = machine("a");
  EXPECT_TRUE(get(*full, 1).right);
  ASSERT_TRUE(flush(*full));
  EXPECT_EQ(full->statistics().remote.put_failures, 1U);
  EXPECT_EQ(server->count("PUT"), 3U) << "a 5xx may pass: three attempts";

  server->behave({.put_status = 413});
  const auto refused = machine("b");
  EXPECT_TRUE(get(*refused, 2).right);
  ASSERT_TRUE(flush(*refused));
  EXPECT_EQ(refused->statistics().remote.put_failures, 1U);
  EXPECT_EQ(server->count("PUT"), 4U) << "what it refuses, it refuses again";
}

TEST_F(RemoteTest, TheQueueIsBounded) {
  server->behave({.stall = true});
  CacheOptions options;
  options.remote.url = server->url();
  options.remote.lookup_budget = milliseconds(0);
  options.remote.max_queue_bytes = 20000;
  const auto cache = attnjit::open_cache(options);
  for (int number = 0; number < 100; ++number) {
    ASSERT_TRUE(cache->store(make_key(number), kBuild, make_image(number)).ok());
  }
  EXPECT_GT(cache->statistics().remote.put_dropped, 80U);
  const auto begin = Clock::now();
  EXPECT_FALSE(cache->flush(Clock::now() + milliseconds(50)));
  EXPECT_LT(Clock::now() - begin, milliseconds(1000));
}

TEST_F(RemoteTest, ReadOnlySendsNothing) {
  CacheOptions options;
  options.remote.url = server->url();
  options.remote.read_only = true;
  const auto cache = attnjit::open_cache(options);
  EXPECT_TRUE(get(*cache, 1).right);
  ASSERT_TRUE(flush(*cache));
  EXPECT_EQ(server->count("PUT") + server->count("HEAD"), 0U);
}

TEST_F(RemoteTest, AnAnswerOfAnySizeIsBounded) {
  publish(1);
  server->behave({.lie = [](const std::string&, std::string& body) { body.resize(4 << 20); }});
  CacheOptions options;
  options.remote.url = server->url() + "/cache";
  options.remote.lookup_budget = milliseconds(2000);
  options.remote.max_entry_bytes = 1 << 20;
  const auto cache = attnjit::open_cache(options);
  EXPECT_TRUE(get(*cache, 1).right);
  const RemoteStatistics counted = cache->statistics().remote;
  EXPECT_EQ(counted.errors, 1U);
  EXPECT_EQ(counted.bytes_received, 0U);
}

TEST_F(RemoteTest, TwoCachesShareNoBreaker) {
  server->behave({.hang_up = true});
  const auto first = machine("a");
  for (int number = 0; number < Breaker::kThreshold; ++number) {
    EXPECT_FALSE(first->find(make_key(number), kBuild, BuildPolicy::kExact).has_value());
  }
  server->behave({});
  const auto second = machine("b");
  EXPECT_TRUE(get(*second, 1).right);
  EXPECT_EQ(second->statistics().remote.misses, 1U);
  EXPECT_EQ(second->statistics().remote.skipped, 0U);
}

std::atomic<int> signals_handled{0};

// The host's handlers run in the host's threads.
TEST_F(RemoteTest, ItsThreadsTakeNoSignals) {
  struct sigaction handler {
  }, before{};
  handler.sa_handler = [](int) { ++signals_handled; };
  ASSERT_EQ(::sigaction(SIGUSR1, &handler, &before), 0);
  sigset_t one;
  sigemptyset(&one);
  sigaddset(&one, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &one, nullptr);
  server = std::make_unique<HttpServer>();  // its threads take none either
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  const auto cache = machine("a");
  EXPECT_TRUE(get(*cache, 1).right);
  ASSERT_TRUE(flush(*cache));
  ::pthread_sigmask(SIG_BLOCK, &one, nullptr);
  ::kill(::getpid(), SIGUSR1);
  std::this_thread::sleep_for(milliseconds(50));
  EXPECT_EQ(signals_handled, 0);
  ::pthread_sigmask(SIG_UNBLOCK, &one, nullptr);
  EXPECT_EQ(signals_handled, 1);
  ::sigaction(SIGUSR1, &before, nullptr);
}

TEST_F(RemoteTest, RequestsToS3AreSigned) {
  CacheOptions options;
  options.remote.url = "s3+" + server->url() + "/bucket/kernels";
  options.remote.access_key = "key";
  options.remote.secret_key = "secret";
  options.remote.session_token = "token";
  const auto cache = attnjit::open_cache(options);
  EXPECT_TRUE(get(*cache, 1).right);
  ASSERT_TRUE(flush(*cache));
  ASSERT_EQ(server->count("PUT"), 2U);
  for (const HttpServer::Seen& request : server->seen()) {
    EXPECT_TRUE(request.path.starts_with("/bucket/kernels/ac/"));
    EXPECT_NE(request.headers.find("Authorization: AWS4-HMAC-SHA256 Credential=key/"),
              std::string::npos);
    EXPECT_NE(request.headers.find("x-amz-security-token: token\r\n"), std::string::npos);
    EXPECT_EQ(request.headers.find("secret"), std::string::npos);
  }
}

/// nginx with WebDAV, as docs/fleet.md sets it up, on a port of its own.
class NginxTest : public RemoteTest {
 protected:
  NginxTest() {
    if (std::system("command -v nginx >/dev/null") != 0) return;
    port = std::to_string(HttpServer().port());
    const std::string root = base + "/nginx";
    std::filesystem::create_directories(root);
    std::ofstream(root + "/nginx.conf")
        << (::getuid() == 0 ? "user root;\n" : "") << "daemon off; pid " << root << "/pid;\n"
        << "error_log stderr crit;\nevents {}\nhttp {\n  access_log off;\n"
        << "  client_body_temp_path " << root << "/body; proxy_temp_path " << root << "/p;\n"
        << "  fastcgi_temp_path " << root << "/f; uwsgi_temp_path " << root << "/u;\n"
        << "  scgi_temp_path " << root << "/s;\n"
        << "  server {\n    listen 127.0.0.1:" << port << "; root " << root << "/data;\n"
        << "    client_max_body_size 64m;\n"
        << "    location / { dav_methods PUT; create_full_put_path on; }\n  }\n}\n";
    std::string conf = root + "/nginx.conf";
    std::vector<std::string> words = {"nginx", "-c", conf, "-p", root, "-e", "stderr"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::posix_spawnp(&pid, "nginx", nullptr, nullptr, argv.data(), environ) != 0) pid = -1;
  }
  ~NginxTest() override {
    if (pid <= 0) return;
    ::kill(pid, SIGTERM);
    ::waitpid(pid, nullptr, 0);
  }
  RemoteOptions remote() const {
    RemoteOptions options;
    options.url = "http://127.0.0.1:" + port + "/attnjit";
    options.lookup_budget = milliseconds(5000);
    return options;
  }

  std::string port;
  pid_t pid = -1;
};

TEST_F(NginxTest, KeepsAndServesEntries) {
  if (pid <= 0) GTEST_SKIP() << "there is no nginx";
  const auto limit = Clock::now() + milliseconds(10000);
  while (!check_remote(remote()).reachable && Clock::now() < limit) {
    std::this_thread::sleep_for(milliseconds(20));
  }
  ASSERT_TRUE(check_remote(remote()).reachable) << check_remote(remote()).problem.message;
  CacheOptions options;
  options.remote = remote();
  options.log = log.sink();
  const auto first = attnjit::open_cache(options);
  EXPECT_EQ(get(*first, 1).origin, ImageOrigin::kCompiled);
  ASSERT_TRUE(flush(*first));
  EXPECT_EQ(first->statistics().remote.puts, 1U);
  const auto second = attnjit::open_cache(options);
  EXPECT_EQ(get(*second, 1).origin, ImageOrigin::kRemote);
  EXPECT_TRUE(second->find(make_key(1), {}, BuildPolicy::kExact).has_value());
  EXPECT_FALSE(second->find(make_key(2), kBuild, BuildPolicy::kExact).has_value());
  EXPECT_EQ(log.count(LogLevel::kWarning), 0U);
}

/// The times of `count` look-ups that go to the server, sorted, in milliseconds.
std::vector<double> times_of_lookups(CubinCache& cache, int count, bool found) {
  std::vector<double> times;
  for (int i = 0; i < count; ++i) {
    const auto begin = Clock::now();
    EXPECT_EQ(cache.find(make_key(found ? 1 : i), kBuild, BuildPolicy::kExact).has_value(), found);
    times.push_back(std::chrono::duration<double, std::milli>(Clock::now() - begin).count());
  }
  std::sort(times.begin(), times.end());
  return times;
}

// What a request is promised. ATTNJIT_TIMES makes it measure; a machine that others use is no place
// for a clock.
TEST_F(NginxTest, LookUpsAreQuick) {
  if (std::getenv("ATTNJIT_TIMES") == nullptr) GTEST_SKIP() << "ATTNJIT_TIMES is not set";
  if (pid <= 0) GTEST_SKIP() << "there is no nginx";
  std::this_thread::sleep_for(milliseconds(1000));
  const auto print = [](const char* what, const std::vector<double>& times) {
    std::printf("%s: p50 %.3f ms, p99 %.3f ms, longest %.3f ms\n", what, times[times.size() / 2],
                times[times.size() * 99 / 100], times.back());
  };
  CacheOptions options;
  options.remote = remote();
  // NOTE: not the default: what comes too late is to be seen, and not to be a miss.
  options.remote.lookup_budget = milliseconds(1000);
  auto cache = attnjit::open_cache(options);
  ASSERT_TRUE(cache->store(make_key(1), kBuild, make_image(1, 40000, 120000)).ok());
  ASSERT_TRUE(flush(*cache));
  const auto warm = times_of_lookups(*cache, 5000, true);
  print("a hit of 160 KB", warm);
  EXPECT_LE(warm[warm.size() / 2], 1.5);
  EXPECT_LE(warm[warm.size() * 99 / 100], 10);

  ::kill(pid, SIGTERM);
  ::waitpid(pid, nullptr, 0);
  pid = -1;
  cache = attnjit::open_cache(options);
  times_of_lookups(*cache, Breaker::kThreshold, false);
  const auto dead = times_of_lookups(*cache, 5000, false);
  print("a dead server, after the breaker has opened", dead);
  EXPECT_LE(dead[dead.size() * 99 / 100], 1);
}

TEST(RemoteStoreTest, UrlsAreChecked) {
  const auto problem = [](const std::string& url) {
    RemoteOptions options;
    options.url = url;
    const auto made = RemoteStore::make(options);
    return made ? std::string() : made.error().field + ": " + made.error().message;
  };
  EXPECT_EQ(problem("http://cache"), "");
  EXPECT_EQ(problem("https://user:word@cache:8443/a/b//"), "");
  for (const char* bad : {"", "cache", "ftp://cache", "http://", "http:///path", "http://c/a b",
                          "http://c/a?b", "http://c/a#b", "http://c/\n", "file:///etc/passwd",
                          "s3+http://host", "s3+http://u:p@host/bucket", "s3+http://host/bucket"}) {
    EXPECT_TRUE(problem(bad).starts_with("remote: ")) << bad;
  }
  EXPECT_EQ(problem("user:word@cache/a").find("word"), std::string::npos) << "nor when it is wrong";
  RemoteOptions options;
  options.url = "https://user:word@cache:8443/a/";
  EXPECT_EQ(RemoteStore::make(options)->shown(), "https://cache:8443/a");
  options.url = "http://cache";
  options.transfer_timeout = milliseconds(0);
  EXPECT_EQ(RemoteStore::make(options).error().to_string(),
            "remote.transfer_timeout: is 0; allowed: 1 or more");
}

TEST(RemoteStoreTest, WhatIsOutOfRangeIsNamed) {
  const auto field = [](auto&& change) {
    RemoteOptions options;
    options.url = "http://cache";
    change(options);
    const auto made = RemoteStore::make(options);
    return made ? std::string() : made.error().field;
  };
  EXPECT_EQ(field([](auto& o) { o.lookup_budget = milliseconds(-1); }), "remote.lookup_budget");
  EXPECT_EQ(field([](auto& o) { o.transfer_timeout = milliseconds(-1); }),
            "remote.transfer_timeout");
  EXPECT_EQ(field([](auto& o) { o.max_entry_bytes = 0; }), "remote.max_entry_bytes");
  EXPECT_EQ(field([](auto& o) { o.max_queue_bytes = -1; }), "remote.max_queue_bytes");
}

TEST(BreakerTest, OpensAfterFailuresInARowAndLetsOneProbeThrough) {
  Breaker breaker;
  auto now = Breaker::Clock::now();
  EXPECT_FALSE(breaker.failed(now));
  EXPECT_FALSE(breaker.failed(now));
  breaker.succeeded();
  EXPECT_FALSE(breaker.failed(now)) << "a success in between begins the count again";
  EXPECT_FALSE(breaker.failed(now));
  EXPECT_TRUE(breaker.failed(now));
  EXPECT_FALSE(breaker.failed(now)) << "it is open already";
  EXPECT_EQ(breaker.enter(now), Breaker::Way::kOpen);
  now += Breaker::kFirstPause * 5 / 4;
  EXPECT_EQ(breaker.enter(now), Breaker::Way::kProbe);
  EXPECT_EQ(breaker.enter(now), Breaker::Way::kOpen) << "one at a time";
  EXPECT_TRUE(breaker.failed(now));
  EXPECT_EQ(breaker.enter(now + Breaker::kFirstPause * 5 / 4), Breaker::Way::kOpen)
      << "each pause is twice as long";
  now += 2 * Breaker::kFirstPause * 5 / 4;
  EXPECT_EQ(breaker.enter(now), Breaker::Way::kProbe);
  breaker.not_tried();
  EXPECT_EQ(breaker.enter(now), Breaker::Way::kProbe);
  breaker.succeeded();
  EXPECT_EQ(breaker.enter(now), Breaker::Way::kClosed);
}

}  // namespace
}  // namespace attnjit::cache
