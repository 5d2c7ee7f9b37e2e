// SPDX-License-Identifier: Apache-2.0
// The compile worker alone, in place of the attnjit command; and modes that misbehave on purpose.
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <string>

#include "compile/worker.h"
#include "compile/worker_protocol.h"

namespace {

void send(const std::string& bytes) {
  static_cast<void>(!write(attnjit::kWorkerSocket, bytes.data(), bytes.size()));
}

/// Named by the file name under which this program is started (a symbolic link).
int misbehave(const std::string& mode) {
  if (mode == "worker-exits") return 7;
  if (mode == "worker-lacks-a-library") return 127;  // as the loader of programs ends
  if (mode == "worker-crashes") {
    std::signal(SIGSEGV, SIG_DFL);
    std::raise(SIGSEGV);
  }
  if (mode == "worker-hangs") {
    for (;;) pause();
  }
  if (mode == "worker-closes") {
    close(attnjit::kWorkerSocket);
    for (;;) pause();
  }
  if (mode == "worker-babbles") send(std::string(4096, 'x'));
  if (mode == "worker-stops-short") send(attnjit::encode(attnjit::WorkerReply{}).substr(0, 40));
  if (mode == "worker-talks-on") send(attnjit::encode(attnjit::WorkerReply{}) + "more");
  if (mode == "worker-announces-too-much") {
    std::string frame = attnjit::encode(attnjit::WorkerReply{});
    frame[15] = '\x7f';
    send(frame);
  }
  if (mode == "worker-lies") {
    // Success, and no image.
    send(attnjit::encode(attnjit::WorkerReply{}));
    pause();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* slash = std::strrchr(argv[0], '/');
  const std::string name = slash != nullptr ? slash + 1 : argv[0];
  if (name.rfind("worker-", 0) == 0) return misbehave(name);
  if (argc < 2 || std::strcmp(argv[1], attnjit::kCompileWorkerCommand) != 0) return 2;
  return attnjit::run_compile_worker(argc, argv);
}
