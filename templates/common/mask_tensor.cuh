// SPDX-License-Identifier: Apache-2.0
// A materialized mask: a tensor [batch or 1, heads or 1, q_len or 1, kv_len] that the launch is
// given, of bools, or of numbers that are added to scores.
#pragma once

#include "common/expression.cuh"
#include "common/integers.cuh"

namespace attnjit {

/// Eight bools in a byte, the first in its lowest bit. NOTE: a type, no constant: those of structs
/// that are no templates are variables of every kernel.
struct Bits {
  using Packed = void;
};

/// Where T is the type of its elements; kData and the strides, in bytes, are pointers to members of
/// Params. A stride of 0: one for all.
template <class T, auto kData, auto kBatchBytes, auto kHeadBytes, auto kRowBytes>
struct MaskTensor {
  using Element = T;

  /// The row of c's query; null where it is no row of the sequence: nothing may be read there.
  template <class Params>
  ATTNJIT_DEVICE static const unsigned char* row(const Coord& c, const Params& p) {
    const int row = c.q_row();
    if (static_cast<u32>(row) >= static_cast<u32>(c.q_len)) return nullptr;
    return p.*kData + c.b * p.*kBatchBytes + c.h * p.*kHeadBytes + row * p.*kRowBytes;
  }

  /// What is added to the score of c's query and of a key, which is a key of the sequence. Of a
  /// query that is no row of it: of the nearest one, since nobody reads its scores. NOTE: a test of
  /// each key costs a predicate each, for which ptxas spilled (docs/sm90.md). @pre T is a float,
  /// c.q_len > 0
  template <class Params>
  ATTNJIT_DEVICE static float added(const Coord& c, int kv_idx, const Params& p) {
    const int row = min(max(c.q_row(), 0), c.q_len - 1);
    const unsigned char* const data =
        p.*kData + c.b * p.*kBatchBytes + c.h * p.*kHeadBytes + row * p.*kRowBytes;
    return element_value(reinterpret_cast<const T*>(data)[kv_idx]);
  }
};

/// Which bytes of a word are not 0: a bit each.
ATTNJIT_DEVICE u32 bytes_set(u32 word) {
  const u32 high = (((word & 0x7f7f7f7fu) + 0x7f7f7f7fu) | word) >> 7 & 0x01010101u;
  return (high | high >> 7 | high >> 14 | high >> 21) & 15u;
}

/// Whether a row of bools shows a key, or of numbers that are not -inf.
template <class T>
ATTNJIT_DEVICE bool bool_of(const unsigned char* row, int kv_idx) {
  if constexpr (requires { typename T::Packed; }) {
    return (row[kv_idx >> 3] >> (kv_idx & 7) & 1) != 0;
  } else if constexpr (sizeof(T) > 1) {
    return element_value(reinterpret_cast<const T*>(row)[kv_idx]) != -infinity();
  } else {
    return row[kv_idx] != 0;
  }
}

/// Which of kCount keys from kv_idx on a row of bools shows, or of numbers that are not -inf, a bit
/// each; of those from kv_len on anything. @pre kv_idx is a multiple of kCount, which is 2 or 32;
/// kv_len is not 0
template <int kCount, class T>
ATTNJIT_DEVICE u32 bools_of(const unsigned char* row, int kv_idx, int kv_len) {
  u32 word = 0;
  if (row == nullptr) return word;
  if constexpr (requires { typename T::Packed; }) {
#pragma unroll
    for (int first = 0; first < kCount; first += 8) {
      const int key = min(kv_idx + first, kv_len - 1);
      word |= static_cast<u32>(row[key >> 3]) >> (key & 7) << first;
    }
  } else if constexpr (sizeof(T) > 1) {
    const T* const data = reinterpret_cast<const T*>(row) + kv_idx;
#pragma unroll 8
    for (int i = 0; i < kCount; ++i) {
      const bool shows = kv_idx + i < kv_len && element_value(data[i]) != -infinity();
      word |= static_cast<u32>(shows) << i;
    }
  } else {
    // Whole words where there are some.
    constexpr int kWordBytes = kCount == 2 ? 2 : 4;
    const unsigned char* const data = row + kv_idx;
    const bool whole = kv_len - kv_idx >= kCount &&
                       reinterpret_cast<u64>(data) % static_cast<u64>(kWordBytes) == 0;
    if (whole) {
#pragma unroll
      for (int first = 0; first < kCount; first += kWordBytes) {
        u32 bytes;
        if constexpr (kWordBytes == 2) {
          bytes = *reinterpret_cast<const unsigned short*>(data);
        } else {
          bytes = *reinterpret_cast<const u32*>(data + first);
        }
        word |= bytes_set(bytes) << first;
      }
    } else {
#pragma unroll 4
      for (int i = 0; i < kCount; ++i) {
        if (kv_idx + i < kv_len) word |= static_cast<u32>(data[i] != 0) << i;
      }
    }
  }
  return word;
}

}  // namespace attnjit
