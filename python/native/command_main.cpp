// SPDX-License-Identifier: Apache-2.0
// The command inside of the package's library, for native/command.cpp.
#include "attnjit/export.h"
#include "cli/command.h"

extern "C" ATTNJIT_EXPORT int attnjit_command_main(int argc, char** argv);

int attnjit_command_main(int argc, char** argv) { return attnjit::cli::run_command(argc, argv); }
