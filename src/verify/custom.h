// Custom code in double precision, for the reference.
#pragma once

#include <memory>

#include "attnjit/result.h"
#include "verify/meaning.h"

namespace attnjit::verify {

/// A custom mask or score modification, bound to a problem's parameter values.
/// Thread rules: const after construction; any thread may evaluate.
class CustomFunction {
 public:
  virtual ~CustomFunction() = default;
  /// A mask's value is nonzero where the key is visible.
  virtual double evaluate(const Coordinate& at, double score) const = 0;
};

/// Errors: kUnsupported for a trusted function body, unless it is one return statement of an
/// expression; those of the parser.
Result<std::shared_ptr<const CustomFunction>> make_custom_function(const CustomCode& code,
                                                                   bool is_mask,
                                                                   const Problem& problem);

}  // namespace attnjit::verify
