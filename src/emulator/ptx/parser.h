// SPDX-License-Identifier: Apache-2.0
// Parses PTX text to the syntax tree of ast.h.
//
// Thread rules: a pure function.
#pragma once

#include <string>

#include "attnjit/result.h"
#include "emulator/ptx/ast.h"

namespace attnjit::emulator {

/// Parses a whole module: directives, debug sections (skipped), variables, functions with block
/// scopes. Opcodes are not judged here. Errors: kInvalid with the line for text that is not PTX,
/// kUnsupported for directives that are not modelled (textures, .alias) and for sizes past the
/// limits (256 MiB of text, of data in all, 2^20 registers used). Any bytes give one or the other.
Result<Module> parse_ptx(std::string text);

}  // namespace attnjit::emulator
