// SPDX-License-Identifier: Apache-2.0
// plan_launch for sm_90a: grids, tensor maps, arguments, and what it refuses.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <algorithm>

#include <limits>

#include "../one_launch.h"
#include "attnjit/launch.h"
#include "plan/sm90/sm90_plan.h"
#include "planned.h"

namespace attnjit {
namespace {

using plan_test::shapes_of;

AttentionSpec base_spec() {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 8;
  spec.group = 4;
  spec.qk_depth = 128;
  return spec;
}

KernelPlan supported_plan(const AttentionSpec& spec) {
  Result<KernelPlan> result = plan(spec);
  EXPECT_TRUE(result.ok() && result->supported);
  return result.ok() ? *result : KernelPlan{};
}

// One SM: no launch gains by low tiles.
constexpr DeviceShape kFullTiles{.sm_count = 1};

const TensorMapDescription& map_of(const LaunchRecipe& recipe, const std::string& name) {
  for (const TensorMapDescription& map : recipe.tensor_maps) {
    if (map.name == name) return map;
  }
  ADD_FAILURE() << "no tensor map " << name;
  return recipe.tensor_maps.front();
}

KernelArgument argument_of(const KernelPlan& plan, const LaunchRecipe& recipe,
                           const std::string& name) {
  for (std::size_t i = 0; i < plan.main().parameters.size(); ++i) {
    if (plan.main().parameters[i].name == name) return recipe.args.at(i);
  }
  ADD_FAILURE() << "no parameter " << name;
  return {std::int32_t{0}};
}

std::int32_t i32_of(const KernelArgument& argument) {
  return std::get<std::int32_t>(argument.value);
}

TEST(PlanLaunch, FillsEveryParameterInOrder) {
  AttentionSpec spec = base_spec();
  spec.return_lse = true;
  spec.sink = true;
  const KernelPlan plan = supported_plan(spec);
  Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(3, 200, 1000), {}, {}, kFullTiles);
  ASSERT_TRUE(recipe.ok());
  ASSERT_EQ(recipe->args.size(), plan.main().parameters.size());
  EXPECT_EQ(recipe->entry, plan.main().entry);
  EXPECT_EQ(recipe->block[0], 512u);
  EXPECT_EQ(recipe->dynamic_smem, plan.main().smem_bytes);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "q_len")), 200);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "kv_len")), 1000);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "num_q_heads")), 8);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "m_tiles")), 5);  // 200 positions of 4 heads
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "total_tiles")), 5 * 2 * 3);
  EXPECT_EQ(std::get<KernelArgument::Pointer>(argument_of(plan, *recipe, "lse").value).buffer,
            "lse");
  EXPECT_EQ(std::get<KernelArgument::Pointer>(argument_of(plan, *recipe, "sink").value).buffer,
            "sink");
  EXPECT_FLOAT_EQ(std::get<float>(argument_of(plan, *recipe, "scale").value), 0.08838834764831845f);
}

TEST(PlanLaunch, PackedTensorMaps) {
  const KernelPlan plan = supported_plan(base_spec());
  Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(3, 200, 1000), {}, {});
  ASSERT_TRUE(recipe.ok());
  const TensorMapDescription& q = map_of(*recipe, "q_map");
  EXPECT_EQ(q.buffer, "q");
  EXPECT_EQ(q.dims, (std::vector<std::uint64_t>{128, 8, 200, 3}));
  EXPECT_EQ(q.strides, (std::vector<std::uint64_t>{256, 2048, 409600}));
  EXPECT_EQ(q.box, (std::vector<std::uint32_t>{64, 4, 16, 1}));
  EXPECT_EQ(q.swizzle, 128);
  const TensorMapDescription& k = map_of(*recipe, "k_map");
  EXPECT_EQ(k.dims, (std::vector<std::uint64_t>{128, 1000, 2, 3}));
  EXPECT_EQ(k.strides, (std::vector<std::uint64_t>{512, 256, 512000}));
  EXPECT_EQ(map_of(*recipe, "o_map").box, q.box);
}

