// SPDX-License-Identifier: Apache-2.0
// Driver, Kernel and launch: compiled images on a GPU, through the CUDA driver API that is opened
// at run time.
//
// Thread rules: Driver and Kernel may be used from any thread. A LaunchState belongs to its caller
// and is used by one thread at a time (one state per stream and kernel is the natural choice).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "attnjit/compile.h"
#include "attnjit/launch.h"
#include "attnjit/plan.h"
#include "attnjit/result.h"

namespace attnjit {

struct CudaApi;  // the function table, private to the library
class Nvtx;      // a profiler's ranges, private to the library

/// A CUDA device pointer (CUdeviceptr).
using DevicePointer = std::uint64_t;

struct DriverOptions {
  std::string driver_path;  ///< empty: libcuda.so.1 as the loader finds it
  /// A profiler's NVTX injection library, for which each launch is a range; empty: none.
  std::string nvtx_injection;
};

/// The tensors of a launch, by field. Those that the kernel does not read may be null; those that
/// it reads must be non-null unless the problem is empty. q, k, v, o, pairs_o, q_rope and
/// k_rope are aligned to 16 bytes, all others to their element.
struct LaunchBuffers {
  DevicePointer q = 0, k = 0, v = 0, o = 0;
  DevicePointer lse = 0;         ///< f32
  DevicePointer sink = 0;        ///< f32 [num_q_heads]
  DevicePointer page_table = 0;  ///< i32 [batch, max_pages]
  DevicePointer kv_lens = 0;     ///< i32 [batch]
  DevicePointer q_offsets = 0;   ///< i32 [batch + 1]
  DevicePointer kv_offsets = 0;  ///< i32 [batch + 1]
  DevicePointer pairs_o = 0;     ///< merge: [num_pairs, as o, packed]
  DevicePointer pairs_lse = 0;   ///< merge: f32 [num_pairs, as lse]
  /// f32 [1] where the spec's scales are of tensors, [batch, heads of the tensor] where of heads,
  /// and as the tensor without its depth, packed, where of rows (token)
  DevicePointer q_scale = 0, k_scale = 0, v_scale = 0;
  DevicePointer output_scale = 0;  ///< f32 [1] where o is e4m3: o is the result over it
  DevicePointer mask = 0;          ///< materialized: [batch or 1, heads or 1, q_len or 1, kv_len]
  DevicePointer slopes = 0;        ///< of alibi, where they are given: f32 [num_q_heads]
  DevicePointer topk_indices = 0;  ///< topk: i32 [rows of q, topk], packed
  /// Where rope_dtype is not qkv_dtype: the last 64 elements of each row of Q, as q, and of K, as k
  /// with one head, which is every head's.
  DevicePointer q_rope = 0, k_rope = 0;
  /// The map of a launch whose shapes name a use of one: i32, see MaskMapShape. The last two may be
  /// null where it has no_full.
  DevicePointer kv_num_blocks = 0, kv_indices = 0;
  DevicePointer full_kv_num_blocks = 0, full_kv_indices = 0;
  DevicePointer kv_bits = 0, block_bits = 0;
  bool operator==(const LaunchBuffers&) const = default;
};

/// An array, matrix or cube that custom code has as a parameter, in device memory, row-major.
struct DeviceArray {
  DevicePointer pointer = 0;
  Dtype dtype = Dtype::kI32;  ///< kI32, kU32, kF32 or kBf16: must be the declared element type
  /// Arrays: elements; matrices: rows, columns; cubes: planes, rows, columns.
  std::array<std::int32_t, 3> extent{0, 0, 0};
  bool operator==(const DeviceArray&) const = default;
};

/// What a launch gives for one user parameter (p.<name>).
struct UserParam {
  std::string name;
  std::variant<std::int32_t, float, DeviceArray, std::uint32_t> value = std::int32_t{0};
  bool operator==(const UserParam&) const = default;
};

/// Everything that a launch takes. Strides that are given (not zero) are multiples of 16 bytes
/// below 2^40 bytes.
struct LaunchArgs {
  LaunchBuffers buffers;
  LaunchShapes shapes;
  LaunchScalars scalars;
  std::vector<UserParam> params;  ///< one for each parameter that the spec declares, any order
  DevicePointer workspace = 0;    ///< aligned to 256 bytes; see Kernel::workspace
  std::int64_t workspace_bytes = 0;
  void* stream = nullptr;  ///< a CUstream of the context to launch in; null: the default stream
  /// The launch may begin before the one before it on the stream has ended, and waits for its end
  /// before it reads or writes (programmatic dependent launch). Of no effect where the launch's
  /// first kernel does not wait: PlannedKernel::overlaps.
  bool overlap = false;
};

/// Device memory that a launch needs beside its tensors.
struct WorkspaceNeed {
  std::int64_t bytes = 0;
  /// From its begin, that must be zero before its first launch. Kernels leave the first kZeroBytes
  /// zero: so a buffer whose first kZeroBytes were zero once serves the launches of any kernels,
  /// one after another; but for those of PlanOptions::debug_waits, which want more, and a buffer of
  /// their own.
  std::int64_t zero_bytes = 0;

