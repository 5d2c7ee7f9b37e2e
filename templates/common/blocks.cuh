// SPDX-License-Identifier: Apache-2.0
// How tiles of Q, K, V and O lie in shared memory: in blocks of 64 columns, a row of a block in 128
// bytes, with the 128-byte swizzle. A TMA box of 64 columns writes one, and matrix descriptors
// read it.
#pragma once

namespace attnjit {

constexpr int kBlockColumns = 64;
constexpr int kBlockRowBytes = 128;

/// The swizzle's pattern repeats after this many bytes, and begins at multiples of them in the
/// shared window: blocks do, too.
constexpr int kSwizzlePeriod = 1024;

}  // namespace attnjit
