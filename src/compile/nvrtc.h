// SPDX-License-Identifier: Apache-2.0
// Nvrtc: NVIDIA's run-time compiler as an object, opened at run time and never linked.
//
// Thread rules: immutable after open; compile may be called from several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/result.h"

namespace attnjit {

/// What NVRTC gave back, unjudged: see check_output.
struct CompileOutput {
  int result = 0;           ///< nvrtcResult
  std::string result_name;  ///< "NVRTC_ERROR_COMPILATION"
  std::string log;          ///< with the table of times
  std::vector<std::uint8_t> cubin;
  std::string ptx;
};

/// The values of nvrtcResult that attnjit tells apart.
enum NvrtcResult : int {
  kNvrtcSuccess = 0,
  kNvrtcOutOfMemory = 1,
  kNvrtcInvalidOption = 5,
  kNvrtcCompilation = 6,
  kNvrtcBuiltins = 7,   ///< libnvrtc-builtins is missing, or does not open
  kNvrtcTimeFile = 12,  ///< the table of times could not be written
  kNvrtcCancelled = 16,
};

/// The compiler failed for want of memory. NOTE: an allocation that fails is an error of the source
/// to the front end.
bool ran_out_of_memory(const CompileOutput& output);

/// Why NVRTC failed through no fault of the code (no memory, a library of its own missing), as
/// kEnvironment; nullopt where it did not fail, or the code may be to blame.
std::optional<Error> fault_of_environment(const CompileOutput& output);

class Nvrtc {
 public:
  /// Opens a library by path or bare name, and the builtins library that belongs to it; both stay
  /// loaded until the process ends. Errors: kEnvironment.
  static Result<std::shared_ptr<const Nvrtc>> open(const std::string& path);

  int major() const { return major_; }
  int minor() const { return minor_; }
  const std::string& path() const { return path_; }  ///< absolute

  /// kEnvironment where this NVRTC is too old for the kernels of an architecture.
  Status supports(Arch arch) const;

  /// Compiles an empty kernel: tells whether everything is there that a compile needs. Errors:
  /// kEnvironment.
  Status try_out() const;

  /// Compiles; never fails by itself. `should_stop` is polled from the compiler now and then (it
  /// may take seconds until it is); it may be called from other threads.
  CompileOutput compile(const CompileRequest& request,
                        const std::function<bool()>& should_stop) const;

 private:
  using Program = struct OpaqueProgram*;
  struct Functions {
    int (*version)(int*, int*) = nullptr;
    const char* (*error_string)(int) = nullptr;
    int (*num_supported_archs)(int*) = nullptr;
    int (*supported_archs)(int*) = nullptr;
    int (*create)(Program*, const char*, const char*, int, const char* const*,
                  const char* const*) = nullptr;
    int (*destroy)(Program*) = nullptr;
    int (*compile)(Program, int, const char* const*) = nullptr;
    int (*log_size)(Program, std::size_t*) = nullptr;
    int (*log)(Program, char*) = nullptr;
    int (*cubin_size)(Program, std::size_t*) = nullptr;
    int (*cubin)(Program, char*) = nullptr;
    int (*ptx_size)(Program, std::size_t*) = nullptr;
    int (*ptx)(Program, char*) = nullptr;
    int (*set_flow_callback)(Program, int (*)(void*, void*), void*) = nullptr;  ///< may be null
  };

  Nvrtc() = default;
  CompileOutput run(const CompileRequest& request, const std::vector<std::string>& options,
                    const std::function<bool()>& should_stop) const;

  Functions call_;
  std::string path_;
  int major_ = 0;
  int minor_ = 0;
  std::string missing_builtins_;  ///< why they were not loaded; empty: they were
  std::vector<int> archs_;
};

}  // namespace attnjit
