// SPDX-License-Identifier: Apache-2.0
// Launches whose lengths change: a state that has launched others launches what a new one does.
#include <fmt/format.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "driver_fixture.h"

namespace attnjit {
namespace {

std::size_t bytes_of(const KernelParameter& parameter) {
  switch (parameter.kind) {
    case KernelParameter::Kind::kTensorMap:
      return sizeof(cuda::TensorMap);
    case KernelParameter::Kind::kI32:
    case KernelParameter::Kind::kF32:
      return 4;
    case KernelParameter::Kind::kStruct:
      return 16;  // its begin
    default:
      return 8;
  }
}

class LengthsTest : public DriverFixture {
 protected:
  void SetUp() override {
    DriverFixture::SetUp();
    open();
    cuda_.primary(0);
    cuda_.kernel_names = {"*"};  // the image's
  }

  /// A kernel of a real plan.
  std::unique_ptr<Kernel> kernel_of(const AttentionSpec& spec) {
    auto made = attnjit::plan(spec);
    EXPECT_TRUE(made.ok() && made->supported);
    auto from = std::make_shared<KernelImage>();
    for (PlannedKernel& kernel : made->kernels) {
      kernel.entry += fmt::format("_{}", num_kernels_);  // by which the fake tells them apart
      from->entries.push_back(kernel.entry);
      std::vector<std::size_t>& sizes = cuda_.arg_sizes_of[kernel.entry];
      sizes.clear();
      for (const KernelParameter& parameter : kernel.parameters) {
        sizes.push_back(bytes_of(parameter));
      }
    }
    ++num_kernels_;
    from->cubin = fake::make_cubin(from->entries, 90);
    auto kernel = driver_->load(from, *std::move(made));
    EXPECT_TRUE(kernel.ok()) << kernel.error().to_string();
    return *std::move(kernel);
  }

  static AttentionSpec pages() {
    AttentionSpec spec = test_spec();
    spec.page_size = 16;
    spec.ragged = true;
    spec.num_partitions = 0;
    return spec;
  }

  static LaunchArgs args_of(const AttentionSpec& spec, std::int32_t kv_len,
                            DevicePointer place = 0) {
    LaunchArgs args;
    DevicePointer next = 0x700000000000 + place * 0x1000000;
    const auto take = [&] { return next += 0x10000; };
    args.buffers = {.q = take(), .k = take(), .v = take(), .o = take()};
    args.buffers.page_table = take();
    args.buffers.kv_lens = take();
    args.buffers.q_offsets = take();
    args.shapes.batch = 3;
    args.shapes.q_len = 2;
    args.shapes.kv_len = kv_len;
    args.shapes.total_q = 5;
    args.shapes.num_pages = 10000;
    args.shapes.max_pages = kv_len / 16 + 1;
    for (const ParamSpec& param : spec.mask.custom.params) {
      args.params.push_back({param.name, DeviceArray{take(), Dtype::kI32, {kv_len}}});
    }
    args.workspace = 0x600000000000 + place * 0x100;
    args.workspace_bytes = std::int64_t{1} << 34;
    return args;
  }

