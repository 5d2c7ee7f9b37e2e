// SPDX-License-Identifier: Apache-2.0
// Whether the build is one of sanitizers, which take several times as long: tests whose cases are
// many take some of them there, and all in a release build. Thread rules: a constant.
#pragma once

namespace attnjit {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

}  // namespace attnjit