TEST(PlanLaunch, PagesAndRaggedRows) {
  AttentionSpec spec = base_spec();
  spec.page_size = 24;
  spec.ragged = true;
  const KernelPlan plan = supported_plan(spec);
  LaunchShapes shapes = shapes_of(3, 200, 70);
  shapes.total_q = 210;
  shapes.num_pages = 11;
  shapes.max_pages = 5;
  shapes.o = {.batch = 0, .row = 2048, .head = 256};
  const Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
  ASSERT_TRUE(recipe.ok()) << recipe.error().to_string();
  const TensorMapDescription& k = map_of(*recipe, "k_map");
  EXPECT_EQ(k.dims, (std::vector<std::uint64_t>{128, 24, 2, 11}));
  EXPECT_EQ(k.strides, (std::vector<std::uint64_t>{512, 256, 24 * 512}));
  EXPECT_EQ(k.box, (std::vector<std::uint32_t>{64, 8, 1, 1}));
  EXPECT_EQ(map_of(*recipe, "v_map").box, k.box);
  EXPECT_EQ(map_of(*recipe, "q_map").dims, (std::vector<std::uint64_t>{128, 8, 210, 1}));
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "batch")), 3);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "q_len")), 200);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "total_q")), 210);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "max_pages")), 5);
  EXPECT_EQ(std::get<std::int64_t>(argument_of(plan, *recipe, "o_row_bytes").value), 4096);
  EXPECT_EQ(std::get<std::int64_t>(argument_of(plan, *recipe, "o_head_bytes").value), 512);
  // 840 rows of heads in tiles of 192: three sequences waste less than a tile each.
  EXPECT_EQ(plan.sm90->BM, 192);
  EXPECT_EQ(recipe->grid[0], 2U * ((840 + 3 * 191) / 192));
}

TEST(PlanLaunch, RaggedKeysAreOneRunOfRows) {
  AttentionSpec spec = base_spec();
  spec.ragged_kv = true;
  const KernelPlan plan = supported_plan(spec);
  LaunchShapes shapes = shapes_of(3, 200, 70);
  shapes.total_kv = 101;
  const Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
  ASSERT_TRUE(recipe.ok()) << recipe.error().to_string();
  const TensorMapDescription& k = map_of(*recipe, "k_map");
  EXPECT_EQ(k.dims, (std::vector<std::uint64_t>{128, 101, 2, 1}));
  EXPECT_EQ(k.strides, (std::vector<std::uint64_t>{512, 256, 101 * 512}));
  EXPECT_EQ(map_of(*recipe, "q_map").dims, (std::vector<std::uint64_t>{128, 8, 200, 3}));
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "total_kv")), 101);
  const auto pointer = [&](const char* name) {
    return std::get<KernelArgument::Pointer>(argument_of(plan, *recipe, name).value).buffer;
  };
  EXPECT_EQ(pointer("kv_offsets"), "kv_offsets");
  EXPECT_TRUE(std::none_of(plan.main().parameters.begin(), plan.main().parameters.end(),
                           [](const KernelParameter& p) { return p.name == "kv_lens"; }));
  for (const int total : {69, 211}) {
    shapes.total_kv = total;
    const Result<LaunchRecipe> refused = one_launch(plan, shapes, {}, {});
    ASSERT_FALSE(refused.ok()) << total;
    EXPECT_EQ(refused.error().field, "total_kv");
  }
}

TEST(PlanLaunch, NoPagesAreLoadedWhereThereAreNone) {
  AttentionSpec spec = base_spec();
  spec.page_size = 16;
  const KernelPlan plan = supported_plan(spec);
  const Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(3, 5, 0), {}, {});
  ASSERT_TRUE(recipe.ok()) << recipe.error().to_string();
  EXPECT_EQ(map_of(*recipe, "k_map").buffer, "q");
  EXPECT_EQ(recipe->grid[0], 6U);
}