  LaunchState state_;
  int num_kernels_ = 0;
};

TEST_F(LengthsTest, ThatComeAgainAreNotPlannedAgain) {
  const AttentionSpec spec = pages();
  const auto kernel = kernel_of(spec);
  for (int round = 0; round < 5; ++round) {
    for (const std::int32_t kv_len : {100, 5000, 100, 300, 20000}) {
      ASSERT_TRUE(kernel->launch(args_of(spec, kv_len), state_).ok());
    }
  }
  EXPECT_EQ(state_.counters().launches, 25U);
  EXPECT_EQ(state_.counters().plans, 4U);
}

TEST_F(LengthsTest, OnlyTheLastEightAreRemembered) {
  const AttentionSpec spec = pages();
  const auto kernel = kernel_of(spec);
  const auto launch = [&](std::int32_t kv_len) {
    ASSERT_TRUE(kernel->launch(args_of(spec, kv_len), state_).ok());
  };
  for (std::int32_t i = 1; i <= 8; ++i) launch(100 * i);
  launch(100);  // is the last one now, and 200 the first to go
  EXPECT_EQ(state_.counters().plans, 8U);
  launch(900);
  launch(100);
  EXPECT_EQ(state_.counters().plans, 9U);
  launch(200);
  EXPECT_EQ(state_.counters().plans, 10U);
}

// Nor does a call that cannot be launched take the place of one that is remembered.
TEST_F(LengthsTest, ACallWithoutAContextTakesNobodysPlace) {
  const AttentionSpec spec = pages();
  const auto kernel = kernel_of(spec);
  for (std::int32_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(kernel->launch(args_of(spec, 100 * i), state_).ok());
  }
  cuda_.set_current(nullptr);
  for (const std::int32_t kv_len : {100, 900, -1}) {
    EXPECT_FALSE(kernel->launch(args_of(spec, kv_len), state_).ok());
  }
  cuda_.primary(0);
  for (std::int32_t i = 1; i <= 8; ++i) {
    ASSERT_TRUE(kernel->launch(args_of(spec, 100 * i), state_).ok());
  }
  EXPECT_EQ(state_.counters().plans, 8U);
}

// A state that launched anything launches what a new one does: grids, maps and arguments.
TEST_F(LengthsTest, AUsedStateLaunchesWhatANewOneDoes) {
  AttentionSpec dense = test_spec();
  dense.mask.kind = MaskSpec::Kind::kCausal;
  AttentionSpec split = test_spec();
  split.num_partitions = 0;
  AttentionSpec custom = test_spec();
  custom.mask.kind = MaskSpec::Kind::kCustom;
  custom.mask.custom.name = "documents";
  custom.mask.custom.code = "p.first[q_idx] <= kv_idx && kv_idx < p.last[q_idx]";
  custom.mask.custom.params = {{"first", ParamSpec::Type::kI32Array},
                               {"last", ParamSpec::Type::kI32Array}};
  const std::vector<AttentionSpec> specs{dense, split, pages(), custom};
  std::vector<std::unique_ptr<Kernel>> kernels;
  for (const AttentionSpec& spec : specs) kernels.push_back(kernel_of(spec));
  std::mt19937 engine(3);
  const auto up_to = [&](std::int32_t most) {
    return std::uniform_int_distribution<std::int32_t>(0, most)(engine);
  };
  std::size_t last_kernel = 0;
  for (int round = 0; round < 2000; ++round) {
    if (up_to(3) == 0) last_kernel = static_cast<std::size_t>(up_to(3));
    const AttentionSpec& spec = specs[last_kernel];
    LaunchArgs args = args_of(spec, up_to(3) == 0 ? up_to(50000) : 100 * up_to(6),
                              static_cast<DevicePointer>(up_to(2)));
    args.shapes.q_len = spec.ragged ? 2 : 1 + up_to(2) * up_to(300);
    std::rotate(args.params.begin(), args.params.begin() + (args.params.empty() ? 0 : up_to(1)),
                args.params.end());
    if (up_to(30) == 0) args.buffers.q = 0;  // is refused
    const std::size_t before = cuda_.launches.size();
    const Status used = kernels[last_kernel]->launch(args, state_);
    const std::size_t between = cuda_.launches.size();
    LaunchState fresh;
    const Status again = kernels[last_kernel]->launch(args, fresh);
    ASSERT_EQ(used.ok(), again.ok()) << round;
    if (!used) {
      EXPECT_EQ(used.error().to_string(), again.error().to_string());
      continue;
    }
    ASSERT_EQ(*state_.sequence(), *fresh.sequence()) << round;
    ASSERT_EQ(cuda_.launches.size() - between, between - before) << round;
    for (std::size_t i = before; i < between; ++i) {
      const fake::FakeLaunch& a = cuda_.launches[i];
      const fake::FakeLaunch& b = cuda_.launches[i + between - before];
      EXPECT_EQ(a.args, b.args) << round;
      EXPECT_EQ(a.config.grid_x, b.config.grid_x);
      EXPECT_EQ(a.config.block_x, b.config.block_x);
      EXPECT_EQ(a.config.dynamic_smem, b.config.dynamic_smem);
      EXPECT_EQ(a.config.num_attributes, b.config.num_attributes);
    }
  }
  EXPECT_GT(state_.counters().plans, 100U);
}

}  // namespace
}  // namespace attnjit
