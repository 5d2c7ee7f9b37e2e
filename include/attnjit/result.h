// SPDX-License-Identifier: Apache-2.0
// Result<T>: a value or a typed Error; no exception crosses attnjit's API.
//
// Thread rules: plain values; distinct objects may be used by distinct threads.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attnjit/export.h"

namespace attnjit {

/// Classes of failure. The command line maps them to its exit codes (see exit_code).
enum class ErrorCode : std::uint8_t {
  kInvalid,            ///< the input is wrong: a spec field, a snippet, a launch argument (exit 2)
  kUnsupported,        ///< valid, but no template or configuration serves it (exit 3)
  kEnvironment,        ///< NVRTC, the driver or a GPU is missing or too old (exit 4)
  kCompileFailed,      ///< the compiler rejected the source, or its output failed a check (exit 1)
  kTimeout,            ///< a deadline passed (exit 1)
  kCancelled,          ///< the Service is shutting down (exit 1)
  kCompileForbidden,   ///< a compile was needed and the Service forbids it (exit 1)
  kCaptureInProgress,  ///< a stream is capturing and the call would have to load (exit 1)
  kForked,             ///< this process is a fork of the one that made the Service (exit 1)
  kCorrupt,            ///< stored bytes failed verification (exit 1)
  kIo,                 ///< the file system refused (exit 1)
  kDriver,             ///< the CUDA driver reported an error (exit 1)
  kInternal,           ///< a defect in attnjit (exit 1)
};

/// The name of a code without its k, in snake case: "unsupported", "compile_failed".
ATTNJIT_EXPORT std::string_view to_string(ErrorCode code);

/// The command line's exit code for an error: 1, 2, 3 or 4 (0 is success).
ATTNJIT_EXPORT int exit_code(ErrorCode code);

/// What failed, where, and what to do about it.
struct Error {
  ErrorCode code = ErrorCode::kInternal;
  std::string message;  ///< what is wrong, with the offending value and what is allowed
  std::string field;    ///< the spec field, argument or file concerned; may be empty
  int line = 0;         ///< 1-based position in the snippet or JSON text; 0: none
  int column = 0;
  std::string hint;           ///< what to do; may be empty
  std::vector<Error> others;  ///< further problems of the same request, each without others

  /// One line per problem: "field: message (line l, column c); hint".
  ATTNJIT_EXPORT std::string to_string() const;
};

inline Error make_error(ErrorCode code, std::string message, std::string field = {},
                        std::string hint = {}) {
  Error error;
  error.code = code;
  error.message = std::move(message);
  error.field = std::move(field);
  error.hint = std::move(hint);
  return error;
}

/// A T or an Error. Converts from both; test with ok() or bool before value().
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}

  bool ok() const { return state_.index() == 0; }
  explicit operator bool() const { return ok(); }

  T& value() & { return std::get<0>(state_); }
  const T& value() const& { return std::get<0>(state_); }
  T&& value() && { return std::get<0>(std::move(state_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  const Error& error() const& { return std::get<1>(state_); }
  Error&& error() && { return std::get<1>(std::move(state_)); }

 private:
  std::variant<T, Error> state_;
};

/// Success, or an Error.
template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}

  bool ok() const { return !error_.has_value(); }
  explicit operator bool() const { return ok(); }
  const Error& error() const& { return *error_; }
  Error&& error() && { return *std::move(error_); }

 private:
  std::optional<Error> error_;
};

using Status = Result<void>;

}  // namespace attnjit
