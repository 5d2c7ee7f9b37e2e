// SPDX-License-Identifier: Apache-2.0
// Maps of masks in plans and launches: their extents, their memory, and what a caller may give.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "plan/kernel/sequence.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "planned.h"

namespace attnjit {
namespace {

using plan_test::plan_of;
using plan_test::shapes_of;
using Type = ParamSpec::Type;

AttentionSpec map_spec(const std::string& code, int heads = 8, int group = 4) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = heads;
  spec.group = group;
  spec.qk_depth = 128;
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "m";
  spec.mask.custom.code = code;
  spec.mask.custom.params = {{"doc", Type::kI32Array}};
  return spec;
}

const char* const kDocuments = "p.doc[q_idx] == p.doc[kv_idx]";

std::vector<UserParamShape> documents() {
  UserParamShape doc;
  doc.name = "doc";
  doc.extent = {5000, 0};
  return {doc};
}

Result<LaunchSequence> launches_of(const KernelPlan& plan, const LaunchShapes& shapes) {
  return plan_launch(plan, shapes, {}, documents());
}

std::vector<std::int32_t> extents(const MaskMapShape& map) {
  return {map.batch, map.heads, map.q_blocks, map.kv_blocks};
}

TEST(MapPlan, OneForWhatTheMaskDoesNotTellApart) {
  const LaunchShapes shapes = shapes_of(3, 300, 1000);
  const auto of = [&](const AttentionSpec& spec) {
    return extents(*mask_map_shape(plan_of(spec), shapes));
  };
  EXPECT_EQ(of(map_spec(kDocuments)), (std::vector{1, 1, 3, 8}));
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + b")), (std::vector{3, 1, 3, 8}));
  EXPECT_EQ(of(map_spec("p.doc[total_row] == p.doc[kv_idx]")), (std::vector{3, 1, 3, 8}));
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + kv_h")), (std::vector{1, 2, 3, 8}));
  // Heads of a group share a tile.
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + h")), (std::vector{1, 2, 3, 8}));
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + h", 6, 3)), (std::vector{1, 6, 3, 8}));
  AttentionSpec pages = map_spec(kDocuments);
  pages.page_size = 16;
  EXPECT_EQ(of(pages), (std::vector{3, 1, 3, 8}));
  EXPECT_EQ(
      mask_map_shape(plan_of(map_spec("kv_idx <= q_idx && p.doc[b] > 0")), shapes).error().code,
      ErrorCode::kUnsupported);
}

// Of a tensor the launch says whether sequences and heads have their own.
TEST(MapPlan, AsManyAsATensorHasMasks) {
  LaunchShapes shapes = shapes_of(3, 300, 1000);
  const auto of = [&](const AttentionSpec& spec) {
    return extents(*mask_map_shape(plan_of(spec), shapes));
  };
  AttentionSpec spec = map_spec(kDocuments);
  spec.mask = {};
  spec.mask.kind = MaskSpec::Kind::kMaterialized;
  EXPECT_EQ(of(spec), (std::vector{3, 2, 3, 8}));  // heads of a group share a tile
  shapes.mask_batch = 1;
  EXPECT_EQ(of(spec), (std::vector{1, 2, 3, 8}));
  shapes.mask_heads = 1;
  EXPECT_EQ(of(spec), (std::vector{1, 1, 3, 8}));
  AttentionSpec both = map_spec("p.doc[q_idx] == p.doc[kv_idx] + kv_h");
  both.mask.of = {both.mask, spec.mask};
  both.mask.kind = MaskSpec::Kind::kAnd;
  both.mask.custom = {};
  EXPECT_EQ(of(both), (std::vector{1, 2, 3, 8}));
  AttentionSpec pages = spec;
  pages.page_size = 16;
  EXPECT_EQ(of(pages), (std::vector{3, 1, 3, 8}));
}

// The bits of a map take 32 MiB at most, and follow from its extents. Heads that see different keys
// have none in common, and a kernel that compares columns, or adds numbers, reads none.
TEST(MapPlan, HasBitsOfBlocksThatAreSeenInPart) {
  const auto of = [](const AttentionSpec& spec, const LaunchShapes& shapes) {
    return mask_map_shape(plan_of(spec), shapes)->bit_blocks;
  };
  const LaunchShapes shapes = shapes_of(3, 300, 1000);
  EXPECT_EQ(of(map_spec(kDocuments), shapes), 24);
  EXPECT_EQ(of(map_spec(kDocuments), shapes_of(1, 32768, 32768)), 16384);
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + b"), shapes_of(1 << 10, 1 << 17, 1 << 24)),
            16384);
  EXPECT_EQ(of(map_spec(kDocuments), shapes_of(1, 300, 0)), 0);
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + kv_h"), shapes), 48);
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + h"), shapes), 0);
  EXPECT_EQ(of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + h", 6, 3), shapes), 144);
  AttentionSpec spec = map_spec(kDocuments);
  spec.mask = {};
  spec.mask.kind = MaskSpec::Kind::kMaterialized;
  LaunchShapes one = shapes;
  one.mask_batch = one.mask_heads = 1;
  EXPECT_FALSE(plan_of(spec).map->bits);
  EXPECT_EQ(of(spec, one), 0);
  spec.mask.dtype = Dtype::kU8;
  EXPECT_TRUE(plan_of(spec).map->bits);
  EXPECT_EQ(of(spec, one), 24);
  EXPECT_EQ(of(spec, shapes), 0);
}

// Of a trusted body nothing is known: it may tell sequences and heads apart.
TEST(MapPlan, OneEachForATrustedBody) {
  AttentionSpec spec = map_spec("return h > 0;");
  spec.mask.custom.trusted = true;
  spec.mask.custom.params = {};
  MaskSpec tensor;
  tensor.kind = MaskSpec::Kind::kMaterialized;
  spec.mask.of = {tensor, spec.mask};
  spec.mask.kind = MaskSpec::Kind::kAnd;
  spec.mask.custom = {};
  LaunchShapes shapes = shapes_of(3, 300, 1000);
  shapes.mask_batch = shapes.mask_heads = 1;
  const KernelPlan plan = plan_of(spec);
  EXPECT_EQ(extents(*mask_map_shape(plan, shapes)), (std::vector{3, 2, 3, 8}));
  ASSERT_TRUE(plan.map);
  EXPECT_TRUE(plan.map->by_head);
}

TEST(MapPlan, IsMadeInTheWorkspace) {
  const KernelPlan plan = plan_of(map_spec(kDocuments));
  ASSERT_EQ(plan.kernels.size(), 2U);
  const auto sequence = launches_of(plan, shapes_of(3, 300, 1000));
  ASSERT_TRUE(sequence) << sequence.error().to_string();
  ASSERT_EQ(sequence->launches.size(), 2U);
  EXPECT_EQ(sequence->launches[0].entry, "attnjit_map");
  EXPECT_EQ(sequence->launches[0].grid[0], 3U);
  EXPECT_EQ(sequence->launches[1].entry, "attnjit_forward");
  ASSERT_EQ(sequence->workspaces.size(), plan.workspaces.size());
  std::vector<std::int64_t> bytes;
  for (std::size_t i = 0; i < sequence->workspaces.size(); ++i) {
    EXPECT_EQ(sequence->workspaces[i].name, name_of(plan.workspaces[i]));
    bytes.push_back(sequence->workspaces[i].bytes);
  }
  EXPECT_EQ(bytes, (std::vector<std::int64_t>{16, 12, 96, 12, 96, 96, 24 * 2048}));
}

TEST(MapPlan, ComesBesideAMerge) {
  AttentionSpec spec = map_spec(kDocuments);
  spec.page_size = 16;
  spec.num_partitions = 2;
  const KernelPlan plan = plan_of(spec);
  ASSERT_EQ(plan.kernels.size(), 3U);
  LaunchShapes shapes = shapes_of(2, 4, 1000);
  shapes.num_pages = 200;
  shapes.max_pages = 63;
  const auto sequence = launches_of(plan, shapes);
  ASSERT_TRUE(sequence) << sequence.error().to_string();
  std::vector<std::string> entries;
  for (const LaunchRecipe& recipe : sequence->launches) entries.push_back(recipe.entry);
  EXPECT_EQ(entries, (std::vector<std::string>{"attnjit_map", "attnjit_forward", "attnjit_merge"}));
  ASSERT_EQ(sequence->workspaces.size(), 9U);
  for (std::size_t i = 0; i < 9; ++i) {
    EXPECT_EQ(sequence->workspaces[i].name, name_of(plan.workspaces[i]));
  }
}

// The plan's option makes one of an expression that decides whole tiles by itself, and of a
// built-in mask. What cannot have one is not planned.
TEST(MapPlan, IsMadeWhereAskedFor) {
  PlanOptions options;
  options.mask_map = true;
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    AttentionSpec spec = map_spec("kv_idx <= q_idx && (q_idx - kv_idx) % 4 == 0");
    spec.arch = arch;
    EXPECT_FALSE(plan_of(spec).map);
    const KernelPlan block_mask = plan_of(spec, options);
    EXPECT_TRUE(block_mask.supported) << block_mask.reason;
    ASSERT_TRUE(block_mask.map);
    EXPECT_TRUE(block_mask.map->bits);
    EXPECT_FALSE(block_mask.map->by_batch || block_mask.map->by_head);
    AttentionSpec causal = spec;
    causal.mask = {};
    causal.mask.kind = MaskSpec::Kind::kCausal;
    EXPECT_FALSE(plan_of(causal).map);
    const KernelPlan listed = plan_of(causal, options);
    EXPECT_TRUE(listed.supported) << listed.reason;
    ASSERT_TRUE(listed.map);
    EXPECT_FALSE(listed.map->bits);
  }
}

