// SPDX-License-Identifier: Apache-2.0
// arc4random for std::random_device of the static libstdc++: the C library has it from 2.36 on,
// and the wheel runs on older ones. Any thread may call it.
#include <sys/random.h>

#include <cstdint>
#include <cstdlib>

extern "C" std::uint32_t arc4random() noexcept;

extern "C" std::uint32_t arc4random() noexcept {
  std::uint32_t value = 0;
  if (getentropy(&value, sizeof value) != 0) std::abort();  // as the C library's does
  return value;
}
