// SPDX-License-Identifier: Apache-2.0
// Remembers the last calls, binds their launches, and finds out what can be used again.
#include "driver/launch_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
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

bool BoundCall::serves(const LaunchArgs& args) const {
  return args.shapes == shapes && args.scalars == scalars && args.overlap == overlap &&
         std::equal(args.params.begin(), args.params.end(), params.begin(), params.end(),
                    &same_but_address);
}

bool BoundCall::is_at(const LaunchArgs& args) const {
  return args.buffers == buffers && args.workspace == workspace &&
         std::equal(
             args.params.begin(), args.params.end(), params.begin(),
             [](const UserParam& a, const UserParam& b) { return address_in(a) == address_in(b); });
}

void BoundCall::remember(const LaunchArgs& args) {
  buffers = args.buffers;
  shapes = args.shapes;
  scalars = args.scalars;
  params = args.params;
  workspace = args.workspace;
  overlap = args.overlap;
}

Status BoundCall::check_workspace(const LaunchArgs& args) const {
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

Status BoundCall::bind(const KernelPlan& plan, const LaunchArgs& args,
                       LaunchState::Counters& counters) {
  ++counters.plans;
  auto need = total_workspace(sequence.workspaces);
  if (!need) return std::move(need).error();
  workspace_need = *need;
  if (Status checked = check_workspace(args); !checked) return checked;
  if (launches.size() > sequence.launches.size()) launches.resize(sequence.launches.size());
  for (std::size_t i = 0; i < sequence.launches.size(); ++i) {
    if (i == launches.size()) launches.push_back(std::make_unique<BoundLaunch>());
    Status bound = launches[i]->bind(*loaded->api, plan, i == 0, sequence.launches[i],
                                     sequence.workspaces, args, counters);
    if (!bound) return bound;
  }
  return {};
}

Status BoundCall::move_pointers(const LaunchArgs& args, LaunchState::Counters& counters) {
  for (std::size_t i = 0; i < launches.size(); ++i) {
    Status moved = launches[i]->move_pointers(*loaded->api, sequence.launches[i], args, counters);
    if (!moved) return moved;
  }
  return {};
}

BoundCall* LaunchState::Impl::find(const LaunchOwner& owner, const LaunchArgs& args) {
  const auto found =
      std::find_if(calls.begin(), calls.end(), [&](const std::unique_ptr<BoundCall>& call) {
        return call->valid && call->owner == owner && call->serves(args);
      });
  if (found == calls.end()) return nullptr;
  std::rotate(calls.begin(), found, std::next(found));
  return calls.front().get();
}

BoundCall& LaunchState::Impl::next(const LaunchOwner& owner) {
  const auto kernel_call = std::find_if(
      calls.begin(), calls.end(),
      [&](const std::unique_ptr<BoundCall>& call) { return call->owner.same_kernel(owner); });
  auto taken = std::find_if(calls.begin(), calls.end(),
                            [](const std::unique_ptr<BoundCall>& call) { return !call->valid; });
  if (taken == calls.end() && calls.size() == kMostCalls) --taken;
  if (taken == calls.end() || !(*taken)->owner.same_kernel(owner)) {
    auto made = std::make_unique<BoundCall>();
    if (kernel_call != calls.end()) {
      made->sequence = (*kernel_call)->sequence;
      for (const std::unique_ptr<BoundLaunch>& launch : (*kernel_call)->launches) {
        made->launches.push_back(std::make_unique<BoundLaunch>());
        made->launches.back()->rank = launch->rank;
        made->launches.back()->maps = launch->maps;
      }
    }
    if (taken == calls.end()) {
      taken = calls.insert(calls.end(), std::move(made));
    } else {
      *taken = std::move(made);
    }
  }
  std::rotate(calls.begin(), taken, std::next(taken));
  calls.front()->valid = false;
  calls.front()->owner = owner;
  return *calls.front();
}

const DeviceShape* LaunchState::Impl::device_of(const LaunchOwner& owner) const {
  const auto known =
      std::find_if(calls.begin(), calls.end(), [&](const std::unique_ptr<BoundCall>& call) {
        return call->valid && call->owner.library == owner.library &&
               call->owner.context_id == owner.context_id;
      });
  return known == calls.end() ? nullptr : &(*known)->device;
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
  if (impl_ == nullptr || impl_->calls.empty() || !impl_->calls.front()->valid) return nullptr;
  return &impl_->calls.front()->sequence;
}

void LaunchState::reset() {
  if (impl_ != nullptr) impl_->calls.clear();
}

}  // namespace attnjit