  static constexpr std::int64_t kZeroBytes = 256;  ///< of tile counters
  /// Whether a launch may be given none: its work is then dealt before it begins, and it takes
  /// longer where sequences differ much in length.
  bool optional() const { return bytes <= kZeroBytes; }
};

/// What a launch keeps from one call to the next: the recipe, the encoded tensor maps and the
/// packed arguments of the last eight calls that differ in more than pointers. A call like one of
/// them is not planned again; where its pointers are others, only their maps and arguments are made
/// again. One of other lengths is planned into memory that is there, and encodes the maps that
/// differ. The calls may be those of several kernels, whose libraries stay loaded while a call of
/// theirs is kept.
class ATTNJIT_EXPORT LaunchState {
 public:
  LaunchState();
  ~LaunchState();
  LaunchState(LaunchState&&) noexcept;
  LaunchState& operator=(LaunchState&&) noexcept;

  /// What was done over the state's life; tests and tuning read it. A call counts as one launch
  /// however many kernels its plan has.
  struct Counters {
    std::uint64_t launches = 0, plans = 0, maps_encoded = 0, maps_moved = 0;
  };
  const Counters& counters() const;
  /// The launches of the last call; null before the first.
  const LaunchSequence* sequence() const;
  /// Forgets everything but the counters: the next launch plans and encodes again.
  void reset();

  struct Impl;

 private:
  friend class Kernel;
  friend struct KernelAccess;
  std::unique_ptr<Impl> impl_;
};

/// A kernel in GPU memory: library, handle and plan. It belongs to no CUDA context: it outlives the
/// destruction of any, and is loaded into each context that it is launched in, once.
class ATTNJIT_EXPORT Kernel {
 public:
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel();

  const KernelPlan& plan() const;
  const KernelImage& image() const;

  /// Loads the kernel into the stream's context (null: the current one), so that launches there
  /// load nothing: what a launch that is captured into a graph needs. Does nothing if that was
  /// done. Errors: kCaptureInProgress, and nothing was touched, if it would have to load and the
  /// stream is capturing; kEnvironment without a current context; kDriver with the CUDA name, its
  /// text and what to do, e.g. when the device is not of the image's architecture.
  Status prepare(void* stream = nullptr) const;

  /// The map that a launch of these shapes makes: mask_map_shape().
  Result<MaskMapShape> mask_map(const LaunchArgs& args) const;

  /// The workspace that launches of these shapes need. No GPU is asked except for its size.
  Result<WorkspaceNeed> workspace(const LaunchArgs& args) const;

  /// Enqueues the kernel on args.stream. Everything that the host can check is checked first:
  /// kInvalid names the argument. An empty problem (no query row) launches nothing. Errors also as
  /// prepare(). After an error the state plans again.
  Status launch(const LaunchArgs& args, LaunchState& state) const;

  /// A kernel of the same image for another plan of the same key (one that differs in launch-time
  /// defaults alone); both share the loaded library.
  std::unique_ptr<Kernel> with_plan(KernelPlan plan) const;

  struct Library;

 private:
  friend class Driver;
  friend struct KernelAccess;  // for the rooms' tests
  Kernel(std::shared_ptr<Library> library, KernelPlan plan);

  std::shared_ptr<Library> loaded_;
  std::uint64_t id_;  // no two kernels of a library have one, unlike addresses
  KernelPlan plan_;
};

/// The CUDA driver, opened at run time. Objects made from it keep it open.
class ATTNJIT_EXPORT Driver {
 public:
  /// Opens libcuda and initialises it. Errors: kEnvironment with what was looked for and what to
  /// do.
  static Result<std::shared_ptr<const Driver>> open(const DriverOptions& options = {});
  ~Driver();

  int version() const;                          ///< 12080 for 12.8
  const std::string& path() const;              ///< of the library that was opened
  const CudaApi& api() const { return *api_; }  ///< for the rooms; incomplete outside
  std::shared_ptr<const CudaApi> share() const { return api_; }

  /// Loads an image and checks that it holds exactly the plan's entries. Into the current context,
  /// if there is one, it is loaded whole (see Kernel::prepare). Allowed while other threads
  /// capture. Errors: kDriver; kCorrupt where the image is damaged or does not hold what its plan
  /// says.
  Result<std::unique_ptr<Kernel>> load(const std::shared_ptr<const KernelImage>& image,
                                       KernelPlan plan) const;

  /// Whether a stream is capturing (a null stream: whether using it now would break a capture).
  Result<bool> is_capturing(void* stream) const;

  /// The device of the current context; kEnvironment if there is none.
  Result<int> current_device() const;

 private:
  Driver(std::shared_ptr<const CudaApi> api, const Nvtx* nvtx)
      : api_(std::move(api)), nvtx_(nvtx) {}
  std::shared_ptr<const CudaApi> api_;
  const Nvtx* nvtx_;  // null: no ranges
};

}  // namespace attnjit