// The query heads of a group lie in one tile's rows where whole positions fill a TMA box.
TEST(PlanLaunch, HeadsOfAGroupShareTilesWhereABoxHoldsWholePositions) {
  struct {
    int heads, group, depth;
    ScoreModSpec::Kind mod;
    bool packed;
  } const cases[] = {{8, 1, 128, ScoreModSpec::Kind::kIdentity, false},
                     {8, 8, 128, ScoreModSpec::Kind::kAlibi, true},
                     {64, 64, 64, ScoreModSpec::Kind::kIdentity, true},
                     {128, 128, 64, ScoreModSpec::Kind::kIdentity, false},
                     {6, 3, 128, ScoreModSpec::Kind::kIdentity, false},
                     {8, 4, 256, ScoreModSpec::Kind::kSoftcap, true},
                     {8, 4, 256, ScoreModSpec::Kind::kAlibi, false}};
  for (const auto& one : cases) {
    AttentionSpec spec = base_spec();
    spec.num_q_heads = one.heads;
    spec.group = one.group;
    spec.qk_depth = one.depth;
    spec.score_mod.kind = one.mod;
    if (one.mod == ScoreModSpec::Kind::kSoftcap) spec.score_mod.cap = 30;
    const KernelPlan plan = supported_plan(spec);
    ASSERT_TRUE(plan.supported) << plan.reason;
    EXPECT_EQ(plan.sm90->pack_gqa, one.packed) << one.group << " at depth " << one.depth;
    Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(2, 100, 300), {}, {}, kFullTiles);
    ASSERT_TRUE(recipe.ok()) << recipe.error().to_string();
    const auto& box = map_of(*recipe, "q_map").box;
    const unsigned sharers = one.packed ? static_cast<unsigned>(one.group) : 1;
    EXPECT_EQ(box, (std::vector<std::uint32_t>{64, sharers, 64 / sharers, 1}));
    const int m_tiles = (100 * static_cast<int>(sharers) + plan.sm90->BM - 1) / plan.sm90->BM;
    EXPECT_EQ(i32_of(argument_of(plan, *recipe, "m_tiles")), m_tiles);
    EXPECT_EQ(i32_of(argument_of(plan, *recipe, "total_tiles")),
              m_tiles * 2 * one.heads / static_cast<int>(sharers));
  }
  // A decode packs any group, and so do sequences that differ in length; a box is whole positions.
  AttentionSpec decode = base_spec();
  decode.num_q_heads = 12;
  decode.group = 6;
  decode.max_q_len = 4;
  Result<LaunchRecipe> packed = one_launch(supported_plan(decode), shapes_of(2, 3, 300), {}, {});
  ASSERT_TRUE(packed.ok()) << packed.error().to_string();
  const TensorMapDescription& q = map_of(*packed, "q_map");
  EXPECT_EQ(q.dims, (std::vector<std::uint64_t>{128, 12, 3, 2}));
  EXPECT_EQ(q.strides, (std::vector<std::uint64_t>{256, 12 * 256, 3 * 12 * 256}));
  EXPECT_EQ(q.box, (std::vector<std::uint32_t>{64, 6, 10, 1}));
  AttentionSpec spec = base_spec();
  spec.group = 8;
  const Result<LaunchRecipe> longest =
      one_launch(supported_plan(spec), shapes_of(1, 1 << 27, 10), {}, {});
  EXPECT_TRUE(longest.ok());
  const Result<LaunchRecipe> longer =
      one_launch(supported_plan(spec), shapes_of(1, (1 << 27) + 1, 10), {}, {});
  ASSERT_FALSE(longer.ok());
  EXPECT_EQ(longer.error().field, "q_len");
}

TEST(PlanLaunch, TakesStridesAndRefusesThoseThatTmaCannot) {
  const KernelPlan plan = supported_plan(base_spec());
  LaunchShapes shapes = shapes_of(2, 64, 64);
  shapes.k = {.batch = 1 << 20, .row = 1024, .head = 256};
  Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
  ASSERT_TRUE(recipe.ok());
  EXPECT_EQ(map_of(*recipe, "k_map").strides, (std::vector<std::uint64_t>{2048, 512, 2 << 20}));
  for (const std::int64_t bad : {std::int64_t{129}, std::int64_t{-1024}, std::int64_t{1} << 39}) {
    shapes.k.row = bad;
    recipe = one_launch(plan, shapes, {}, {});
    ASSERT_FALSE(recipe.ok()) << bad;
    EXPECT_EQ(recipe.error().code, ErrorCode::kInvalid);
    EXPECT_EQ(recipe.error().field, "k.row");
  }
}

