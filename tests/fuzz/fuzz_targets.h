// SPDX-License-Identifier: Apache-2.0
// The fuzz targets: each takes any bytes, and aborts where a promise is broken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace attnjit::fuzz {

/// Expression snippets: the first byte chooses a mask or a score modification. What parses must
/// print text that can only be an expression, and evaluate.
void fuzz_expression(std::string_view input);

/// Trusted bodies: what is accepted must leave brackets, comments and literals closed, judged by a
/// second, simpler reading.
void fuzz_trusted(std::string_view input);

/// Specs and manifests: what is read must be valid, resolve, and survive writing and reading.
void fuzz_spec_json(std::string_view input);

/// Manifests: what is wrong in a spec is told in its place, and the others are served.
void fuzz_manifest(std::string_view input);

/// LAUNCH.json: what is read survives writing and reading.
void fuzz_launch_json(std::string_view input);

/// Tuning tables: whatever one says, a plan is made with it or refuses it.
void fuzz_tuning(std::string_view input);

/// Templates: a first line that is the value of a placeholder, then the text around it.
void fuzz_template(std::string_view input);

/// .npy files: what is read has the bytes that its shape asks for, and survives writing.
void fuzz_npy(std::string_view input);

/// Cubins: no byte makes the reader leave them; what it lists is there.
void fuzz_cubin(std::string_view input);

/// Frames of the compile worker and logs of NVRTC: what decodes encodes to the same bytes.
void fuzz_worker(std::string_view input);

/// The cache's files: an entry that is accepted must encode to the same bytes.
void fuzz_cache_entry(std::string_view input);

/// PTX modules: what is refused is refused as invalid or unsupported.
void fuzz_ptx(std::string_view input);

}  // namespace attnjit::fuzz
