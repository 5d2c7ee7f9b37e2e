// SPDX-License-Identifier: Apache-2.0
// Reads and writes NumPy's .npy files (format 1.0 to 3.0, little-endian, C order).
//
// Format: numpy.lib.format, "Format Version 1.0". A file that is read is untrusted: its header is
// bounded, and its size must be exactly what the header says.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "attnjit/result.h"
#include "verify/tensor.h"

namespace attnjit::verify {

/// Errors: kInvalid with what is wrong, `field` the path.
Result<Tensor> read_npy(const std::string& path, std::int64_t max_bytes = std::int64_t{1} << 34);

/// The same from bytes; `name` is for messages.
Result<Tensor> parse_npy(std::string_view data, const std::string& name);

/// The file's bytes. bf16 and e4m3, which .npy lacks, are refused: widen them first.
Result<std::string> npy_bytes(const Tensor& tensor);

/// Errors: kIo.
Status write_npy(const std::string& path, const Tensor& tensor);

}  // namespace attnjit::verify
