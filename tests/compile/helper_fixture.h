// SPDX-License-Identifier: Apache-2.0
// What tests of the helper process share: its fixture, and hostile code.
#pragma once

#include <dirent.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <set>
#include <string>

#include "../temporary_folder.h"
#include "kernels.h"

namespace attnjit {

using std::chrono::milliseconds;
using test::in;
using test::request_for;
using test::with_user_code;

inline constexpr milliseconds kLong(60000);

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

/// The open descriptors of this process.
inline std::set<std::string> open_fds() {
  std::set<std::string> fds;
  DIR* folder = opendir("/proc/self/fd");
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.' && std::stoi(entry->d_name) != dirfd(folder)) {
      fds.insert(entry->d_name);
    }
  }
  closedir(folder);
  return fds;
}

inline bool has_children() {
  // No child at all, living or dead: waitpid has nobody to wait for.
  return !(waitpid(-1, nullptr, WNOHANG) == -1 && errno == ECHILD);
}

/// Each test ends as it began: no descriptor more, no child left.
class Helper : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto id = make_in_process_compiler()->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
    options_.helper_path = ATTNJIT_TEST_WORKER;
    before_ = open_fds();
  }
  void TearDown() override {
    EXPECT_EQ(open_fds(), before_);
    EXPECT_FALSE(has_children());
  }
  Result<KernelImage> compile(const CompileRequest& request, milliseconds time = kLong) {
    return make_helper_compiler(options_)->compile(request, in(time));
  }
  /// The same program under a name that makes it misbehave.
  void misbehave(const std::string& mode) {
    options_.helper_path = folder_ / mode;
    std::filesystem::create_symlink(ATTNJIT_TEST_WORKER, options_.helper_path);
  }

  HelperOptions options_;
  const test::TemporaryFolder folder_;
  std::set<std::string> before_;
};

/// A compile that was ended by one of its bounds, or that a busy machine gave too little time.
inline bool ended_by_a_bound(const Error& error) {
  return error.code == ErrorCode::kTimeout || error.code == ErrorCode::kCompileFailed ||
         error.message.find("processor time") != std::string::npos;
}

inline CompileRequest trusted(const std::string& body) {
  CompileRequest request = request_for(with_user_code(body));
  request.source.trusted = true;
  return request;
}

/// Code that closes the function it stands in, which the lexical check of trusted code refuses:
/// members may then follow, templates among them.
inline CompileRequest escaped(const std::string& members, const std::string& expression) {
  return trusted("return true; }\n" + members + "\nstatic bool rest() { return " + expression +
                 ";");
}

/// 2^22 instantiations: minutes of CPU time and gigabytes.
inline CompileRequest template_bomb() {
  return escaped(
      "template <int N, int M> static constexpr int g() {\n"
      "  if constexpr (N > 0) return g<N - 1, 2 * M>() + g<N - 1, 2 * M + 1>();\n"
      "  else return M & 1;\n}",
      "g<22, 0>() > 3");
}

}  // namespace attnjit
