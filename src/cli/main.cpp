// SPDX-License-Identifier: Apache-2.0
// attnjit: the command.
#include "cli/command.h"

int main(int argc, char** argv) { return attnjit::cli::run_command(argc, argv); }
