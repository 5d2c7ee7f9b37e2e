// SPDX-License-Identifier: Apache-2.0
// Counter-based random numbers: a value depends on seed, stream and index alone, so neither the
// order of generation nor the number of threads matters.
//
// Philox4x32-10: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC
// 2011.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace attnjit::verify {

using PhiloxBlock = std::array<std::uint32_t, 4>;

PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key);

/// A sequence of numbers that is random access. Thread rules: const, so any.
class RandomStream {
 public:
  RandomStream(std::uint64_t seed, std::uint32_t stream) : seed_(seed), stream_(stream) {}
  /// Streams of different names differ.
  RandomStream(std::uint64_t seed, std::string_view name);

  std::uint32_t bits(std::uint64_t index) const;
  /// In [0, 1), 32 bits.
  double uniform(std::uint64_t index) const;
  /// N(0, 1), by Box and Muller.
  double normal(std::uint64_t index) const;

 private:
  PhiloxBlock block(std::uint64_t index) const;

  std::uint64_t seed_;
  std::uint32_t stream_;
};

}  // namespace attnjit::verify
