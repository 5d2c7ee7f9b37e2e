// SPDX-License-Identifier: Apache-2.0
// Ranges for profilers that speak NVTX 3, such as Nsight Systems, without a library of CUDA's.
//
// A profiler names its injection library in NVTX_INJECTION64_PATH. Each client opens that library
// and hands it a table of slots, which it fills with its functions.
//
// Thread rules: any thread. A range ends on the thread that began it.
#pragma once

#include <string>

#include "attnjit/result.h"

namespace attnjit {

/// The functions of a profiler that is attached to this process.
class Nvtx {
 public:
  /// Opens an injection library, once per process, whether it attaches or not: profilers keep the
  /// addresses of the slots, so that neither is ever freed. Errors: kEnvironment.
  static Result<const Nvtx*> open(const std::string& path);

  void push(const char* name) const;
  void pop() const;

  using Function = void (*)();  ///< of any type

 private:
  // Their slots: a profiler may fill them again.
  const Function* push_ = nullptr;
  const Function* pop_ = nullptr;
};

/// A range from here to the end of the scope. Without a profiler it costs a comparison: the name is
/// made by a function, which is called only where there is one. Where that throws there is no
/// range: what a range is of must not fail for it.
class NvtxRange {
 public:
  template <class MakeName>
  NvtxRange(const Nvtx* nvtx, MakeName&& make_name) : nvtx_(nvtx) {
    if (nvtx_ == nullptr) return;
    try {
      nvtx_->push(make_name().c_str());
    } catch (...) {
      nvtx_ = nullptr;
    }
  }
  ~NvtxRange() {
    if (nvtx_ != nullptr) nvtx_->pop();
  }
  NvtxRange(const NvtxRange&) = delete;
  NvtxRange& operator=(const NvtxRange&) = delete;

 private:
  const Nvtx* nvtx_;
};

}  // namespace attnjit
