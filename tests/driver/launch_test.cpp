// SPDX-License-Identifier: Apache-2.0
// Launches: what is encoded, what is reused, and what is refused before the driver sees it.
#include <cmath>
#include <cstring>
#include <limits>
#include <new>
#include <stdexcept>

#include "driver_fixture.h"

namespace attnjit {
namespace {

class LaunchTest : public DriverFixture {
 protected:
  void SetUp() override {
    DriverFixture::SetUp();
    open();
    cuda_.primary(0);
    cuda_.arg_sizes = {128, 128, 8, 8, 4, 8, 4};
    load_kernel(test_plan());
  }

  void load_kernel(KernelPlan plan, const std::shared_ptr<const KernelImage>& from = image()) {
    auto kernel = load(std::move(plan), from);
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    kernel_ = *std::move(kernel);
  }

  /// The launch fails with this code and field, and nothing reaches the GPU.
  void expect_refused(const LaunchArgs& arguments, ErrorCode code, const std::string& field) {
    const std::size_t before = cuda_.launches.size();
    const Status launched = kernel_->launch(arguments, state_);
    ASSERT_FALSE(launched.ok()) << field;
    EXPECT_EQ(launched.error().code, code) << launched.error().to_string();
    EXPECT_EQ(launched.error().field, field) << launched.error().to_string();
    EXPECT_EQ(cuda_.launches.size(), before);
  }

  template <class T>
  T argument(std::size_t launch, std::size_t index) {
    T value;
    std::memcpy(&value, cuda_.launches.at(launch).args.at(index).data(), sizeof value);
    return value;
  }