// The reason names what keeps a kernel from walking a map, and only where one is asked for.
TEST(MapPlan, ThatCannotBeHadIsRefusedByItsCause) {
  PlanOptions options;
  options.mask_map = true;
  const auto refusal = [&](const AttentionSpec& spec) {
    const std::string reason = plan_of(spec, options).reason;
    EXPECT_NE(reason.find("mask_map"), std::string::npos) << reason;
    return reason;
  };
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    AttentionSpec spec = map_spec("kv_idx <= q_idx");
    spec.arch = arch;
    AttentionSpec deep = spec;
    deep.qk_depth = 512;
    EXPECT_TRUE(plan_of(deep).supported);
    EXPECT_NE(refusal(deep).find("depths up to 256"), std::string::npos);
    AttentionSpec absorbed = spec;
    absorbed.group = absorbed.num_q_heads;
    absorbed.mla = Mla::kDecode;
    absorbed.qk_depth = 576;
    EXPECT_NE(refusal(absorbed).find("absorbed MLA"), std::string::npos);
  }
  AttentionSpec tensor = map_spec("");
  tensor.qk_depth = 256;
  tensor.mask = {};
  tensor.mask.kind = MaskSpec::Kind::kMaterialized;
  EXPECT_NE(refusal(tensor).find("registers"), std::string::npos);
  options.pair_cta = true;
  AttentionSpec pair = map_spec(kDocuments);
  pair.arch = Arch::kSm100a;
  EXPECT_NE(refusal(pair).find("pair_cta"), std::string::npos);
}

