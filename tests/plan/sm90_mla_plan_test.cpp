// SPDX-License-Identifier: Apache-2.0
// Plans of absorbed MLA on sm_90a: what is served, budgets, launches.
#include "plan/sm90_mla/sm90_mla_plan.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "attnjit/tuning.h"
#include "plan/launch/family_launch.h"
#include "planned.h"

namespace attnjit {
namespace {

using namespace plan_test;

AttentionSpec sm90_mla_spec(int heads = 128, int qk_depth = 576, int ov_depth = 512) {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.mla = Mla::kDecode;
  spec.num_q_heads = spec.group = heads;
  spec.qk_depth = qk_depth;
  spec.ov_depth = ov_depth;
  spec.page_size = 64;
  spec.num_partitions = 0;
  spec.mask.kind = MaskSpec::Kind::kCausal;
  return spec;
}

TEST(Sm90MlaPlan, FitsTheSmForEveryDepth) {
  for (int latent = 64; latent <= 512; latent += 64) {
    for (const int rope : {0, 64}) {
      if (latent + rope <= 64) continue;  // a spec with mla has more than a rope part
      SCOPED_TRACE(latent + rope);
      const KernelPlan plan = plan_of(sm90_mla_spec(16, latent + rope, latent));
      ASSERT_TRUE(plan.supported) << plan.reason;
      const Sm90MlaPlan& mla = *plan.sm90_mla;
      EXPECT_EQ(mla.tiles.num_stages % 2, 0);
      EXPECT_EQ(plan.main().threads, 384);
      expect_fits_sm90(plan);
    }
  }
}

// The budgets of docs/mla.md.
TEST(Sm90MlaPlan, BudgetsOfTheModels) {
  const KernelPlan deepseek = plan_of(sm90_mla_spec(128, 576, 512));
  EXPECT_EQ(deepseek.sm90_mla->tiles.num_stages, 2);
  EXPECT_EQ(deepseek.main().smem_bytes, 232336);
  EXPECT_EQ(deepseek.main().barriers.size(), 52U);
  EXPECT_EQ(deepseek.main().barriers[49].name, "K 1 tail full");
  EXPECT_EQ(deepseek.main().roles.front().num_warps, 2);  // warps that load, a stage each
  EXPECT_EQ(deepseek.main().smem_map[0].name, "Q 0");
  EXPECT_EQ(deepseek.main().smem_map[2].name, "K and V 1");
  const KernelPlan mistral = plan_of(sm90_mla_spec(32, 320, 256));
  EXPECT_EQ(mistral.sm90_mla->tiles.num_stages, 4);
  EXPECT_EQ(mistral.main().smem_bytes, 215952);
  EXPECT_EQ(deepseek.kernels.back().entry, "attnjit_merge");
}

TEST(Sm90MlaPlan, SaysWhatItDoesNotServe) {
  const auto reason_of = [](const AttentionSpec& spec, const PlanOptions& options = {}) {
    const KernelPlan plan = plan_of(spec, options);
    EXPECT_FALSE(plan.supported);
    return plan.reason;
  };
  AttentionSpec spec = sm90_mla_spec();
  spec.group = 64;
  EXPECT_NE(reason_of(spec).find("one key-value head"), std::string::npos);
  EXPECT_NE(reason_of(sm90_mla_spec(129)).find("up to 128 heads"), std::string::npos);
  for (const auto& [qk, ov] : {std::pair{640, 576}, {576, 480}, {576, 448}, {160, 96}}) {
    EXPECT_NE(reason_of(sm90_mla_spec(16, qk, ov)).find("latent part"), std::string::npos) << qk;
  }
  spec = sm90_mla_spec();
  spec.num_partitions = 1;
  spec.partition_keys = 96;
  EXPECT_NE(reason_of(spec).find("multiples of 64"), std::string::npos);
  spec = sm90_mla_spec();
  spec.mask = {};
  spec.topk = 96;
  EXPECT_NE(reason_of(spec).find("topk is 96"), std::string::npos);
  spec.topk = 64;
  spec.mla = Mla::kNone;
  EXPECT_NE(reason_of(spec).find("topk"), std::string::npos);
  spec = sm90_mla_spec();
  spec.qkv_dtype = Dtype::kE4m3;
  EXPECT_NE(reason_of(spec).find("e4m3"), std::string::npos);
  PlanOptions options;
  options.num_qo = 2;
  EXPECT_NE(reason_of(sm90_mla_spec(), options).find("num_qo"), std::string::npos);
  options = {};
  options.pair_cta = true;
  EXPECT_NE(reason_of(sm90_mla_spec(), options).find("pair_cta"), std::string::npos);
  options = {};
  options.swizzle_bytes = 64;
  EXPECT_NE(reason_of(sm90_mla_spec(), options).find("swizzle_bytes"), std::string::npos);
  options = {};
  options.debug_waits = true;
  EXPECT_NE(reason_of(sm90_mla_spec(), options).find("debug_waits"), std::string::npos);
}

TEST(Sm90MlaPlan, TakesStagesFromATable) {
  AttentionSpec spec = sm90_mla_spec(32, 320, 256);
  const auto planned = [&](const char* choose) {
    const Result<Tuning> tuning = tuning_from_json(
        std::string(R"({"name": "t", "rows": [{"match": {"mla": "decode"}, "choose": {)") + choose +
        "}}]}");
    EXPECT_TRUE(tuning.ok()) << tuning.error().to_string();
    return plan(*ResolvedSpec::make(spec), &*tuning);
  };
  const Result<KernelPlan> fewer = planned(R"("num_stages": 2)");
  ASSERT_TRUE(fewer.ok()) << fewer.error().to_string();
  EXPECT_EQ(fewer->sm90_mla->tiles.num_stages, 2);
  EXPECT_EQ(tuning_knobs(*fewer).size(), 1U);
  for (const char* wrong :
       {R"("num_stages": 3)", R"("num_stages": 6)", R"("BN": 64)", R"("cluster": 2)"}) {
    const Result<KernelPlan> refused = planned(wrong);
    ASSERT_FALSE(refused.ok()) << wrong;
    EXPECT_EQ(refused.error().code, ErrorCode::kInvalid);
    EXPECT_TRUE(refused.error().field.starts_with("tuning.")) << refused.error().to_string();
  }
}

// A box of Q is 64 rows of whole positions, or half of the heads of one.
TEST(Sm90MlaPlan, BoxesOfQ) {
  const struct {
    int heads;
    std::uint32_t box_heads, positions;
  } cases[] = {{128, 64, 1}, {96, 64, 1}, {64, 64, 1}, {20, 32, 2}, {16, 16, 4}, {1, 1, 64}};
  for (const auto& [heads, box_heads, positions] : cases) {
    const Result<LaunchSequence> sequence =
        plan_launch(plan_of(sm90_mla_spec(heads)), paged_shapes_of(2, 3, 100), {}, {});
    ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
    const TensorMapDescription& q = sequence->launches.front().tensor_maps.front();
    EXPECT_EQ(q.name, "q_map");
    EXPECT_EQ(q.box, (std::vector<std::uint32_t>{64, box_heads, positions, 1})) << heads;
    EXPECT_EQ(q.dims, (std::vector<std::uint64_t>{576, static_cast<std::uint64_t>(heads), 3, 2}));
  }
}

// K alone is loaded: no map and no pointer of V.
TEST(Sm90MlaPlan, LoadsKAlone) {
  for (const int page_size : {64, 1, 0}) {
    AttentionSpec spec = sm90_mla_spec();
    spec.page_size = page_size;
    const KernelPlan plan = plan_of(spec);
    for (const KernelParameter& parameter : plan.main().parameters) {
      const auto* map = std::get_if<TensorMapId>(&parameter.source);
      EXPECT_FALSE(map != nullptr && *map == TensorMapId::kV);
      const auto* buffer = std::get_if<BufferId>(&parameter.source);
      EXPECT_FALSE(buffer != nullptr && buffer->kind == BufferId::Kind::kV);
    }
  }
}

// A tile's rows are of one position, however few the heads. Its keys are those of its list: no page
// table and no lengths are read, and partitions are of the list's places.
TEST(Sm90MlaPlan, Lists) {
  AttentionSpec spec = sm90_mla_spec(16);
  spec.mask = {};
  spec.topk = 2048;
  const KernelPlan plan = plan_of(spec);
  ASSERT_TRUE(plan.supported) << plan.reason;
  for (const KernelParameter& parameter : plan.main().parameters) {
    EXPECT_NE(parameter.name, "page_table");
    EXPECT_NE(parameter.name, "kv_lens");
  }
  LaunchShapes shapes = paged_shapes_of(2, 3, 0);
  shapes.max_pages = 0;
  shapes.num_pages = 1000;
  const Result<LaunchSequence> sequence = plan_launch(plan, shapes, {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  EXPECT_EQ(sequence->launches.front().tensor_maps.size(), 1U);
  EXPECT_EQ(sequence->launches.front().tensor_maps.front().box,
            (std::vector<std::uint32_t>{64, 64, 1, 1}));
  const auto parts = [&](int batch) {
    return partitions_of(plan, paged_shapes_of(batch, 1, 1 << 20), {}).partitions;
  };
  EXPECT_GT(parts(1), 4);
  EXPECT_LE(parts(1), 32);
  EXPECT_EQ(parts(132), 1);
  spec.num_partitions = 1;
  spec.partition_keys = 512;
  EXPECT_EQ(partitions_of(plan_of(spec), paged_shapes_of(1, 1, 1 << 20), {}).partitions, 4);
}

// K is a tensor of bytes. Its rows are copied by threads, which say of four warps' parts that they
// are there, and of the rope's by each thread. What warps have no registers for they stash.
TEST(Sm90MlaPlan, CachesInTheFormatDsv32) {
  AttentionSpec spec = sm90_mla_spec();
  spec.cache_format = CacheFormat::kDsv32;
  const KernelPlan dense = plan_of(spec);
  ASSERT_TRUE(dense.supported) << dense.reason;
  EXPECT_EQ(dense.main().smem_bytes, 231856 + 4 * 16 + 8 * 48);
  spec.mask = {};
  spec.topk = 2048;
  const KernelPlan plan = plan_of(spec);
  ASSERT_TRUE(plan.supported) << plan.reason;
  EXPECT_EQ(plan.sm90_mla->tiles.num_stages, 2);
  EXPECT_EQ(plan.sm90_mla->producer_registers, 56);
  EXPECT_EQ(plan.sm90_mla->consumer_registers, 224);
  int upcast = 0, copied = 0, with_lists = 0;
  for (const BarrierPlan& barrier : plan.main().barriers) {
    if (!barrier.name.starts_with("K ") || !barrier.name.ends_with(" full")) continue;
    upcast += barrier.arrivals == 4 ? 1 : 0;
    copied += barrier.arrivals == 128 ? 1 : 0;
    with_lists += barrier.arrivals == 128 + 4 ? 1 : 0;
  }
  EXPECT_EQ(upcast, 16);
  EXPECT_EQ(with_lists, 2);
  EXPECT_EQ(copied, 0);
  // What lists show, and no list of sequences that a warp would stash.
  EXPECT_EQ(plan.main().smem_bytes, dense.main().smem_bytes + 2 * 16 - MlaTiles::kCursorsBytes);
  spec.ragged = true;
  EXPECT_TRUE(plan_of(spec).supported);
  const Result<LaunchSequence> sequence = plan_launch(plan, paged_shapes_of(2, 1, 100), {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  const std::vector<KernelParameter>& parameters = plan.main().parameters;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    const KernelArgument& argument = sequence->launches.front().args[i];
    if (parameters[i].name == "k_row_bytes") {
      EXPECT_EQ(std::get<std::int64_t>(argument.value), 656);
    }
    if (parameters[i].name == "k_page_bytes") {
      EXPECT_EQ(std::get<std::int64_t>(argument.value), 64 * 656);
    }
  }
}

// Two CTAs have the heads of one position, where those are two tiles, and each upcasts half of the
// blocks of K for both: so both hand such a block back. A table may choose CTAs that are alone.
TEST(Sm90MlaPlan, CtasUpcastForEachOther) {
  AttentionSpec spec = sm90_mla_spec();
  spec.cache_format = CacheFormat::kDsv32;
  const auto empty_of = [](const KernelPlan& plan, const char* block) {
    const auto found = std::ranges::find(plan.main().barriers, fmt::format("K 1 {} empty", block),
                                         &BarrierPlan::name);
    return found == plan.main().barriers.end() ? 0 : found->arrivals;
  };
  const KernelPlan pair = plan_of(spec);
  EXPECT_EQ(pair.main().cluster, 2);
  EXPECT_EQ(empty_of(pair, "block 0"), 8);
  EXPECT_EQ(empty_of(pair, "block 7"), 8);
  EXPECT_EQ(empty_of(pair, "block 8"), 4);  // the rope's: each CTA copies it
  const Result<Tuning> alone =
      tuning_from_json(R"({"rows": [{"match": {}, "choose": {"cluster": 1}}]})");
  ASSERT_TRUE(alone.ok()) << alone.error().to_string();
  const Result<KernelPlan> single = plan(*ResolvedSpec::make(spec), &*alone);
  ASSERT_TRUE(single.ok()) << single.error().to_string();
  EXPECT_EQ(single->main().cluster, 1);
  EXPECT_EQ(empty_of(*single, "block 0"), 4);
  EXPECT_EQ(single->main().smem_bytes, pair.main().smem_bytes);
  EXPECT_EQ(tuning_knobs(*single).size(), 2U);
  // A work tile is a position's, and there is a cluster for each: 3 of 2 CTAs.
  const Result<LaunchSequence> sequence = plan_launch(pair, paged_shapes_of(3, 1, 64), {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  EXPECT_EQ(sequence->launches.front().cluster[0], 2U);
  EXPECT_EQ(sequence->launches.front().grid[0], 6U);

  spec.num_q_heads = spec.group = 65;
  EXPECT_EQ(plan_of(spec).main().cluster, 2);
  spec.num_q_heads = spec.group = 64;
  EXPECT_EQ(plan_of(spec).main().cluster, 1);
  EXPECT_EQ(plan_of(sm90_mla_spec()).main().cluster, 1);
}

// Every block of K is upcast. V's scale is K's.
TEST(Sm90MlaPlan, CachesOfE4m3) {
  AttentionSpec spec = sm90_mla_spec();
  spec.kv_dtype = Dtype::kE4m3;
  spec.scales = Scales::kHead;
  spec.mask = {};
  spec.topk = 2048;
  const KernelPlan plan = plan_of(spec);
  ASSERT_TRUE(plan.supported) << plan.reason;
  EXPECT_EQ(plan.sm90_mla->consumer_registers, 224);
  int upcast = 0, with_lists = 0;
  for (const BarrierPlan& barrier : plan.main().barriers) {
    if (!barrier.name.starts_with("K ") || !barrier.name.ends_with(" full")) continue;
    upcast += barrier.arrivals == 4 ? 1 : 0;
    with_lists += barrier.arrivals == 4 + 4 ? 1 : 0;
  }
  EXPECT_EQ(upcast, 16);
  EXPECT_EQ(with_lists, 2);
  const Result<LaunchSequence> sequence = plan_launch(plan, paged_shapes_of(2, 1, 100), {}, {});
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  const std::vector<KernelParameter>& parameters = plan.main().parameters;
  int scales = 0;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    scales += parameters[i].name == "k_scale" ? 1 : 0;
    EXPECT_NE(parameters[i].name, "v_scale");
    if (parameters[i].name != "k_row_bytes") continue;
    EXPECT_EQ(std::get<std::int64_t>(sequence->launches.front().args[i].value), 576);
  }
  EXPECT_EQ(scales, 1);
}

// The device finds whether to deal out stream-K ranges where that may gain something: long
// sequences, of which there are several, and partial results that do not take too much memory.
TEST(Sm90MlaPlan, DealsStreamKRanges) {
  const KernelPlan plan = plan_of(sm90_mla_spec());
  EXPECT_TRUE(plan.sm90_mla->tiles.stream_k);
  const auto parts = [&](int batch, int q_len, int kv_len) {
    const PartitionChoice choice =
        partitions_of(plan, paged_shapes_of(batch, q_len, kv_len), {.sm_count = 132});
    return std::pair(choice.team, choice.partitions);
  };
  EXPECT_EQ(parts(8, 1, 32768), std::pair(2, 132));
  EXPECT_EQ(parts(64, 1, 8192), std::pair(2, 132));
  EXPECT_EQ(parts(128, 2, 8192), std::pair(4, 132));
  EXPECT_EQ(parts(37, 2, 57344), std::pair(4, 132));
  EXPECT_EQ(parts(64, 1, 1024), std::pair(0, 1));     // beside which a merge is long
  EXPECT_EQ(parts(8, 1, 1024), std::pair(0, 4));      // short
  EXPECT_EQ(parts(100, 200, 8192), std::pair(0, 1));  // fewer SMs than query tiles
  EXPECT_EQ(parts(8, 1, 0), std::pair(0, 1));
  EXPECT_EQ(parts(2, 1, 65536), std::pair(2, 132));  // one of the two may be short
  EXPECT_EQ(parts(1, 1, 32768).first, 0);
  // Two slots for each CTA, and the table of what they cut, whatever the batch.
  const Result<LaunchSequence> sequence =
      plan_launch(plan, paged_shapes_of(64, 1, 8192), {}, {}, {.sm_count = 132});
  ASSERT_TRUE(sequence.ok()) << sequence.error().to_string();
  const std::int64_t lse_bytes = std::int64_t{132} * (3 * 64 + 1) * 4;
  EXPECT_TRUE(std::ranges::any_of(sequence->workspaces,
                                  [&](const Workspace& one) { return one.bytes == lse_bytes; }));

  const auto deals = [](auto change) {
    AttentionSpec spec = sm90_mla_spec();
    change(spec);
    return plan_of(spec).sm90_mla->tiles.stream_k;
  };
  EXPECT_TRUE(deals([](AttentionSpec& spec) { spec.page_size = 1; }));
  EXPECT_FALSE(deals([](AttentionSpec& spec) { spec.ragged = true; }));
  EXPECT_FALSE(deals([](AttentionSpec& spec) { spec.num_partitions = 4; }));
  EXPECT_FALSE(deals([](AttentionSpec& spec) {
    spec.topk = 512;
    spec.mask = {};
  }));
  EXPECT_FALSE(deals([](AttentionSpec& spec) {
    spec.num_partitions = 1;
    spec.partition_keys = 512;
  }));
}

// Launches of few query tiles split the keys, so that the SMs have work; a full one does not.
TEST(Sm90MlaPlan, SplitsFewTiles) {
  const KernelPlan plan = plan_of(sm90_mla_spec());
  const auto parts = [&](int batch, int q_len, int kv_len) {
    return partitions_of(plan, paged_shapes_of(batch, q_len, kv_len), {}).uniform_splits;
  };
  EXPECT_GT(parts(1, 2, 32768), 30);
  EXPECT_LE(parts(1, 2, 32768), 64);
  EXPECT_GT(parts(1, 1, 1024), 4);
  EXPECT_EQ(parts(64, 1, 8192), 1);
  EXPECT_EQ(parts(128, 2, 8192), 1);
  EXPECT_EQ(parts(1, 1, 0), 1);
  EXPECT_EQ(parts(1, 1, 64), 1);
}

// The query tiles of a sequence are with CTAs of one cluster, whose SMs lie side by side.
TEST(Sm90MlaPlan, CtasOfTheSameKeysAreNeighbours) {
  const auto cluster = [](const KernelPlan& plan, const LaunchShapes& shapes, int sms) {
    const Result<LaunchSequence> sequence = plan_launch(plan, shapes, {}, {}, {.sm_count = sms});
    EXPECT_TRUE(sequence.ok()) << sequence.error().to_string();
    return sequence ? sequence->launches.front().cluster[0] : 0U;
  };
  const KernelPlan plan = plan_of(sm90_mla_spec());
  EXPECT_EQ(cluster(plan, paged_shapes_of(64, 1, 8192), 132), 2U);
  EXPECT_EQ(cluster(plan, paged_shapes_of(128, 2, 1024), 132), 2U);
  // A grid of 131 CTAs is no grid of clusters.
  EXPECT_EQ(cluster(plan, paged_shapes_of(128, 2, 1024), 131), 1U);
  // A query tile for each sequence.
  AttentionSpec few = sm90_mla_spec();
  few.num_q_heads = few.group = 16;
  EXPECT_EQ(cluster(plan_of(few), paged_shapes_of(132, 1, 8192), 132), 1U);
}

// Two CTAs have half of a sequence each, where it would have two parts; or of a part, where a row
// has more parts than a warp of the merge has lanes.
TEST(Sm90MlaPlan, PairsOfCtasReduce) {
  const KernelPlan plan = plan_of(sm90_mla_spec());
  EXPECT_TRUE(plan.sm90_mla->tiles.cluster_reduces);
  const auto launches = [&](int batch, int q_len, int kv_len) {
    Result<LaunchSequence> sequence =
        plan_launch(plan, paged_shapes_of(batch, q_len, kv_len), {}, {}, {.sm_count = 132});
    EXPECT_TRUE(sequence.ok()) << sequence.error().to_string();
    return sequence ? sequence->launches : std::vector<LaunchRecipe>{};
  };
  using Shape = std::array<std::uint32_t, 3>;
  const std::vector<KernelParameter>& parameters = plan.main().parameters;
  const auto at = static_cast<std::size_t>(
      std::ranges::find(parameters, "cluster_reduced", &KernelParameter::name) -
      parameters.begin());
  ASSERT_LT(at, parameters.size());
  const auto cluster_reduces = [&](const LaunchRecipe& recipe) {
    return std::get<std::int32_t>(recipe.args[at].value) == 1;
  };
  // Whole, and of sequences that are too short to ask how long they are: no merge follows.
  std::vector<LaunchRecipe> found = launches(32, 1, 1024);
  ASSERT_EQ(found.size(), 1U);
  EXPECT_TRUE(cluster_reduces(found[0]));
  EXPECT_EQ(found[0].cluster, (Shape{2, 1, 1}));
  EXPECT_EQ(found[0].grid, (Shape{128, 1, 1}));
  // Long ones may differ, and then ranges are dealt out to all SMs.
  found = launches(32, 1, 4096);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(cluster_reduces(found[0]));
  EXPECT_EQ(found[0].cluster, (Shape{2, 1, 1}));
  EXPECT_EQ(found[0].grid, (Shape{132, 1, 1}));
  // Halves of 32 parts.
  found = launches(1, 1, 32768);
  ASSERT_EQ(found.size(), 2U);
  EXPECT_TRUE(cluster_reduces(found[0]));
  EXPECT_EQ(found[0].cluster, (Shape{2, 1, 1}));
  EXPECT_EQ(found[0].grid, (Shape{128, 1, 1}));
  // Of 256 tiles each, beside which a merge is short; more query tiles than half of the SMs; a few
  // of short sequences.
  for (const auto& [batch, kv_len] : {std::pair(32, 32768), {34, 8192}, {8, 1024}}) {
    found = launches(batch, 1, kv_len);
    ASSERT_FALSE(found.empty());
    EXPECT_FALSE(cluster_reduces(found[0])) << batch << " of " << kv_len;
  }
  // Of the other CTA its eight warps that compute arrive; what it sends is counted in bytes.
  const std::vector<BarrierPlan>& barriers = plan.main().barriers;
  ASSERT_GE(barriers.size(), 2U);
  const BarrierPlan& done = barriers[barriers.size() - 2];
  EXPECT_EQ(done.name, "peer done");
  EXPECT_EQ(done.arrivals, 8);
  EXPECT_EQ(barriers.back().name, "peer's results full");
  EXPECT_EQ(barriers.back().arrivals, 1);

  const auto may_reduce_cluster = [](auto change) {
    AttentionSpec spec = sm90_mla_spec();
    change(spec);
    return plan_of(spec).sm90_mla->tiles.cluster_reduces;
  };
  EXPECT_TRUE(may_reduce_cluster([](AttentionSpec& spec) { spec.page_size = 1; }));
  EXPECT_FALSE(may_reduce_cluster([](AttentionSpec& spec) { spec.num_partitions = 2; }));
  // There are no registers for it; and these upcast for each other.
  EXPECT_FALSE(may_reduce_cluster([](AttentionSpec& spec) { spec.kv_dtype = Dtype::kE4m3; }));
  EXPECT_FALSE(
      may_reduce_cluster([](AttentionSpec& spec) { spec.cache_format = CacheFormat::kDsv32; }));
}

TEST(Sm90MlaPlan, RefusesWhatWouldOverflow) {
  LaunchShapes shapes = paged_shapes_of(1, 1 << 24, 64);
  const Result<LaunchSequence> sequence = plan_launch(plan_of(sm90_mla_spec()), shapes, {}, {});
  ASSERT_FALSE(sequence.ok());
  EXPECT_EQ(sequence.error().code, ErrorCode::kInvalid);
}

}  // namespace
}  // namespace attnjit
