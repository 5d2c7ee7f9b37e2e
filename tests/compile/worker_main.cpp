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

std::string ready() {
  attnjit::WorkerReady ready;
  ready.confined = true;
  ready.memory_bytes = std::int64_t{1} << 40;
  ready.cpu_seconds = 3600;
  return attnjit::encode(ready);
}

/// Named by the file name under which this program is started (a symbolic link): "worker-MODE", or
/// "worker-early-MODE" before the code could have reached the compiler.
int misbehave(std::string mode) {
  if (mode == "lacks-a-library") return 127;  // as the loader of programs ends
  const std::string early = "early-";
  if (mode.rfind(early, 0) == 0) {
    mode.erase(0, early.size());
  } else {
    send(ready());
  }
  if (mode == "exits") return 7;
  if (mode.rfind("dies-of-", 0) == 0) {
    const int signal = std::atoi(mode.c_str() + 8);
    std::signal(signal, SIG_DFL);
    std::raise(signal);
  }
  if (mode == "hangs") {
    for (;;) pause();
  }
  if (mode == "closes") {
    close(attnjit::kWorkerSocket);
    for (;;) pause();
  }
  const std::string answer = encode(attnjit::CompileOutput{});
  if (mode == "babbles") send(std::string(4096, 'x'));
  if (mode == "stops-short") send(answer.substr(0, 40));
  if (mode == "talks-on") send(answer + "more");
  if (mode == "announces-too-much") {
    std::string frame = answer;
    frame[15] = '\x7f';
    send(frame);
  }
  if (mode == "lies") {
    // Success, and no image.
    send(answer);
    pause();
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  const char* slash = std::strrchr(argv[0], '/');
  const std::string name = slash != nullptr ? slash + 1 : argv[0];
  if (name.rfind("worker-", 0) == 0) return misbehave(name.substr(7));
  if (argc < 2 || std::strcmp(argv[1], attnjit::kCompileWorkerCommand) != 0) return 2;
  return attnjit::run_compile_worker(argc, argv);
}
