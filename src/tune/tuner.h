// SPDX-License-Identifier: Apache-2.0
// The tuner: compiles a kernel's variants, verifies them, times those that are right, and says
// which one is fastest.
//
// Thread rules: tune() runs compiles on threads of its own; the rig is used by the calling thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/service.h"
#include "tune/rig.h"
#include "tune/variants.h"
#include "verify/problem.h"

namespace attnjit::tune {

/// One measured problem. Every sequence has these lengths.
struct TuneShape {
  std::int64_t batch = 1, q_len = 0, kv_len = 0;
};

struct TuneRequest {
  AttentionSpec spec;
  PlanOptions options;
  std::vector<TuneShape> shapes;
  verify::ProblemRequest values;  ///< launch values and parameters; its lengths are not used
  int pairs = 9;                  ///< blocks of each finalist and shape
  double block_ms = 10;           ///< length of a block
  std::size_t max_variants = kMaxVariants;
};

enum class Fate : std::uint8_t {
  kChosen,
  kSlower,       ///< a finalist that lost
  kScreenedOut,  ///< too slow in the first blocks
  kWrong,        ///< did not pass verification
  kNotCompiled,
};
std::string_view to_string(Fate fate);

struct Measured {
  Variant variant;
  std::string key;  ///< of the kernel with this choice; empty where it could not be prepared
  Fate fate = Fate::kScreenedOut;
  std::string reason;      ///< what was wrong
  std::vector<double> ms;  ///< per launch, the median over the last blocks, by shape
  /// Its time over the untuned kernel's, medians of the ratios within a pair of blocks: by shape,
  /// and their geometric mean; less than 1 is faster. Not measured: empty and 0.
  std::vector<double> ratios;
  double ratio = 0;
};

struct TuneResult {
  RigDevice device;
  std::string nvrtc_version;
  std::vector<Measured> variants;  ///< the untuned one first
  std::size_t winner = 0;
  /// The untuned kernel beside itself, as if it were a variant: what a ratio is uncertain by.
  double control = 1;
  std::size_t illegal = 0, duplicates = 0, left_out = 0;
};

/// A Service that plans with a table: what a server with that table has.
using ServiceFactory =
    std::function<Result<std::unique_ptr<Service>>(std::shared_ptr<const Tuning>)>;

/// `stage` says what is being done and how far ("compiled", 3, 80), from 0; empty: nobody listens.
using Progress = std::function<void(std::string_view stage, std::size_t done, std::size_t all)>;

/// Every variant must first pass the rules of verify on small problems with each kind of input.
/// Then all are timed in two pairs of blocks, and the best ones within a tenth of the best in
/// `pairs` more: every variant in turn, in the second block of a pair in the opposite order. A
/// variant is chosen over the untuned
/// plan only if it gains 1 % and more than the control differs from 1, and loses no more than 2 %
/// at any shape.
/// Errors: kInvalid; kUnsupported; kEnvironment; kCompileFailed and kInternal where the untuned
/// kernel does not compile or is wrong; kDriver with the variant that caused it: a GPU that met
/// such an error serves no more.
Result<TuneResult> tune(const TuneRequest& request, const ServiceFactory& services,
                        const std::function<Result<std::unique_ptr<TuningRig>>()>& open_rig,
                        const Progress& progress = {});

}  // namespace attnjit::tune
