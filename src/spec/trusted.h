// SPDX-License-Identifier: Apache-2.0
// The lexical check of trusted function bodies: it keeps a body inside its function.
#pragma once

#include <string_view>

#include "attnjit/result.h"

namespace attnjit::spec {

inline constexpr std::size_t kMaxTrustedLength = 64 << 10;  ///< bytes
inline constexpr int kMaxTrustedNesting = 256;              ///< open brackets

/// Checks a trusted function body, which is pasted between the braces of a generated function and
/// compiled in the helper process. Refused: preprocessor spellings (#, digraphs, trigraphs,
/// backslashes outside literals, _Pragma, __has_include, import), asm in any spelling, the
/// time of the compile, raw and prefixed strings, comments and literals that do not end, brackets
/// that do not match or close what they did not open, what is not ASCII, a body without `return`.
/// Errors: kInvalid with line, column and a hint; `field` is left empty.
Status check_trusted_code(std::string_view code);

}  // namespace attnjit::spec
