// SPDX-License-Identifier: Apache-2.0
// What the tests of kernels share: launches in the emulator and their comparison.
#include "kernel_fixture.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "plan/family.h"
#include "plan/sm90/sm90_plan.h"
#include "verify/compare.h"
#include "verify/emulator_backend.h"

namespace attnjit::kernel_test {
namespace {

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

}  // namespace

AttentionSpec base_spec(Arch arch, int heads, int group, int qk_depth, const MaskSpec& mask) {
  AttentionSpec spec;
  spec.arch = arch;
  spec.num_q_heads = heads;
  spec.group = group;
  spec.qk_depth = qk_depth;
  spec.return_lse = true;
  spec.mask = mask;
  return spec;
}

AttentionSpec absorbed_spec(Arch arch, int heads, int qk_depth, int page_size) {
  AttentionSpec spec = base_spec(arch, heads, heads, qk_depth, mask_of(Kind::kNull));
  spec.mla = Mla::kDecode;
  spec.page_size = page_size;
  return spec;
}

AttentionSpec of_sequences(AttentionSpec spec, int page_size, bool ragged) {
  spec.page_size = page_size;
  spec.ragged = ragged;
  return spec;
}

MaskSpec window_of(int window) {
  MaskSpec mask = mask_of(Kind::kSlidingWindow);
  mask.window = window;
  return mask;
}

MaskSpec expression_of(const std::string& code, std::vector<ParamSpec> params) {
  MaskSpec mask = mask_of(Kind::kCustom);
  mask.custom.name = "expression";
  mask.custom.code = code;
  mask.custom.params = std::move(params);
  return mask;
}

MaskSpec tree_of_drafts() {
  MaskSpec before = expression_of("kv_idx < kv_len - q_len");
  before.custom.name = "before";
  MaskSpec path = expression_of(
      "(p.t[q_row][(kv_idx - kv_len + q_len) / 32] >> kv_idx - kv_len + q_len & 1) != 0",
      {{"t", ParamSpec::Type::kU32Matrix}});
  return tree(Kind::kOr, {before, path});
}

MaskSpec drafts_by_tensor(Dtype dtype) {
  return tree(Kind::kOr,
              {expression_of("kv_idx < kv_len - q_len - 2"), verify::materialized_mask(dtype)});
}

AttentionSpec by_total_row(AttentionSpec spec) {
  spec.mask = expression_of("(total_row + kv_idx) % 5 != 1 && total_row / 64 != kv_idx / 64");
  spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
  spec.score_mod.custom.name = "of_rows";
  // NOTE: of a name that the kernel's own parameter has.
  spec.score_mod.custom.code = "score + p.q_offsets[total_row]";
  spec.score_mod.custom.params = {{"q_offsets", ParamSpec::Type::kF32Array}};
  return spec;
}

AttentionSpec with_group(AttentionSpec spec, int heads, int group) {
  spec.num_q_heads = heads;
  spec.group = group;
  return spec;
}

void KernelTest::SetUp() {
  turn_ = 0;
  if (const auto id = make_in_process_compiler()->build_id(); !id.ok()) {
    GTEST_SKIP() << id.error().to_string();
  }
}

std::unique_ptr<Kernel> KernelTest::compiled(const AttentionSpec& spec, const PlanOptions& options,
                                             const Tuning* tuning, CompileTo to) {
  Result<emulator::GeneratedKernel> kernel =
      emulator::generate_kernel(spec, options, TemplateSet::embedded(), tuning, to);
  if (!kernel) {
    ADD_FAILURE() << kernel.error().to_string();
    return nullptr;
  }
  Result<PtxModule> module = PtxModule::load(kernel->ptx);
  if (!module) {
    ADD_FAILURE() << module.error().to_string();
    return nullptr;
  }
  return std::make_unique<Kernel>(Kernel{std::move(*kernel), std::move(*module)});
}

std::optional<Problem> KernelTest::problem_of(const AttentionSpec& spec, const Lengths& lengths,
                                              InputKind input, std::uint64_t seed,
                                              std::vector<verify::ParamArgument> params) {
  verify::ProblemRequest request;
  request.params = std::move(params);
  request.batch = static_cast<int>(lengths.kv.size());
  request.q_lens = lengths.q;
  request.kv_lens = lengths.kv;
  request.input = input;
  request.seed = seed;
  request.threads = 1;
  Result<Problem> problem = verify::make_problem(spec, request);
  if (problem) return std::move(*problem);
  ADD_FAILURE() << problem.error().to_string();
  return std::nullopt;
}

LaunchSequence KernelTest::launches_of(const Kernel& kernel, const Problem& problem,
                                       const LaunchShapes& shapes, int sm_count) {
  DeviceShape device;
  device.sm_count = sm_count;
  Result<LaunchSequence> sequence = plan_launch(
      kernel.generated.plan, shapes, problem.launch_scalars(), problem.param_values(), device);
  EXPECT_TRUE(sequence.ok()) << (sequence.ok() ? "" : sequence.error().to_string());
  return sequence.ok() ? *sequence : LaunchSequence{};
}

std::optional<Outputs> KernelTest::run(const Kernel& kernel, const Problem& problem,
                                       const LaunchSequence& sequence, std::uint64_t seed,
                                       const std::set<FindingKind>& allowed, const Outputs* before,
                                       bool counts_loads) {
  EmulatorOptions options;
  options.stats = counts_loads;
  options.model = EmulatorModel::kIsa;
  options.seed = seed;
  options.threads = 1;
  for (const Waiver& waiver : kernel.generated.plan.waivers) {
    options.in_order_issue |= waiver.name == "in-order-mma";
  }
  std::vector<EmulatorBuffer> buffers;
  for (const auto& [name, tensor] : problem.tensors) {
    buffers.push_back(verify::emulator_buffer(name, tensor));
  }
  Outputs outputs;
  outputs.o = verify::make_tensor(*kernel.generated.plan.spec->output_dtype, problem.o_shape());
  verify::poison(outputs.o);
  buffers.push_back(verify::emulator_buffer("o", outputs.o));
  buffers.back().uninitialised = true;
  if (problem.spec.return_lse) {
    outputs.lse = verify::make_tensor(Dtype::kF32, problem.lse_shape());
    verify::poison(*outputs.lse);
    buffers.push_back(verify::emulator_buffer("lse", *outputs.lse));
    buffers.back().uninitialised = true;
  }
  if (problem.spec.accumulate) {
    EmulatorBuffer& o = buffers[buffers.size() - 2];
    o.uninitialised = false;
    if (before != nullptr) o.data = before->o.bytes;
    buffers.back() =
        verify::emulator_buffer("lse", before != nullptr ? *before->lse : problem.lse_before());
  }
  const Result<EmulatorReport> report = emulate(kernel.module, sequence, buffers, options);
  if (!report) {
    ADD_FAILURE() << report.error().to_string();
    return std::nullopt;
  }
  for (const Finding& finding : report->findings) {
    if (allowed.contains(finding.kind)) continue;
    ADD_FAILURE() << to_string(finding.kind) << " at PTX line " << finding.ptx_line << ": "
                  << finding.text;
  }
  outputs.thread_steps = report->thread_steps;
  if (const auto loads = report->stats.unit_bytes.find("TMA load");
      loads != report->stats.unit_bytes.end()) {
    outputs.loaded_bytes = loads->second;
  }
  for (EmulatorBuffer& buffer : buffers) {
    if (buffer.name == "o") {
      outputs.o.bytes = std::move(buffer.data);
    } else if (buffer.name == "lse") {
      outputs.lse->bytes = std::move(buffer.data);
    } else {
      outputs.others[buffer.name] = std::move(buffer.data);
    }
  }
  return outputs;
}

std::optional<verify::Reference> KernelTest::reference_of(const Problem& problem) {
  Result<verify::Reference> reference = verify::compute_reference(problem, 1);
  if (reference) return *std::move(reference);
  ADD_FAILURE() << reference.error().to_string();
  return std::nullopt;
}

void KernelTest::expect_right(const Problem& problem, const Outputs& run) {
  const auto reference = reference_of(problem);
  ASSERT_TRUE(reference);
  expect_right(problem, *reference, run);
}

void KernelTest::expect_right(const Problem& problem, const verify::Reference& reference,
                              const Outputs& run) {
  const verify::Comparison comparison = verify::compare(
      problem, reference, run.o, run.lse ? &*run.lse : nullptr, verify::tolerance_of(problem.spec));
  EXPECT_TRUE(comparison.passed) << spec_to_json(problem.spec) << ": " << comparison.reason;
}

void KernelTest::expect_passes(const AttentionSpec& spec, const std::vector<Lengths>& batches,
                               const Tuning* tuning) {
  const auto kernel = compiled(spec, tuning);
  ASSERT_TRUE(kernel);
  const bool all = in_proof() || batches.size() == 1;
  const std::size_t turn = all ? 0 : (turn_++ + (spec.arch == Arch::kSm90a ? 0 : 1)) % 2;
  int sm_count = turn == 0 ? 2 : 132;
  for (std::size_t i = turn; i < batches.size(); i += all ? 1 : 2) {
    const auto problem = problem_of(spec, batches[i], static_cast<InputKind>(i % 4), i);
    ASSERT_TRUE(problem);
    const LaunchSequence sequence =
        launches_of(*kernel, *problem, problem->launch_shapes(), sm_count);
    sm_count = sm_count == 2 ? 132 : 2;
    const auto reference = reference_of(*problem);
    ASSERT_TRUE(reference);
    const std::uint64_t first = i + number_of("ATTNJIT_TEST_FIRST_SEED", 0);
    for (std::uint64_t seed = first; seed < first + seeds(); ++seed) {
      const auto done = run(*kernel, *problem, sequence, seed);
      ASSERT_TRUE(done) << "batch " << i;
      expect_right(*problem, *reference, *done);
    }
  }
}

void KernelTest::expect_runs(const AttentionSpec& spec, const Lengths& lengths,
                             const std::vector<int>& sm_counts, bool of_few_keys) {
  SCOPED_TRACE(spec_to_json(spec));
  const auto kernel = compiled(spec);
  ASSERT_TRUE(kernel);
  const auto problem = problem_of(spec, lengths);
  ASSERT_TRUE(problem);
  const auto reference = reference_of(*problem);
  ASSERT_TRUE(reference);
  for (const int sm_count : some_of(sm_counts)) {
    SCOPED_TRACE(sm_count);
    const KernelPlan& planned = kernel->generated.plan;
    const DeviceShape device{.sm_count = sm_count};
    PartitionChoice choice =
        family_of(planned.spec).partitions(planned, problem->launch_shapes(), device);
    if (of_few_keys) {
      const int heads = planned.sm90->pack_gqa ? spec.num_q_heads / spec.group : spec.num_q_heads;
      choice = {.partitions = sm_count * planned.main().ctas_per_sm, .team = heads};
    }
    ASSERT_GT(choice.team, 0) << "the device is not asked";
    LaunchSequence sequence;
    ASSERT_TRUE(plan_launch_in_parts(planned, problem->launch_shapes(), problem->launch_scalars(),
                                     {}, device, choice, sequence)
                    .ok());
    for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
      const auto done = run(*kernel, *problem, sequence, seed);
      ASSERT_TRUE(done);
      expect_right(*problem, *reference, *done);
    }
  }
}

