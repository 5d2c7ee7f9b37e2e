// SPDX-License-Identifier: Apache-2.0
// Control flow: branches, calls, returns, exits, traps.
#include <fmt/format.h>

#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/executors.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

/// Splits the running group: lanes in `taken` go to `target`, the others to the next operation.
Step branch(Warp& warp, const Op& op, u32 taken, u32 target) {
  Group& group = *warp.group;
  const u32 rest = group.mask & ~taken;
  if (rest == 0) {
    group.pc = target;
    group.converged = false;
    return Step::kJump;
  }
  if (op.reconverge != kNoRef) {
    const auto depth = static_cast<u32>(group.frames.size());
    bool known = false;
    for (std::size_t i = warp.convergences.size(); i-- > 0;) {
      const Convergence& c = warp.convergences[i];
      if ((c.participants & group.mask) == 0) continue;
      known = c.pc == op.reconverge && c.depth == depth;
      break;
    }
    if (!known) warp.convergences.push_back({op.reconverge, depth, group.mask, 0});
  }
  Group other = group;
  other.mask = rest;
  other.pc = group.pc + 1;
  other.state = Group::State::kReady;
  other.converged = false;
  other.arrived = false;
  group.mask = taken;
  group.pc = target;
  group.converged = false;
  warp.groups.push_back(std::move(other));
  return Step::kSwitch;
}

Step execute_branch(Warp& warp, const Op& op, u32 mask) {
  return branch(warp, op, mask, op.target);
}

Step execute_branch_table(Warp& warp, const Op& op, u32 mask) {
  const std::vector<u32>& table = warp.machine->program.tables[op.target];
  warp.require_defined(op.s[0], mask, op, "the branch");
  // One target at a time; the others come back to this operation.
  const u32 first = lowest_lane(mask);
  const u32 index = warp.lane32(op.s[0], first);
  if (index >= table.size()) {
    warp.cluster->report(FindingKind::kBounds, &warp, static_cast<int>(first), op.site,
                         fmt::format("brx.idx: index {} of a table of {}", index, table.size()));
    return Step::kNext;
  }
  u32 same = 0;
  for (const u32 lane : lanes_of(mask)) {
    if (warp.lane32(op.s[0], lane) == index) same |= u32{1} << lane;
  }
  Group& group = *warp.group;
  if (same == group.mask) {
    group.pc = table[index];
    group.converged = false;
    return Step::kJump;
  }
  const Step step = branch(warp, op, same, table[index]);
  // NOTE: `branch` sent the rest to the next operation; those that are in the mask repeat this one.
  Group& rest = warp.groups.back();
  if ((rest.mask & mask) == rest.mask) {
    rest.pc = rest.pc - 1;
  } else if ((rest.mask & mask) != 0) {
    Group again = rest;
    again.mask = rest.mask & mask;
    again.pc = rest.pc - 1;
    rest.mask &= ~mask;
    warp.groups.push_back(std::move(again));
  }
  return step;
}

/// A call's places in local memory are in Op::list: those of its results, then of its arguments.
struct Call {
  u32 results = 0;
};
Step execute_call(Warp& warp, const Op& op, const Call& call, u32 mask);

void leave_convergences(Warp& warp, u32 lanes) {
  for (Convergence& c : warp.convergences) {
    c.participants &= ~lanes;
    c.arrived &= ~lanes;
  }
}

Step execute_exit(Warp& warp, const Op&, u32 mask) {
  Group& group = *warp.group;
  warp.publish(warp.cta->exit_view, mask);
  warp.live &= ~mask;
  warp.cta->live_threads -= count_lanes(mask);
  leave_convergences(warp, mask);
  warp.cluster->settle_after_exit(warp);
  warp.cluster->note_progress();
  group.mask &= ~mask;
  ++group.pc;
  return Step::kSwitch;
}

