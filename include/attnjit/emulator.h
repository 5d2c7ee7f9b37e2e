// SPDX-License-Identifier: Apache-2.0
// The emulator: executes a LaunchRecipe on the CPU from PTX text and reports what hardware would
// only show by hanging or by a wrong digit. It is a library of its own: link attnjit::emulator.
//
// Thread rules: a PtxModule is immutable after load and may be shared by threads; emulate() may be
// called concurrently as long as the calls do not share buffers.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "attnjit/launch.h"
#include "attnjit/result.h"
#include "attnjit/types.h"

namespace attnjit {

/// How much order the tensor cores are granted (docs/emulator.md, "Two models").
enum class EmulatorModel : std::uint8_t {
  kSilicon,  ///< operations of one thread and one cta_group run in issue order; a missing
             ///< tcgen05.fence is a warning
  kIsa,      ///< only what the PTX ISA promises
};

/// What the scheduler of a run tends to (docs/emulator.md, "Time").
enum class SchedulePolicy : std::uint8_t {
  kRandom,
  kEager,   ///< asynchronous operations as soon as possible
  kLazy,    ///< asynchronous operations as late as possible
  kStarve,  ///< some warps only when no other can run
};

/// One tensor or array in the emulated GPU's global memory.
struct EmulatorBuffer {
  std::string name;
  Dtype dtype = Dtype::kF32;
  std::vector<std::uint64_t> shape;  ///< elements; the product times size_of(dtype) is data.size()
  std::vector<std::uint8_t> data;    ///< packed, row-major, little-endian
  bool uninitialised = false;        ///< reading it before it is written is a finding
  bool left_zero = false;            ///< not zero after the launches is one, too
};

struct EmulatorOptions {
  EmulatorModel model = EmulatorModel::kSilicon;
  std::uint64_t seed = 0;
  std::uint32_t seeds = 1;                ///< runs seed, seed + 1, ...; all must pass
  std::optional<SchedulePolicy> policy;   ///< of every run; none: each seed chooses one
  std::uint64_t max_steps = 500'000'000;  ///< warp instructions of one run
  /// isa: the tensor operations that one thread issues for one cta_group run in issue order all the
  /// same. The written waiver of kernels that rely on it.
  bool in_order_issue = false;
  bool checks = true;               ///< races, proxies and uninitialised data
  bool stats = false;               ///< fill EmulatorReport::stats
  std::string trace_file;           ///< Chrome/Perfetto JSON of the last run; empty: none
  unsigned threads = 0;             ///< host threads; 0: one per core
  std::uint32_t max_findings = 64;  ///< a run stops after so many
};

/// What is wrong with a kernel (docs/emulator.md, "Checks").
enum class FindingKind : std::uint8_t {
  kDeadlock,       ///< no thread can go on
  kRace,           ///< nothing orders two accesses
  kProxy,          ///< a write reaches another proxy without that proxy's fence
  kUninitialised,  ///< what was never written decides something
  kBounds,         ///< outside a memory, or of a CTA that may have ended
  kAlign,
  kSpace,       ///< an address of another CTA, or of another space
  kBarrier,     ///< counts, ids or phases are misused
  kTmem,        ///< tensor memory that is not allocated, not the warp's, or not freed once
  kAligned,     ///< the lanes do not execute together what they must
  kSetmaxnreg,  ///< it waits for ever, or a warpgroup disagrees
  kDescriptor,  ///< reserved, illegal or non-uniform values
  kSteps,       ///< EmulatorOptions::max_steps was reached
  kWorkspace,   ///< what a launch must leave zero is not
};
/// "deadlock", "race", ...: the names in JSON.
ATTNJIT_EXPORT std::string_view to_string(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::kDeadlock;
  bool warning = false;     ///< told, but the run passes
  int ptx_line = 0;         ///< 1-based; 0: none
  int source_line = 0;      ///< from .loc; 0: none
  std::string source_file;  ///< from .file; may be empty
  std::array<std::uint32_t, 3> cta{0, 0, 0};
  int warp = -1;            ///< in the CTA; -1: an asynchronous unit
  int lane = -1;            ///< the first lane concerned; -1: the whole warp
  std::uint64_t seed = 0;   ///< of the run that found it
  std::uint32_t count = 1;  ///< how often the same kind at the same line was seen
  std::string text;         ///< what happened and the state that shows it
};

/// Counts of one run; filled with EmulatorOptions::stats.
struct EmulatorStats {
  std::map<std::string, std::uint64_t> warp_instructions;  ///< by opcode with modifiers' root
  std::map<std::string, std::uint64_t> thread_instructions;
  std::map<std::string, std::uint64_t> unit_bytes;          ///< ld/st by space, TMA, tensor cores
  std::map<std::string, std::uint64_t> barrier_wait_steps;  ///< by barrier
  std::vector<std::uint64_t> warp_steps;                    ///< by warp of a CTA, over all CTAs
  std::uint64_t mma_operations = 0;                         ///< multiply-adds
  std::uint64_t bank_conflicts = 0;                         ///< extra shared-memory wavefronts
};

struct EmulatorReport {
  bool passed = false;  ///< no finding but warnings
  std::vector<Finding> findings;
  std::uint64_t steps = 0;         ///< warp instructions over all seeds
  std::uint64_t thread_steps = 0;  ///< thread instructions over all seeds
  double seconds = 0;              ///< of execution
  EmulatorStats stats;
};

/// A PTX module, parsed and decoded.
class ATTNJIT_EXPORT PtxModule {
 public:
  /// Parses and decodes every function of a module. Errors, each with its line: kInvalid for text
  /// that is not PTX, kUnsupported for an opcode, modifier or directive that is not modelled
  /// (never skipped). `text` is untrusted: any bytes give a module or an error.
  static Result<PtxModule> load(std::string text);

  /// Names of the kernels, in order of appearance.
  std::vector<std::string> entries() const;

  struct State;
  explicit PtxModule(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  const State& state() const { return *state_; }

 private:
  std::shared_ptr<const State> state_;
};

/// Executes the launches of a sequence in order over shared buffers, which hold the results
/// afterwards (of the last seed, or of the first seed with a finding). Workspaces that no buffer
/// names are allocated: zeroed, or uninitialised. Those that are to be zeroed must be zero after
/// the launches, too, if they were before. The report counts all launches. Errors: kInvalid for a
/// recipe that does not fit the module or the buffers; kUnsupported. A defect of a kernel is not an
/// error but a finding in the report.
ATTNJIT_EXPORT Result<EmulatorReport> emulate(const PtxModule& module,
                                              const LaunchSequence& sequence,
                                              std::vector<EmulatorBuffer>& buffers,
                                              const EmulatorOptions& options = {});
/// The same for one launch without workspaces.
ATTNJIT_EXPORT Result<EmulatorReport> emulate(const PtxModule& module, const LaunchRecipe& recipe,
                                              std::vector<EmulatorBuffer>& buffers,
                                              const EmulatorOptions& options = {});

/// The table of instructions that docs/emulator.md shows, generated from the one that decodes.
ATTNJIT_EXPORT std::string instruction_table_markdown();

}  // namespace attnjit