// Heads of a group that is no power of two are walked one by one, with rows that are whole
// positions; or all together, where a sequence's rows are all in one tile.
TEST(MapPlan, OfGroupsOfAnySize) {
  for (const Arch arch : {Arch::kSm100a, Arch::kSm103a}) {
    for (const int group : {1, 3, 5, 6, 7, 10, 12, 71, 256}) {
      AttentionSpec spec = map_spec(kDocuments, 2 * group, group);
      spec.arch = arch;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.map) << group;
      EXPECT_TRUE(plan.sm100->block_mask);
      EXPECT_EQ(plan.map->packed_heads, 1);
      const auto sequence = launches_of(plan, shapes_of(2, 300, 1000));
      ASSERT_TRUE(sequence) << sequence.error().to_string();
      EXPECT_EQ(sequence->launches.front().entry, "attnjit_map");
      spec.max_q_len = 1;
      const KernelPlan decodes = plan_of(spec);
      ASSERT_TRUE(decodes.map) << group;
      EXPECT_EQ(decodes.map->packed_heads, group <= 128 ? group : 1);
    }
  }
}

// Above depth 192 sm_90a's kernels have no registers for bits, nor for a list beside a tensor.
// Those of sm_100a have, with two O and with one.
TEST(MapPlan, OfHeadDimAbove256) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a}) {
    const bool sm90 = arch == Arch::kSm90a;
    AttentionSpec spec = map_spec(kDocuments);
    spec.arch = arch;
    for (const auto& [qk_depth, ov_depth] : {std::pair{256, 256}, {200, 64}, {248, 192}}) {
      spec.qk_depth = qk_depth;
      spec.ov_depth = ov_depth;
      const KernelPlan plan = plan_of(spec);
      ASSERT_TRUE(plan.map);
      EXPECT_EQ(plan.map->bits, !sm90);
      EXPECT_TRUE(sm90 ? plan.sm90->block_mask : plan.sm100->block_mask);
      AttentionSpec tensor = spec;
      tensor.mask = {};
      tensor.mask.kind = MaskSpec::Kind::kMaterialized;
      EXPECT_EQ(plan_of(tensor).map.has_value(), !sm90);
    }
  }
}

