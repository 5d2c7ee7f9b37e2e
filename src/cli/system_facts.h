// SPDX-License-Identifier: Apache-2.0
// What a bug report says of the machine.
//
// Thread rules: any thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace attnjit::cli {

using Facts = std::vector<std::pair<std::string, std::string>>;

/// The system's name, the kernel's version, the C library, the CPU, cores, memory and driver.
Facts system_facts();

/// The variables that attnjit reads, as far as they are set; without those of a fleet, whose
/// addresses may hold secrets.
Facts environment_facts();

/// The text with ~ for the home folder.
std::string without_home(std::string text);

}  // namespace attnjit::cli