// What frameworks expand has strides of 0: it is read as it lies, and a 0 alone never means packed.
TEST(PlanLaunch, AStrideOfZeroIsNeverTakenForPacked) {
  const KernelPlan plan = supported_plan(base_spec());
  const LaunchShapes plain = shapes_of(2, 64, 64);
  const struct {
    const char* name;
    TensorStrides LaunchShapes::*strides;
  } tensors[] = {{"q", &LaunchShapes::q},
                 {"k", &LaunchShapes::k},
                 {"v", &LaunchShapes::v},
                 {"o", &LaunchShapes::o}};
  const struct {
    const char* name;
    std::int64_t TensorStrides::*stride;
    std::size_t in_map;
  } dimensions[] = {{"batch", &TensorStrides::batch, 2},
                    {"row", &TensorStrides::row, 1},
                    {"head", &TensorStrides::head, 0}};
  for (const auto& tensor : tensors) {
    for (const auto& dimension : dimensions) {
      LaunchShapes shapes = plain;
      shapes.*tensor.strides = {.batch = 1 << 20, .row = 4096, .head = 256};
      shapes.*tensor.strides.*dimension.stride = 0;
      Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
      ASSERT_FALSE(recipe.ok()) << tensor.name << dimension.name;
      EXPECT_EQ(recipe.error().field, fmt::format("{}.{}", tensor.name, dimension.name));
      shapes.*tensor.strides.*dimension.stride = kStrideZero;
      recipe = one_launch(plan, shapes, {}, {});
      if (tensor.strides == &LaunchShapes::o) {  // it would be written over and over
        ASSERT_FALSE(recipe.ok());
        EXPECT_EQ(recipe.error().field, "o");
        continue;
      }
      ASSERT_TRUE(recipe.ok()) << recipe.error().to_string();
      std::vector<std::uint64_t> strides{512, 8192, 2 << 20};
      strides[dimension.in_map] = 0;
      const TensorMapDescription& map = map_of(*recipe, fmt::format("{}_map", tensor.name));
      // NOTE: a map of K has rows before heads, one of Q heads before rows.
      if (tensor.strides != &LaunchShapes::q) std::swap(strides[0], strides[1]);
      EXPECT_EQ(map.strides, strides) << tensor.name << dimension.name;
    }
    LaunchShapes shapes = plain;
    shapes.*tensor.strides = {kStrideZero, kStrideZero, kStrideZero};
    EXPECT_EQ(one_launch(plan, shapes, {}, {}).ok(), tensor.strides != &LaunchShapes::o);
  }
  // A dimension of one element may have any.
  LaunchShapes shapes = shapes_of(1, 64, 64);
  for (const std::int64_t any : {std::int64_t{0}, kStrideZero, std::int64_t{-7}}) {
    shapes.o = {.batch = any, .row = 4096, .head = 256};
    EXPECT_TRUE(one_launch(plan, shapes, {}, {}).ok()) << any;
  }
}

TEST(PlanLaunch, RefusesAnOutputWhoseRowsLieOverOneAnother) {
  const KernelPlan plan = supported_plan(base_spec());
  LaunchShapes shapes = shapes_of(2, 64, 64);
  const std::int64_t row = 8 * 128, batch = 64 * row;
  for (const TensorStrides& apart :
       {TensorStrides{batch, row, 128}, TensorStrides{128, 8 * 256, 256},
        TensorStrides{batch, 128, 64 * 128}, TensorStrides{2 * batch, 2 * row, 256}}) {
    shapes.o = apart;
    const Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
    EXPECT_TRUE(recipe.ok()) << recipe.error().to_string();
  }
  for (const TensorStrides& over :
       {TensorStrides{batch - 8, row, 128}, TensorStrides{batch, row - 8, 128},
        TensorStrides{batch, row, 120}, TensorStrides{8, row, 128}}) {
    shapes.o = over;
    const Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
    ASSERT_FALSE(recipe.ok());
    EXPECT_EQ(recipe.error().field, "o");
  }
}

