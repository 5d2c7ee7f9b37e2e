// SPDX-License-Identifier: Apache-2.0
// The package's command: all of it is in the library that lies beside it.

extern "C" int attnjit_command_main(int argc, char** argv);

int main(int argc, char** argv) { return attnjit_command_main(argc, argv); }
