// SPDX-License-Identifier: Apache-2.0
// What an instruction costs: issue slots, a pipe and a latency, from its PTX opcode. The weights
// are those that SASS confirms (docs/clock.md, "From PTX").
//
// Thread rules: pure functions.
#pragma once

#include <array>
#include <string_view>

#include "clock/parameters.h"
#include "emulator/decode/program.h"

namespace attnjit::clock {

enum class Pipe : unsigned char { kNone, kFma, kAlu, kXu, kBranch, kLsu, kUnit };
inline constexpr std::size_t kPipes = 7;
std::string_view to_string(Pipe pipe);

/// Why a warp did not issue.
enum class Cause : unsigned char {
  kSlot,      ///< another warp of the sub-partition issued
  kPipe,      ///< its pipe was busy
  kOperand,   ///< a result of arithmetic was not there yet
  kLoad,      ///< a result of a load, or of a test of a barrier
  kBranch,    ///< behind a branch
  kMbarrier,  ///< a phase was not complete
  kNamedBarrier,
  kProduct,  ///< a product was not complete
  kStore,    ///< a copy or a store was not complete
  kOther,
};
inline constexpr std::size_t kCauses = 10;
std::string_view to_string(Cause cause);

struct Cost {
  Pipe pipe = Pipe::kNone;
  unsigned slots = 0;  ///< that it takes of the issue port
  double cycles = 0;   ///< that it keeps the pipe, of a slot
  double latency = 0;  ///< until its result can be used
  double keeps = 0;    ///< cycles until the warp's next instruction, where they are more than slots
  bool loads = false;  ///< its result comes from memory, a barrier or another lane
  bool timed = false;  ///< others see its effect: it is executed at its time
  bool takes_tile = false;  ///< other SMs may do the same to that word: it waits for their turns
};

/// Of an instruction that reads %clock and the like.
Cost clock_reading_cost();
/// @param text the opcode with its modifiers
Cost cost_of(std::string_view text, bool all_constant, const Parameters& parameters);

}  // namespace attnjit::clock
