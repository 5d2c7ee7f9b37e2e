// SPDX-License-Identifier: Apache-2.0
// Implements Error: the names of its codes, their exit codes and its text for people.
#include "attnjit/result.h"

#include <fmt/format.h>

namespace attnjit {

std::string_view to_string(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return "invalid";
    case ErrorCode::kUnsupported:
      return "unsupported";
    case ErrorCode::kEnvironment:
      return "environment";
    case ErrorCode::kCompileFailed:
      return "compile_failed";
    case ErrorCode::kTimeout:
      return "timeout";
    case ErrorCode::kCancelled:
      return "cancelled";
    case ErrorCode::kCompileForbidden:
      return "compile_forbidden";
    case ErrorCode::kCaptureInProgress:
      return "capture_in_progress";
    case ErrorCode::kForked:
      return "forked";
    case ErrorCode::kCorrupt:
      return "corrupt";
    case ErrorCode::kIo:
      return "io";
    case ErrorCode::kDriver:
      return "driver";
    case ErrorCode::kInternal:
      return "internal";
  }
  return "unknown";
}

int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalid:
      return 2;
    case ErrorCode::kUnsupported:
      return 3;
    case ErrorCode::kEnvironment:
      return 4;
    default:
      return 1;
  }
}

namespace {

std::string one_line(const Error& error) {
  std::string text;
  if (!error.field.empty()) text += error.field + ": ";
  text += error.message;
  if (error.line > 0) text += fmt::format(" (line {}, column {})", error.line, error.column);
  if (!error.hint.empty()) text += "; " + error.hint;
  return text;
}

}  // namespace

std::string Error::to_string() const {
  std::string text = one_line(*this);
  for (const Error& other : others) text += "\n" + one_line(other);
  return text;
}

}  // namespace attnjit