// Rows of Q within a fused QKV row, and O by heads: each map has its own tensor's strides, whatever
// the order of its dimensions.
TEST(PlanLaunch, MapsOfQAndOTakeTheirOwnStrides) {
  for (const int group : {1, 4}) {
    AttentionSpec spec = base_spec();
    spec.group = group;
    LaunchShapes shapes = shapes_of(3, 200, 64);
    shapes.q = {.batch = 200 * 4096, .row = 4096, .head = 128};
    shapes.o = {.batch = 8 * 200 * 256, .row = 256, .head = 200 * 256};
    const Result<LaunchRecipe> recipe = one_launch(supported_plan(spec), shapes, {}, {});
    ASSERT_TRUE(recipe.ok()) << recipe.error().to_string();
    const TensorMapDescription& q = map_of(*recipe, "q_map");
    const TensorMapDescription& o = map_of(*recipe, "o_map");
    const std::vector<std::uint64_t> dims{128, 8, 200, 3};  // depth, head, position, batch
    EXPECT_EQ(q.dims, dims);
    EXPECT_EQ(o.dims, dims);
    EXPECT_EQ(q.strides, (std::vector<std::uint64_t>{256, 8192, 1638400}));
    EXPECT_EQ(o.strides, (std::vector<std::uint64_t>{102400, 512, 819200}));
    EXPECT_EQ(q.buffer, "q");
    EXPECT_EQ(o.buffer, "o");
    const auto sharers = static_cast<std::uint32_t>(group);
    EXPECT_EQ(o.box, (std::vector<std::uint32_t>{64, sharers, 64 / sharers, 1}));
  }
}

// A stride over a dimension of one element means nothing; callers pass anything there.
TEST(PlanLaunch, IgnoresTheStrideOfASingleElement) {
  LaunchShapes shapes = shapes_of(1, 1, 64);
  shapes.q = {.batch = 3, .row = 5, .head = 128};
  EXPECT_TRUE(one_launch(supported_plan(base_spec()), shapes, {}, {}).ok());
}

TEST(PlanLaunch, EmptyProblems) {
  const KernelPlan plan = supported_plan(base_spec());
  for (const LaunchShapes& shapes : {shapes_of(0, 10, 10), shapes_of(2, 0, 10)}) {
    Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
    ASSERT_TRUE(recipe.ok());
    EXPECT_EQ(recipe->grid[0], 0u);
  }
  // Without keys there are outputs to write all the same, and no tensor map may be empty.
  Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(2, 10, 0), {}, {});
  ASSERT_TRUE(recipe.ok());
  EXPECT_EQ(recipe->grid[0], 4u);  // a tile for each key-value head of both sequences
  for (const TensorMapDescription& map : recipe->tensor_maps) {
    for (const std::uint64_t dim : map.dims) EXPECT_GT(dim, 0u) << map.name;
  }
}

TEST(PlanLaunch, RefusesWhatOverflows) {
  const KernelPlan plan = supported_plan(base_spec());
  const std::int32_t huge = std::numeric_limits<std::int32_t>::max();
  EXPECT_FALSE(one_launch(plan, shapes_of(1, huge, 10), {}, {}).ok());
  EXPECT_FALSE(one_launch(plan, shapes_of(1, 10, huge), {}, {}).ok());
  EXPECT_FALSE(one_launch(plan, shapes_of(-1, 10, 10), {}, {}).ok());
  EXPECT_FALSE(one_launch(plan, shapes_of(1 << 30, 1 << 20, 10), {}, {}).ok());
  LaunchScalars scalars;
  scalars.scale = -1;
  EXPECT_FALSE(one_launch(plan, shapes_of(1, 10, 10), scalars, {}).ok());
  scalars.scale = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(one_launch(plan, shapes_of(1, 10, 10), scalars, {}).ok());
}

