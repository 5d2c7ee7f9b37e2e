// SPDX-License-Identifier: Apache-2.0
// Says which plans have partial results, and where their attention kernels write them.
#include "plan/kernel/partials.h"

#include <cstddef>
#include <variant>

#include "plan/kernel/family_traits.h"
#include "plan/kernel/sequence.h"
#include "plan/kernel/signature.h"

namespace attnjit {
namespace {

/// Whether a launch that may split the keys writes O and LSE itself.
bool written_whole(const SpecFacts& spec, std::int32_t partitions) {
  return splits(spec) && partitions == 1 && !merges_one_part(spec);
}

}  // namespace

bool merges(const SpecFacts& spec) { return !spec.merge && (spec.accumulate || splits(spec)); }

bool cuts_ragged(const SpecFacts& spec) {
  if (!spec.ragged || !family_traits(spec).cuts_ragged) return false;
  const bool custom = spec.contains(MaskSpec::Kind::kCustom);
  // NOTE: who finds and takes work would spill: of sm_103a beside custom masks and scales of keys.
  if (family_id(spec) == FamilyId::kSm100) return !(custom && spec.key_scales);
  // NOTE: the same of sm_90a where K and V of more columns are upcast; and beside custom masks and
  // scales of keys, but where KV tiles are short and come by TMA.
  const bool short_tiles = spec.qk_depth > 192 || (spec.qk_depth > 96 && spec.ov_depth <= 128);
  const bool fits = short_tiles && !spec.copies_rows && !spec.upcasts_kv;
  const bool lacks = custom || spec.key_scales;
  return fits || (!lacks && !(spec.upcasts_kv && spec.qk_depth > 192));
}

bool splits(const SpecFacts& spec) {
  if (!family_traits(spec).splits || spec.accumulate) return false;
  if (spec.num_partitions > 1 || spec.partition_keys > 0) return true;
  if (spec.num_partitions == 1) return false;
  return cuts_ragged(spec) || !spec.ragged || spec.max_q_len > 0 || spec.mla == Mla::kDecode;
}

bool merges_one_part(const SpecFacts& spec) { return spec.partition_keys > 0 && spec.sink; }

BufferId forward_buffer(const KernelPlan& plan, BufferId::Kind tensor) {
  if (plan.spec->accumulate && !plan.spec->merge) {
    if (tensor == BufferId::Kind::kO) return workspace_buffer(plan, WorkspaceId::kPartialO);
    if (tensor == BufferId::Kind::kLse) return workspace_buffer(plan, WorkspaceId::kPartialLse);
  }
  return {tensor, 0};
}

void add_split_deviation(KernelPlan& plan) {
  // NOTE: what nobody asked for is no deviation.
  if (plan.spec.given().num_partitions != 0 || splits(plan.spec)) return;
  const char* const reason = plan.spec->accumulate
                                 ? "a launch that accumulates does not split the keys yet"
                                 : "the kernel cannot cut long tiles of a ragged batch";
  plan.deviations.push_back({"num_partitions", "chosen at launch", "1", reason});
}

void add_merge_workspaces(KernelPlan& plan) {
  if (!merges(plan.spec)) return;
  plan.workspaces.push_back(WorkspaceId::kPartialO);
  plan.workspaces.push_back(WorkspaceId::kPartialLse);
}

void add_partial_parameters(const KernelPlan& plan, std::vector<KernelParameter>& parameters) {
  if (!splits(plan.spec)) return;
  for (const WorkspaceId partial : {WorkspaceId::kPartialO, WorkspaceId::kPartialLse}) {
    parameters.push_back(workspace_parameter(plan, partial, "float"));
  }
}

void forget_partials(const KernelPlan& plan, std::int32_t partitions, LaunchRecipe& recipe) {
  if (!written_whole(plan.spec, partitions)) return;
  for (std::size_t i = 0; i < recipe.args.size(); ++i) {
    const auto* buffer = std::get_if<BufferId>(&plan.main().parameters[i].source);
    if (buffer == nullptr) continue;
    if (*buffer == workspace_buffer(plan, WorkspaceId::kPartialO) ||
        *buffer == workspace_buffer(plan, WorkspaceId::kPartialLse)) {
      recipe.args[i] = {KernelArgument::Pointer{}};
    }
  }
}

bool launches_merge(const KernelPlan& plan, std::int32_t partitions) {
  return merges(plan.spec) && !written_whole(plan.spec, partitions);
}

}  // namespace attnjit
