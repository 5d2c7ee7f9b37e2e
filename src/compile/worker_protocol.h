// SPDX-License-Identifier: Apache-2.0
// What the compiler's helper process and its parent say to each other: one request, one reply.
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
};

struct WorkerReply {
  std::string problem;  ///< why NVRTC was not run: nothing below counts; empty: it was
  int nvrtc_major = 0;
  int nvrtc_minor = 0;
  bool confined = false;  ///< system calls were filtered while NVRTC ran
  CompileOutput output;
};

enum class WorkerFrame : std::uint32_t { kRequest = 1, kReply = 2 };

inline constexpr std::size_t kFrameHeadBytes = 16;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{64} << 20;
inline constexpr std::size_t kMaxLogBytes = 1 << 20;  ///< the helper cuts a longer log

std::string encode(const WorkerRequest& request);  ///< the frame, head included
std::string encode(const WorkerReply& reply);

/// The payload size that a head announces. Errors: kCorrupt (another magic, kind or too long).
Result<std::uint64_t> decode_head(std::string_view head, WorkerFrame expected);

/// A payload. Errors: kCorrupt: a length that leaves the payload, bytes left over, a bad value.
Result<WorkerRequest> decode_request(std::string_view payload);
Result<WorkerReply> decode_reply(std::string_view payload);

}  // namespace attnjit