TEST(PlanLaunch, WindowsComeFromTheLaunchOrTheSpec) {
  AttentionSpec spec = base_spec();
  MaskSpec window;
  window.kind = MaskSpec::Kind::kSlidingWindow;
  spec.mask.kind = MaskSpec::Kind::kOr;
  spec.mask.of = {window, window};
  spec.mask.of[1].window = 50;
  const KernelPlan plan = supported_plan(spec);
  EXPECT_FALSE(one_launch(plan, shapes_of(1, 10, 10), {}, {}).ok());
  LaunchScalars scalars;
  scalars.values = {30};
  Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(1, 10, 10), scalars, {});
  ASSERT_TRUE(recipe.ok());
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "window")), 30);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "window_1")), 50);
  scalars.values = {30, 60};
  recipe = one_launch(plan, shapes_of(1, 10, 10), scalars, {});
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "window_1")), 60);
  EXPECT_EQ(launch_scalars(spec).values, (std::vector<double>{0, 50}));
  EXPECT_EQ(launch_scalar_names(spec), (std::vector<std::string>{"window", "window_1"}));
  for (const double bad : {-2.0, 0.5, 2147483648.0, std::numeric_limits<double>::quiet_NaN()}) {
    scalars.values = {bad};
    recipe = one_launch(plan, shapes_of(1, 10, 10), scalars, {});
    ASSERT_FALSE(recipe.ok()) << bad;
    EXPECT_EQ(recipe.error().field, "window");
  }
  scalars.values = {30, 60, 1};
  recipe = one_launch(plan, shapes_of(1, 10, 10), scalars, {});
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.error().field, "scalars");
}

// -1 reaches the kernel as the most that an int holds. A window without keys behind its queries has
// one number.
TEST(PlanLaunch, WindowsToBothSides) {
  AttentionSpec spec = base_spec();
  spec.mask.kind = MaskSpec::Kind::kSlidingWindow;
  spec.mask.window = 20;
  EXPECT_EQ(launch_scalar_names(spec), (std::vector<std::string>{"window"}));
  spec.mask.window_right = 30;
  EXPECT_EQ(launch_scalar_names(spec), (std::vector<std::string>{"window", "window_right"}));
  const KernelPlan plan = supported_plan(spec);
  LaunchScalars scalars;
  const auto ends = [&](std::vector<double> values) {
    scalars.values = std::move(values);
    const Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(1, 10, 10), scalars, {});
    if (!recipe.ok()) return std::vector<std::int32_t>{};
    return std::vector{i32_of(argument_of(plan, *recipe, "window")),
                       i32_of(argument_of(plan, *recipe, "window_right"))};
  };
  constexpr std::int32_t kMost = std::numeric_limits<std::int32_t>::max();
  EXPECT_EQ(ends({}), (std::vector{20, 30}));
  EXPECT_EQ(ends({-1}), (std::vector{kMost, 30}));
  EXPECT_EQ(ends({5, -1}), (std::vector{5, kMost}));
  EXPECT_EQ(ends({5, -2}), std::vector<std::int32_t>{});
}

std::int64_t i64_of(const KernelArgument& argument) {
  return std::get<std::int64_t>(argument.value);
}

