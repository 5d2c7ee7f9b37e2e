// SPDX-License-Identifier: Apache-2.0
// The C ABI: from C99 in this process, and from Python through the shared library.
#include "c_abi_test.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include "attnjit/attnjit.h"
#include "service_fixture.h"

extern char** environ;

namespace attnjit {
namespace {

class CAbiTest : public ServiceFixture {
 protected:
  /// A folder that holds the image of c_abi_spec().
  void fill_cache() {
    const auto document = spec_from_json(c_abi_spec());
    ASSERT_TRUE(document.ok()) << document.error().to_string();
    ServiceOptions cached = options();
    cached.use_disk_cache = true;
    cached.cache_layers = {folder_.path()};
    remake(cached);
    const PreparedSpec spec = prepare(*service_, document->spec);
    const auto compiled = service_->compile(spec, in(seconds(10)));
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    service_.reset();
    entry_ = spec.plan().entry;
  }
  std::string entry_;
};

TEST_F(CAbiTest, Errors) { EXPECT_EQ(c_abi_errors(), 0) << "line of c_abi_test.c"; }

TEST_F(CAbiTest, OlderAndNewerCallers) { EXPECT_EQ(c_abi_versions(), 0) << "line of c_abi_test.c"; }

TEST_F(CAbiTest, TuningTables) { EXPECT_EQ(c_abi_tuning(), 0) << "line of c_abi_test.c"; }

TEST_F(CAbiTest, FromSpecToLaunch) {
  fill_cache();
  cuda_.primary(0);
  EXPECT_EQ(c_abi_launch(folder_.path().c_str(), ATTNJIT_FAKE_CUDA, 0x10000000), 0)
      << "line of c_abi_test.c";
  EXPECT_EQ(cuda_.launches.size(), 4U);
  EXPECT_EQ(cuda_.count("cuLibraryUnload"), 1);
}

TEST_F(CAbiTest, Python) {
  if (*ATTNJIT_SANITIZED != '\0') GTEST_SKIP() << "python3 has no " ATTNJIT_SANITIZED " runtime";
  if (access("/usr/bin/env", X_OK) != 0) GTEST_SKIP() << "no /usr/bin/env";
  fill_cache();
  const std::vector<std::string> arguments = {"/usr/bin/env",  "python3",          "-B",
                                              ATTNJIT_PY_TEST, ATTNJIT_PY_BINDING, ATTNJIT_SHARED,
                                              folder_.path(),  ATTNJIT_FAKE_CUDA,  c_abi_spec()};
  std::vector<char*> argv;
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  // The fake of the other process knows the kernel's name from here.
  setenv("ATTNJIT_FAKE_KERNEL", entry_.c_str(), 1);
  pid_t child = 0;
  ASSERT_EQ(posix_spawn(&child, argv[0], nullptr, nullptr, argv.data(), environ), 0);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 127) GTEST_SKIP() << "no python3";
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0) << "see the traceback above";
}

}  // namespace
}  // namespace attnjit
