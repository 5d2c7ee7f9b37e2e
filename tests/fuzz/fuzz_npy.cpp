// SPDX-License-Identifier: Apache-2.0
// Fuzz target: .npy files.
#include <cstdint>
#include <string>

#include "fuzz_check.h"
#include "fuzz_targets.h"
#include "verify/npy.h"

namespace attnjit::fuzz {

void fuzz_npy(std::string_view input) {
  const Result<verify::Tensor> tensor = verify::parse_npy(input, "input");
  if (!tensor) return check_error(tensor.error());
  std::int64_t elements = 1;
  for (const std::int64_t extent : tensor->shape) {
    require(extent >= 0);
    elements *= extent;
  }
  require(static_cast<std::int64_t>(tensor->bytes.size()) == elements * size_of(tensor->dtype));
  const Result<std::string> bytes = verify::npy_bytes(*tensor);
  require(bytes.ok());
  const Result<verify::Tensor> again = verify::parse_npy(*bytes, "written");
  require(again.ok() && again->dtype == tensor->dtype && again->shape == tensor->shape &&
          again->bytes == tensor->bytes);
}

}  // namespace attnjit::fuzz