TEST(PlanLaunch, AMaskHasBatchesHeadsAndRowsOrOneForAll) {
  AttentionSpec spec = base_spec();
  spec.mask.kind = MaskSpec::Kind::kMaterialized;
  LaunchShapes shapes = shapes_of(3, 20, 50);
  const auto strides = [&] {
    const KernelPlan plan = supported_plan(spec);
    const Result<LaunchRecipe> recipe = one_launch(plan, shapes, {}, {});
    std::vector<std::int64_t> found;
    for (const char* name : {"mask_batch_bytes", "mask_head_bytes", "mask_row_bytes"}) {
      if (recipe.ok()) found.push_back(i64_of(argument_of(plan, *recipe, name)));
    }
    return found;
  };
  using Strides = std::vector<std::int64_t>;
  EXPECT_EQ(strides(), (Strides{8 * 20 * 50 * 4, 20 * 50 * 4, 50 * 4}));
  spec.mask.dtype = Dtype::kBits;
  EXPECT_EQ(strides(), (Strides{8 * 20 * 7, 20 * 7, 7}));
  spec.mask.dtype = Dtype::kBf16;
  shapes.mask_heads = 1;
  EXPECT_EQ(strides(), (Strides{20 * 50 * 2, 0, 50 * 2}));
  shapes.mask_batch = 1;
  shapes.mask_rows = 1;
  shapes.mask_heads = 8;
  shapes.mask = {.batch = 5, .row = 6, .head = 7};
  EXPECT_EQ(strides(), (Strides{0, 7 * 2, 0}));
  shapes.mask_rows = 20;
  EXPECT_EQ(strides(), (Strides{0, 7 * 2, 6 * 2}));
  const auto refused = [&](const char* field) {
    const Result<LaunchRecipe> recipe = one_launch(supported_plan(spec), shapes, {}, {});
    ASSERT_FALSE(recipe.ok());
    EXPECT_EQ(recipe.error().field, field);
  };
  shapes.mask_rows = 19;
  refused("mask_rows");
  shapes.mask_rows = 0;
  shapes.mask_heads = 2;
  refused("mask_heads");
  shapes.mask_heads = 0;
  shapes.mask_batch = 2;
  refused("mask_batch");
  shapes.mask_batch = 3;
  shapes.mask.row = -1;
  refused("mask.row");
  shapes.mask = {.row = std::int64_t{1} << 39};
  refused("mask.row");
  shapes.mask = {.row = (std::int64_t{1} << 39) - 1};
  refused("mask.head");  // a 0 beside others
  const std::int64_t long_row = std::int64_t{1} << 38;
  shapes.mask = {.batch = 7, .row = long_row, .head = 6};
  EXPECT_EQ(strides(), (Strides{7 * 2, 6 * 2, long_row * 2}));
  shapes.mask.head = kStrideZero;  // expanded: one for all
  EXPECT_EQ(strides(), (Strides{7 * 2, 0, long_row * 2}));
  shapes.mask.head = 6;
  shapes.q_len = 513;
  refused("mask");  // its last row is 2^48 bytes away
}

// The merge divides a row's number by 32 bits.
TEST(PlanLaunch, MergesOfMoreRowsThanAreCountedAreRefused) {
  AttentionSpec spec = base_spec();
  spec.num_partitions = 2;
  spec.qk_depth = 64;
  const int most = (1 << 28) - 1;  // of 8 heads
  for (const bool ragged : {false, true}) {
    spec.ragged = ragged;
    const KernelPlan plan = supported_plan(spec);
    const auto refused = [&](int q_len) {
      LaunchShapes shapes = shapes_of(1, q_len, 64);
      shapes.total_q = q_len;
      const Result<LaunchSequence> sequence = plan_launch(plan, shapes, {}, {}, {});
      if (sequence.ok()) return std::string();
      EXPECT_EQ(sequence.error().field, ragged ? "total_q" : "q_len");
      return sequence.error().message;
    };
    EXPECT_EQ(refused(most), "");
    EXPECT_EQ(refused(most + 1),
              "2147483648 rows of all heads are merged; a launch has 2147483647 at most");
  }
}

// Of a kind that has no slopes they are no part of the spec's text, and so of nothing.
TEST(PlanLaunch, SlopesAreOfAlibiAlone) {
  AttentionSpec spec = base_spec();
  spec.score_mod.slopes = true;
  const auto takes_slopes = [&] {
    const KernelPlan plan = supported_plan(spec);
    const auto& parameters = plan.main().parameters;
    return std::any_of(parameters.begin(), parameters.end(),
                       [](const KernelParameter& one) { return one.name == "slopes"; });
  };
  EXPECT_FALSE(takes_slopes());
  spec.score_mod.kind = ScoreModSpec::Kind::kAlibi;
  EXPECT_TRUE(takes_slopes());
}

TEST(PlanLaunch, UserParameters) {
  AttentionSpec spec = base_spec();
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "m";
  spec.mask.custom.code = "p.doc[q_idx] == p.table[kv_idx][p.column] && p.bound < 1.0";
  spec.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array},
                             {"table", ParamSpec::Type::kI32Matrix},
                             {"column", ParamSpec::Type::kI32},
                             {"bound", ParamSpec::Type::kF32}};
  const KernelPlan plan = supported_plan(spec);
  std::vector<UserParamShape> values = {
      {"bound", 0.5f, {}}, {"column", 3, {}}, {"doc", 0, {77, 0}}, {"table", 0, {5, 6}}};
  Result<LaunchRecipe> recipe = one_launch(plan, shapes_of(1, 10, 10), {}, values);
  ASSERT_TRUE(recipe.ok());
  EXPECT_EQ(std::get<KernelArgument::Pointer>(argument_of(plan, *recipe, "param_doc").value).buffer,
            "param_doc");
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "param_doc_n")), 77);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "param_table_rows")), 5);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "param_table_cols")), 6);
  EXPECT_EQ(i32_of(argument_of(plan, *recipe, "param_column")), 3);
  EXPECT_FLOAT_EQ(std::get<float>(argument_of(plan, *recipe, "param_bound").value), 0.5f);

  values.pop_back();
  recipe = one_launch(plan, shapes_of(1, 10, 10), {}, values);
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.error().field, "param_table");
}

