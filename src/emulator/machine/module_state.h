// SPDX-License-Identifier: Apache-2.0
// What a PtxModule holds: the syntax tree and one decoded program per kernel.
//
// Thread rules: immutable.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "attnjit/emulator.h"
#include "emulator/decode/program.h"

namespace attnjit {

struct PtxModule::State {
  std::shared_ptr<const emulator::Module> module;
  std::vector<std::string> names;
  std::map<std::string, std::shared_ptr<const emulator::Program>> programs;
};

}  // namespace attnjit
