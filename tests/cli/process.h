// SPDX-License-Identifier: Apache-2.0
// Runs the attnjit command as a child process and keeps what it printed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "../temporary_folder.h"

namespace attnjit::testing {

struct Process {
  int exit_code = -1;  ///< -1: killed by a signal
  int signal = 0;
  std::string out, err;
  double seconds = 0;
};

enum class Output { kKept, kClosed, kBrokenPipe, kFull };

struct ProcessOptions {
  std::map<std::string, std::string> environment;  ///< added to this process's
  std::vector<std::string> through;                ///< a program, by its path, that starts it
  std::string input;                               ///< standard input
  Output output = Output::kKept;                   ///< what standard output is
  double kill_after_s = 60;                        ///< SIGKILL after this
  long memory_mib = 0;                             ///< of address space; 0: not limited
  int interrupt_after_ms = -1;                     ///< SIGINT after this; -1: never
};

/// Runs the command of this build with arguments.
Process run_attnjit(const std::vector<std::string>& arguments, const ProcessOptions& options = {});

using test::TemporaryFolder;

std::string read_text(const std::string& path);
void write_text(const std::string& path, const std::string& text);

}  // namespace attnjit::testing
