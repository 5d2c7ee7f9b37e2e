// SPDX-License-Identifier: Apache-2.0
// Implements Kernel: it prepares a kernel, sizes its workspace and launches it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attnjit/driver.h"
#include "base/no_throw.h"
#include "base/nvtx.h"
#include "driver/cuda_api.h"
#include "driver/kernel_library.h"
#include "driver/launch_args.h"
#include "driver/launch_state.h"
#include "plan/launch/tensors.h"
#include "spec/kinds.h"
#include "spec/resolved_spec.h"

namespace attnjit {

namespace {

/// What is wrong with a launch that has no context to be planned for: first its own shapes, which a
/// caller without a GPU learns so. NOTE: the planner checks those that have one; a check of its own
/// before that was a fifth of a launch of other lengths.
Error first_of(const KernelPlan& plan, const LaunchArgs& args, const Error& no_context) {
  const Result<LaunchTensors> tensors = launch_tensors(plan.spec, args.shapes);
  if (!tensors) return tensors.error();
  const Result<float> scale = softmax_scale(plan.spec, args.scalars);
  return scale ? no_context : scale.error();
}

/// Whether a parameter is no array, or one at an address that its elements can have.
bool is_aligned(const UserParam& param) {
  const auto* array = std::get_if<DeviceArray>(&param.value);
  return array == nullptr ||
         (array->pointer != 0 &&
          array->pointer % static_cast<DevicePointer>(size_of(array->dtype)) == 0);
}

/// Plans a call again for a context, and binds it to these arguments.
Status replan(const KernelPlan& plan, const Kernel::Library::ContextOfStream& where,
              const LaunchArgs& args, LaunchState::Impl& state, BoundCall& call) {
  Status checked = check_params(plan.spec.state().params, args.params, call.param_shapes);
  if (!checked) return checked;
  if (const DeviceShape* known = state.device_of(call.owner)) {
    call.device = *known;
  } else {
    const auto ready = call.loaded->make_ready(plan, where, args.stream);
    if (!ready) return first_of(plan, args, ready.error());
    call.device = ready->device;
  }
  Status planned = call.loaded->planner(plan, args.shapes, args.scalars, call.param_shapes,
                                        call.device, call.sequence);
  if (!planned) return planned;
  if (Status bound = call.bind(plan, args, state.counters); !bound) return bound;
  call.remember(args);
  return {};
}

/// Points a call that was bound before at the addresses of these arguments.
Status move_pointers(const KernelPlan& plan, const LaunchArgs& args, LaunchState::Impl& state,
                     BoundCall& call) {
  // NOTE: their types and extents were checked with a launch before. Whether a null pointer is
  // right, the full check knows.
  if (!std::all_of(args.params.begin(), args.params.end(), is_aligned)) {
    Status checked = check_params(plan.spec.state().params, args.params, call.param_shapes);
    if (!checked) return checked;
  }
  Status moved = call.move_pointers(args, state.counters);
  if (moved) call.remember(args);
  return moved;
}

std::string range_name(const KernelPlan& plan, const LaunchShapes& shapes) {
  const MaskSpec& mask = plan.spec->mask;
  const bool custom = mask.kind == MaskSpec::Kind::kCustom;
  return fmt::format("attnjit {} batch {} q_len {} kv_len {}",
                     custom ? std::string_view(mask.custom.name) : spec::row_of(mask).name,
                     shapes.batch, shapes.q_len, shapes.kv_len);
}

}  // namespace

Kernel::Kernel(std::shared_ptr<Library> library, KernelPlan plan)
    : loaded_(std::move(library)),
      id_(loaded_->next_kernel_id.fetch_add(1, std::memory_order_relaxed)),
      plan_(std::move(plan)) {}

Kernel::~Kernel() = default;

const KernelPlan& Kernel::plan() const { return plan_; }
const KernelImage& Kernel::image() const { return *loaded_->image; }

std::unique_ptr<Kernel> Kernel::with_plan(KernelPlan plan) const {
  return std::unique_ptr<Kernel>(new Kernel(loaded_, std::move(plan)));
}

Status Kernel::prepare(void* stream) const {
  return no_throw([&]() -> Status {
    const auto where = loaded_->context_of(stream);
    if (!where) return where.error();
    const auto ready = loaded_->make_ready(plan_, *where, stream);
    if (!ready) return ready.error();
    return {};
  });
}

Result<WorkspaceNeed> Kernel::workspace(const LaunchArgs& args) const {
  return no_throw([&]() -> Result<WorkspaceNeed> {
    std::vector<UserParamShape> params;
    Status checked = check_params(plan_.spec.state().params, args.params, params);
    if (!checked) return std::move(checked).error();
    const auto where = loaded_->context_of(args.stream);
    if (!where) return first_of(plan_, args, where.error());
    const auto ready = loaded_->make_ready(plan_, *where, args.stream);
    if (!ready) return first_of(plan_, args, ready.error());
    LaunchSequence sequence;
    Status planned =
        loaded_->planner(plan_, args.shapes, args.scalars, params, ready->device, sequence);
    if (!planned) return std::move(planned).error();
    return total_workspace(sequence.workspaces);
  });
}

Result<MaskMapShape> Kernel::mask_map(const LaunchArgs& args) const {
  return no_throw([&]() -> Result<MaskMapShape> { return mask_map_shape(plan_, args.shapes); });
}

Status Kernel::launch(const LaunchArgs& args, LaunchState& caller_state) const {
  const NvtxRange range(loaded_->nvtx, [&] { return range_name(plan_, args.shapes); });
  if (caller_state.impl_ == nullptr) caller_state = LaunchState();
  LaunchState::Impl& state = *caller_state.impl_;

  const auto where = loaded_->context_of(args.stream);
  // NOTE: no call is planned where there is no context: it would take a remembered one's place.
  if (!where) {
    return no_throw([&]() -> Status {
      std::vector<UserParamShape> params;
      Status checked = check_params(plan_.spec.state().params, args.params, params);
      return checked ? first_of(plan_, args, where.error()) : checked;
    });
  }
  const LaunchOwner owner{loaded_.get(), id_, where->id};
  BoundCall* call = state.find(owner, args);
  if (call == nullptr || !call->is_at(args)) {
    Status made = no_throw([&]() -> Status {
      if (call != nullptr) {
        call->valid = false;  // until all of it is made
        return move_pointers(plan_, args, state, *call);
      }
      call = &state.next(owner);
      call->loaded = loaded_;
      return replan(plan_, *where, args, state, *call);
    });
    if (!made) return made;
    call->valid = true;
  }
  if (call->launches.empty()) return {};
  if (call->workspace_need.bytes > 0) {
    if (Status checked = call->check_workspace(args); !checked) return checked;
  }

  for (const std::unique_ptr<BoundLaunch>& bound : call->launches) {
    BoundLaunch& launch = *bound;
    launch.config.stream = static_cast<cuda::Stream>(args.stream);
    // A kernel handle is accepted for a function: the driver takes the stream's context.
    const cuda::Result code = loaded_->api->LaunchKernelEx(
        &launch.config, reinterpret_cast<cuda::Function>(loaded_->kernels[launch.rank]),
        launch.arguments.data(), nullptr);
    if (code != cuda::kSuccess) {
      call->valid = false;
      return cuda_error(*loaded_->api, code, "cuLaunchKernelEx");
    }
  }
  ++state.counters.launches;
  return {};
}

}  // namespace attnjit
