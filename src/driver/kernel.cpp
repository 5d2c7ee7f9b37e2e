// SPDX-License-Identifier: Apache-2.0
// Implements Kernel: it prepares a kernel, sizes its workspace and launches it.
#include <unistd.h>

#include <utility>

#include "attnjit/driver.h"
#include "base/no_throw.h"
#include "driver/cuda_api.h"
#include "driver/kernel_library.h"
#include "driver/launch_args.h"
#include "driver/launch_state.h"
#include "spec/names.h"

namespace attnjit {

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
    if (Status shapes = check_shapes(plan_, args); !shapes) return std::move(shapes).error();
    const auto where = loaded_->context_of(args.stream);
    if (!where) return where.error();
    const auto ready = loaded_->make_ready(plan_, *where, args.stream);
    if (!ready) return ready.error();
    const auto recipe = loaded_->planner(plan_, args.shapes, args.scalars, *params, ready->device);
    if (!recipe) return recipe.error();
    return total_workspace(recipe->workspaces);
  });
}

Status Kernel::replan(const LaunchArgs& args, LaunchState::Impl& state) const {
  const auto params = check_params(spec::declared_params(plan_.spec), args.params);
  if (!params) return params.error();
  if (Status shapes = check_shapes(plan_, args); !shapes) return shapes;
  const auto where = loaded_->context_of(args.stream);
  if (!where) return where.error();
  const auto ready = loaded_->make_ready(plan_, *where, args.stream);
  if (!ready) return ready.error();
  auto recipe = loaded_->planner(plan_, args.shapes, args.scalars, *params, ready->device);
  if (!recipe) return std::move(recipe).error();
  state.loaded = loaded_;
  state.kernel_id = id_;
  state.context_id = where->id;
  state.device = ready->device;
  if (Status built = state.build(plan_, args, *std::move(recipe)); !built) return built;
  state.remember(args);
  return {};
}

Status Kernel::move_pointers(const LaunchArgs& args, LaunchState::Impl& state) const {
  if (!args.params.empty()) {
    const auto params = check_params(spec::declared_params(plan_.spec), args.params);
    if (!params) return params.error();
  }
  Status moved = state.move_pointers(plan_, args);
  if (moved) state.remember(args);
  return moved;
}

Status Kernel::launch(const LaunchArgs& args, LaunchState& caller_state) const {
  using Change = LaunchState::Impl::Change;
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
  if (state.empty) return {};
  if (state.workspace_need.bytes > 0) {
    if (Status checked = state.check_workspace(args); !checked) return checked;
  }

  state.config.stream = static_cast<cuda::Stream>(args.stream);
  // A kernel handle is accepted for a function: the driver takes the stream's context.
  const cuda::Result code =
      loaded_->api->LaunchKernelEx(&state.config, reinterpret_cast<cuda::Function>(loaded_->kernel),
                                   state.arguments.data(), nullptr);
  if (code != cuda::kSuccess) {
    state.valid = false;
    return cuda_error(*loaded_->api, code, "cuLaunchKernelEx");
  }
  ++state.counters.launches;
  return {};
}

}  // namespace attnjit
