// SPDX-License-Identifier: Apache-2.0
// Random expressions as they are printed, compiled for the host when the test was built.
#pragma once

#include <cstddef>
#include <cstdint>

#include "random_expression.h"
#include "spec/expression.h"
#include "spec/ranges.h"

namespace attnjit::spec {

struct PrintedCase {
  std::uint32_t seed;
  bool (*visible)(const Coordinates&, const random::Params&);
  IntRange (*ranges)(const TileCoord&, const random::Params&);
};
// In the generated file.
extern const PrintedCase kPrintedCases[];
extern const std::size_t kPrintedCaseCount;

}  // namespace attnjit::spec