std::uint64_t KernelTest::steps_of(const Kernel& kernel, const Lengths& lengths) {
  const auto problem = problem_of(kernel.generated.plan.spec, lengths);
  if (!problem) return 0;
  const auto done =
      run(kernel, *problem, launches_of(kernel, *problem, problem->launch_shapes(), 132));
  if (!done) return 0;
  expect_right(*problem, *done);
  return HasFailure() ? 0 : done->thread_steps;
}

std::uint64_t KernelTest::loaded_bytes_of(const Kernel& kernel, const Lengths& lengths,
                                          int sm_count) {
  const auto problem = problem_of(kernel.generated.plan.spec, lengths);
  if (!problem) return 0;
  const LaunchSequence sequence = launches_of(kernel, *problem, problem->launch_shapes(), sm_count);
  const auto done = run(kernel, *problem, sequence, 0, {}, nullptr, true);
  if (!done) return 0;
  expect_right(*problem, *done);
  return done->loaded_bytes;
}

void KernelTest::expect_no_spills(const std::vector<AttentionSpec>& specs,
                                  const PlanOptions& options) {
  for (const AttentionSpec& spec : specs) {
    SCOPED_TRACE(spec_to_json(spec));
    const auto kernel = compiled(spec, options, nullptr, CompileTo::kImage);
    ASSERT_TRUE(kernel);
    EXPECT_EQ(kernel->generated.usage.spill_bytes, 0);
    EXPECT_EQ(kernel->generated.usage.stack_bytes, 0);
    EXPECT_LE(kernel->generated.usage.registers, 168);
  }
}

