// SPDX-License-Identifier: Apache-2.0
// Implements Kernel: it prepares a kernel, sizes its workspace and launches it.
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <variant>

#include "attnjit/driver.h"
#include "base/no_throw.h"
#include "base/nvtx.h"
#include "driver/cuda_api.h"
#include "driver/kernel_library.h"
#include "driver/launch_args.h"
#include "driver/launch_state.h"
#include "plan/launch/tensors.h"
#include "spec/kinds.h"
#include "spec/names.h"

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
    const auto params = check_params(spec::declared_params(plan_.spec), args.params);
    if (!params) return params.error();
    const auto where = loaded_->context_of(args.stream);
    if (!where) return first_of(plan_, args, where.error());
    const auto ready = loaded_->make_ready(plan_, *where, args.stream);
    if (!ready) return first_of(plan_, args, ready.error());
    const auto sequence =
        loaded_->planner(plan_, args.shapes, args.scalars, *params, ready->device);
    if (!sequence) return sequence.error();
    return total_workspace(sequence->workspaces);
  });
}

Result<MaskMapShape> Kernel::mask_map(const LaunchArgs& args) const {
  return no_throw([&]() -> Result<MaskMapShape> { return mask_map_shape(plan_, args.shapes); });
}

Status Kernel::replan(const LaunchArgs& args, LaunchState::Impl& state) const {
  const auto params = check_params(spec::declared_params(plan_.spec), args.params);
  if (!params) return params.error();
  const auto where = loaded_->context_of(args.stream);
  if (!where) return first_of(plan_, args, where.error());
  const auto ready = loaded_->make_ready(plan_, *where, args.stream);
  if (!ready) return first_of(plan_, args, ready.error());
  auto sequence = loaded_->planner(plan_, args.shapes, args.scalars, *params, ready->device);
  if (!sequence) return std::move(sequence).error();
  state.loaded = loaded_;
  state.kernel_id = id_;
  state.context_id = where->id;
  state.device = ready->device;
  if (Status built = state.build(plan_, args, *std::move(sequence)); !built) return built;
  state.remember(args);
  return {};
}

Status Kernel::move_pointers(const LaunchArgs& args, LaunchState::Impl& state) const {
  // NOTE: their types and extents were checked with a launch before. Whether a null pointer is
  // right, the full check knows.
  if (!std::all_of(args.params.begin(), args.params.end(), is_aligned)) {
    const auto params = check_params(spec::declared_params(plan_.spec), args.params);
    if (!params) return params.error();
  }
  Status moved = state.move_pointers(args);
  if (moved) state.remember(args);
  return moved;
}

Status Kernel::launch(const LaunchArgs& args, LaunchState& caller_state) const {
  using Change = LaunchState::Impl::Change;
  const NvtxRange range(loaded_->nvtx, [&] { return range_name(plan_, args.shapes); });
  if (caller_state.impl_ == nullptr) caller_state = LaunchState();
  LaunchState::Impl& state = *caller_state.impl_;

  Change change = state.compare(args, loaded_.get(), id_);
  if (change != Change::kPlan) {
    const auto where = loaded_->context_of(args.stream);
    if (!where) return where.error();
    if (where->id != state.context_id) change = Change::kPlan;  // perhaps another device
  }
  if (change != Change::kNone) {
    state.valid = false;  // until all of it is made
    Status made = no_throw([&]() -> Status {
      if (change == Change::kPlan) return replan(args, state);
      return move_pointers(args, state);
    });
    if (!made) return made;
    state.valid = true;
  }
  if (state.launches.empty()) return {};
  if (state.workspace_need.bytes > 0) {
    if (Status checked = state.check_workspace(args); !checked) return checked;
  }

  for (std::size_t i = 0; i < state.launches.size(); ++i) {
    BoundLaunch& launch = *state.launches[i];
    launch.config.stream = static_cast<cuda::Stream>(args.stream);
    // A kernel handle is accepted for a function: the driver takes the stream's context.
    const cuda::Result code = loaded_->api->LaunchKernelEx(
        &launch.config, reinterpret_cast<cuda::Function>(loaded_->kernels[launch.rank]),
        launch.arguments.data(), nullptr);
    if (code != cuda::kSuccess) {
      state.valid = false;
      return cuda_error(*loaded_->api, code, "cuLaunchKernelEx");
    }
  }
  ++state.counters.launches;
  return {};
}

}  // namespace attnjit