// The host does not know which parts of fixed keys a map shows: as many are counted as without it.
TEST(MapPlan, OfPartitionsOfFixedKeys) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    AttentionSpec spec = map_spec(kDocuments);
    spec.arch = arch;
    spec.partition_keys = 384;
    const KernelPlan plan = plan_of(spec);
    EXPECT_TRUE(plan.supported) << plan.reason;
    ASSERT_TRUE(plan.map);
    EXPECT_TRUE(plan.map->bits);
    EXPECT_EQ(plan.sm90 ? plan.sm90->partition_tiles * plan.sm90->BN
                        : plan.sm100->partition_tiles * plan.sm100->variants.front().BN,
              384);
    const auto sequence = launches_of(plan, shapes_of(2, 4, 1000));
    ASSERT_TRUE(sequence) << sequence.error().to_string();
    EXPECT_EQ(sequence->launches.front().entry, "attnjit_map");
    EXPECT_EQ(sequence->launches.back().entry, "attnjit_merge");
  }
}

TEST(MapPlan, IsWrittenToAndReadFromTheCallersMemory) {
  const KernelPlan plan = plan_of(map_spec(kDocuments));
  LaunchShapes shapes = shapes_of(3, 300, 1000);
  const auto pointers = [](const LaunchRecipe& recipe) {
    std::vector<std::string> names;
    for (const KernelArgument& argument : recipe.args) {
      const auto* pointer = std::get_if<KernelArgument::Pointer>(&argument.value);
      if (pointer != nullptr && pointer->buffer.find("kv_") != std::string::npos) {
        names.push_back(pointer->buffer);
      }
    }
    return names;
  };
  std::vector<std::string> all{"kv_num_blocks", "kv_indices", "full_kv_num_blocks",
                               "full_kv_indices"};
  shapes.mask_map.use = MaskMapUse::kWrite;
  const auto writing = launches_of(plan, shapes);
  ASSERT_TRUE(writing);
  ASSERT_EQ(writing->launches.size(), 2U);
  EXPECT_EQ(pointers(writing->launches[0]), all);
  EXPECT_EQ(pointers(writing->launches[1]), all);
  // CTAs take their tiles from counters; nothing else is needed.
  for (const Workspace& workspace : writing->workspaces) {
    EXPECT_EQ(workspace.bytes, workspace.name == "tile_counters" ? 16 : 0) << workspace.name;
  }
  shapes.mask_map.use = MaskMapUse::kRead;
  const auto reading = launches_of(plan, shapes);
  ASSERT_TRUE(reading);
  ASSERT_EQ(reading->launches.size(), 1U);
  EXPECT_EQ(pointers(reading->launches[0]), all);
  shapes.mask_map.no_full = true;
  EXPECT_EQ(pointers(launches_of(plan, shapes)->launches[0]),
            (std::vector<std::string>{"kv_num_blocks", "kv_indices"}));
  shapes.mask_map.no_full = false;
  shapes.mask_map.bit_blocks = 5;
  all.emplace_back("kv_bits");
  EXPECT_EQ(pointers(launches_of(plan, shapes)->launches[0]), all);
}

