// SPDX-License-Identifier: Apache-2.0
// Custom code in double precision, for the reference.
//
// Thread rules: a CustomFunction is used by one thread at a time.
#pragma once

#include <memory>

#include "attnjit/result.h"
#include "spec/expression.h"
#include "verify/problem.h"

namespace attnjit::verify {

/// A parameter's value, borrowed.
spec::ParamView view(const Tensor& tensor);

/// A custom mask or score modification, bound to a problem's parameter values.
class CustomFunction {
 public:
  /// Errors: those of the parser; kUnsupported for a trusted function body, unless it is one
  /// `return EXPRESSION;`, which is evaluated as the expression.
  /// @pre the Problem outlives it
  static Result<std::shared_ptr<CustomFunction>> make(const CustomCode& code,
                                                      spec::SnippetKind kind,
                                                      const Problem& problem);

  bool visible(const spec::Coordinates& at) { return evaluator_.visible(at); }
  double score(const spec::Coordinates& at, double score) { return evaluator_.score(at, score); }

 private:
  CustomFunction(spec::Expression expression, std::vector<spec::ParamView> params)
      : expression_(std::move(expression)), evaluator_(expression_, std::move(params)) {}

  const spec::Expression expression_;
  spec::Evaluator evaluator_;  // borrows expression_
};

}  // namespace attnjit::verify