  std::unique_ptr<Kernel> kernel_;
  LaunchState state_;
};

TEST_F(LaunchTest, EncodesTheRecipe) {
  const Status launched = kernel_->launch(args(), state_);
  ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  ASSERT_EQ(cuda_.launches.size(), 1U);
  const cuda::LaunchConfig& config = cuda_.launches[0].config;
  EXPECT_EQ(config.grid_x, 3U);
  EXPECT_EQ(config.grid_y, 8U);
  EXPECT_EQ(config.grid_z, 2U);
  EXPECT_EQ(config.block_x, 384U);
  EXPECT_EQ(config.dynamic_smem, 100000U);
  EXPECT_EQ(config.num_attributes, 0U);
  ASSERT_EQ(cuda_.encodes.size(), 2U);
  EXPECT_EQ(cuda_.encodes[0].type, cuda::kMapBf16);
  EXPECT_EQ(cuda_.encodes[0].address, 0x10000U);
  EXPECT_EQ(cuda_.encodes[0].dims, (std::vector<std::uint64_t>{128, 8, 300, 2}));
  EXPECT_EQ(cuda_.encodes[0].strides, (std::vector<std::uint64_t>{256, 2048, 2048 * 300}));
  EXPECT_EQ(cuda_.encodes[0].box, (std::vector<std::uint32_t>{64, 1, 64, 1}));
  EXPECT_EQ(cuda_.encodes[0].swizzle, cuda::kSwizzle128B);
  EXPECT_EQ(cuda_.encodes[0].l2_promotion, cuda::kL2Promotion256B);
  EXPECT_EQ(cuda_.encodes[0].oob, cuda::kOobZero);
  EXPECT_EQ(argument<std::uint64_t>(0, 1), 0x20000U) << "the fake writes the address first";
  EXPECT_EQ(argument<std::uint64_t>(0, 2), 0x40000U);
  EXPECT_EQ(argument<std::uint64_t>(0, 3), 0U);
  EXPECT_EQ(argument<std::int32_t>(0, 4), 300);
  EXPECT_EQ(argument<std::int64_t>(0, 5), std::int64_t{1} << 33);
  EXPECT_EQ(argument<float>(0, 6), 0.125F);
  ASSERT_NE(state_.sequence(), nullptr);
  EXPECT_EQ(state_.sequence()->launches.at(0).entry, "attnjit_kernel");
}

TEST_F(LaunchTest, ClusterBecomesAnAttribute) {
  planner_ = [](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                const std::vector<UserParamShape>&, const DeviceShape&) {
    LaunchRecipe recipe = test_recipe(shapes, scalars);
    recipe.grid[0] = 4;
    recipe.cluster = {2, 1, 1};
    return recipe;
  };
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  EXPECT_EQ(cuda_.launches[0].config.num_attributes, 1U);
  EXPECT_EQ(cuda_.launches[0].attribute.id, cuda::kLaunchAttributeClusterDimension);
  EXPECT_EQ(cuda_.launches[0].attribute.value.cluster.x, 2U);
  EXPECT_EQ(cuda_.launches[0].attribute.value.cluster.y, 1U);
}

TEST_F(LaunchTest, SameCallReusesEverything) {
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  EXPECT_EQ(state_.counters().launches, 5U);
  EXPECT_EQ(state_.counters().plans, 1U);
  EXPECT_EQ(state_.counters().maps_encoded, 2U);
  EXPECT_EQ(state_.counters().maps_moved, 0U);
  EXPECT_EQ(cuda_.encodes.size(), 2U);
}

TEST_F(LaunchTest, OnlyWhatMovedIsMadeAnew) {
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  LaunchArgs moved = args();
  moved.buffers.k = 0x50000;
  ASSERT_TRUE(kernel_->launch(moved, state_).ok());
  EXPECT_EQ(state_.counters().plans, 1U);
  EXPECT_EQ(state_.counters().maps_encoded, 2U);
  EXPECT_EQ(state_.counters().maps_moved, 1U);
  EXPECT_EQ(argument<std::uint64_t>(1, 0), 0x10000U);
  EXPECT_EQ(argument<std::uint64_t>(1, 1), 0x50000U);
  moved.buffers.o = 0x60000;
  ASSERT_TRUE(kernel_->launch(moved, state_).ok());
  EXPECT_EQ(state_.counters().maps_moved, 1U);
  EXPECT_EQ(argument<std::uint64_t>(2, 2), 0x60000U);
  // A move gives what encoding again gives.
  LaunchState fresh;
  ASSERT_TRUE(kernel_->launch(moved, fresh).ok());
  EXPECT_EQ(cuda_.launches[3].args, cuda_.launches[2].args);
}

TEST_F(LaunchTest, NewShapesEncodeOnlyTheMapsThatChange) {
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  LaunchArgs grown = args();
  grown.shapes.kv_len = 501;
  ASSERT_TRUE(kernel_->launch(grown, state_).ok());
  EXPECT_EQ(state_.counters().plans, 2U);
  EXPECT_EQ(state_.counters().maps_encoded, 3U) << "q's map stayed";
  EXPECT_EQ(cuda_.encodes.back().dims[2], 501U);
  EXPECT_EQ(argument<std::uint64_t>(1, 0), 0x10000U) << "the kept map is still whole";
}

TEST_F(LaunchTest, AStateServesOneKernelAfterAnother) {
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  const auto other = kernel_->with_plan(test_plan());
  ASSERT_TRUE(other->launch(args(), state_).ok());
  EXPECT_EQ(state_.counters().plans, 2U);
}

TEST_F(LaunchTest, MovedAndResetStatesWork) {
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  LaunchState taken = std::move(state_);
  ASSERT_TRUE(kernel_->launch(args(), taken).ok());
  EXPECT_EQ(taken.counters().plans, 1U);
  // What was moved from is as new.
  state_.reset();
  EXPECT_EQ(state_.counters().launches, 0U);
  EXPECT_EQ(state_.sequence(), nullptr);
  taken.reset();
  EXPECT_EQ(taken.sequence(), nullptr);
  ASSERT_TRUE(kernel_->launch(args(), taken).ok());
  EXPECT_EQ(taken.counters().plans, 2U);
  EXPECT_EQ(cuda_.launches[0].args, cuda_.launches[2].args);
}

TEST_F(LaunchTest, EmptyProblemLaunchesNothing) {
  LaunchArgs empty = args();
  empty.shapes.q_len = 0;
  empty.buffers = {};
  for (int i = 0; i < 2; ++i) {
    const Status launched = kernel_->launch(empty, state_);
    ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  }
  EXPECT_EQ(cuda_.count("cuLaunchKernelEx"), 0);
  EXPECT_EQ(state_.counters().launches, 0U);
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  EXPECT_EQ(cuda_.launches.size(), 1U);
}

TEST_F(LaunchTest, NullAndMisalignedPointersAreRefusedByName) {
  for (const char* name : {"q", "k", "o"}) {
    LaunchArgs bad = args();
    DevicePointer& pointer = *name == 'q'   ? bad.buffers.q
                             : *name == 'k' ? bad.buffers.k
                                            : bad.buffers.o;
    pointer = 0;
    expect_refused(bad, ErrorCode::kInvalid, name);
    pointer = 0x10008;
    expect_refused(bad, ErrorCode::kInvalid, name);
    // The same where the state is warm.
    ASSERT_TRUE(kernel_->launch(args(), state_).ok());
    expect_refused(bad, ErrorCode::kInvalid, name);
    pointer = 0;
    ASSERT_TRUE(kernel_->launch(args(), state_).ok());
    expect_refused(bad, ErrorCode::kInvalid, name);
  }
}

TEST_F(LaunchTest, PointersThatTheKernelDoesNotUseMayBeNull) {
  LaunchArgs arguments = args();
  arguments.buffers.v = 0;
  EXPECT_TRUE(kernel_->launch(arguments, state_).ok());
}

TEST_F(LaunchTest, StridesAreMultiplesOf16BytesBelow2To40) {
  struct Case {
    std::int64_t stride;
    bool good;
  };
  for (const Case& c :
       {Case{128, true}, Case{8, true}, Case{4, false}, Case{129, false}, Case{-128, false},
        Case{std::int64_t{1} << 39, false}, Case{(std::int64_t{1} << 39) - 8, true},
        Case{std::numeric_limits<std::int64_t>::max(), false},
        Case{std::numeric_limits<std::int64_t>::min() + 1, false}, Case{0, false},
        Case{kStrideZero, true}}) {
    LaunchArgs arguments = args();
    arguments.shapes.k = {.batch = 1 << 20, .row = 1 << 10, .head = c.stride};
    if (c.good) {
      // 8 heads of 2^40 bytes each are within 2^48.
      const Status launched = kernel_->launch(arguments, state_);
      EXPECT_TRUE(launched.ok()) << c.stride << launched.error().to_string();
    } else {
      expect_refused(arguments, ErrorCode::kInvalid, "k.head");
    }
  }
}

TEST_F(LaunchTest, StrideOfADimensionOfOneIsIgnored) {
  LaunchArgs arguments = args();
  arguments.shapes.batch = 1;
  arguments.shapes.q.batch = 3;
  const Status launched = kernel_->launch(arguments, state_);
  EXPECT_TRUE(launched.ok()) << launched.error().to_string();
}

TEST_F(LaunchTest, SizesThatNoMemoryHasAreRefused) {
  LaunchArgs arguments = args();
  arguments.shapes.batch = std::numeric_limits<std::int32_t>::max();
  expect_refused(arguments, ErrorCode::kInvalid, "batch");
  arguments.shapes.batch = arguments.shapes.q_len = 1 << 30;
  expect_refused(arguments, ErrorCode::kInvalid, "q");
  arguments = args();
  arguments.shapes.batch = -1;
  expect_refused(arguments, ErrorCode::kInvalid, "batch");
}

TEST_F(LaunchTest, NotFiniteScaleIsRefused) {
  LaunchArgs arguments = args();
  arguments.scalars.scale = std::numeric_limits<float>::quiet_NaN();
  expect_refused(arguments, ErrorCode::kInvalid, "scale");
  arguments.scalars.scale = std::numeric_limits<float>::infinity();
  expect_refused(arguments, ErrorCode::kInvalid, "scale");
}

TEST_F(LaunchTest, PlannersErrorIsPassedOn) {
  planner_ = [](const KernelPlan&, const LaunchShapes&, const LaunchScalars&,
                const std::vector<UserParamShape>&, const DeviceShape&) -> Result<LaunchRecipe> {
    return make_error(ErrorCode::kInvalid, "too long", "kv_len");
  };
  expect_refused(args(), ErrorCode::kInvalid, "kv_len");
}

TEST_F(LaunchTest, ThrowingPlannerDoesNotThrowThroughTheApi) {
  planner_ = [](const KernelPlan&, const LaunchShapes&, const LaunchScalars&,
                const std::vector<UserParamShape>&,
                const DeviceShape&) -> Result<LaunchRecipe> { throw std::bad_alloc(); };
  expect_refused(args(), ErrorCode::kEnvironment, "");  // memory ran out: no defect
  planner_ = [](const KernelPlan&, const LaunchShapes&, const LaunchScalars&,
                const std::vector<UserParamShape>&, const DeviceShape&) -> Result<LaunchRecipe> {
    throw std::runtime_error("a defect");
  };
  expect_refused(args(), ErrorCode::kInternal, "");
}

TEST_F(LaunchTest, PlannerSeesTheDevice) {
  DeviceShape seen;
  planner_ = [&seen](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                     const std::vector<UserParamShape>&, const DeviceShape& device) {
    seen = device;
    return test_recipe(shapes, scalars);
  };
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  EXPECT_EQ(seen.sm_count, 132);
  EXPECT_EQ(seen.max_smem_bytes, 232448);
}

TEST_F(LaunchTest, RecipesThatDoNotFitThePlanAreDefects) {
  const auto with = [&](auto change) {
    planner_ = [change](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                        const std::vector<UserParamShape>&, const DeviceShape&) {
      LaunchRecipe recipe = test_recipe(shapes, scalars);
      change(recipe);
      return recipe;
    };
  };
  with([](LaunchRecipe& r) { r.args.pop_back(); });
  expect_refused(args(), ErrorCode::kInternal, "");
  with([](LaunchRecipe& r) { r.args[4].value = 1.0F; });
  expect_refused(args(), ErrorCode::kInternal, "");
  with([](LaunchRecipe& r) { r.args[0].value = KernelArgument::TensorMap{"none", 2}; });
  expect_refused(args(), ErrorCode::kInternal, "");
  with([](LaunchRecipe& r) { r.args[2].value = KernelArgument::Pointer{"none", 0, {}}; });
  expect_refused(args(), ErrorCode::kInternal, "");
  with([](LaunchRecipe& r) { r.tensor_maps[0].id = {}; });
  expect_refused(args(), ErrorCode::kInternal, "");
  with([](LaunchRecipe& r) { r.kernel = 1; });
  expect_refused(args(), ErrorCode::kInternal, "");
  with([](LaunchRecipe& r) { r.dynamic_smem = 100001; });
  expect_refused(args(), ErrorCode::kInternal, "");
  with([](LaunchRecipe& r) { r.grid[1] = 65536; });
  expect_refused(args(), ErrorCode::kInvalid, "shapes");
}

TEST_F(LaunchTest, TensorMapsThatTmaCannotTakeAreRefusedWithTheReason) {
  using Change = void (*)(TensorMapDescription&);
  for (const Change change : std::initializer_list<Change>{
           [](TensorMapDescription& m) { m.strides[0] = 264; },
           [](TensorMapDescription& m) { m.strides[2] = std::uint64_t{1} << 40; },
           [](TensorMapDescription& m) { m.dims[1] = (std::uint64_t{1} << 32) + 1; },
           [](TensorMapDescription& m) { m.dims[2] = 0; },
           [](TensorMapDescription& m) { m.box[0] = 72; },  // 144 bytes in a swizzle of 128
           [](TensorMapDescription& m) { m.box[0] = 4; },   // 8 bytes
           [](TensorMapDescription& m) { m.box[2] = 257; },
           [](TensorMapDescription& m) { m.box[2] = 0; },
           [](TensorMapDescription& m) { m.element_strides[1] = 9; },
           [](TensorMapDescription& m) { m.swizzle = 48; },
           [](TensorMapDescription& m) { m.l2_bytes = 32; },
           [](TensorMapDescription& m) { m.strides.pop_back(); },
           [](TensorMapDescription& m) {
             m.dims.clear();
             m.strides.clear();
             m.box.clear();
             m.element_strides.clear();
           },
           [](TensorMapDescription& m) {
             m.dtype = Dtype::kU8;
             m.oob = TensorMapDescription::OutOfBounds::kNan;
           }}) {
    planner_ = [change](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                        const std::vector<UserParamShape>&, const DeviceShape&) {
      LaunchRecipe recipe = test_recipe(shapes, scalars);
      change(recipe.tensor_maps[1]);
      return recipe;
    };
    expect_refused(args(), ErrorCode::kInvalid, "k");
  }
  EXPECT_EQ(cuda_.encodes.size(), 1U) << "q's was encoded once, k's never";
}

TEST_F(LaunchTest, MapThatFailedToEncodeIsNotTakenForEncoded) {
  cuda_.fail("cuTensorMapEncodeTiled", 2, cuda::kInvalidValue);
  expect_refused(args(), ErrorCode::kDriver, "");
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  ASSERT_EQ(cuda_.encodes.size(), 2U);
  EXPECT_EQ(argument<std::uint64_t>(0, 1), 0x20000U);
}

TEST_F(LaunchTest, OffsetsCountForAddressAndAlignment) {
  planner_ = [](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                const std::vector<UserParamShape>&, const DeviceShape&) {
    LaunchRecipe recipe = test_recipe(shapes, scalars);
    recipe.tensor_maps[1].offset = 256;
    recipe.args[2].value = KernelArgument::Pointer{"o", 64, {BufferId::Kind::kO, 0}};
    return recipe;
  };
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  EXPECT_EQ(cuda_.encodes[1].address, 0x20100U);
  EXPECT_EQ(argument<std::uint64_t>(0, 2), 0x40040U);
}

TEST_F(LaunchTest, WorkspaceIsCheckedAndDividedUp) {
  workspaces_ = {{"partial_o", 1000, false}, {"counters", 4, true}};
  planner_ = [](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                const std::vector<UserParamShape>&, const DeviceShape&) {
    LaunchRecipe recipe = test_recipe(shapes, scalars);
    recipe.args[2].value = KernelArgument::Pointer{"counters", 0, {BufferId::Kind::kWorkspace, 1}};
    return recipe;
  };
  LaunchArgs arguments = args();
  const auto need = kernel_->workspace(arguments);
  ASSERT_TRUE(need.ok());
  EXPECT_EQ(need->bytes, 1024 + 256);
  EXPECT_EQ(need->zero_bytes, 1024 + 256) << "up to the counters";
  arguments.workspace_bytes = 1280;
  expect_refused(arguments, ErrorCode::kInvalid, "workspace");
  arguments.workspace = 0x70010;
  expect_refused(arguments, ErrorCode::kInvalid, "workspace");
  arguments.workspace = 0x70000;
  arguments.workspace_bytes = 1279;
  expect_refused(arguments, ErrorCode::kInvalid, "workspace");
  arguments.workspace_bytes = 1280;
  ASSERT_TRUE(kernel_->launch(arguments, state_).ok());
  EXPECT_EQ(argument<std::uint64_t>(0, 2), 0x70400U);
  // A warm state notices a workspace that shrank.
  arguments.workspace_bytes = 8;
  expect_refused(arguments, ErrorCode::kInvalid, "workspace");
}

// What CTAs take their tiles from may be left out; what partial results need may not.
TEST_F(LaunchTest, TileCountersAreOptional) {
  workspaces_ = {{"tile_counters", 16, true}};
  planner_ = [](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                const std::vector<UserParamShape>&, const DeviceShape&) {
    LaunchRecipe recipe = test_recipe(shapes, scalars);
    recipe.args[2].value =
        KernelArgument::Pointer{"tile_counters", 0, {BufferId::Kind::kWorkspace, 0}};
    return recipe;
  };
  LaunchArgs arguments = args();
  const auto need = kernel_->workspace(arguments);
  ASSERT_TRUE(need.ok());
  EXPECT_EQ(need->bytes, WorkspaceNeed::kZeroBytes);
  EXPECT_EQ(need->zero_bytes, WorkspaceNeed::kZeroBytes);
  EXPECT_TRUE(need->optional());
  ASSERT_TRUE(kernel_->launch(arguments, state_).ok());
  EXPECT_EQ(argument<std::uint64_t>(0, 2), 0U);
  arguments.workspace = 0x70000;
  arguments.workspace_bytes = 16;
  expect_refused(arguments, ErrorCode::kInvalid, "workspace");
  arguments.workspace_bytes = 256;
  ASSERT_TRUE(kernel_->launch(arguments, state_).ok());
  EXPECT_EQ(argument<std::uint64_t>(1, 2), 0x70000U);
  workspaces_.push_back({"partial_o", 16, false});
  state_.reset();
  arguments.workspace = 0;
  expect_refused(arguments, ErrorCode::kInvalid, "workspace");
}

class TwoKernelsTest : public LaunchTest {
 protected:
  void SetUp() override {
    LaunchTest::SetUp();
    cuda_.kernel_names = {"attnjit_kernel", "attnjit_second"};
    KernelPlan plan = test_plan();
    plan.main().overlaps = true;
    PlannedKernel second;
    second.entry = "attnjit_second";
    second.threads = 128;
    second.overlaps = true;
    second.parameters = {{"o", KernelParameter::Kind::kPointer, "float"},
                         {"partial", KernelParameter::Kind::kPointer, "const float"}};
    plan.kernels.push_back(second);
    plan.workspaces = {WorkspaceId::kPartialO};
    LaunchRecipe recipe;
    recipe.entry = second.entry;
    recipe.kernel = 1;
    recipe.grid = {7, 1, 1};
    recipe.block = {128, 1, 1};
    recipe.args = {{KernelArgument::Pointer{"o", 0, {BufferId::Kind::kO, 0}}},
                   {KernelArgument::Pointer{"partial", 0, {BufferId::Kind::kWorkspace, 0}}}};
    next_launches_ = {recipe};
    workspaces_ = {{"partial", 512, false}};
    cuda_.arg_sizes_of["attnjit_second"] = {8, 8};
    auto image = std::make_shared<KernelImage>();
    image->cubin = fake::make_cubin({"attnjit_kernel", "attnjit_second"}, 90);
    image->entries = {"attnjit_kernel", "attnjit_second"};
    load_kernel(plan, image);
    arguments_ = args();
    arguments_.workspace = 0x70000;
    arguments_.workspace_bytes = 512;
  }
  LaunchArgs arguments_;
};

TEST_F(TwoKernelsTest, AreLaunchedInOrderOverSharedBuffers) {
  const Status launched = kernel_->launch(arguments_, state_);
  ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  ASSERT_EQ(cuda_.launches.size(), 2U);
  EXPECT_EQ(cuda_.launches[0].kernel, "attnjit_kernel");
  EXPECT_EQ(cuda_.launches[1].kernel, "attnjit_second");
  EXPECT_EQ(cuda_.launches[1].config.grid_x, 7U);
  EXPECT_EQ(cuda_.launches[0].config.num_attributes, 0U);
  ASSERT_EQ(cuda_.launches[1].config.num_attributes, 1U);
  const cuda::LaunchAttribute& early = cuda_.launches[1].attribute;
  EXPECT_EQ(early.id, cuda::kLaunchAttributeProgrammaticStreamSerialization);
  EXPECT_EQ(early.value.programmatic_stream_serialization_allowed, 1);
  EXPECT_EQ(argument<std::uint64_t>(1, 0), 0x40000U);
  EXPECT_EQ(argument<std::uint64_t>(1, 1), 0x70000U);
  EXPECT_EQ(state_.counters().launches, 1U);
}

// The first of a plan's kernels may run before the launch before it has ended only where that is
// asked for, from launch to launch.
TEST_F(TwoKernelsTest, TheFirstOverlapsWhereItIsAsked) {
  for (const bool overlap : {true, false, true}) {
    arguments_.overlap = overlap;
    cuda_.launches.clear();
    ASSERT_TRUE(kernel_->launch(arguments_, state_).ok());
    ASSERT_EQ(cuda_.launches.size(), 2U);
    EXPECT_EQ(cuda_.launches[0].config.num_attributes, overlap ? 1U : 0U);
    EXPECT_EQ(cuda_.launches[1].config.num_attributes, 1U);
  }
}

TEST_F(LaunchTest, KernelsThatDoNotWaitNeverOverlap) {
  LaunchArgs arguments = args();
  arguments.overlap = true;
  ASSERT_TRUE(kernel_->launch(arguments, state_).ok());
  ASSERT_EQ(cuda_.launches.size(), 1U);
  EXPECT_EQ(cuda_.launches[0].config.num_attributes, 0U);
}

TEST_F(TwoKernelsTest, MovedBuffersReachBoth) {
  ASSERT_TRUE(kernel_->launch(arguments_, state_).ok());
  arguments_.buffers.o = 0x60000;
  arguments_.workspace = 0x80000;
  ASSERT_TRUE(kernel_->launch(arguments_, state_).ok());
  EXPECT_EQ(state_.counters().plans, 1U);
  EXPECT_EQ(argument<std::uint64_t>(2, 2), 0x60000U);
  EXPECT_EQ(argument<std::uint64_t>(3, 0), 0x60000U);
  EXPECT_EQ(argument<std::uint64_t>(3, 1), 0x80000U);
}

// The kernel of a launch is the one that it counts, whatever its entry is called.
TEST_F(TwoKernelsTest, ALaunchIsOfTheKernelThatItCounts) {
  next_launches_.front().entry = "attnjit_kernel";
  ASSERT_TRUE(kernel_->launch(arguments_, state_).ok());
  ASSERT_EQ(cuda_.launches.size(), 2U);
  EXPECT_EQ(cuda_.launches[1].kernel, "attnjit_second");
}

TEST_F(TwoKernelsTest, AMissingWorkspaceLaunchesNeither) {
  arguments_.workspace = 0;
  expect_refused(arguments_, ErrorCode::kInvalid, "workspace");
  const auto need = kernel_->workspace(args());
  ASSERT_TRUE(need.ok());
  EXPECT_EQ(need->bytes, 512);
}

TEST_F(LaunchTest, NoContextIsAnEnvironmentError) {
  cuda_.set_current(nullptr);
  expect_refused(args(), ErrorCode::kEnvironment, "stream");
}

// What a caller without a GPU can be told is said before that there is none.
TEST_F(LaunchTest, WithoutAContextTheLaunchsOwnProblemsComeFirst) {
  cuda_.set_current(nullptr);
  LaunchArgs arguments = args();
  arguments.scalars.scale = std::numeric_limits<float>::infinity();
  expect_refused(arguments, ErrorCode::kInvalid, "scale");
  EXPECT_EQ(kernel_->workspace(arguments).error().field, "scale");
  arguments.shapes.kv_len = -1;
  expect_refused(arguments, ErrorCode::kInvalid, "kv_len");
  EXPECT_EQ(kernel_->workspace(arguments).error().field, "kv_len");
  EXPECT_EQ(kernel_->workspace(args()).error().field, "stream");
}

TEST_F(LaunchTest, StreamsContextCounts) {
  const cuda::Stream stream = cuda_.create_stream();
  cuda_.set_current(nullptr);
  LaunchArgs arguments = args();
  arguments.stream = stream;
  const Status launched = kernel_->launch(arguments, state_);
  ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  EXPECT_EQ(cuda_.launches[0].config.stream, stream);
}

TEST_F(LaunchTest, AnotherDevicesContextIsPreparedAndPlannedFor) {
  cuda_.devices.push_back({"NVIDIA H20 (fake)", 9, 0, 78, 232448});
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  cuda_.primary(1);
  int sm_count = 0;
  planner_ = [&sm_count](const KernelPlan&, const LaunchShapes& shapes,
                         const LaunchScalars& scalars, const std::vector<UserParamShape>&,
                         const DeviceShape& device) {
    sm_count = device.sm_count;
    return test_recipe(shapes, scalars);
  };
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  EXPECT_EQ(sm_count, 78);
  EXPECT_EQ(cuda_.count("cuFuncLoad"), 2);
  EXPECT_EQ(cuda_.libraries[1].max_dynamic_smem[1], 100000);
}

TEST_F(LaunchTest, FailedLaunchIsReportedAndTheNextStartsAfresh) {
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  cuda_.fail("cuLaunchKernelEx", 1, cuda::kIllegalAddress);
  const Status failed = kernel_->launch(args(), state_);
  ASSERT_FALSE(failed.ok());
  EXPECT_EQ(failed.error().code, ErrorCode::kDriver);
  EXPECT_NE(failed.error().message.find("CUDA_ERROR_ILLEGAL_ADDRESS"), std::string::npos);
  EXPECT_NE(failed.error().hint.find("compute-sanitizer"), std::string::npos);
  ASSERT_TRUE(kernel_->launch(args(), state_).ok());
  EXPECT_EQ(state_.counters().plans, 2U);
}

// --- User parameters
// ------------------------------------------------------------------------------

class ParamTest : public LaunchTest {
 protected:
  void SetUp() override {
    LaunchTest::SetUp();
    using Type = ParamSpec::Type;
    AttentionSpec spec = test_spec();
    MaskSpec custom;
    custom.kind = MaskSpec::Kind::kCustom;
    custom.custom = {"m", "true", false, {{"doc", Type::kI32Array}, {"limit", Type::kI32}}};
    spec.mask.kind = MaskSpec::Kind::kAnd;
    spec.mask.of = {MaskSpec{}, custom};
    spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
    spec.score_mod.custom = {"s",
                             "score",
                             false,
                             {{"bias", Type::kF32Array},
                              {"gain", Type::kF32},
                              {"table", Type::kI32Matrix},
                              {"limit", Type::kI32}}};
    KernelPlan plan = test_plan(spec);
    using Kind = KernelParameter::Kind;
    plan.main().parameters.push_back({"param_doc", Kind::kPointer, "const int"});
    plan.main().parameters.push_back({"param_doc_n", Kind::kI32, ""});
    cuda_.arg_sizes.insert(cuda_.arg_sizes.end(), {8, 4});
    planner_ = [this](const KernelPlan&, const LaunchShapes& shapes, const LaunchScalars& scalars,
                      const std::vector<UserParamShape>& params, const DeviceShape&) {
      seen_ = params;
      LaunchRecipe recipe = test_recipe(shapes, scalars);
      recipe.args.push_back({KernelArgument::Pointer{"param_doc", 0, {BufferId::Kind::kParam, 0}}});
      recipe.args.push_back({params[0].extent[0]});
      return recipe;
    };
    load_kernel(plan);
    good_ = args();
    good_.params = {{"gain", 0.5F},
                    {"doc", DeviceArray{0x80000, Dtype::kI32, {7, 0}}},
                    {"bias", DeviceArray{0x80100, Dtype::kF32, {3, 0}}},
                    {"table", DeviceArray{0x80200, Dtype::kI32, {4, 5}}},
                    {"limit", 9}};
  }
  LaunchArgs good_;
  std::vector<UserParamShape> seen_;
};

TEST_F(ParamTest, AreGivenInTheDeclaredOrder) {
  const Status launched = kernel_->launch(good_, state_);
  ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  ASSERT_EQ(seen_.size(), 5U);
  EXPECT_EQ(seen_[0].name, "doc");
  EXPECT_EQ(seen_[0].extent, (std::array<std::int32_t, 3>{7, 0, 0}));
  EXPECT_EQ(seen_[1].name, "limit");
  EXPECT_EQ(std::get<std::int32_t>(seen_[1].scalar), 9);
  EXPECT_EQ(seen_[2].name, "bias");
  EXPECT_EQ(std::get<float>(seen_[3].scalar), 0.5F);
  EXPECT_EQ(seen_[4].extent, (std::array<std::int32_t, 3>{4, 5, 0}));
  EXPECT_EQ(argument<std::uint64_t>(0, 7), 0x80000U);
  EXPECT_EQ(argument<std::int32_t>(0, 8), 7);
}

TEST_F(ParamTest, MovedArrayIsNotPlannedAnew) {
  ASSERT_TRUE(kernel_->launch(good_, state_).ok());
  std::get<DeviceArray>(good_.params[1].value).pointer = 0x90000;
  ASSERT_TRUE(kernel_->launch(good_, state_).ok());
  EXPECT_EQ(state_.counters().plans, 1U);
  EXPECT_EQ(argument<std::uint64_t>(1, 7), 0x90000U);
  good_.params[0].value = 0.25F;
  ASSERT_TRUE(kernel_->launch(good_, state_).ok());
  EXPECT_EQ(state_.counters().plans, 2U);
}

TEST_F(ParamTest, OrderOfTheCallMayChangeBetweenLaunches) {
  ASSERT_TRUE(kernel_->launch(good_, state_).ok());
  std::swap(good_.params[1], good_.params[2]);
  ASSERT_TRUE(kernel_->launch(good_, state_).ok());
  EXPECT_EQ(argument<std::uint64_t>(1, 7), 0x80000U);
}

TEST_F(ParamTest, EmptyArrayMayBeNull) {
  good_.params[1].value = DeviceArray{0, Dtype::kI32, {0, 0}};
  const Status launched = kernel_->launch(good_, state_);
  ASSERT_TRUE(launched.ok()) << launched.error().to_string();
  EXPECT_EQ(argument<std::uint64_t>(0, 7), 0U);
}

TEST_F(ParamTest, WrongOnesAreRefusedByName) {
  struct Case {
    const char* what;
    void (*change)(std::vector<UserParam>&);
    const char* field;
  };
  const Case cases[] = {
      {"missing", [](std::vector<UserParam>& p) { p.pop_back(); }, "param_limit"},
      {"unknown",
       [](std::vector<UserParam>& p) {
         p.push_back({"foo", 1});
       },
       "param_foo"},
      {"twice", [](std::vector<UserParam>& p) { p.push_back(p[0]); }, "param_gain"},
      {"i32 for f32", [](std::vector<UserParam>& p) { p[0].value = 1; }, "param_gain"},
      {"f32 for i32", [](std::vector<UserParam>& p) { p[4].value = 1.0F; }, "param_limit"},
      {"scalar for array", [](std::vector<UserParam>& p) { p[1].value = 1; }, "param_doc"},
      {"array for scalar", [](std::vector<UserParam>& p) { p[0].value = p[1].value; },
       "param_gain"},
      {"f32 array for i32 array", [](std::vector<UserParam>& p) { p[1].value = p[2].value; },
       "param_doc"},
      {"null", [](std::vector<UserParam>& p) { std::get<DeviceArray>(p[1].value).pointer = 0; },
       "param_doc"},
      {"misaligned",
       [](std::vector<UserParam>& p) { std::get<DeviceArray>(p[1].value).pointer = 0x80002; },
       "param_doc"},
      {"negative",
       [](std::vector<UserParam>& p) { std::get<DeviceArray>(p[1].value).extent[0] = -1; },
       "param_doc"},
      {"negative columns",
       [](std::vector<UserParam>& p) { std::get<DeviceArray>(p[3].value).extent[1] = -1; },
       "param_table"},
      {"too large",
       [](std::vector<UserParam>& p) {
         std::get<DeviceArray>(p[3].value).extent = {65536, 65536};
       },
       "param_table"},
  };
  for (const Case& c : cases) {
    SCOPED_TRACE(c.what);
    LaunchArgs bad = good_;
    c.change(bad.params);
    expect_refused(bad, ErrorCode::kInvalid, c.field);
    // A warm state notices too.
    ASSERT_TRUE(kernel_->launch(good_, state_).ok());
    expect_refused(bad, ErrorCode::kInvalid, c.field);
  }
}

TEST_F(ParamTest, EveryProblemIsReportedAtOnce) {
  good_.params = {{"foo", 1}};
  const Status launched = kernel_->launch(good_, state_);
  ASSERT_FALSE(launched.ok());
  EXPECT_EQ(launched.error().others.size(), 5U) << launched.error().to_string();
}

}  // namespace
}  // namespace attnjit
