// SPDX-License-Identifier: Apache-2.0
// What the tests of kernels share: launches in the emulator under the isa model, and their
// comparison with the reference. Skipped without NVRTC.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "./emulator/attention/generated_kernel.h"
#include "gpu/verify_cases.h"
#include "in_proof.h"
#include "plan/plan_launch.h"
#include "verify/numeric.h"
#include "verify/reference.h"

namespace attnjit::kernel_test {

using emulator::CompileTo;
using proof::in_proof;
using proof::seeds;
using proof::some_of;
using verify::InputKind;
using verify::mask_of;
using verify::Problem;
using verify::tree;
using Kind = MaskSpec::Kind;

struct Lengths {
  std::vector<std::int64_t> q, kv;
};

struct Kernel {
  emulator::GeneratedKernel generated;
  PtxModule module;
};

/// What a launch wrote, and what it took.
struct Outputs {
  verify::Tensor o;
  std::optional<verify::Tensor> lse;
  std::uint64_t thread_steps = 0;
  std::uint64_t loaded_bytes = 0;  ///< by TMA, where it was to be counted
  std::map<std::string, std::vector<std::uint8_t>> others = {};  ///< the other tensors, afterwards
};

/// A causal spec, or one of another mask, whose tests look at the LSE too.
AttentionSpec base_spec(Arch arch, int heads, int group, int qk_depth,
                        const MaskSpec& mask = mask_of(Kind::kCausal));
/// Absorbed MLA of one key head.
AttentionSpec absorbed_spec(Arch arch, int heads, int qk_depth, int page_size);
AttentionSpec of_sequences(AttentionSpec spec, int page_size, bool ragged);
AttentionSpec with_group(AttentionSpec spec, int heads, int group);
MaskSpec window_of(int window);
MaskSpec expression_of(const std::string& code, std::vector<ParamSpec> params = {});
/// That of drafts after which all keys before are seen, as docs/masks.md has it.
MaskSpec tree_of_drafts();
/// The same by a tensor: a launch's mask beside the keys before.
MaskSpec drafts_by_tensor(Dtype dtype);
/// A mask and a score modification that hang on rows of the whole batch.
AttentionSpec by_total_row(AttentionSpec spec);

class KernelTest : public testing::Test {
 protected:
  void SetUp() override;

  /// The proofs let ptxas judge every kernel.
  static CompileTo compile_to() { return in_proof() ? CompileTo::kImage : CompileTo::kPtx; }

  // Null where it failed, which is told.
  static std::unique_ptr<Kernel> compiled(const AttentionSpec& spec, const Tuning* tuning = nullptr,
                                          CompileTo to = compile_to()) {
    return compiled(spec, {}, tuning, to);
  }
  static std::unique_ptr<Kernel> compiled(const AttentionSpec& spec, const PlanOptions& options,
                                          const Tuning* tuning = nullptr,
                                          CompileTo to = compile_to());

  // NOTE: with normal inputs all memory that belongs to no sequence is NaN: rows of the last page,
  // spare pages, keys past kv_len.
  static std::optional<Problem> problem_of(const AttentionSpec& spec, const Lengths& lengths,
                                           InputKind input = InputKind::kNormal,
                                           std::uint64_t seed = 0,
                                           std::vector<verify::ParamArgument> params = {});

  static LaunchSequence launches_of(const Kernel& kernel, const Problem& problem,
                                    const LaunchShapes& shapes, int sm_count);

  // What the launches wrote; findings are failures, but for those of the kinds that are allowed.
  // `before`: what o and lse hold where the launch accumulates; null: a pair that saw no key.
  // `counts_loads`: takes longer.
  static std::optional<Outputs> run(const Kernel& kernel, const Problem& problem,
                                    const LaunchSequence& sequence, std::uint64_t seed = 0,
                                    const std::set<FindingKind>& allowed = {},
                                    const Outputs* before = nullptr, bool counts_loads = false);

  static void expect_right(const Problem& problem, const Outputs& run);
  // The same beside a reference that several runs share. Null where it failed, which is told.
  static std::optional<verify::Reference> reference_of(const Problem& problem);
  static void expect_right(const Problem& problem, const verify::Reference& reference,
                           const Outputs& run);

  // On 2 and on 132 SMs by turns, and with inputs of several kinds. Every second batch is for the
  // proof: the odd ones and the even ones by turns of a test's calls, and of the families.
  static void expect_passes(const AttentionSpec& spec, const std::vector<Lengths>& batches,
                            const Tuning* tuning = nullptr);

  struct Trial {
    AttentionSpec spec;
    std::vector<Lengths> batches;
  };
  static void expect_passes(const std::vector<Trial>& trials) {
    for (const auto& [spec, batches] : trials) expect_passes(spec, batches);
  }

  // A launch of whose sequences' lengths the device finds whether to deal out stream-K ranges, on
  // each of these numbers of SMs: also where there are fewer keys than a launch asks for
  // (`of_few_keys`).
  static void expect_runs(const AttentionSpec& spec, const Lengths& lengths,
                          const std::vector<int>& sm_counts, bool of_few_keys = false);

  // The instructions of all threads of a launch on 132 SMs, whose result is right; 0 where it is
  // not, which is told.
  static std::uint64_t steps_of(const Kernel& kernel, const Lengths& lengths);

  // The bytes of all tensors that TMA loads in a launch. That its result is right is looked at,
  // too. Boxes count whole.
  static std::uint64_t loaded_bytes_of(const Kernel& kernel, const Lengths& lengths, int sm_count);

  // A CTA of 384 threads is launched with 168 registers per thread; none is spilt.
  static void expect_no_spills(const std::vector<AttentionSpec>& specs,
                               const PlanOptions& options = {});

  struct Changed {
    const char* tensor;
    std::vector<std::int32_t> values;  ///< its first elements
  };
  // What a launch's tensors hold is not known on the host. Whatever they hold: no wait without an
  // end, no access outside of a tensor. Sequences that share rows write them both, in no order.
  static void expect_no_harm(const AttentionSpec& spec, const std::vector<Changed>& changes,
                             const PlanOptions& options = {});

 private:
  static inline std::size_t turn_ = 0;  // of the test's calls of expect_passes()
};

}  // namespace attnjit::kernel_test
