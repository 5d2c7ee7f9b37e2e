// SPDX-License-Identifier: Apache-2.0
// Short names for the integers that emulate registers.
#pragma once

#include <cstdint>

namespace attnjit::emulator {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
__extension__ using u128 = unsigned __int128;
__extension__ using s128 = __int128;

}  // namespace attnjit::emulator
