// SPDX-License-Identifier: Apache-2.0
// Compiler: from a KernelSource to a verified KernelImage, in this process or in a helper process.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/source.h"

namespace attnjit {

/// What the compiler reports on a kernel.
struct ResourceUsage {
  int registers = 0;    ///< per thread, of the entry
  int spill_bytes = 0;  ///< stores + loads
  int stack_bytes = 0;
  int static_smem_bytes = 0;
  int barriers = 0;  ///< named barriers
};

/// Where a compile's time went, in milliseconds; 0 where it was not reported.
struct CompileTimes {
  double frontend_ms = 0;
  double optimizer_ms = 0;
  double ptxas_ms = 0;
  double total_ms = 0;
};

/// A compiled kernel that passed every check.
struct KernelImage {
  std::vector<std::uint8_t> cubin;   ///< never empty, but for CompileRequest::ptx_only
  std::string ptx;                   ///< empty unless asked for
  std::vector<std::string> entries;  ///< in the order of KernelPlan::kernels
  /// Of the whole image: registers, static_smem_bytes and barriers are the main entry's (the
  /// first), spill_bytes and stack_bytes are sums.
  ResourceUsage usage;
  std::vector<ResourceUsage> entry_usage;  ///< as entries
  CompileTimes times;
  std::string nvrtc_version;  ///< "13.0.88"-like where the build is known, else "13.0"
  std::string log;
};

struct CompileRequest {
  KernelSource source;
  bool want_ptx = false;
  bool line_info = false;  ///< for the emulator's PTX only, never for production code
  /// Ends at the PTX, in 0.6 of the time. The PTX is the same text; ptxas does not run, so that the
  /// image has no cubin and no usage. For the emulator: no cache takes such an image.
  bool ptx_only = false;
};

/// Turns a request into an image. Implementations are safe to call from several threads at once;
/// different requests compile in parallel.
class ATTNJIT_EXPORT Compiler {
 public:
  using Deadline = std::chrono::steady_clock::time_point;

  virtual ~Compiler() = default;

  /// Identifies the compiler that will run: what images are filed under. Errors: kEnvironment with
  /// what was looked for where no NVRTC could be opened.
  virtual Result<std::string> build_id() = 0;

  /// Compiles and checks. Errors: kCompileFailed with line and column in the user's snippet where
  /// the fault lies there; kTimeout; kCancelled; kEnvironment for every fault that is not the
  /// code's (no memory, a helper that something else ended, an incomplete NVRTC): the caller may
  /// remember the others, and never this one.
  virtual Result<KernelImage> compile(const CompileRequest& request, Deadline deadline) = 0;

  /// Makes running and future compiles end with kCancelled as soon as they can.
  virtual void cancel() = 0;
};

/// NVRTC in this process. nvrtc_path empty: found by itself.
ATTNJIT_EXPORT std::unique_ptr<Compiler> make_in_process_compiler(std::string nvrtc_path = {});

struct HelperOptions {
  std::string helper_path;  ///< the attnjit command; empty: beside this library or executable
  std::string nvrtc_path;
  std::int64_t memory_bytes = std::int64_t{4} << 30;  ///< RLIMIT_AS of a helper
  int cpu_seconds = 60;                               ///< RLIMIT_CPU of a helper
  std::chrono::milliseconds wall_clock{30000};        ///< killed after this, whatever the deadline
  /// Trusted code is refused (kEnvironment) where the helper's system calls cannot be filtered,
  /// for it could do there all that its user may do. True: it is compiled all the same.
  bool accept_unconfined = false;
};

/// `attnjit compile-worker` in a process of its own per compile: hostile code can kill it, and
/// nothing else.
ATTNJIT_EXPORT std::unique_ptr<Compiler> make_helper_compiler(HelperOptions options = {});

}  // namespace attnjit
