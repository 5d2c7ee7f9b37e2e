// SPDX-License-Identifier: Apache-2.0
// Straight pieces of a kernel's code, in an order in which a compiler would issue them.
//
// PTX is not scheduled: ptxas moves instructions apart from what they wait for. So each piece
// between instructions whose time others see is scheduled here as a list, by the longest path.
// Thread rules: confined to one run.
#pragma once

#include <memory>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "clock/cost.h"
#include "emulator/decode/program.h"

namespace attnjit::clock {

/// A PTX instruction: its operations, what they read and write, and its cost.
struct Node {
  emulator::u32 first = 0, last = 0;  ///< operations of the function
  emulator::u32 site = 0;
  std::vector<emulator::Ref> reads, writes;
  Cost cost;
};

struct Segment {
  emulator::u32 begin = 0, end = 0;  ///< operations
  bool timed = false;                ///< one instruction, executed at its time
  std::vector<Node> nodes;           ///< in program order
  std::vector<emulator::u32> order;  ///< of nodes: as issued
  /// A wgmma.wait_group is next: ptxas has it before what is here.
  bool after_wait = false;
  /// Of a wgmma.wait_group: nodes of a later segment that ptxas has ahead of it, in their order.
  const Segment* later = nullptr;
  std::vector<emulator::u32> ahead;
};

class Segments {
 public:
  Segments(const emulator::Program& program, const Parameters& parameters)
      : program_(program), parameters_(parameters) {}
  /// The segment that begins at an operation. Valid as long as this is.
  const Segment& at(const emulator::FunctionCode& function, emulator::u32 pc);

 private:
  Segment build(const emulator::FunctionCode& function, emulator::u32 pc) const;
  bool waits_for_products(const Node& node) const;
  std::string_view text_of(const Node& node) const { return program_.sites[node.site].text; }
  unsigned columns_waited_for(const emulator::FunctionCode& function, emulator::u32 wait) const;
  void look_ahead(const emulator::FunctionCode& function, Segment& wait);
  Node node_at(const emulator::FunctionCode& function, emulator::u32 pc) const;
  void schedule(Segment& segment) const;
  const emulator::Program& program_;
  const Parameters& parameters_;
  std::unordered_map<const emulator::Op*, std::unique_ptr<Segment>> known_;
};

}  // namespace attnjit::clock
