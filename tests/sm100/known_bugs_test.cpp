// SPDX-License-Identifier: Apache-2.0
// The bugs that other kernels of this design had, each looked for in ours: run in the emulator
// under the isa model, or read from the plan and the PTX. Skipped without NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "../gpu/verify_cases.h"
#include "../in_proof.h"
#include "../one_launch.h"
#include "plan/sm100/sm100_plan.h"
#include "run_case.h"
#include "verify/compare.h"
#include "verify/numeric.h"

namespace attnjit::sm100 {
namespace {

using emulator::CompileTo;
using proof::some_of;
using verify::InputKind;
using verify::Problem;
using verify::Tensor;
using Kind = MaskSpec::Kind;

ProofCase dense(int depth, int query_tiles, const MaskSpec& mask = {}) {
  ProofCase one;
  one.spec.num_q_heads = 1;
  one.spec.qk_depth = depth;
  one.spec.return_lse = true;
  one.spec.mask = mask;
  one.options.num_qo = query_tiles;
  one.shape = {1, 141, 150, 1};
  return one;
}

class Sm100KnownBugs : public testing::Test {
 protected:
  void SetUp() override {
    if (const auto id = make_in_process_compiler()->build_id(); !id.ok()) {
      GTEST_SKIP() << id.error().to_string();
    }
  }

  // Null where it failed, which is told.
  static std::unique_ptr<ProofKernel> compiled(const ProofCase& one,
                                               CompileTo to = CompileTo::kPtx) {
    Result<ProofKernel> kernel = make_kernel(one, TemplateSet::embedded(), to);
    if (kernel) return std::make_unique<ProofKernel>(std::move(*kernel));
    ADD_FAILURE() << kernel.error().to_string();
    return nullptr;
  }

  static void expect_passes(const ProofCase& one, const ProofKernel& kernel, const Problem& problem,
                            std::uint64_t orders = 2) {
    const Judged judged = judge(one.shape, kernel, problem, orders);
    EXPECT_TRUE(judged.passed) << spec_to_json(one.spec, one.options) << " q_len "
                               << one.shape.q_len << " kv_len " << one.shape.kv_len << ": "
                               << judged.reason;
  }

  static void expect_passes(const ProofCase& one, const ProofKernel& kernel,
                            InputKind input = InputKind::kNormal) {
    const Result<Problem> problem = problem_of(one, input, 5);
    ASSERT_TRUE(problem.ok()) << problem.error().to_string();
    expect_passes(one, kernel, *problem);
  }