TEST(PlanLaunch, AnUnsupportedPlanIsNotLaunched) {
  AttentionSpec spec = base_spec();
  spec.v_layout = VLayout::kTransposed;
  const Result<KernelPlan> planned = plan(spec);
  ASSERT_TRUE(planned.ok());
  const Result<LaunchRecipe> recipe = one_launch(*planned, shapes_of(1, 10, 10), {}, {});
  ASSERT_FALSE(recipe.ok());
  EXPECT_EQ(recipe.error().code, ErrorCode::kUnsupported);
}

TEST(Accumulate, AddsAMergeAndItsWorkspaces) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    AttentionSpec spec = base_spec();
    spec.arch = arch;
    spec.return_lse = true;
    const KernelPlan one = supported_plan(spec);
    EXPECT_EQ(one.kernels.size(), 1U);
    EXPECT_TRUE(one.workspaces.empty());
    spec.accumulate = true;
    const KernelPlan two = supported_plan(spec);
    ASSERT_EQ(two.kernels.size(), 2U);
    EXPECT_EQ(two.kernels[1].entry, "attnjit_merge");
    const auto sequence = plan_launch(two, shapes_of(3, 100, 500), {}, {});
    ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
    ASSERT_EQ(sequence->launches.size(), 2U);
    const std::int64_t rows = std::int64_t{3} * 100 * two.spec->num_q_heads;
    EXPECT_EQ(sequence->workspaces,
              (std::vector<Workspace>{{"tile_counters", 16, false},
                                      {"partial_o", rows * two.spec->ov_depth * 2, false},
                                      {"partial_lse", rows * 4, false}}));
    // The attention writes the workspaces, the merge the caller's tensors.
    const auto map = std::find_if(sequence->launches[0].tensor_maps.begin(),
                                  sequence->launches[0].tensor_maps.end(),
                                  [](const auto& one_map) { return one_map.name == "o_map"; });
    ASSERT_NE(map, sequence->launches[0].tensor_maps.end());
    EXPECT_EQ(map->buffer, "partial_o");
    EXPECT_EQ(std::get<KernelArgument::Pointer>(sequence->launches[1].args.at(0).value).buffer,
              "o");
    EXPECT_EQ(std::get<std::int64_t>(sequence->launches[1].args.at(4).value), rows);
  }
}

TEST(Accumulate, StridesOfOAreTheMergesAlone) {
  AttentionSpec spec = base_spec();
  spec.return_lse = spec.accumulate = true;
  const KernelPlan plan = supported_plan(spec);
  LaunchShapes shapes = shapes_of(1, 100, 500);
  const auto packed = plan_launch(plan, shapes, {}, {});
  shapes.o = {.batch = 0, .row = 4096 * 16, .head = 128};
  const auto strided = plan_launch(plan, shapes, {}, {});
  ASSERT_TRUE(packed.ok() && strided.ok());
  EXPECT_EQ(packed->launches[0], strided->launches[0]);
  EXPECT_EQ(std::get<std::int64_t>(strided->launches[1].args.at(7).value), 4096 * 16 * 2);
}

TEST(Accumulate, NothingToComputeIsNothingToMerge) {
  AttentionSpec spec = base_spec();
  spec.return_lse = spec.accumulate = true;
  const auto sequence = plan_launch(supported_plan(spec), shapes_of(2, 0, 500), {}, {});
  ASSERT_TRUE(sequence.ok());
  EXPECT_TRUE(sequence->launches.empty());
  EXPECT_TRUE(sequence->workspaces.empty());
}

}  // namespace
}  // namespace attnjit
