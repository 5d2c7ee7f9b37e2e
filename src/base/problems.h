// SPDX-License-Identifier: Apache-2.0
// Problems: collects every problem of an input into one Error, the first with the others in it.
//
// Thread rules: a plain value.
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "attnjit/result.h"

namespace attnjit {

class Problems {
 public:
  void add(std::string field, std::string message, std::string hint = {}) {
    Error error =
        make_error(ErrorCode::kInvalid, std::move(message), std::move(field), std::move(hint));
    if (!first_) {
      first_ = std::move(error);
    } else {
      first_->others.push_back(std::move(error));
    }
  }
  bool any() const { return first_.has_value(); }
  /// @pre any().
  Error take() { return *std::move(first_); }

 private:
  std::optional<Error> first_;
};

}  // namespace attnjit
