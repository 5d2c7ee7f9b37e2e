// SPDX-License-Identifier: Apache-2.0
// What the compiler's helper process and its parent say to each other: a request; that the worker
// is ready, or why not; the compiler's output. Between the last two, and at no other time, the code
// that is compiled may be to blame for what the worker does.
//
// A frame is a 16-byte head (magic, kind, payload bytes; little-endian) and its payload: fields in
// a fixed order, texts with a 64-bit length before them. Neither side trusts the other: the parent
// because hostile code may run the helper, the helper because it is a command anybody can start.
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "attnjit/compile.h"
#include "attnjit/result.h"
#include "compile/nvrtc.h"

namespace attnjit {

struct WorkerRequest {
  CompileRequest compile;  ///< entries, user_code and digest do not travel: the parent judges
  std::string nvrtc_path;
  std::string build_id;  ///< of that library, as the parent saw it
  std::int64_t memory_bytes = 0;
  int cpu_seconds = 0;
  bool must_confine = true;  ///< nothing is compiled where system calls cannot be filtered
};

/// What the worker says before the code reaches the compiler.
struct WorkerReady {
  std::string problem;  ///< why nothing can be compiled; nothing below counts, no output follows
  int nvrtc_major = 0;
  int nvrtc_minor = 0;
  bool confined =
      false;  ///< system calls are filtered; if not, and they must be, no output follows
  std::int64_t memory_bytes = 0;  ///< the limits in force: inherited ones may be lower than asked
  int cpu_seconds = 0;
};

enum class WorkerFrame : std::uint32_t { kRequest = 1, kReady = 2, kOutput = 3 };

inline constexpr std::size_t kFrameHeadBytes = 16;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{64} << 20;
inline constexpr std::size_t kMaxLogBytes = 1 << 20;  ///< the helper cuts a longer log

std::string encode(const WorkerRequest& request);  ///< the frame, head included
std::string encode(const WorkerReady& ready);
std::string encode(const CompileOutput& output);

/// The payload size that a head announces. Errors: kCorrupt (another magic, kind or too long).
Result<std::uint64_t> decode_head(std::string_view head, WorkerFrame expected);

/// A payload. Errors: kCorrupt: a length that leaves the payload, bytes left over, a bad value.
Result<WorkerRequest> decode_request(std::string_view payload);
Result<WorkerReady> decode_ready(std::string_view payload);
Result<CompileOutput> decode_output(std::string_view payload);

}  // namespace attnjit