  static LaunchRecipe recipe_of(const ProofCase& one, const ProofKernel& kernel,
                                const Problem& problem) {
    DeviceShape device;
    device.sm_count = one.shape.sm_count;
    return *one_launch(kernel.generated.plan, problem.launch_shapes(), problem.launch_scalars(),
                       problem.param_values(), device);
  }
};

void fill(Tensor& tensor, std::int64_t begin, std::int64_t end, float value) {
  for (std::int64_t i = begin; i < end; ++i) verify::store_float(tensor, i, value);
}

// Every plan that the matrix knows.
template <class Check>
void for_each_plan(const Check& check) {
  int plans = 0;
  for (const verify::Case& one : verify::cases(Arch::kSm100a)) {
    for (const int num_qo : {0, 1, 2}) {
      PlanOptions options;
      if (num_qo > 0) options.num_qo = num_qo;
      if (!validate(one.spec, options).empty()) continue;
      const Result<KernelPlan> planned = plan(one.spec, options);
      ASSERT_TRUE(planned.ok()) << planned.error().to_string();
      if (!planned->supported) continue;
      ++plans;
      for (const Sm100Variant& variant : planned->sm100->variants) {
        check(*planned, variant, one.name);
        if (testing::Test::HasFailure()) return;
      }
    }
  }
  EXPECT_GT(plans, 300);
}

const PlacedRegion& region(const Sm100Variant& variant, const std::string& name) {
  const auto found = std::find_if(variant.smem.begin(), variant.smem.end(),
                                  [&](const PlacedRegion& r) { return r.name == name; });
  EXPECT_NE(found, variant.smem.end()) << name;
  return *found;
}

// KERN-3172 of the reference: 8 bytes less were reserved than the layout took.
TEST_F(Sm100KnownBugs, TheLastBarrierLiesInTheMemoryThatIsLaunched) {
  for_each_plan([](const KernelPlan& plan, const Sm100Variant& variant, const std::string& name) {
    const PlacedRegion& barriers = region(variant, "barriers");
    EXPECT_EQ(barriers.size, variant.barriers.bytes()) << name;
    EXPECT_LE(barriers.begin + barriers.size, plan.main().smem_bytes) << name;
    EXPECT_LE(plan.main().smem_bytes, kSm100SmemBytes) << name;
  });
  // That the emulator would see it: 8 bytes less.
  const ProofCase one = dense(64, 1);
  const auto kernel = compiled(one);
  ASSERT_TRUE(kernel);
  const Result<Problem> problem = problem_of(one, InputKind::kNormal, 1);
  ASSERT_TRUE(problem.ok());
  LaunchRecipe recipe = recipe_of(one, *kernel, *problem);
  const auto passed = emulator::run_kernel(kernel->module, recipe, *problem,
                                           proof_options(kernel->generated.plan, 0));
  ASSERT_TRUE(passed.ok());
  EXPECT_TRUE(passed->report.passed);
  recipe.dynamic_smem -= 8;
  const auto damaged = emulator::run_kernel(kernel->module, recipe, *problem,
                                            proof_options(kernel->generated.plan, 0));
  ASSERT_TRUE(damaged.ok());
  ASSERT_FALSE(damaged->report.findings.empty());
  EXPECT_EQ(damaged->report.findings.front().kind, FindingKind::kBounds);
}

// Sized by the rows of a CTA's query tiles, which are 128 with one tile: both warpgroups have 256.
TEST_F(Sm100KnownBugs, StatisticsHaveRoomForEveryThreadOfBothWarpgroups) {
  for_each_plan([](const KernelPlan&, const Sm100Variant& variant, const std::string& name) {
    EXPECT_GE(region(variant, "correction").size, std::int64_t{2} * 256 * 4) << name;
  });
}

// Counts of KV tiles that the roles derive apart: none, one (half of the warpgroups idle with one
// query tile), odd, even; and all again for a CTA's later tiles.
TEST_F(Sm100KnownBugs, RolesAgreeOnTheNumberOfTiles) {
  for (const int query_tiles : {1, 2}) {
    ProofCase one = dense(64, query_tiles);
    one.spec.num_q_heads = 3;
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    for (const int kv_len : {0, 1, 128, 129, 257, 385, 513}) {
      one.shape = {1, 20, kv_len, 1};
      expect_passes(one, *kernel);
    }
  }
}

// Of tiles without keys the load thread waits for Q's memory alone. Where the others went on by two
// tiles in that time, it waited for ever: in one order of time in 64 or so.
TEST_F(Sm100KnownBugs, TheLoadKeepsUpWithTilesWithoutKeys) {
  for (const int depth : {64, 256}) {
    for (const int rows : some_of<int>({depth == 64 ? 60 : 141, depth == 64 ? 141 : 60})) {
      ProofCase one = dense(depth, 0);
      one.options = {};
      one.spec.num_q_heads = 3;
      one.shape = {1, rows, 0, 1};
      const auto kernel = compiled(one);
      ASSERT_TRUE(kernel);
      const Result<Problem> problem = problem_of(one, InputKind::kNormal, 1);
      ASSERT_TRUE(problem.ok());
      expect_passes(one, *kernel, *problem, 150);
    }
  }
}

// A loop that counts down from no tiles: rows before the first key among rows after it, in tiles
// of one CTA.
TEST_F(Sm100KnownBugs, TilesThatSeeNothingLieAmongOthers) {
  for (const int query_tiles : {1, 2}) {
    ProofCase one = dense(64, query_tiles, verify::mask_of(Kind::kCausal));
    one.spec.num_q_heads = 2;
    one.persistent = true;
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    one.shape = {1, 600, 140, 1};
    const Result<Problem> problem = problem_of(one, InputKind::kNormal, 3);
    ASSERT_TRUE(problem.ok());
    LaunchRecipe recipe = recipe_of(one, *kernel, *problem);
    const Result<verify::Reference> reference = verify::compute_reference(*problem);
    ASSERT_TRUE(reference.ok());
    for (const std::uint32_t ctas : {1U, 3U}) {
      recipe.grid = {ctas, 1, 1};
      const auto run = emulator::run_kernel(kernel->module, recipe, *problem,
                                            proof_options(kernel->generated.plan, ctas));
      ASSERT_TRUE(run.ok());
      EXPECT_TRUE(run->report.passed)
          << (run->report.findings.empty() ? "" : run->report.findings.front().text);
      const auto comparison = verify::compare(*problem, *reference, run->o, &*run->lse,
                                              verify::tolerance_of(problem->spec));
      EXPECT_TRUE(comparison.passed) << comparison.reason;
    }
  }
}

// Of n equal scores and a sink of ln n, the sink has half of the weight: counted twice, 2/3.
TEST_F(Sm100KnownBugs, ASinkCountsOnceHoweverManyWarpgroupsShareARow) {
  for (const int query_tiles : {1, 2}) {
    ProofCase one = dense(64, query_tiles);
    one.spec.sink = true;
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    for (const int kv_len : {1, 128, 300}) {
      one.shape = {1, 40, kv_len, 1};
      Result<Problem> problem = problem_of(one, InputKind::kNormal, 1);
      ASSERT_TRUE(problem.ok());
      Tensor& q = problem->tensors.at("q");
      fill(q, 0, q.elements(), 0);
      Tensor& v = problem->tensors.at("v");
      fill(v, 0, v.elements(), 1);
      const double n = kv_len;
      fill(problem->tensors.at("sink"), 0, 1, static_cast<float>(std::log(n)));
      const auto run = emulator::run_kernel(kernel->module, recipe_of(one, *kernel, *problem),
                                            *problem, proof_options(kernel->generated.plan, 0));
      ASSERT_TRUE(run.ok());
      EXPECT_TRUE(run->report.passed);
      for (const std::int64_t row : {0, 39}) {
        EXPECT_NEAR(static_cast<double>(verify::load_float(run->o, row * 64 + 5)), 0.5, 2e-3);
        EXPECT_NEAR(static_cast<double>(run->lse->as<float>()[row]), std::log(2 * n), 1e-4);
      }
    }
  }
}

// Rows of K and V past the end of a sequence: the next sequence's, which are NaN here. Zero
// probabilities would make NaN of them.
TEST_F(Sm100KnownBugs, NothingPastTheEndOfASequenceIsRead) {
  for (const int query_tiles : {1, 2}) {
    ProofCase one = dense(64, query_tiles);
    one.shape = {2, 70, 150, 1};
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    Result<Problem> problem = problem_of(one, InputKind::kNormal, 1);
    ASSERT_TRUE(problem.ok());
    const Result<verify::Reference> reference = verify::compute_reference(*problem);
    ASSERT_TRUE(reference.ok());
    constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
    for (const char* name : {"q", "k", "v"}) {
      Tensor& tensor = problem->tensors.at(name);
      fill(tensor, tensor.elements() / 2, tensor.elements(), kNan);
    }
    const auto run = emulator::run_kernel(kernel->module, recipe_of(one, *kernel, *problem),
                                          *problem, proof_options(kernel->generated.plan, 0));
    ASSERT_TRUE(run.ok());
    EXPECT_TRUE(run->report.passed)
        << (run->report.findings.empty() ? "" : run->report.findings.front().text);
    for (std::int64_t i = 0; i < run->o.elements() / 2; ++i) {
      const double got = static_cast<double>(verify::load_float(run->o, i));
      ASSERT_NEAR(got, static_cast<double>(reference->o[static_cast<std::size_t>(i)]), 0.02) << i;
    }
    for (std::int64_t i = run->o.elements() / 2; i < run->o.elements(); ++i) {
      ASSERT_TRUE(std::isnan(verify::load_float(run->o, i))) << i;
    }
  }
}

// O's tile is 128 rows: what lies behind the last row of a sequence is somebody else's.
TEST_F(Sm100KnownBugs, NothingPastTheEndOfASequenceIsWritten) {
  for (const int query_tiles : {1, 2}) {
    ProofCase one = dense(64, query_tiles);
    one.shape = {2, 150, 90, 1};
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    const Result<Problem> problem = problem_of(one, InputKind::kNormal, 1);
    ASSERT_TRUE(problem.ok());
    // 77 rows of each sequence, in memory for 150.
    LaunchShapes shapes = problem->launch_shapes();
    shapes.q_len = 77;
    shapes.q = shapes.o = {150 * 64, 64, 64};
    DeviceShape device;
    device.sm_count = 1;
    const auto recipe = one_launch(kernel->generated.plan, shapes, problem->launch_scalars(),
                                   problem->param_values(), device);
    ASSERT_TRUE(recipe.ok()) << recipe.error().to_string();
    const auto run = emulator::run_kernel(kernel->module, *recipe, *problem,
                                          proof_options(kernel->generated.plan, 0));
    ASSERT_TRUE(run.ok());
    EXPECT_TRUE(run->report.passed);
    for (std::int64_t i = 0; i < run->o.elements(); ++i) {
      const bool written = i / 64 % 150 < 77;
      ASSERT_EQ(std::isnan(verify::load_float(run->o, i)), !written) << i;
    }
  }
}

// Whether a query sees a key, by the words of docs/spec.md.
bool sees(const MaskSpec& mask, int q_idx, int kv_idx) {
  switch (mask.kind) {
    case Kind::kNull:
      return true;
    case Kind::kCausal:
      return kv_idx <= q_idx;
    case Kind::kSlidingWindow:
      return q_idx - mask.window < kv_idx && kv_idx <= q_idx;
    case Kind::kChunked:
      return std::floor(static_cast<double>(q_idx) / static_cast<double>(mask.chunk)) ==
             std::floor(static_cast<double>(kv_idx) / static_cast<double>(mask.chunk));
    case Kind::kAnd:
      return std::all_of(mask.of.begin(), mask.of.end(),
                         [&](const MaskSpec& m) { return sees(m, q_idx, kv_idx); });
    case Kind::kOr:
      return std::any_of(mask.of.begin(), mask.of.end(),
                         [&](const MaskSpec& m) { return sees(m, q_idx, kv_idx); });
    default:
      return false;
  }
}

// A window counted in the wrong frame, a chunk that goes on past the last key: of equal scores, a
// row's LSE is the logarithm of how many keys it saw.
class Sm100VisibleKeys : public Sm100KnownBugs {
 protected:
  static void expect_counts(const ProofCase& one, const ProofKernel& kernel) {
    Result<Problem> problem = problem_of(one, InputKind::kNormal, 1);
    ASSERT_TRUE(problem.ok()) << problem.error().to_string();
    Tensor& q = problem->tensors.at("q");
    fill(q, 0, q.elements(), 0);
    const auto run = emulator::run_kernel(kernel.module, recipe_of(one, kernel, *problem), *problem,
                                          proof_options(kernel.generated.plan, 0));
    ASSERT_TRUE(run.ok()) << run.error().to_string();
    EXPECT_TRUE(run->report.passed);
    for (int row = 0; row < one.shape.q_len; ++row) {
      int count = 0;
      const int q_idx = row + one.shape.kv_len - one.shape.q_len;
      for (int kv = 0; kv < one.shape.kv_len; ++kv) count += sees(one.spec.mask, q_idx, kv);
      const double lse = static_cast<double>(run->lse->as<float>()[row]);
      const double shown = std::isinf(lse) && lse < 0 ? 0 : std::exp(lse);
      ASSERT_NEAR(shown, count, 1e-3 * count) << spec_to_json(one.spec) << " row " << row << " of "
                                              << one.shape.q_len << ", kv_len " << one.shape.kv_len;
    }
  }
};

TEST_F(Sm100VisibleKeys, OfWindowsOfEverySize) {
  ProofCase one = dense(64, 2, verify::mask_of(Kind::kSlidingWindow));
  const auto kernel = compiled(one);
  ASSERT_TRUE(kernel);
  for (const int window : {1, 2, 63, 127, 128, 129, 300, 2147483647}) {
    one.spec.mask.window = window;
    for (const auto& [q_len, kv_len] :
         {std::pair{200, 300}, std::pair{129, 129}, std::pair{200, 60}, std::pair{3, 513}}) {
      one.shape = {1, q_len, kv_len, 1};
      expect_counts(one, *kernel);
    }
  }
}

TEST_F(Sm100VisibleKeys, OfChunksThatEndPastTheLastKey) {
  ProofCase one = dense(64, 2, verify::mask_of(Kind::kChunked));
  const auto kernel = compiled(one);
  ASSERT_TRUE(kernel);
  for (const int chunk : {1, 3, 64, 100, 128, 200, 2147483647}) {
    one.spec.mask.chunk = chunk;
    for (const auto& [q_len, kv_len] :
         {std::pair{200, 300}, std::pair{129, 129}, std::pair{200, 60}, std::pair{3, 401}}) {
      one.shape = {1, q_len, kv_len, 1};
      expect_counts(one, *kernel);
    }
  }
}

TEST_F(Sm100VisibleKeys, OfTreesWithOneQueryTile) {
  ProofCase one = dense(64, 1,
                        verify::tree(Kind::kOr, {verify::mask_of(Kind::kSlidingWindow),
                                                 verify::mask_of(Kind::kChunked)}));
  const auto kernel = compiled(one);
  ASSERT_TRUE(kernel);
  for (const auto& [window, chunk] : {std::pair{1, 37}, std::pair{50, 128}, std::pair{130, 7}}) {
    one.spec.mask.of[0].window = window;
    one.spec.mask.of[1].chunk = chunk;
    for (const auto& [q_len, kv_len] :
         {std::pair{100, 300}, std::pair{129, 129}, std::pair{200, 60}}) {
      one.shape = {1, q_len, kv_len, 1};
      expect_counts(one, *kernel);
    }
  }
}

// Vectors of a width that is no power of two, at depths whose rows they do not divide.
TEST_F(Sm100KnownBugs, RowsOfOddDepthsAreWrittenAligned) {
  for (const int depth : some_of<int>({72, 96, 120}, 2)) {
    ProofCase one = dense(depth, 2);
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    expect_passes(one, *kernel);
  }
}

// P relative to a maximum that is not renewed: up to 2^8, which fp16 holds 2^8 times; and what is
// 2^-8 of that is not lost. Keys of later tiles (walked first) score less, by just below and just
// above the threshold a tile.
TEST_F(Sm100KnownBugs, ProbabilitiesOfFp16NeitherOverflowNorVanish) {
  for (const int query_tiles : {1, 2}) {
    ProofCase one = dense(64, query_tiles);
    one.spec.qkv_dtype = Dtype::kFp16;
    one.shape = {1, 40, 640, 1};
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    for (const double step : {7.9, 8.1, 4.0, -7.9, 0.0}) {
      Result<Problem> problem = problem_of(one, InputKind::kNormal, 1);
      ASSERT_TRUE(problem.ok());
      Tensor& q = problem->tensors.at("q");
      Tensor& k = problem->tensors.at("k");
      fill(q, 0, q.elements(), 0);
      fill(k, 0, k.elements(), 0);
      for (int row = 0; row < one.shape.q_len; ++row) verify::store_float(q, row * 64, 8.0F);
      for (int key = 0; key < one.shape.kv_len; ++key) {
        // score = scale * 8 * k = k: in units of log2, `step` a tile of 128 keys.
        const double score = -step * static_cast<double>(key / 128) * std::log(2.0);
        verify::store_float(k, key * 64, static_cast<float>(score));
      }
      expect_passes(one, *kernel, *problem, 1);
    }
  }
}

// Tensor memory's address is read where nothing else is ever written.
TEST_F(Sm100KnownBugs, TensorMemorysAddressHasMemoryOfItsOwn) {
  for_each_plan([](const KernelPlan&, const Sm100Variant& variant, const std::string& name) {
    const PlacedRegion& slot = region(variant, "tmem address");
    const auto apart = [&](std::int64_t begin, std::int64_t size) {
      return begin + size <= slot.begin || slot.begin + slot.size <= begin;
    };
    for (const PlacedRegion& other : variant.smem) {
      EXPECT_TRUE(&other == &slot || apart(other.begin, other.size)) << name << other.name;
    }
    for (const Sm100Overlay& overlay : variant.smem_overlays) {
      EXPECT_TRUE(apart(overlay.begin, overlay.size)) << name << overlay.name;
    }
  });
}

// What one warp initialises in two waves.
TEST_F(Sm100KnownBugs, NoPlanHasMoreThan64Barriers) {
  for_each_plan([](const KernelPlan&, const Sm100Variant& variant, const std::string& name) {
    EXPECT_LE(variant.barriers.size(), 64) << name;
  });
}

// --- read from the PTX ---------------------------------------------------------------------------

std::vector<ProofCase> kernels_to_read() {
  std::vector<ProofCase> list;
  ProofCase both = dense(64, 2, verify::mask_of(Kind::kCausal));
  both.options.num_qo.reset();
  list.push_back(both);
  ProofCase trees = both;
  trees.spec.mask = verify::tree(
      Kind::kOr, {verify::mask_of(Kind::kSlidingWindow), verify::mask_of(Kind::kChunked)});
  trees.spec.num_q_heads = 8;
  trees.spec.group = 8;
  list.push_back(trees);
  list.push_back(dense(192, 1));
  ProofCase latent = dense(192, 2, verify::mask_of(Kind::kCausal));
  latent.spec.ov_depth = 128;
  list.push_back(latent);
  return list;
}

// Role dispatch as a table of addresses costs loads from constant memory; an array indexed by a
// loop's counter lands in local memory. (Spills, which land there too, are the compile report's.)
TEST_F(Sm100KnownBugs, NoJumpTableAndNoLocalMemory) {
  for (const ProofCase& one : some_of(kernels_to_read(), 2)) {
    const auto kernel = compiled(one);
    ASSERT_TRUE(kernel);
    const std::string& ptx = kernel->generated.ptx;
    EXPECT_EQ(ptx.find("brx"), std::string::npos) << spec_to_json(one.spec);
    EXPECT_EQ(ptx.find(".local"), std::string::npos) << spec_to_json(one.spec);
  }
}

// What each of a kernel's barriers waits for, as its own constants and the warp that initialises
// them have it: read in the emulator by a kernel of one warp.
std::vector<std::uint32_t> pending_of_barriers(const KernelPlan& plan,
                                               const Sm100Variant& variant) {
  CompileRequest request;
  request.source = generate(plan).value();
  request.source.entries = {"pending"};
  std::string& text = request.source.text;
  const std::size_t forward = text.find("#include \"sm100/forward.cuh\"");
  EXPECT_NE(forward, std::string::npos);
  text.resize(std::min(forward, text.size()));
  text += R"cuda(
#include "common/waits.cuh"
struct NoArguments {};
extern "C" __global__ void pending(unsigned* counts, unsigned offset, unsigned barriers) {
  extern __shared__ __align__(1024) unsigned char dynamic_smem[];
  const attnjit::u32 base = attnjit::shared_address(dynamic_smem);
  const attnjit::CtaMemory<Config> smem(base, NoArguments{});
  attnjit::init_barriers_by_warp<Config>(smem.barrier(0));
  __syncwarp();
  if (threadIdx.x != 0) return;
  for (unsigned i = 0; i < barriers; ++i) {
    asm volatile("{\n.reg .b64 before;\nmbarrier.arrive.shared::cta.b64 before, [%1];\n"
                 "mbarrier.pending_count.b64 %0, before;\n}"
                 : "=r"(counts[i]) : "r"(base + offset + 8 * i) : "memory");
  }
}
)cuda";
  request.want_ptx = true;
  request.ptx_only = true;
  const Result<KernelImage> image = make_in_process_compiler()->compile(
      request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
  EXPECT_TRUE(image.ok()) << image.error().to_string();
  const Result<PtxModule> module = PtxModule::load(image.ok() ? image->ptx : std::string());
  EXPECT_TRUE(module.ok()) << module.error().to_string();
  if (!module) return {};
  const auto barriers = static_cast<std::uint32_t>(variant.barriers.size());
  LaunchRecipe recipe;
  recipe.entry = "pending";
  recipe.block = {32, 1, 1};
  recipe.dynamic_smem = static_cast<std::uint32_t>(variant.smem_bytes());
  recipe.args = {{KernelArgument::Pointer{"counts", 0, {}}},
                 {static_cast<std::int32_t>(region(variant, "barriers").begin)},
                 {static_cast<std::int32_t>(barriers)}};
  std::vector<EmulatorBuffer> buffers(1);
  buffers[0] = {"counts", Dtype::kU32, {barriers}, {}, true};
  buffers[0].data.resize(4 * std::size_t{barriers});
  const Result<EmulatorReport> report = emulate(*module, recipe, buffers);
  EXPECT_TRUE(report.ok() && report->passed);
  std::vector<std::uint32_t> counts(barriers);
  std::memcpy(counts.data(), buffers[0].data.data(), buffers[0].data.size());
  return counts;
}

// Arrival counts that drift from what the roles do are the reference's hangs.
TEST_F(Sm100KnownBugs, BarriersAreInitialisedAsThePlanSays) {
  for (const ProofCase& one : kernels_to_read()) {
    const Result<KernelPlan> made = plan(one.spec, one.options);
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    // The bodies with one and with two query tiles share their code, and one list of barriers.
    for (const Sm100Variant& variant : made->sm100->variants) {
      std::vector<std::uint32_t> planned;
      for (const BarrierPlan& barrier : variant.barriers.all()) {
        planned.push_back(static_cast<std::uint32_t>(barrier.arrivals));
      }
      EXPECT_EQ(pending_of_barriers(*made, variant), planned)
          << spec_to_json(one.spec) << " num_qo " << variant.num_qo;
    }
  }
}

// Budgets that ptxas ignores (it says so, and compile() then fails) or that wait for ever.
TEST_F(Sm100KnownBugs, RegisterBudgetsAreHonoured) {
  for (const ProofCase& one : some_of(kernels_to_read(), 2)) {
    const auto kernel = compiled(one, CompileTo::kImage);
    ASSERT_TRUE(kernel);
    const Sm100Plan& sm100 = *kernel->generated.plan.sm100;
    EXPECT_EQ(kernel->generated.log.find("setmaxnreg"), std::string::npos) << kernel->generated.log;
    const int launched = kernel->generated.plan.main().launch_registers;
    EXPECT_EQ(kernel->generated.usage.registers, launched);
    std::map<int, int> budgets;  // by warpgroup
    for (const Sm100Role& role : sm100.roles) {
      const auto [known, fresh] = budgets.emplace(role.first_warp / 4, role.registers);
      EXPECT_EQ(known->second, role.registers) << to_string(role.id);
    }
    int sum = 0;
    for (const auto& [warpgroup, registers] : budgets) {
      sum += registers;
      const std::string word = fmt::format("setmaxnreg.{}.sync.aligned.u32 {};",
                                           registers > launched ? "inc" : "dec", registers);
      EXPECT_NE(kernel->generated.ptx.find(word), std::string::npos) << word;
    }
    EXPECT_LE(128 * sum, 65536);
    EXPECT_LE(sum, 4 * launched) << "more than the CTA was launched with never comes";
  }
}

}  // namespace
}  // namespace attnjit::sm100