TEST(MapPlan, GivenExtentsMustFit) {
  const KernelPlan plan = plan_of(map_spec(kDocuments));
  const LaunchShapes shapes = shapes_of(3, 300, 1000);
  const auto refused = [&](MaskMapShape map) {
    LaunchShapes given = shapes;
    given.mask_map = map;
    const auto sequence = launches_of(plan, given);
    return sequence ? std::string() : sequence.error().field;
  };
  constexpr MaskMapUse kRead = MaskMapUse::kRead, kWrite = MaskMapUse::kWrite;
  EXPECT_EQ(refused({kRead, 1, 1, 3, 8}), "");
  EXPECT_EQ(refused({kRead, 3, 2, 4, 9}), "");
  EXPECT_EQ(refused({kRead, 3, 2, 4, 2}), "");  // its lists are short
  EXPECT_EQ(refused({kRead, 2, 1, 3, 8}), "mask_map.batch");
  EXPECT_EQ(refused({kRead, 1, 3, 3, 8}), "mask_map.heads");
  EXPECT_EQ(refused({kRead, 1, 8, 3, 8}), "mask_map.heads");  // of heads that share tiles
  EXPECT_EQ(refused({kRead, 1, 1, 2, 8}), "mask_map.q_blocks");
  EXPECT_EQ(refused({kRead, 1, 1, -3, 8}), "mask_map.shape");
  EXPECT_EQ(refused({kRead, 3, 1, INT32_MAX, 8}), "mask_map.shape");
  EXPECT_EQ(refused({kRead, 1, 1, 3, INT32_MAX}), "mask_map.shape");
  EXPECT_EQ(refused({kRead, 1, 1, 3, 8, false, -1}), "mask_map.bit_blocks");
  EXPECT_EQ(refused({kRead, 1, 1, 3, 8, false, 1 << 24}), "mask_map.bit_blocks");
  EXPECT_EQ(refused({kRead, 1, 1, 3, 8, false, 100}), "");
  EXPECT_EQ(refused({kWrite, 1, 1, 3, 8}), "");
  EXPECT_EQ(refused({kWrite, 3, 1, 3, 8}), "mask_map.shape");
  EXPECT_EQ(refused({kWrite, 1, 1, 3, 9}), "mask_map.shape");
  LaunchShapes none = shapes;
  none.mask_map.use = kRead;
  const KernelPlan causal = plan_of([] {
    AttentionSpec spec = map_spec(kDocuments);
    spec.mask = {};
    return spec;
  }());
  EXPECT_EQ(plan_launch(causal, none, {}, {}).error().field, "mask_map.use");
}

// The map of many long sequences does not fit a launch; nothing overflows.
TEST(MapPlan, TooManyRows) {
  const KernelPlan plan = plan_of(map_spec("p.doc[q_idx] == p.doc[kv_idx] + h + b", 128, 1));
  const auto map = mask_map_shape(plan, shapes_of(1 << 20, 1 << 24, 1 << 24));
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().field, "mask_map.q_blocks");
}

TEST(MapPlan, ItsShapeIsOfLengthsThatALaunchCanHave) {
  const KernelPlan plan = plan_of(map_spec(kDocuments));
  const auto field = [&](int batch, int q_len, int kv_len) {
    const auto map = mask_map_shape(plan, shapes_of(batch, q_len, kv_len));
    return map.ok() ? std::string() : map.error().field;
  };
  EXPECT_EQ(field(1, 0, 0), "");
  EXPECT_EQ(field(-1, 10, 10), "batch");
  EXPECT_EQ(field(1, -10, 10), "q_len");
  EXPECT_EQ(field(1, 10, -10), "kv_len");
  EXPECT_EQ(field(1, 10, INT32_MAX), "kv_len");
}

}  // namespace
}  // namespace attnjit
