// SPDX-License-Identifier: Apache-2.0
// KernelPlan: everything that is known about a kernel at compile time, derived once from the spec.
//
// Planning is pure: no files, no environment, no GPU. Thread rules: plain values.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"

namespace attnjit {

struct Sm90Plan;
struct Sm100Plan;

/// Where the kernel's plan leaves the reference configuration, and why.
struct Deviation {
  std::string name;  ///< the field, under the seeds' name
  std::string reference;
  std::string actual;
  std::string reason;
};

/// An order that the kernel relies on and the PTX ISA does not promise: what the emulator's isa
/// model must be told to grant (docs/emulator.md, "Two models").
struct Waiver {
  std::string name;    ///< as `attnjit emulate --waive` takes it: "in-order-mma"
  std::string reason;  ///< where the kernel relies on it, and what it would cost not to
};

/// One member of the generated `struct Config`: `static constexpr TYPE NAME = VALUE;`.
struct ConfigConstant {
  std::string type;   ///< "int", "bool", "float", "unsigned"
  std::string name;   ///< kCamelCase
  std::string value;  ///< a C++ literal
};

/// One argument of the kernel's entry, in order. The renderer prints the entry's parameter list
/// from these, and plan_launch fills them: neither knows more than this list.
struct KernelParameter {
  enum class Kind : std::uint8_t { kTensorMap, kPointer, kI32, kI64, kF32 };
  std::string name;  ///< unique; what plan_launch fills it by
  Kind kind = Kind::kI32;
  std::string cuda_type;  ///< kPointer: the pointee's CUDA spelling, e.g. "const float"
};

/// A range of shared or tensor memory with its purpose, for the maps that `attnjit plan` draws.
struct MemoryRange {
  std::string name;
  std::int64_t begin = 0;  ///< bytes of shared memory, or tensor-memory columns
  std::int64_t size = 0;
};

/// An mbarrier, by name, with its arrival count.
struct BarrierPlan {
  std::string name;
  int arrivals = 1;
};

/// The compiled side of one attention. `supported` false: `reason` says what no template can do
/// yet.
struct KernelPlan {
  ResolvedSpec spec;
  bool supported = false;
  std::string reason;

  std::string entry;  ///< the entry symbol
  std::string
      kernel_header;  ///< under templates/, what the rendered file includes: "sm90/forward.cuh"
  int threads = 0;    ///< a CTA
  int cluster = 1;    ///< CTAs a cluster
  std::int64_t smem_bytes = 0;  ///< dynamic shared memory of a launch
  int min_registers = 0;  ///< what setmaxnreg budgets start from (registers a thread at launch)

  std::vector<ConfigConstant> constants;
  std::vector<KernelParameter> parameters;
  std::vector<MemoryRange> smem_map;
  std::vector<MemoryRange> tmem_map;
  std::vector<BarrierPlan> barriers;
  std::vector<Deviation> deviations;
  std::vector<Waiver> waivers;

  std::shared_ptr<const Sm90Plan> sm90;    ///< set for sm_90a
  std::shared_ptr<const Sm100Plan> sm100;  ///< set for sm_100a and sm_103a
};

struct Tuning;  // tuning.h

/// Plans the kernel of a spec. `tuning` may be null; its matching row overrides choices. Errors:
/// kInvalid for a tuned name or value that the kernel cannot take. A spec that no template serves
/// yet gives a plan with supported false, not an error.
ATTNJIT_EXPORT Result<KernelPlan> plan(const ResolvedSpec& spec, const Tuning* tuning = nullptr);

/// The same of a spec that is resolved here. Errors: also kInvalid with every problem of the spec.
ATTNJIT_EXPORT Result<KernelPlan> plan(const AttentionSpec& spec, const PlanOptions& options = {},
                                       const Tuning* tuning = nullptr);

}  // namespace attnjit