void KernelTest::expect_no_harm(const AttentionSpec& spec, const std::vector<Changed>& changes,
                                const PlanOptions& options) {
  SCOPED_TRACE(spec_to_json(spec));
  const auto kernel = compiled(spec, options);
  ASSERT_TRUE(kernel);
  for (const auto& [tensor, values] : changes) {
    SCOPED_TRACE(tensor);
    auto problem = problem_of(spec, {{70, 5, 64}, {100, 30, 64}});  // 194 keys in all
    ASSERT_TRUE(problem);
    verify::Tensor& changed = problem->tensors.at(tensor);
    ASSERT_LE(static_cast<std::int64_t>(values.size()), changed.elements());
    std::copy(values.begin(), values.end(), changed.as<std::int32_t>());
    std::set<FindingKind> allowed{FindingKind::kRace, FindingKind::kProxy};
    // A merge reads all rows, those too that wrong offsets make nobody's and nobody writes.
    if (spec.num_partitions != 1 || spec.partition_keys > 0) {
      if (tensor == std::string_view("q_offsets")) allowed.insert(FindingKind::kUninitialised);
    }
    for (const int sm_count : {1, 132}) {
      run(*kernel, *problem, launches_of(*kernel, *problem, problem->launch_shapes(), sm_count), 0,
          allowed);
    }
  }
}

}  // namespace attnjit::kernel_test
