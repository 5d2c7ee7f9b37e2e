// SPDX-License-Identifier: Apache-2.0
// Makes the subjects of descriptions: compiles each kernel, and plans its launches.
#include "description.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "../attention/generated_kernel.h"
#include "attention_subject.h"
#include "plan/mla/mla_tiles.h"
#include "plan/plan_launch.h"
#include "plan/sm100/sm100_plan.h"
#include "plan/sm90/sm90_plan.h"
#include "verify/compare.h"

namespace attnjit::emulator {
namespace {

/// Which document each position is of.
verify::ParamArgument documents_of(int length) {
  verify::Tensor doc = verify::make_tensor(Dtype::kI32, {2048});
  for (std::int32_t i = 0; i < 2048; ++i) doc.as<std::int32_t>()[i] = i / length;
  return {"doc", std::move(doc)};
}

void set_argument(const KernelPlan& plan, LaunchRecipe& recipe, std::string_view name,
                  std::int32_t value) {
  const std::vector<KernelParameter>& parameters = plan.kernels[recipe.kernel].parameters;
  for (std::size_t i = 0; i < recipe.args.size(); ++i) {
    if (parameters[i].name == name) recipe.args[i].value = value;
  }
}

/// What a launch splits that asks how long its sequences are.
PartitionChoice asking_choice(const KernelPlan& plan, const Shape& shape) {
  const SpecFacts& spec = plan.spec;
  if (spec.mla != Mla::kDecode) {
    const int team = plan.sm90->pack_gqa ? spec.num_kv_heads() : spec.num_q_heads;
    return {.partitions = shape.sm_count * plan.main().ctas_per_sm, .team = team};
  }
  const std::int64_t rows = std::int64_t{MlaTiles::kRows} * plan.main().cluster;
  const std::int64_t tiles = ((shape.q_lens.front() << mla_head_shift(spec)) + rows - 1) / rows;
  return {.partitions = std::max(shape.sm_count / static_cast<int>(plan.main().cluster), 1),
          .team = static_cast<std::int32_t>(tiles)};
}

/// An error where the device would not deal out stream-K ranges, or would
/// (templates/common/sequence_ranges.cuh): it does where whole sequences take longer.
Status deals_as_said(const Shape& shape, const PartitionChoice& choice) {
  constexpr std::int64_t kWorkTileUnits = 4;
  const std::int64_t tiles = choice.team, workers = choice.partitions, teams = workers / tiles;
  std::int64_t all = -kWorkTileUnits, longest = 0;
  for (const std::int64_t keys : shape.kv_lens) {
    const std::int64_t units =
        std::max<std::int64_t>((keys + MlaTiles::kKeys - 1) / MlaTiles::kKeys, 1);
    all += units + kWorkTileUnits;
    longest = std::max(longest, units);
  }
  bool runs = false;
  if (teams > 1) {
    const std::int64_t length = (all - 1) / teams + 1;
    const auto sequences = static_cast<std::int64_t>(shape.kv_lens.size());
    const std::int64_t rounds = (sequences * tiles + workers - 1) / workers;
    runs = rounds * (longest + kWorkTileUnits) > length + length / 16 + kWorkTileUnits;
  }
  if (runs == shape.runs) return {};
  return make_error(ErrorCode::kInvalid,
                    fmt::format("runs are {}dealt out to {} teams", runs ? "" : "not ", teams));
}

/// Writes a word of each input of the problem, with what it is, and may still run when the next
/// launch begins. NOTE: a word: of launches that overlap the emulator judges whole buffers.
LaunchRecipe writer_of(const verify::Problem& problem) {
  LaunchRecipe writer;
  writer.entry = kWriterEntry;
  for (const auto& [name, tensor] : problem.tensors) {
    if (tensor.bytes.size() < 4) continue;
    writer.args.push_back({KernelArgument::Pointer{name, 0}});
  }
  return writer;
}

std::string writer_text(std::size_t inputs) {
  std::string parameters, words;
  for (std::size_t i = 0; i < inputs; ++i) {
    parameters += fmt::format("{}\n.param .u64 input_{}", i == 0 ? "" : ",", i);
    words += fmt::format(
        "ld.param.u64 %rd1, [input_{}];\ncvta.to.global.u64 %rd1, %rd1;\n"
        "ld.global.u32 %r1, [%rd1];\nst.global.u32 [%rd1], %r1;\n",
        i);
  }
  return fmt::format(
      "\n.visible .entry {}({}\n)\n{{\n.reg .b32 %r<2>;\n.reg .b64 %rd<2>;\n"
      "griddepcontrol.launch_dependents;\n{}ret;\n}}\n",
      kWriterEntry, parameters, words);
}

Result<Call> call_of(const KernelPlan& plan, const Shape& shape) {
  verify::ProblemRequest request;
  request.q_lens = shape.q_lens;
  request.kv_lens = shape.kv_lens;
  request.seed = 11;
  request.input = shape.input;
  request.pairs = shape.pairs;
  if (shape.documents > 0) request.params.push_back(documents_of(shape.documents));
  Result<verify::Problem> problem = verify::make_problem(plan.spec, request);
  if (!problem) return std::move(problem).error();
  Result<verify::Reference> reference = verify::compute_reference(*problem);
  if (!reference) return std::move(reference).error();
  DeviceShape device;
  device.sm_count = shape.sm_count;
  std::optional<PartitionChoice> chosen;
  if (shape.asks) {
    chosen = asking_choice(plan, shape);
  } else if (shape.partitions) {
    chosen = {*shape.partitions, *shape.partitions, shape.joined};
  }
  LaunchSequence sequence;
  Status launched = plan_launch_in_parts(plan, problem->launch_shapes(), problem->launch_scalars(),
                                         problem->param_values(), device, chosen, sequence);
  if (launched && problem->spec.mla == Mla::kDecode && shape.asks) {
    launched = deals_as_said(shape, *chosen);
  }
  if (!launched) return std::move(launched).error();
  // An sm_100a kernel whose CTAs walk the work tiles of sequences of one length takes as many as
  // the grid leaves it: one CTA, or pair, takes them all, and every buffer is handed over. A
  // section per head: tiles with keys come after some without.
  if (problem->spec.arch != Arch::kSm90a && problem->spec.page_size == 0 && !problem->spec.ragged &&
      (plan.sm100 == nullptr || !plan.sm100->one_work_tile())) {
    for (LaunchRecipe& recipe : sequence.launches) {
      if (recipe.kernel != 0) continue;
      // Where a CTA steals others' there is one for each, of which some have not started.
      const bool steals_tiles = plan.sm100 != nullptr && plan.sm100->steals_tiles();
      if (!steals_tiles) recipe.grid = recipe.cluster;
      set_argument(plan, recipe, "section_heads", 1);
    }
  }
  if (shape.bit_blocks) {
    for (LaunchRecipe& recipe : sequence.launches) {
      set_argument(plan, recipe, "bit_blocks", *shape.bit_blocks);
    }
  }
  if (shape.twice) {
    const std::vector<LaunchRecipe> once = sequence.launches;
    sequence.launches.insert(sequence.launches.end(), once.begin(), once.end());
  }
  if (shape.written) sequence.launches.insert(sequence.launches.begin(), writer_of(*problem));
  return Call{std::move(*problem), std::move(*reference), std::move(sequence)};
}

Result<std::unique_ptr<Subject>> made(const Description& of) {
  Result<GeneratedKernel> kernel =
      generate_kernel(of.spec, of.options, TemplateSet::embedded(), &of.tuning);
  if (!kernel) return std::move(kernel).error();
  std::vector<Call> calls;
  for (const Shape& shape : of.shapes) {
    Result<Call> call = call_of(kernel->plan, shape);
    if (!call) return std::move(call).error();
    calls.push_back(std::move(*call));
  }
  for (const Call& call : calls) {
    const LaunchRecipe& first = call.sequence.launches.front();
    if (first.entry != kWriterEntry) continue;
    kernel->ptx += writer_text(first.args.size());
    break;
  }
  const bool in_order_issue =
      std::any_of(kernel->plan.waivers.begin(), kernel->plan.waivers.end(),
                  [](const Waiver& waiver) { return waiver.name == "in-order-mma"; });
  return std::unique_ptr<Subject>(
      std::make_unique<AttentionSubject>(of.name, std::move(kernel->ptx), std::move(calls),
                                         in_order_issue, verify::tolerance_of(kernel->plan.spec)));
}

}  // namespace

AttentionSpec spec_of(Arch arch, int qk_depth, int ov_depth, int heads, int group,
                      MaskSpec::Kind mask) {
  AttentionSpec spec;
  spec.arch = arch;
  spec.num_q_heads = heads;
  spec.group = group;
  spec.qk_depth = qk_depth;
  spec.ov_depth = ov_depth;
  spec.mask.kind = mask;
  spec.return_lse = true;
  return spec;
}

Tuning persistent() {
  Tuning tuning;
  tuning.rows.push_back({{}, {{"persistent", 1}}});
  return tuning;
}

Tuning taking_over() {
  Tuning tuning;
  tuning.rows.push_back({{}, {{"persistent", 2}}});
  return tuning;
}

PlanOptions in_pairs(bool pair) {
  PlanOptions options;
  options.pair_cta = pair;
  return options;
}

AttentionSpec with(AttentionSpec spec, const std::function<void(AttentionSpec&)>& change) {
  change(spec);
  return spec;
}

Result<Subjects> make_described(const std::vector<std::vector<Description>>& lists,
                                const Wanted& wanted) {
  Subjects subjects;
  for (const std::vector<Description>& list : lists) {
    for (const Description& of : list) {
      if (!wanted(of.name)) continue;
      Result<std::unique_ptr<Subject>> subject = made(of);
      if (!subject) return std::move(subject).error();
      subjects.push_back(std::move(*subject));
    }
  }
  return subjects;
}

}  // namespace attnjit::emulator
