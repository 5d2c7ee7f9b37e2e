// SPDX-License-Identifier: Apache-2.0
// The attnjit command as a function. For main() alone: it takes the process's signals and standard
// descriptors as its own.
#pragma once

namespace attnjit::cli {

/// Runs the command of the process's arguments, and returns its exit code.
int run_command(int argc, char** argv);

}  // namespace attnjit::cli
