// SPDX-License-Identifier: Apache-2.0
// Which template files a text includes, directly or through others.
#pragma once

#include <string_view>
#include <vector>

#include "attnjit/source.h"

namespace attnjit {

/// kEnvironment: a set, of a folder, that lacks a file. (Tests see that the embedded set is whole.)
Error incomplete_templates(std::string_view missing);

/// The files of a set that `text` includes, transitively, sorted by name. Only `#include "name"`
/// with a name relative to templates/ is known to kernel code; conditional compilation is not
/// followed, so a file that is included in one branch only is in. Errors, with file and line:
/// kInternal for any other spelling of an include, kEnvironment for a name that the set lacks.
Result<std::vector<SourceFile>> include_closure(const TemplateSet& templates, std::string_view name,
                                                std::string_view text);

}  // namespace attnjit
