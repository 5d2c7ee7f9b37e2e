// SPDX-License-Identifier: Apache-2.0
// Starts the attnjit command with pipes, and reads its output to the end.
#include "process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <stdexcept>

extern char** environ;

namespace attnjit::testing {
namespace {

struct Pipe {
  int read = -1, write = -1;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe");
    read = ends[0];
    write = ends[1];
  }
  ~Pipe() {
    close_read();
    close_write();
  }
  void close_read() {
    if (read >= 0) ::close(read);
    read = -1;
  }
  void close_write() {
    if (write >= 0) ::close(write);
    write = -1;
  }
};

}  // namespace

Process run_attnjit(const std::vector<std::string>& arguments, const ProcessOptions& options) {
  Pipe in, out, err;
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, in.read, 0);
  posix_spawn_file_actions_adddup2(&actions, err.write, 2);
  if (options.output == Output::kClosed) {
    posix_spawn_file_actions_addclose(&actions, 1);
  } else if (options.output == Output::kFull) {
    posix_spawn_file_actions_addopen(&actions, 1, "/dev/full", O_WRONLY, 0);
  } else {
    posix_spawn_file_actions_adddup2(&actions, out.write, 1);
  }
  std::vector<std::string> words{ATTNJIT_COMMAND};
  words.insert(words.end(), arguments.begin(), arguments.end());
  words.insert(words.begin(), options.through.begin(), options.through.end());
  if (options.memory_mib > 0) {
    const std::string limit = std::to_string(options.memory_mib * 1024);
    words.insert(words.begin(), {"/bin/sh", "-c", "ulimit -v " + limit + "; exec \"$0\" \"$@\""});
  }
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  std::vector<std::string> settings;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string name(*entry, std::strcspn(*entry, "="));
    if (options.environment.count(name) == 0) settings.emplace_back(*entry);
  }
  for (const auto& [name, value] : options.environment) settings.push_back(name + "=" + value);
  std::vector<char*> envp;
  for (std::string& setting : settings) envp.push_back(setting.data());
  envp.push_back(nullptr);

  const auto begin = std::chrono::steady_clock::now();
  const auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  };
  // NOTE: closed before the child starts: a quick one would have written and ended by then.
  if (options.output == Output::kBrokenPipe) out.close_read();
  pid_t child = -1;
  if (::posix_spawn(&child, argv.front(), &actions, nullptr, argv.data(), envp.data()) != 0) {
    throw std::runtime_error("cannot start " ATTNJIT_COMMAND);
  }
  posix_spawn_file_actions_destroy(&actions);
  in.close_read();
  out.close_write();
  err.close_write();
  (void)::signal(SIGPIPE, SIG_IGN);
  // Inputs of the tests fit a pipe's buffer.
  if (::write(in.write, options.input.data(), options.input.size()) < 0 && errno != EPIPE) {
    throw std::runtime_error("cannot write standard input");
  }
  in.close_write();

  Process process;
  bool interrupted = options.interrupt_after_ms < 0;
  while (out.read >= 0 || err.read >= 0) {
    if (elapsed() > options.kill_after_s) ::kill(child, SIGKILL);
    if (!interrupted && elapsed() * 1000 > options.interrupt_after_ms) {
      ::kill(child, SIGINT);
      interrupted = true;
    }
    pollfd descriptors[2] = {{out.read, POLLIN, 0}, {err.read, POLLIN, 0}};
    (void)::poll(descriptors, 2, 5);
    for (int i = 0; i < 2; ++i) {
      if (descriptors[i].fd < 0 || descriptors[i].revents == 0) continue;
      char buffer[1 << 16];
      const ssize_t got = ::read(descriptors[i].fd, buffer, sizeof buffer);
      if (got > 0) {
        (i == 0 ? process.out : process.err).append(buffer, static_cast<std::size_t>(got));
      } else if (i == 0) {
        out.close_read();
      } else {
        err.close_read();
      }
    }
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  process.seconds = elapsed();
  if (WIFEXITED(status)) process.exit_code = WEXITSTATUS(status);
  if (WIFSIGNALED(status)) process.signal = WTERMSIG(status);
  return process;
}

std::string read_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << text;
}

}  // namespace attnjit::testing
