// SPDX-License-Identifier: Apache-2.0
// AttentionSubject: an attention kernel that is damaged, with the verification's inputs, reference
// and rule.
//
// Thread rules: as Subject.
#pragma once

#include <string>
#include <vector>

#include "subject.h"
#include "verify/problem.h"
#include "verify/reference.h"

namespace attnjit::emulator {

/// The entry of a launch that is no part of the subject, and is not damaged: it writes the inputs.
inline constexpr const char* kWriterEntry = "writes_inputs";

/// A problem with its launches.
struct Call {
  verify::Problem problem;
  verify::Reference reference;
  LaunchSequence sequence;
};

/// All calls must pass: what one does not reach another does.
class AttentionSubject final : public Subject {
 public:
  /// `in_order_issue`: the plan declares that its kernel relies on it. `tolerance`: of the numbers.
  AttentionSubject(std::string name, std::string ptx, std::vector<Call> calls, bool in_order_issue,
                   double tolerance);

  std::vector<std::string> entries() const override;
  /// `recipe` is the first call's, perhaps with damaged tensor maps.
  Outcome run(const PtxModule& module, const LaunchRecipe& recipe, std::uint64_t seed,
              std::uint64_t max_steps) const override;

 private:
  std::vector<Call> calls_;
  bool in_order_issue_;
  double tolerance_;
};

}  // namespace attnjit::emulator
