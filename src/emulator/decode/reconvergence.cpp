// SPDX-License-Identifier: Apache-2.0
// Where the paths of a divergent branch meet: immediate post-dominators.
//
// Source: Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph.
#include <algorithm>

#include "emulator/decode/program.h"

namespace attnjit::emulator {

void find_reconvergence(FunctionCode& code, const Program& program) {
  std::vector<Op>& ops = code.ops;
  const auto n = static_cast<u32>(ops.size());
  if (n == 0) return;

  // Basic blocks.
  std::vector<char> leader(n, 0);
  leader[0] = 1;
  const auto targets = [&](const Op& op, auto&& visit) {
    if ((op.flags & kOpBranches) != 0) visit(op.target);
    if ((op.flags & kOpTable) != 0) {
      for (const u32 t : program.tables[op.target]) visit(t);
    }
  };
  for (u32 i = 0; i < n; ++i) {
    targets(ops[i], [&](u32 t) {
      if (t < n) leader[t] = 1;
    });
    if ((ops[i].flags & (kOpBranches | kOpEnds | kOpTable)) != 0 && i + 1 < n) leader[i + 1] = 1;
  }
  std::vector<u32> block_of(n), first;
  for (u32 i = 0; i < n; ++i) {
    if (leader[i] != 0) first.push_back(i);
    block_of[i] = static_cast<u32>(first.size() - 1);
  }
  const auto blocks = static_cast<u32>(first.size());
  const u32 exit = blocks;  // the virtual exit
  std::vector<std::vector<u32>> successors(blocks + 1), predecessors(blocks + 1);
  std::vector<u32> last_from(blocks + 1, exit);  // the block whose edge came last; exit: none
  for (u32 b = 0; b < blocks; ++b) {
    const u32 last = (b + 1 < blocks ? first[b + 1] : n) - 1;
    const Op& op = ops[last];
    const bool guarded = op.guard != kNoRef && op.guard != kTrue;
    const auto edge = [&](u32 to) {
      if (last_from[to] == b) return;
      last_from[to] = b;
      successors[b].push_back(to);
      predecessors[to].push_back(b);
    };
    targets(op, [&](u32 t) { edge(t < n ? block_of[t] : exit); });
    const bool ends = (op.flags & kOpEnds) != 0;
    if (ends) edge(exit);
    const bool falls = (op.flags & (kOpBranches | kOpEnds | kOpTable)) == 0 || guarded;
    if (falls) edge(last + 1 < n ? b + 1 : exit);
  }

  // Reverse post-order of the reversed graph, from the exit; blocks in endless loops stay out.
  std::vector<u32> order, state(blocks + 1, 0);
  std::vector<std::pair<u32, std::size_t>> stack{{exit, 0}};
  state[exit] = 1;
  while (!stack.empty()) {
    auto& [b, next] = stack.back();
    if (next < predecessors[b].size()) {
      const u32 p = predecessors[b][next++];
      if (state[p] == 0) {
        state[p] = 1;
        stack.emplace_back(p, 0);
      }
    } else {
      order.push_back(b);
      stack.pop_back();
    }
  }
  std::reverse(order.begin(), order.end());
  constexpr u32 kUndefined = ~0u;
  std::vector<u32> number(blocks + 1, kUndefined), ipdom(blocks + 1, kUndefined);
  for (u32 i = 0; i < order.size(); ++i) number[order[i]] = i;
  ipdom[exit] = exit;
  const auto meet = [&](u32 a, u32 b) {
    while (a != b) {
      while (number[a] > number[b]) a = ipdom[a];
      while (number[b] > number[a]) b = ipdom[b];
    }
    return a;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (const u32 b : order) {
      if (b == exit) continue;
      u32 result = kUndefined;
      for (const u32 s : successors[b]) {
        if (number[s] == kUndefined || ipdom[s] == kUndefined) continue;
        result = result == kUndefined ? s : meet(result, s);
      }
      if (result != ipdom[b]) {
        ipdom[b] = result;
        changed = true;
      }
    }
  }
  for (u32 b = 0; b < blocks; ++b) {
    const u32 last = (b + 1 < blocks ? first[b + 1] : n) - 1;
    Op& op = ops[last];
    if ((op.flags & (kOpBranches | kOpTable)) == 0) continue;
    if (ipdom[b] == kUndefined || ipdom[b] == exit) continue;
    op.reconverge = first[ipdom[b]];
    ops[op.reconverge].flags = static_cast<u8>(ops[op.reconverge].flags | kOpReconverges);
  }
}

}  // namespace attnjit::emulator
