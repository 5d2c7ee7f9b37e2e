// SPDX-License-Identifier: Apache-2.0
// Tries what is said of tiles on many random expressions: tile_proof [PAIRS] [FIRST SEED].
#include <cstdio>
#include <cstdlib>

#include "random_tiles.h"

int main(int argc, char** argv) {
  const std::int64_t pairs = argc > 1 ? std::atoll(argv[1]) : 10'000'000;
  const auto seed = static_cast<std::uint32_t>(argc > 2 ? std::atoll(argv[2]) : 1'000'000);
  attnjit::spec::TileCounts counts;
  const std::string wrong = attnjit::spec::try_random_tiles(seed, pairs, counts);
  std::printf(
      "%lld pairs of an expression and a tile: %lld hidden, %lld full; interpreted, %lld of "
      "%lld decided; %s\n",
      static_cast<long long>(counts.pairs), static_cast<long long>(counts.hidden),
      static_cast<long long>(counts.full), static_cast<long long>(counts.decided_interpreted),
      static_cast<long long>(counts.decided), wrong.empty() ? "none wrongly" : wrong.c_str());
  return wrong.empty() ? 0 : 1;
}
