// SPDX-License-Identifier: Apache-2.0
// Implements Philox 4x32-10 and the uniform and normal numbers made from it.
#include "verify/random.h"

#include <cmath>
#include <numbers>

namespace attnjit::verify {

PhiloxBlock philox4x32_10(PhiloxBlock counter, std::array<std::uint32_t, 2> key) {
  constexpr std::uint64_t kMultiplier0 = 0xD2511F53;
  constexpr std::uint64_t kMultiplier1 = 0xCD9E8D57;
  constexpr std::uint32_t kWeyl0 = 0x9E3779B9;
  constexpr std::uint32_t kWeyl1 = 0xBB67AE85;
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t product0 = kMultiplier0 * counter[0];
    const std::uint64_t product1 = kMultiplier1 * counter[2];
    counter = {static_cast<std::uint32_t>(product1 >> 32) ^ counter[1] ^ key[0],
               static_cast<std::uint32_t>(product1),
               static_cast<std::uint32_t>(product0 >> 32) ^ counter[3] ^ key[1],
               static_cast<std::uint32_t>(product0)};
    key[0] += kWeyl0;
    key[1] += kWeyl1;
  }
  return counter;
}

RandomStream::RandomStream(std::uint64_t seed, std::string_view name)
    : seed_(seed), stream_(2166136261U) {
  // FNV-1a, 32 bits.
  for (const char c : name) {
    stream_ = (stream_ ^ static_cast<unsigned char>(c)) * 16777619U;
  }
}

PhiloxBlock RandomStream::block(std::uint64_t index) const {
  return philox4x32_10(
      {static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32), stream_, 0},
      {static_cast<std::uint32_t>(seed_), static_cast<std::uint32_t>(seed_ >> 32)});
}

std::uint32_t RandomStream::bits(std::uint64_t index) const { return block(index / 4)[index % 4]; }

double RandomStream::uniform(std::uint64_t index) const {
  return static_cast<double>(bits(index)) * 0x1p-32;
}

double RandomStream::normal(std::uint64_t index) const {
  const PhiloxBlock words = block(index / 4);
  const std::size_t pair = (index % 4) & 2;
  const double u = (static_cast<double>(words[pair]) + 0.5) * 0x1p-32;
  const double angle = 2 * std::numbers::pi * static_cast<double>(words[pair + 1]) * 0x1p-32;
  const double radius = std::sqrt(-2 * std::log(u));
  return radius * ((index % 2) == 0 ? std::cos(angle) : std::sin(angle));
}

}  // namespace attnjit::verify
