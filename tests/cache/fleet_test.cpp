// SPDX-License-Identifier: Apache-2.0
// Leases, and fleets: many processes with a folder per host, one store, one keeper of leases.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <fstream>

#include "cache/breaker.h"
#include "cache/lease.h"
#include "cache/remote_tier.h"
#include "cache/store_lease.h"
#include "host_namespaces.h"
#include "http_server.h"
#include "net/redis.h"
#include "process_fixture.h"
#include "tcp_proxy.h"

namespace attnjit::cache {
namespace {

using Answer = LeaseKeeper::Answer;

/// A port that nobody listens on, as far as one can tell.
std::uint16_t free_port() {
  const int probe = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = ::inet_addr(server_address().c_str());
  socklen_t size = sizeof address;
  if (::bind(probe, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::getsockname(probe, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::abort();
  }
  ::close(probe);
  return ntohs(address.sin_port);
}

/// A real redis-server on a port of its own.
class RedisServer {
 public:
  static bool installed() { return std::system("command -v redis-server >/dev/null") == 0; }

  RedisServer() {
    const std::string port = std::to_string(port_);
    std::vector<std::string> words = {"redis-server",
                                      "--port",
                                      port,
                                      "--bind",
                                      server_address(),
                                      "--save",
                                      "",
                                      "--appendonly",
                                      "no",
                                      "--loglevel",
                                      "warning",
                                      "--logfile",
                                      "/dev/null",
                                      "--requirepass",
                                      "word"};
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    if (::posix_spawnp(&pid_, "redis-server", nullptr, nullptr, argv.data(), environ) != 0) {
      std::abort();
    }
    const auto limit = Clock::now() + milliseconds(10000);
    while (Clock::now() < limit) {
      LeaseOptions options;
      options.url = url();
      const auto leases = Leases::open(options, {}, {});
      if (leases != nullptr && leases->try_take("ready").answer != Answer::kUnavailable) break;
      std::this_thread::sleep_for(milliseconds(20));
    }
  }
  ~RedisServer() { stop(); }
  RedisServer(const RedisServer&) = delete;
  RedisServer& operator=(const RedisServer&) = delete;

  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  std::uint16_t port() const { return port_; }
  std::string url() const { return url_at(port_); }
  /// Of this server behind a proxy, and with another password than its own.
  static std::string url_at(std::uint16_t port, const std::string& password = "word") {
    return "redis://" + password + "@" + server_address() + ":" + std::to_string(port) + "/1";
  }

 private:
  const std::uint16_t port_ = free_port();
  pid_t pid_ = -1;
};

// --- Leases -------------------------------------------------------------------------------------

/// What every keeper of leases must do; `open` gives a client, a machine of its own.
template <class Open>
void expect_leases(const Open& open) {
  const auto one = open(), two = open();
  auto first = one->try_take("a");
  ASSERT_EQ(first.answer, Answer::kHeld);
  EXPECT_EQ(two->try_take("a").answer, Answer::kBusy);
  EXPECT_EQ(one->try_take("a").answer, Answer::kBusy) << "not even for its holder";
  EXPECT_EQ(two->try_take("b").answer, Answer::kHeld) << "names are independent";
  // Renewed for as long as it is held: twice its own time.
  std::this_thread::sleep_for(milliseconds(2000));
  EXPECT_EQ(two->try_take("a").answer, Answer::kBusy);
  first.held.reset();
  std::this_thread::sleep_for(milliseconds(300));
  EXPECT_EQ(two->try_take("a").answer, Answer::kHeld);
}

LeaseOptions lease_options(const std::string& url) {
  LeaseOptions options;
  options.url = url;
  options.ttl = milliseconds(1000);
  options.timeout = milliseconds(1000);
  return options;
}

TEST(LeaseTest, RedisKeepsLeases) {
  if (!RedisServer::installed()) GTEST_SKIP() << "there is no redis-server";
  RedisServer redis;
  expect_leases([&] { return Leases::open(lease_options(redis.url()), {}, {}); });
}

TEST(LeaseTest, AStoreWithConditionalPutKeepsLeases) {
  HttpServer server;
  RemoteOptions remote;
  remote.url = server.url();
  expect_leases([&] { return Leases::open(lease_options("remote"), remote, {}); });
}

TEST(LeaseTest, ALeaseThatNobodyRenewsCanBeTaken) {
  HttpServer server;
  RemoteOptions remote;
  remote.url = server.url();
  const auto keeper = *open_store_leases(remote, milliseconds(1000));
  ASSERT_EQ(*keeper->take("a", "dead", milliseconds(1)), Answer::kHeld);
  EXPECT_EQ(*keeper->take("a", "other", milliseconds(1)), Answer::kBusy) << "clocks may differ";
  std::this_thread::sleep_for(milliseconds(2100));
  EXPECT_EQ(*keeper->take("a", "other", milliseconds(60000)), Answer::kHeld);
  EXPECT_FALSE(keeper->renew("a", "dead", milliseconds(60000)));
  keeper->release("a", "dead");
  EXPECT_EQ(*keeper->take("a", "third", milliseconds(1)), Answer::kBusy)
      << "it was not his to give";
  EXPECT_TRUE(keeper->renew("a", "other", milliseconds(60000)));
}

TEST(LeaseTest, AKeeperThatDoesNotAnswerCostsLittle) {
  HttpServer server;
  server.behave({.stall = true});
  RemoteOptions remote;
  remote.url = server.url();
  LeaseOptions options = lease_options("remote");
  options.timeout = milliseconds(50);
  const auto leases = Leases::open(options, remote, {});
  const auto begin = Clock::now();
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(leases->try_take("a").answer, Answer::kUnavailable);
  }
  EXPECT_LT(Clock::now() - begin, milliseconds(1000)) << "three timeouts, then the breaker";
}

// Each answer comes, and too late for whoever waited.
TEST(LeaseTest, AKeeperThatIsSlowCostsLittleAndIsNamedOnce) {
  HttpServer server;
  server.behave({.delay = milliseconds(100)});
  RemoteOptions remote;
  remote.url = server.url();
  LeaseOptions options = lease_options("remote");
  options.timeout = milliseconds(20);
  LogLines log;
  const auto leases = std::make_unique<Leases>(*open_store_leases(remote, milliseconds(5000)),
                                               options, Logger(log.sink()));
  const auto ask = [&] { EXPECT_EQ(leases->try_take("a").answer, Answer::kUnavailable); };
  for (int i = 0; i < Breaker::kThreshold; ++i) ask();
  std::this_thread::sleep_for(milliseconds(200));  // the first answer has come
  for (int i = 0; i < 10; ++i) ask();              // and the breaker is open all the same
  EXPECT_EQ(log.count(LogLevel::kWarning, "no answer within 20 ms"), 1U);
  EXPECT_EQ(log.count(LogLevel::kInfo, "no answer within 20 ms"), 2U);
}

TEST(LeaseTest, AServerThatRefusesIsNamedWithoutItsPassword) {
  if (!RedisServer::installed()) GTEST_SKIP() << "there is no redis-server";
  RedisServer redis;
  LogLines log;
  const auto leases = Leases::open(lease_options(RedisServer::url_at(redis.port(), "guess")), {},
                                   Logger(log.sink()));
  EXPECT_EQ(leases->try_take("a").answer, Answer::kUnavailable);
  EXPECT_EQ(log.count(LogLevel::kWarning, "refuses AUTH"), 1U);
  EXPECT_EQ(log.count(LogLevel::kWarning, "guess"), 0U);
}

TEST(LeaseTest, ALeaseThatComesTooLateIsGivenBack) {
  HttpServer server;
  server.behave({.delay = milliseconds(100)});
  RemoteOptions remote;
  remote.url = server.url();
  LeaseOptions options = lease_options("remote");
  options.timeout = milliseconds(20);
  {
    // NOTE: its requests have more time than who asks for a lease.
    const auto late =
        std::make_unique<Leases>(*open_store_leases(remote, milliseconds(5000)), options, Logger());
    EXPECT_EQ(late->try_take("a").answer, Answer::kUnavailable);
    std::this_thread::sleep_for(milliseconds(1000));
  }
  server.behave({});
  EXPECT_EQ(*(*open_store_leases(remote, milliseconds(1000)))->take("a", "x", milliseconds(1)),
            Answer::kHeld);
}

TEST(LeaseTest, UrlsAreChecked) {
  for (const char* bad : {"http://x", "redis://", "redis://h:0", "redis://h:x", "redis://h/x",
                          "redis://a b", "redis://p@:1"}) {
    LeaseOptions options;
    options.url = bad;
    EXPECT_EQ(with_environment(options).error().field, "lease") << bad;
  }
  LeaseOptions options;
  options.url = "redis://user:p:w@host:77/3";
  const auto url = net::RedisUrl::parse(options.url);
  ASSERT_TRUE(url.ok());
  EXPECT_EQ(url->user, "user");
  EXPECT_EQ(url->password, "p:w");
  EXPECT_EQ(url->host, "host");
  EXPECT_EQ(url->port, 77);
  EXPECT_EQ(url->database, 3);
  EXPECT_EQ(url->shown, "redis://host:77/3");
}

// --- Fleets -------------------------------------------------------------------------------------

/// One process of a host: asks for every key, in an order of its own, and counts what it compiles.
/// --child fleet FOLDER HOST NUMBER KEYS COMPILE_MS REMOTE LEASE BUDGET_MS LEASE_MS DEADLINE_MS
/// NAMESPACE
int run_process(char** argv) {
  if (*argv[13] != '\0' && !HostNamespaces::enter(argv[13])) return 8;
  const std::string base = argv[3];
  const int number = std::atoi(argv[5]), keys = std::atoi(argv[6]);
  const milliseconds compile(std::atoi(argv[7]));
  CacheOptions options = options_for(base + "/host" + argv[4]);
  options.remote.url = argv[8];
  options.lease.url = argv[9];
  options.remote.lookup_budget = milliseconds(std::atoi(argv[10]));
  options.lease.timeout = milliseconds(std::atoi(argv[11]));
  const milliseconds deadline(std::atoi(argv[12]));
  options.lease.ttl = milliseconds(5000);
  const auto cache = attnjit::open_cache(options);
  char ready = 'r';
  if (::write(1, &ready, 1) != 1) return 9;
  while (::read(0, &ready, 1) > 0) {
  }
  for (int i = 0; i < keys; ++i) {
    const int key = (i + number * 7) % keys;
    const auto begin = Clock::now();
    const bool right = get(
        *cache, key,
        [&] {
          append_byte(base + "/compiles" + std::to_string(key));
          std::this_thread::sleep_for(compile);
        },
        deadline);
    if (!right) return 2;
    if (Clock::now() - begin > deadline) return 4;
  }
  cache->flush(Clock::now() + milliseconds(2000));
  return cache->statistics().quarantined == 0 ? 0 : 3;
}

/// ATTNJIT_NAMESPACES=1: the hosts' networks; else null, and a host is a folder.
const HostNamespaces* g_namespaces = nullptr;

class FleetTest : public ProcessTest {
 protected:
  struct Size {
    int hosts, processes, keys, compile_ms;
    int budget_ms = 2000, lease_ms = 2000;  ///< of a machine on which all of them run
    int deadline_ms = 60000;                ///< of each request
  };
  /// Runs a fleet; `meanwhile` once its processes are at work. Gives the compiles of each key.
  std::vector<int> run(const Size& size, const std::string& remote, const std::string& lease,
                       const std::function<void()>& meanwhile = {}) {
    std::vector<std::unique_ptr<Child>> children;
    for (int host = 0; host < size.hosts; ++host) {
      for (int process = 0; process < size.processes; ++process) {
        children.push_back(std::make_unique<Child>(std::vector<std::string>{
            "fleet", base, std::to_string(host), std::to_string(children.size()),
            std::to_string(size.keys), std::to_string(size.compile_ms), remote, lease,
            std::to_string(size.budget_ms), std::to_string(size.lease_ms),
            std::to_string(size.deadline_ms),
            g_namespaces == nullptr ? std::string() : g_namespaces->path(host)}));
      }
    }
    for (const auto& child : children) child->wait_for_a_byte();
    for (const auto& child : children) child->go();
    if (meanwhile) meanwhile();
    for (const auto& child : children) EXPECT_EQ(child->wait(), 0);
    std::vector<int> compiles;
    for (int key = 0; key < size.keys; ++key) {
      std::error_code none;
      const auto bytes = stdfs::file_size(base + "/compiles" + std::to_string(key), none);
      compiles.push_back(none ? 0 : static_cast<int>(bytes));
    }
    return compiles;
  }
  /// ATTNJIT_FLEET=1: the size of the promise; else a sample.
  static Size size() {
    if (std::getenv("ATTNJIT_FLEET") != nullptr) return {8, 16, 20, 100};
    return {3, 2, 4, 60};
  }
  static std::size_t sum(const std::vector<int>& compiles) {
    std::size_t all = 0;
    for (const int count : compiles) all += static_cast<std::size_t>(count);
    return all;
  }
  static void expect_bounded(const std::vector<int>& compiles, int hosts) {
    for (const int count : compiles) {
      EXPECT_GE(count, 1);
      EXPECT_LE(count, hosts) << "one per host at most: the file lock of a host holds";
    }
  }
};

TEST_F(FleetTest, CompilesEachKeyOnceWithRedis) {
  if (!RedisServer::installed()) GTEST_SKIP() << "there is no redis-server";
  RedisServer redis;
  HttpServer server;
  EXPECT_EQ(run(size(), server.url(), redis.url()),
            std::vector<int>(static_cast<std::size_t>(size().keys), 1));
}

// The lease is held until the entry is there, and not only while it is compiled.
TEST_F(FleetTest, CompilesEachKeyOnceWhereSendingTakesLong) {
  if (!RedisServer::installed()) GTEST_SKIP() << "there is no redis-server";
  RedisServer redis;
  HttpServer server;
  server.behave({.put_delay = milliseconds(700)});
  EXPECT_EQ(run({3, 1, 1, 20}, server.url(), redis.url()), std::vector<int>{1});
}

TEST_F(FleetTest, CompilesEachKeyOnceWithConditionalPut) {
  HttpServer server;
  EXPECT_EQ(run(size(), server.url(), "remote"),
            std::vector<int>(static_cast<std::size_t>(size().keys), 1));
}

TEST_F(FleetTest, CompilesOncePerHostAtMostWithoutLeases) {
  HttpServer server;
  expect_bounded(run(size(), server.url(), ""), size().hosts);
}

TEST_F(FleetTest, ServesEveryRequestThoughTheStoreDies) {
  auto server = std::make_unique<HttpServer>();
  expect_bounded(run(size(), server->url(), "remote",
                     [&] {
                       std::this_thread::sleep_for(milliseconds(size().compile_ms));
                       server.reset();
                     }),
                 size().hosts);
}

TEST_F(FleetTest, ServesEveryRequestThoughRedisDies) {
  if (!RedisServer::installed()) GTEST_SKIP() << "there is no redis-server";
  RedisServer redis;
  HttpServer server;
  expect_bounded(run(size(), server.url(), redis.url(),
                     [&] {
                       std::this_thread::sleep_for(milliseconds(size().compile_ms));
                       redis.stop();
                     }),
                 size().hosts);
}

// A proxy before the store, or before Redis, that is sound until the fleet is at work.
TEST_F(FleetTest, ServesEveryRequestThroughANetworkThatIsSlowStallsOrCuts) {
  if (!RedisServer::installed()) GTEST_SKIP() << "there is no redis-server";
  Size hurried = size();
  hurried.budget_ms = hurried.lease_ms = 200;
  hurried.deadline_ms = std::getenv("ATTNJIT_FLEET") != nullptr ? 30000 : 6000;
  for (const bool before_store : {true, false}) {
    // In the middle of an entry; in that of the answer to who asks for a lease, or gives one back.
    const std::size_t cut = before_store ? 5000 : 12;
    struct Fault {
      const char* what;
      TcpProxy::Manner manner;
    };
    for (const Fault& fault :
         {Fault{"late", {.delay = milliseconds(500)}}, Fault{"stalled", {.stall = true}},
          Fault{"cut off", {.cut_after = cut}}}) {
      SCOPED_TRACE(std::string(before_store ? "store " : "Redis ") + fault.what);
      use_base(stdfs::temp_directory_path());
      HttpServer server;
      RedisServer redis;
      TcpProxy to_store(server.port()), to_redis(redis.port());
      TcpProxy& proxy = before_store ? to_store : to_redis;
      expect_bounded(
          run(hurried, "http://" + server_address() + ":" + std::to_string(to_store.port()),
              RedisServer::url_at(to_redis.port()),
              [&] {
                std::this_thread::sleep_for(milliseconds(size().compile_ms / 2));
                proxy.behave(fault.manner);
              }),
          hurried.hosts);
      EXPECT_EQ(proxy.cuts() > 0, fault.manner.cut_after > 0);
    }
  }
}

/// The name of the lease of a key.
std::string lease_of(int key) {
  return remote_path(*entry_id(make_key(key), kBuild)).substr(std::string("ac/").size());
}

// One process of a host waits for the other machine, and the others for that one.
TEST_F(FleetTest, OneProcessOfAHostCompilesWhatAnotherMachineNeverEnds) {
  HttpServer server;
  RemoteOptions remote;
  remote.url = server.url();
  const auto keeper = *open_store_leases(remote, milliseconds(1000));
  ASSERT_EQ(*keeper->take(lease_of(0), "stopped", milliseconds(60000)), Answer::kHeld);
  Size one_host{1, 4, 1, 200};
  one_host.deadline_ms = 6000;
  EXPECT_EQ(run(one_host, server.url(), "remote"), std::vector<int>{1});
}

TEST_F(FleetTest, NobodyWaitsForWhatADeadStoreCannotGive) {
  if (!RedisServer::installed()) GTEST_SKIP() << "there is no redis-server";
  RedisServer redis;
  HttpServer server;
  server.behave({.hang_up = true});
  const auto other = Leases::open(lease_options(redis.url()), {}, {});
  const auto lease = other->try_take(lease_of(0));
  ASSERT_EQ(lease.answer, Answer::kHeld);
  const auto begin = Clock::now();
  EXPECT_EQ(run({1, 1, 1, 20}, server.url(), redis.url()), std::vector<int>{1});
  EXPECT_LT(Clock::now() - begin, milliseconds(6000)) << "half of its patience is 15 s";
}

TEST_F(FleetTest, ServesEveryRequestFromAStoreThatIsSlowCutsOrStalls) {
  for (const HttpServer::Manner& manner :
       {HttpServer::Manner{.delay = milliseconds(500)}, HttpServer::Manner{.cut = true},
        HttpServer::Manner{.stall = true}, HttpServer::Manner{.hang_up = true}}) {
    use_base(stdfs::temp_directory_path());
    HttpServer server;
    server.behave(manner);
    expect_bounded(
        run({size().hosts, size().processes, 2, size().compile_ms, 200}, server.url(), ""),
        size().hosts);
  }
}

}  // namespace
}  // namespace attnjit::cache

int main(int argc, char** argv) {
  using namespace attnjit::cache;
  if (argc > 13 && std::string(argv[1]) == "--child") return run_process(argv);
  ::testing::InitGoogleTest(&argc, argv);
  if (std::getenv("ATTNJIT_NAMESPACES") == nullptr) return RUN_ALL_TESTS();
  const HostNamespaces hosts(8);
  if (!hosts.made()) return 77;  // as CTest counts what is skipped
  ::setenv("ATTNJIT_SERVER_ADDRESS", HostNamespaces::kServers, 1);
  g_namespaces = &hosts;
  return RUN_ALL_TESTS();
}
