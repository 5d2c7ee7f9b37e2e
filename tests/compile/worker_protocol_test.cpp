// SPDX-License-Identifier: Apache-2.0
// The worker's protocol: what is encoded comes back, and any other bytes are refused.
#include "compile/worker_protocol.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "kernels.h"

namespace attnjit {
namespace {

WorkerRequest request() {
  WorkerRequest request;
  request.compile = test::request_for("text", Arch::kSm100a);
  request.compile.line_info = true;
  request.compile.ptx_only = true;
  request.compile.source.headers =
      HeaderSet(std::vector<SourceFile>{{"a.cuh", "A"}, {"b.cuh", ""}});
  request.nvrtc_path = "/lib/libnvrtc.so";
  request.build_id = "abc";
  request.memory_bytes = 123;
  request.cpu_seconds = 4;
  return request;
}

WorkerReady ready() {
  WorkerReady ready;
  ready.problem = "none";
  ready.nvrtc_major = 13;
  ready.confined = true;
  ready.memory_bytes = 5;
  ready.cpu_seconds = 6;
  return ready;
}

CompileOutput output() {
  CompileOutput output;
  output.result = 6;
  output.result_name = "NVRTC_ERROR_COMPILATION";
  output.log = "log\n";
  output.cubin = {1, 2, 3};
  output.ptx = "ptx";
  return output;
}

std::string payload_of(const std::string& frame) { return frame.substr(kFrameHeadBytes); }

TEST(WorkerProtocol, RequestsComeBack) {
  const std::string frame = encode(request());
  const auto size = decode_head(frame.substr(0, kFrameHeadBytes), WorkerFrame::kRequest);
  ASSERT_TRUE(size.ok());
  EXPECT_EQ(*size, frame.size() - kFrameHeadBytes);
  const auto back = decode_request(payload_of(frame));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(encode(*back), frame);
  EXPECT_EQ(back->compile.source.arch, Arch::kSm100a);
  EXPECT_EQ(back->compile.source.headers.files()[1].name, "b.cuh");
  EXPECT_TRUE(back->compile.line_info);
  EXPECT_TRUE(back->compile.ptx_only);
  EXPECT_EQ(back->compile.source.options, request().compile.source.options);
}

TEST(WorkerProtocol, ReadyComesBack) {
  const std::string frame = encode(ready());
  const auto back = decode_ready(payload_of(frame));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(encode(*back), frame);
  EXPECT_TRUE(back->confined);
  EXPECT_EQ(back->memory_bytes, 5);
}

TEST(WorkerProtocol, OutputsComeBack) {
  const std::string frame = encode(output());
  const auto back = decode_output(payload_of(frame));
  ASSERT_TRUE(back.ok()) << back.error().to_string();
  EXPECT_EQ(encode(*back), frame);
  EXPECT_EQ(back->cubin, output().cubin);
}

TEST(WorkerProtocol, HeadsAreChecked) {
  const std::string head = encode(output()).substr(0, kFrameHeadBytes);
  EXPECT_TRUE(decode_head(head, WorkerFrame::kOutput).ok());
  EXPECT_FALSE(decode_head(head, WorkerFrame::kRequest).ok());
  EXPECT_FALSE(decode_head(head, WorkerFrame::kReady).ok());
  for (std::size_t size = 0; size < head.size(); ++size) {
    EXPECT_FALSE(decode_head(head.substr(0, size), WorkerFrame::kOutput).ok());
  }
  std::string bad = head;
  bad[0] = 'x';
  EXPECT_FALSE(decode_head(bad, WorkerFrame::kOutput).ok());
  bad = head;
  const std::uint64_t much = kMaxPayloadBytes + 1;
  std::memcpy(bad.data() + 8, &much, sizeof much);
  EXPECT_FALSE(decode_head(bad, WorkerFrame::kOutput).ok());
}

TEST(WorkerProtocol, EveryTruncationAndSurplusIsRefused) {
  for (const std::string& payload :
       {payload_of(encode(request())), payload_of(encode(ready())), payload_of(encode(output()))}) {
    for (std::size_t size = 0; size < payload.size(); ++size) {
      EXPECT_FALSE(decode_request(payload.substr(0, size)).ok());
      EXPECT_FALSE(decode_ready(payload.substr(0, size)).ok());
      EXPECT_FALSE(decode_output(payload.substr(0, size)).ok());
    }
    EXPECT_FALSE(decode_request(payload + '\0').ok());
    EXPECT_FALSE(decode_ready(payload + '\0').ok());
    EXPECT_FALSE(decode_output(payload + '\0').ok());
  }
}

TEST(WorkerProtocol, RandomDamageNeverCrashes) {
  std::mt19937 random(11);
  for (const std::string& payload :
       {payload_of(encode(request())), payload_of(encode(ready())), payload_of(encode(output()))}) {
    for (int round = 0; round < 20000; ++round) {
      std::string bytes = payload;
      for (int flips = 1 + static_cast<int>(random() % 4); flips > 0; --flips) {
        bytes[random() % bytes.size()] = static_cast<char>(random());
      }
      static_cast<void>(decode_request(bytes).ok());
      static_cast<void>(decode_ready(bytes).ok());
      static_cast<void>(decode_output(bytes).ok());
    }
  }
}

TEST(WorkerProtocol, BadValuesAreRefused) {
  WorkerRequest bad = request();
  bad.cpu_seconds = 0;
  EXPECT_FALSE(decode_request(payload_of(encode(bad))).ok());
  bad = request();
  bad.memory_bytes = -1;
  EXPECT_FALSE(decode_request(payload_of(encode(bad))).ok());
  bad = request();
  bad.compile.source.arch = static_cast<Arch>(9);
  EXPECT_FALSE(decode_request(payload_of(encode(bad))).ok());
  bad = request();
  bad.compile.source.options.assign(5000, "");
  EXPECT_FALSE(decode_request(payload_of(encode(bad))).ok());
}

}  // namespace
}  // namespace attnjit
