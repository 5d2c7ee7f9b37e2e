// SPDX-License-Identifier: Apache-2.0
// What the driver's tests share: the fake driver opened, a plan, a recipe and arguments that fit.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>

#include "attnjit/driver.h"
#include "driver/kernel_library.h"
#include "fake_cuda.h"
#include "plan/launch/tensors.h"
#include "test_cubin.h"

namespace attnjit {

inline AttentionSpec test_spec() {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 8;
  spec.group = 2;
  spec.qk_depth = 128;
  return spec;
}

inline KernelPlan test_plan(const AttentionSpec& spec = test_spec()) {
  KernelPlan plan;
  plan.spec = ResolvedSpec::make(spec).value();
  plan.supported = true;
  plan.main().entry = "attnjit_kernel";
  plan.main().threads = 384;
  plan.main().smem_bytes = 100000;
  using Kind = KernelParameter::Kind;
  plan.main().parameters = {{"q_map", Kind::kTensorMap, ""},
                            {"k_map", Kind::kTensorMap, ""},
                            {"o", Kind::kPointer, "__nv_bfloat16"},
                            {"lse", Kind::kPointer, "float"},
                            {"q_len", Kind::kI32, ""},
                            {"stride", Kind::kI64, ""},
                            {"scale", Kind::kF32, ""}};
  return plan;
}

inline TensorMapDescription test_map(const std::string& name, BufferId::Kind id,
                                     const std::string& buffer, std::uint64_t rows) {
  TensorMapDescription map;
  map.name = name;
  map.buffer = buffer;
  map.id = {id, 0};
  map.dims = {128, 8, rows, 2};
  map.strides = {256, 2048, 2048 * rows};
  map.box = {64, 1, 64, 1};
  map.element_strides = {1, 1, 1, 1};
  map.swizzle = 128;
  return map;
}

inline LaunchRecipe test_recipe(const LaunchShapes& shapes, const LaunchScalars& scalars) {
  LaunchRecipe recipe;
  recipe.entry = "attnjit_kernel";
  recipe.grid = {static_cast<std::uint32_t>(shapes.q_len + 127) / 128, 8,
                 static_cast<std::uint32_t>(shapes.batch)};
  recipe.block = {384, 1, 1};
  recipe.dynamic_smem = 100000;
  recipe.tensor_maps = {
      test_map("q_map", BufferId::Kind::kQ, "q", static_cast<std::uint64_t>(shapes.q_len)),
      test_map("k_map", BufferId::Kind::kK, "k", static_cast<std::uint64_t>(shapes.kv_len))};
  recipe.args = {{KernelArgument::TensorMap{"q_map", 0}},
                 {KernelArgument::TensorMap{"k_map", 1}},
                 {KernelArgument::Pointer{"o", 0, {BufferId::Kind::kO, 0}}},
                 {KernelArgument::Pointer{}},
                 {shapes.q_len},
                 {std::int64_t{1} << 33},
                 {scalars.scale}};
  return recipe;
}

using TestPlanner =
    std::function<Result<LaunchRecipe>(const KernelPlan&, const LaunchShapes&, const LaunchScalars&,
                                       const std::vector<UserParamShape>&, const DeviceShape&)>;

/// The fake driver, opened again for each test.
class DriverFixture : public ::testing::Test {
 protected:
  DriverFixture() : cuda_(fake::fake_cuda()) { cuda_.reset(); }
  ~DriverFixture() override { cuda_.reset(); }

  void open() {
    DriverOptions options;
    options.driver_path = ATTNJIT_FAKE_CUDA;
    auto driver = Driver::open(options);
    ASSERT_TRUE(driver.ok()) << driver.error().to_string();
    driver_ = *std::move(driver);
  }

  static std::shared_ptr<const KernelImage> image(int sm = 90) {
    auto image = std::make_shared<KernelImage>();
    image->cubin = fake::make_cubin({"attnjit_kernel"}, sm);
    image->entries = {"attnjit_kernel"};
    return image;
  }

  /// A kernel whose recipes come from `planner_`.
  Result<std::unique_ptr<Kernel>> load(KernelPlan plan = test_plan(),
                                       const std::shared_ptr<const KernelImage>& from = image()) {
    auto kernel = driver_->load(from, std::move(plan));
    if (kernel) KernelAccess::library(**kernel).planner = &DriverFixture::plan_by_test;
    return kernel;
  }

  static LaunchArgs args() {
    LaunchArgs args;
    args.buffers.q = 0x10000;
    args.buffers.k = 0x20000;
    args.buffers.v = 0x30000;
    args.buffers.o = 0x40000;
    args.shapes.batch = 2;
    args.shapes.q_len = 300;
    args.shapes.kv_len = 500;
    args.scalars.scale = 0.125F;
    return args;
  }

  fake::FakeCuda& cuda_;
  std::shared_ptr<const Driver> driver_;
  static inline TestPlanner planner_;
  static inline std::vector<LaunchRecipe> next_launches_;  // after the planner's
  static inline std::vector<Workspace> workspaces_;

  void SetUp() override {
    next_launches_.clear();
    workspaces_.clear();
    planner_ = [](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                  const std::vector<UserParamShape>&,
                  const DeviceShape&) { return test_recipe(shapes, scalars); };
  }

 private:
  static Status plan_by_test(const KernelPlan& plan, const LaunchShapes& shapes,
                             const LaunchScalars& scalars,
                             const std::vector<UserParamShape>& params, const DeviceShape& device,
                             LaunchSequence& sequence) {
    // As plan_launch, which checks what the driver passes on.
    if (const auto tensors = launch_tensors(plan.spec, shapes); !tensors) return tensors.error();
    if (const auto scale = softmax_scale(plan.spec, scalars); !scale) return scale.error();
    Result<LaunchRecipe> recipe = planner_(plan, shapes, scalars, params, device);
    if (!recipe) return recipe.error();
    sequence = {};
    if (recipe->grid[0] > 0) sequence.launches.push_back(*std::move(recipe));
    sequence.launches.insert(sequence.launches.end(), next_launches_.begin(), next_launches_.end());
    sequence.workspaces = workspaces_;
    return {};
  }
};

}  // namespace attnjit
