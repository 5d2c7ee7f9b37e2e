// SPDX-License-Identifier: Apache-2.0
// no_throw: the wall between attnjit's insides, where the standard library may throw, and its API.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <utility>

#include "attnjit/result.h"

namespace attnjit {

/// Calls a function that returns a Result or Status; an exception becomes kInternal, or, where
/// there is no memory, kEnvironment: that is no defect, and nothing to remember of the code.
template <class Function>
auto no_throw(Function&& function) -> decltype(function()) {
  try {
    return std::forward<Function>(function)();
  } catch (const std::bad_alloc&) {
    return make_error(ErrorCode::kEnvironment, "out of host memory");
  } catch (const std::exception& exception) {
    return make_error(ErrorCode::kInternal, std::string("unexpected: ") + exception.what());
  } catch (...) {
    return make_error(ErrorCode::kInternal, "unexpected exception");
  }
}

}  // namespace attnjit