Step execute_return(Warp& warp, const Op& op, u32 mask) {
  Group& group = *warp.group;
  if (group.frames.empty()) return execute_exit(warp, op, mask);
  const u32 rest = group.mask & ~mask;
  if (rest != 0) {
    Group other = group;
    other.mask = rest;
    ++other.pc;
    group.mask = mask;
    warp.groups.push_back(std::move(other));
    return Step::kSwitch;  // the return repeats with its lanes alone
  }
  const FunctionCode& callee = *group.function;
  const u32 callee_local = group.local_base;
  const Frame frame = group.frames.back();
  group.frames.pop_back();
  // Results: from the callee's variables to the caller's.
  const Op& call = *frame.call;
  const Ref* list = warp.machine->program.lists.data() + call.list;
  const u32 results = call.arguments<execute_call>().results;
  for (u32 i = 0; i < results && i < callee.results.size(); ++i) {
    const u64 bytes = callee.results[i].bytes;
    for (const u32 lane : lanes_of(mask)) {
      const std::size_t base = static_cast<std::size_t>(lane) * warp.local.lane_bytes;
      const std::size_t to = base + frame.local_base + list[i],
                        from = base + callee_local + callee.results[i].offset;
      if (to + bytes > warp.local.bytes.size() || from + bytes > warp.local.bytes.size()) continue;
      std::memmove(warp.local.bytes.data() + to, warp.local.bytes.data() + from, bytes);
      if (!warp.local.poison.empty())
        std::memmove(warp.local.poison.data() + to, warp.local.poison.data() + from, bytes);
    }
  }
  group.function = frame.function;
  group.pc = frame.return_pc;
  group.row_base = frame.row_base;
  group.predicate_base = frame.predicate_base;
  group.local_base = frame.local_base;
  group.converged = false;
  return Step::kJump;
}

Step execute_call(Warp& warp, const Op& op, const Call& call, u32 mask) {
  Group& group = *warp.group;
  const Program& program = warp.machine->program;
  u32 target = op.target;
  if (op.s[0] != kNoRef) {
    warp.require_defined(op.s[0], mask, op, "the call's target");
    const u32 first = lowest_lane(mask);
    const u64 handle = warp.lane64(op.s[0], first);
    u32 same = 0;
    for (const u32 lane : lanes_of(mask)) {
      if (warp.lane64(op.s[0], lane) == handle) same |= u32{1} << lane;
    }
    mask = same;
    if (handle == 0 || handle >= program.functions.size() + 1 || handle == 1) {
      warp.cluster->report(FindingKind::kBounds, &warp, static_cast<int>(first), op.site,
                           fmt::format("call of 0x{:x}, which is no function", handle));
      return Step::kNext;
    }
    target = static_cast<u32>(handle - 1);
  }
  const u32 rest = group.mask & ~mask;
  if (rest != 0) {
    // Lanes that do not call, or call another function, go their own way and meet after the call.
    const auto depth = static_cast<u32>(group.frames.size());
    warp.convergences.push_back({group.pc + 1, depth, group.mask, 0});
    Group other = group;
    other.mask = rest;
    const bool repeats = op.s[0] != kNoRef;
    if (!repeats) ++other.pc;
    group.mask = mask;
    warp.groups.push_back(std::move(other));
    return Step::kSwitch;
  }
  const FunctionCode& callee = program.functions[target];
  if (group.frames.size() >= 512) {
    warp.cluster->report(FindingKind::kBounds, &warp, -1, op.site,
                         "calls are nested deeper than 512");
    return Step::kNext;
  }
  ensure_local(warp);
  const u32 caller_local = group.local_base;
  const u32 callee_local = (caller_local + group.function->local_bytes + 15) & ~15u;
  if (callee_local + callee.local_bytes > warp.local.lane_bytes) {
    warp.cluster->report(FindingKind::kBounds, &warp, -1, op.site,
                         "the local-memory stack overflows");
    return Step::kNext;
  }
  // The callee's variables are fresh in every call.
  const bool fresh = !warp.local.poison.empty() && callee.local_bytes != 0;
  for (const u32 lane : lanes_of(fresh ? mask : 0)) {
    std::memset(warp.local.poison.data() + static_cast<std::size_t>(lane) * warp.local.lane_bytes +
                    callee_local,
                1, callee.local_bytes);
  }
  const Ref* list = program.lists.data() + op.list;
  const u32 results = call.results;
  for (u32 i = results; i < op.list_count && i - results < callee.parameters.size(); ++i) {
    const ParameterPlace& p = callee.parameters[i - results];
    for (const u32 lane : lanes_of(mask)) {
      const std::size_t base = static_cast<std::size_t>(lane) * warp.local.lane_bytes;
      const std::size_t from = base + caller_local + list[i], to = base + callee_local + p.offset;
      if (from + p.bytes > warp.local.bytes.size()) continue;
      std::memmove(warp.local.bytes.data() + to, warp.local.bytes.data() + from, p.bytes);
      if (!warp.local.poison.empty())
        std::memmove(warp.local.poison.data() + to, warp.local.poison.data() + from, p.bytes);
    }
  }
  Frame frame{group.function,       group.pc + 1,     group.row_base,
              group.predicate_base, group.local_base, &op};
  const u32 row_base = group.row_base + group.function->rows;
  const u32 predicate_base = group.predicate_base + group.function->predicates;
  warp.enter_frame(callee, row_base, predicate_base, mask);
  // Lanes may return at different times; they meet after the call.
  warp.convergences.push_back({group.pc + 1, static_cast<u32>(group.frames.size()), group.mask, 0});
  group.frames.push_back(frame);
  group.function = &callee;
  group.row_base = row_base;
  group.predicate_base = predicate_base;
  group.local_base = callee_local;
  group.pc = 0;
  return Step::kJump;
}

