// SPDX-License-Identifier: Apache-2.0
// Uploads copies of a problem until they exceed the L2 cache, and times launches with CUDA events.
#include "verify/gpu_timer.h"

#include <algorithm>
#include <utility>

namespace attnjit::verify {
namespace {

constexpr int kMaxSets = 16;

}  // namespace

Result<GpuTimer> GpuTimer::make(const Device& device, const Problem& problem) {
  GpuTimer timer(device);
  Result<DeviceStream> stream = device.create_stream();
  if (!stream) return std::move(stream).error();
  timer.stream_ = std::move(*stream);
  Result<std::int64_t> free = device.free_bytes();
  if (!free) return std::move(free).error();
  const std::int64_t bytes = std::max<std::int64_t>(1, GpuProblem::bytes_of(problem));
  const std::int64_t wanted = 2 * std::int64_t{device.properties().l2_bytes} / bytes + 2;
  const std::int64_t fit = std::max<std::int64_t>(1, *free / 2 / bytes);
  for (std::int64_t i = 0; i < std::min({wanted, fit, std::int64_t{kMaxSets}}); ++i) {
    Result<GpuProblem> set = GpuProblem::upload(device, problem, timer.stream_.stream());
    if (!set) return std::move(set).error();
    timer.sets_.push_back(std::move(*set));
  }
  for (DeviceEvent* event : {&timer.begin_, &timer.end_}) {
    Result<DeviceEvent> made = device.create_event();
    if (!made) return std::move(made).error();
    *event = std::move(*made);
  }
  return timer;
}

Result<double> GpuTimer::time(const Kernel& kernel, States& states, int launches) {
  if (prepared_ != &kernel) {
    for (GpuProblem& set : sets_) {
      if (Status s = set.prepare(*device_, kernel); !s) return std::move(s).error();
    }
    prepared_ = &kernel;
  }
  states.resize(sets_.size());
  void* stream = stream_.stream();
  if (Status s = device_->record(begin_, stream); !s) return std::move(s).error();
  for (int i = 0; i < launches; ++i) {
    next_ = (next_ + 1) % sets_.size();
    if (Status s = kernel.launch(sets_[next_].args(), states[next_]); !s) {
      return std::move(s).error();
    }
  }
  if (Status s = device_->record(end_, stream); !s) return std::move(s).error();
  Result<double> ms = device_->elapsed_ms(begin_, end_);
  if (!ms) return ms;
  return *ms / launches;
}

}  // namespace attnjit::verify
