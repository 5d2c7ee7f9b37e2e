// SPDX-License-Identifier: Apache-2.0
// The command's own help as shell completion and as a man page. For .cpp files of this folder only.
#pragma once

#include <CLI/App.hpp>
#include <map>
#include <string>
#include <vector>

namespace attnjit::cli {

/// The values that a shell offers for an option; of one that is not here, and takes a value, files.
using Choices = std::map<const CLI::Option*, std::vector<std::string>>;

/// A script that completes commands, flags and their values. @pre shell is bash, zsh or fish.
std::string completion_script(const CLI::App& app, const std::string& shell,
                              const Choices& choices);

/// attnjit(1) for man, in its macros.
std::string man_page(const CLI::App& app, const std::string& version);

}  // namespace attnjit::cli
