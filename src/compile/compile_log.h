// SPDX-License-Identifier: Apache-2.0
// Reads NVRTC's program log: messages of the front end, remarks of ptxas, resource usage, times.
//
// Thread rules: pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "attnjit/compile.h"

namespace attnjit {

/// A message of the front end.
struct CompilerMessage {
  std::string file;
  int line = 0;
  int column = 0;  ///< 1-based; 0: the log shows none
  bool error = false;
  std::string text;
  /// A place in user code that an error elsewhere was reached from; empty: none was told.
  std::string origin_file;
  int origin_line = 0;
};

/// What ptxas says of one function.
struct FunctionUsage {
  std::string name;
  bool entry = false;
  int registers = 0;
  int barriers = 0;
  int static_smem_bytes = 0;
  int stack_bytes = 0;
  int spill_bytes = 0;  ///< stores + loads
};

struct ParsedLog {
  std::vector<CompilerMessage> messages;
  std::vector<std::string> ptxas_errors;  ///< "ptxas fatal", "ptxas error" lines
  /// Lines with which ptxas says that it ignored or repaired something, e.g. C7508 (setmaxnreg
  /// ignored) or C7510 (wgmma serialised): the image is right but not the kernel that was planned.
  std::vector<std::string> advisories;
  std::vector<FunctionUsage> functions;
  CompileTimes times;  ///< without the total
  std::string text;    ///< the log without the times, and what a file not of the program's says
};

/// Parses a log. `files` are the names of the program's own files; a message in a file whose name
/// is neither among them nor begins with "user:" is left out with the source lines that it echoes.
ParsedLog parse_log(std::string_view log, const std::vector<std::string_view>& files);

}  // namespace attnjit
