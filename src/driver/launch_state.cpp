// SPDX-License-Identifier: Apache-2.0
// Builds the tensor maps and the packed arguments of a launch, and finds out what can be reused.
#include "driver/launch_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <optional>
#include <utility>

namespace attnjit {
namespace {

/// Whether two parameters differ in nothing but an address.
bool same_but_address(const UserParam& a, const UserParam& b) {
  if (a.value.index() != b.value.index() || a.name != b.name) return false;
  const auto* x = std::get_if<DeviceArray>(&a.value);
  if (x == nullptr) return a.value == b.value;
  const auto& y = std::get<DeviceArray>(b.value);
  return x->dtype == y.dtype && x->extent == y.extent;
}

DevicePointer address_in(const UserParam& param) {
  const auto* array = std::get_if<DeviceArray>(&param.value);
  return array == nullptr ? 0 : array->pointer;
}

}  // namespace

LaunchState::Impl::Change LaunchState::Impl::compare(const LaunchArgs& args, const void* owner,
                                                     std::uint64_t id) const {
  if (!valid || loaded.get() != owner || kernel_id != id || args.shapes != shapes ||
      args.scalars != scalars || args.overlap != overlap || args.params.size() != params.size()) {
    return Change::kPlan;
  }
  bool moved = args.buffers != buffers || args.workspace != workspace;
  for (std::size_t i = 0; i < params.size(); ++i) {
    if (!same_but_address(args.params[i], params[i])) return Change::kPlan;
    moved = moved || address_in(args.params[i]) != address_in(params[i]);
  }
  return moved ? Change::kPointers : Change::kNone;
}

void LaunchState::Impl::remember(const LaunchArgs& args) {
  buffers = args.buffers;
  shapes = args.shapes;
  scalars = args.scalars;
  params = args.params;
  workspace = args.workspace;
  overlap = args.overlap;
}

Status LaunchState::Impl::check_workspace(const LaunchArgs& args) const {
  if (workspace_need.bytes == 0) return {};
  const auto bad = [&](std::string message) -> Status {
    return make_error(ErrorCode::kInvalid, std::move(message), "workspace",
                      "Kernel::workspace tells how much a launch needs");
  };
  if (args.workspace == 0) {
    if (workspace_need.optional()) return {};
    return bad(fmt::format("is a null pointer; {} bytes are needed", workspace_need.bytes));
  }
  if (args.workspace % kWorkspaceAlignment != 0) {
    return bad(
        fmt::format("is at {:#x}, not a multiple of {}", args.workspace, kWorkspaceAlignment));
  }
  if (args.workspace_bytes < workspace_need.bytes) {
    return bad(
        fmt::format("has {} bytes; {} are needed", args.workspace_bytes, workspace_need.bytes));
  }
  return {};
}

Status LaunchState::Impl::build(const KernelPlan& plan, const LaunchArgs& args,
                                LaunchSequence new_sequence) {
  const LaunchSequence old_sequence = std::exchange(sequence, std::move(new_sequence));
  const std::vector<std::unique_ptr<BoundLaunch>> old = std::exchange(launches, {});
  ++counters.plans;
  auto need = total_workspace(sequence.workspaces);
  if (!need) return std::move(need).error();
  workspace_need = *need;
  if (Status checked = check_workspace(args); !checked) return checked;
  for (std::size_t i = 0; i < sequence.launches.size(); ++i) {
    const bool known = i < old.size() && i < old_sequence.launches.size() &&
                       old_sequence.launches[i].kernel == sequence.launches[i].kernel;
    launches.push_back(std::make_unique<BoundLaunch>());
    Status built = launches.back()->build(*loaded->api, plan, i == 0, sequence.launches[i],
                                          sequence.workspaces, args, known ? old[i].get() : nullptr,
                                          known ? &old_sequence.launches[i] : nullptr, counters);
    if (!built) return built;
  }
  return {};
}

Status LaunchState::Impl::move_pointers(const LaunchArgs& args) {
  for (std::size_t i = 0; i < launches.size(); ++i) {
    Status moved = launches[i]->move_pointers(*loaded->api, sequence.launches[i], args, counters);
    if (!moved) return moved;
  }
  return {};
}

LaunchState::LaunchState() : impl_(std::make_unique<Impl>()) {}
LaunchState::~LaunchState() = default;
LaunchState::LaunchState(LaunchState&& other) noexcept = default;
LaunchState& LaunchState::operator=(LaunchState&& other) noexcept = default;

// NOTE: what was moved from has no Impl: it is as new.
const LaunchState::Counters& LaunchState::counters() const {
  static constexpr Counters kNone;
  return impl_ == nullptr ? kNone : impl_->counters;
}

const LaunchSequence* LaunchState::sequence() const {
  return impl_ != nullptr && impl_->valid ? &impl_->sequence : nullptr;
}

void LaunchState::reset() {
  if (impl_ == nullptr) return;
  const Counters counters = impl_->counters;
  *impl_ = Impl{};
  impl_->counters = counters;
}

}  // namespace attnjit
