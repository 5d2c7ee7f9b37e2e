// SPDX-License-Identifier: Apache-2.0
// parallel_for: runs a loop's iterations on all cores.
#pragma once

#include <cstdint>
#include <functional>

namespace attnjit::verify {

/// Calls body(i) once for each i in [0, count), from up to `threads` threads (0: one a core), and
/// returns when all are done. The body must not throw.
void parallel_for(std::int64_t count, int threads, const std::function<void(std::int64_t)>& body);

}  // namespace attnjit::verify