Step execute_trap(Warp& warp, const Op& op, u32 mask) {
  warp.cluster->report(FindingKind::kBounds, &warp, __builtin_ctz(mask), op.site,
                       "trap: the kernel aborted itself");
  warp.machine->stop = true;
  return execute_exit(warp, op, mask);
}

// The failed assertion's text is in the module; the source line is in the finding.
Step execute_assertion(Warp& warp, const Op& op, u32 mask) {
  warp.cluster->report(FindingKind::kBounds, &warp, __builtin_ctz(mask), op.site,
                       "a device assertion failed");
  warp.machine->stop = true;
  return execute_exit(warp, op, mask);
}

// Prints nothing: standard output is for results.
Step execute_print(Warp& warp, const Op& op, const Call& call, u32 mask) {
  ensure_local(warp);
  const Ref* list = warp.machine->program.lists.data() + op.list;
  for (const u32 lane : lanes_of(call.results == 0 ? 0 : mask)) {
    const std::size_t at =
        static_cast<std::size_t>(lane) * warp.local.lane_bytes + warp.group->local_base + list[0];
    if (at + 4 > warp.local.bytes.size()) continue;
    std::memset(warp.local.bytes.data() + at, 0, 4);
    if (!warp.local.poison.empty()) std::memset(warp.local.poison.data() + at, 0, 4);
  }
  return Step::kNext;
}

bool decode_branch(Decoding& d) {
  d.take("uni");
  if (!d.expect(1, 1) || !d.done()) return false;
  if (!d.is(0, Operand::Kind::kSymbol)) return d.invalid("a label is needed");
  const Label* label = d.f.find_label(d.in.operands[0].symbol, d.in.scope);
  if (label == nullptr)
    return d.invalid(fmt::format("label {} is not defined", d.in.operands[0].symbol));
  Op& op = d.emit<execute_branch>();
  op.set(kOpBranches);
  d.f.want_label(d.f.code.ops.size() - 1, label->position);
  return true;
}

