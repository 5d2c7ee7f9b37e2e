// SPDX-License-Identifier: Apache-2.0
// Prints the table of instructions of docs/emulator.md (scripts/emulator-table splices it in).
#include <cstdio>

#include "attnjit/emulator.h"

int main() {
  std::fputs(attnjit::instruction_table_markdown().c_str(), stdout);
  return 0;
}
