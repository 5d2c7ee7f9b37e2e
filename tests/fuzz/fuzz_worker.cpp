// SPDX-License-Identifier: Apache-2.0
// Fuzz target: what the compile worker and its parent read of each other, and NVRTC's log. The
// first byte chooses.
#include <string>

#include "compile/compile_log.h"
#include "compile/worker_protocol.h"
#include "fuzz_check.h"
#include "fuzz_targets.h"

namespace attnjit::fuzz {
namespace {

/// What decodes is canonical: encoded again, it gives the same bytes.
template <class T>
void check(const Result<T>& decoded, std::string_view payload, WorkerFrame kind) {
  if (!decoded) return require(decoded.error().code == ErrorCode::kCorrupt);
  const std::string frame = encode(*decoded);
  require(std::string_view(frame).substr(kFrameHeadBytes) == payload);
  const Result<std::uint64_t> size =
      decode_head(std::string_view(frame).substr(0, kFrameHeadBytes), kind);
  require(size.ok() && *size == payload.size());
}

}  // namespace

void fuzz_worker(std::string_view input) {
  if (input.empty()) return;
  const char choice = input[0];
  const std::string copy(input.substr(1));
  if (choice == 'h') {
    const Result<std::uint64_t> size = decode_head(copy, WorkerFrame::kOutput);
    require(!size || (*size <= kMaxPayloadBytes && copy.size() == kFrameHeadBytes));
  } else if (choice == 'q') {
    check(decode_request(copy), copy, WorkerFrame::kRequest);
  } else if (choice == 'y') {
    check(decode_ready(copy), copy, WorkerFrame::kReady);
  } else if (choice == 'l') {
    const ParsedLog log = parse_log(copy, {"attention.cu"});
    require(log.text.size() <= copy.size() + 1);
    for (const CompilerMessage& message : log.messages) {
      require(message.column >= 0 && message.line >= 0);
      require(message.file == "attention.cu" || message.file.rfind("user:", 0) == 0);
    }
  } else {
    check(decode_output(copy), copy, WorkerFrame::kOutput);
  }
}

}  // namespace attnjit::fuzz