bool decode_branch_table(Decoding& d) {
  d.take("idx");
  d.take("uni");
  if (!d.expect(2, 2) || !d.done()) return false;
  const Ref index = d.source(0, 32);
  if (!d.is(1, Operand::Kind::kSymbol)) return d.invalid("a .branchtargets label is needed");
  for (const TargetTable& table : d.f.function.tables) {
    if (table.name != d.in.operands[1].symbol) continue;
    std::vector<u32> targets;
    for (const std::string_view name : table.targets) {
      const Label* label = d.f.find_label(name, d.in.scope);
      if (label == nullptr) return d.invalid(fmt::format("label {} is not defined", name));
      targets.push_back(label->position);
    }
    Op& op = d.emit<execute_branch_table>();
    op.s[0] = index;
    op.set(kOpTable);
    op.target = static_cast<u32>(d.f.builder.program->tables.size());
    d.f.builder.program->tables.push_back(std::move(targets));
    return true;
  }
  return d.invalid(fmt::format("table {} is not defined", d.in.operands[1].symbol));
}

bool decode_call(Decoding& d) {
  d.take("uni");
  if (!d.expect(4, 4) || !d.done()) return false;
  const Operand& target = d.in.operands[1];
  std::vector<Ref> places;
  Call call;
  Ref pointer = kNoRef;
  int index = 0;
  bool prints = false;
  if (target.kind == Operand::Kind::kSymbol) {
    if (target.symbol == "__assertfail") {
      d.f.reconverge_next();
      d.emit<execute_assertion>();
      return true;
    }
    prints = target.symbol == "vprintf";
    if (target.symbol == "malloc" || target.symbol == "free") {
      return d.unsupported(fmt::format("the device run-time's {} is not modelled", target.symbol));
    }
    index = prints ? 0 : d.f.builder.function_index(target.symbol);
    if (index < 0)
      return d.unsupported(fmt::format("function {} has no body in this module", target.symbol));
    if (index == 0 && !prints && d.f.builder.root_is_kernel())
      return d.invalid("a kernel cannot be called");
  } else {
    pointer = d.source(target, 64);
  }
  for (const int list : {0, 2}) {
    for (const Operand& operand : d.in.operands[static_cast<std::size_t>(list)].parts) {
      if (operand.kind != Operand::Kind::kSymbol)
        return d.unsupported("arguments in registers are not modelled: use .param variables");
      const VariablePlace* place = d.f.find_variable(operand.symbol, d.in.scope);
      if (place == nullptr || place->space != Space::kLocal)
        return d.invalid(fmt::format("{} is not a .param variable", operand.symbol));
      places.push_back(static_cast<Ref>(place->offset));
      if (list == 0) ++call.results;
    }
  }
  const u32 list = d.list(places);
  Op& op = prints ? d.emit<execute_print>(call) : d.emit<execute_call>(call);
  op.target = static_cast<u32>(index);
  op.s[0] = pointer;
  op.list = list;
  op.list_count = static_cast<u32>(places.size());
  // What follows a call is where its lanes meet again.
  d.f.reconverge_next();
  return true;
}

template <auto f>
bool decode_ends(Decoding& d) {
  d.take("uni");
  if (!d.expect(0, 0) || !d.done()) return false;
  d.emit<f>().set(kOpEnds);
  return true;
}

bool decode_nothing(Decoding& d) {
  if (!d.expect(0, 2) || !d.done()) return false;
  d.emit<execute_nothing>();
  return true;
}

}  // namespace

void add_control(InstructionTable& table) {
  table.add({"bra", "", "control", ".uni", "9.7.12.4", decode_branch});
  table.add(
      {"brx", ".idx", "control", ".idx with .branchtargets", "9.7.12.5", decode_branch_table});
  table.add({"call", "", "control",
             ".uni; direct, and indirect through a register; arguments in .param", "9.7.12.6",
             decode_call});
  table.add({"ret", "", "control", ".uni", "9.7.12.7", decode_ends<execute_return>});
  table.add({"exit", "", "control", "", "9.7.12.8", decode_ends<execute_exit>});
  table.add({"trap", "", "control", "a finding", "9.7.20.4", decode_ends<execute_trap>});
  table.add({"brkpt", "", "control", "no effect", "9.7.20.1", decode_nothing});
  table.add({"pmevent", "", "control", "no effect", "9.7.20.3", [](Decoding& d) {
               d.take("mask");
               return decode_nothing(d);
             }});
}

}  // namespace attnjit::emulator
