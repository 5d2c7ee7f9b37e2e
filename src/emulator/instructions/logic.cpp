// SPDX-License-Identifier: Apache-2.0
// Logic on registers and predicates, shifts and permutations.
#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/arithmetic.h"
#include "emulator/machine/machine.h"

namespace attnjit::emulator {
namespace {

bool decode_shift(Decoding& d, LaneOp op_kind) {
  LaneRequest r;
  r.op = op_kind;
  r.type = d.take_type();
  const int bits = bits_of(r.type);
  if (bits != 16 && bits != 32 && bits != 64)
    return d.unsupported("shifts are of 16, 32 or 64 bits");
  if (!d.expect(3, 3) || !d.done()) return false;
  const Ref a = d.source(1, bits), b = d.source(2, 32), to = d.destination(0, bits);
  if (d.failed()) return false;
  d.alu(select_lane(r), to, bits, {a, b});
  return !d.failed();
}

bool decode_funnel(Decoding& d) {
  const int direction = d.take_any({"l", "r"});
  const int kind = d.take_any({"wrap", "clamp"});
  if (direction < 0 || kind < 0) return d.invalid(".l or .r and .wrap or .clamp are needed");
  LaneRequest r;
  r.op = direction == 0 ? (kind == 0 ? LaneOp::kShfLeftWrap : LaneOp::kShfLeftClamp)
                        : (kind == 0 ? LaneOp::kShfRightWrap : LaneOp::kShfRightClamp);
  if (bits_of(d.take_type()) != 32) return d.unsupported("shf is of .b32");
  if (!d.expect(4, 4) || !d.done()) return false;
  const Ref a = d.source(1, 32), b = d.source(2, 32), c = d.source(3, 32),
            to = d.destination(0, 32);
  if (d.failed()) return false;
  d.alu(select_lane(r), to, 32, {a, b, c});
  return true;
}

struct Lop3Predicate {
  bool ors = false;  ///< or ands
};

// s[0]: the result, s[1]: q
Step execute_lop3_predicate(Warp& warp, const Op& op, const Lop3Predicate& with, u32 mask) {
  u32 nonzero = 0;
  for (u32 lane = 0; lane < 32; ++lane)
    if (warp.lane32(op.s[0], lane) != 0) nonzero |= u32{1} << lane;
  const u32 q = warp.predicate(op.s[1]);
  warp.set_predicate(op.d, with.ors ? nonzero | q : nonzero & q, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]) | warp.poison_of(op.s[1]), mask, op.site);
  return Step::kNext;
}

bool decode_lop3(Decoding& d) {
  // lop3.BoolOp d|p, a, b, c, table, q: p = (d != 0) BoolOp q.
  const int combines = d.take_any({"and", "or"});
  if (bits_of(d.take_type()) != 32) return d.unsupported("lop3 is of .b32");
  u64 table = 0;
  const std::size_t operands = combines < 0 ? 5 : 6;
  if (!d.expect(operands, operands) || !d.done() || !d.immediate(4, &table)) return false;
  const Ref a = d.source(1, 32), b = d.source(2, 32), c = d.source(3, 32);
  if (combines < 0) {
    const Ref to = d.destination(0, 32);
    if (d.failed()) return false;
    d.alu(select_lane({LaneOp::kLop3}), to, 32, {a, b, c}, {table & 0xFF});
    return true;
  }
  const Operand& pair = d.in.operands[0];
  if (pair.kind != Operand::Kind::kPair) return d.invalid("two destinations d|p are needed");
  Ref to = d.destination(pair.parts[0], 32);
  const Ref predicate = d.destination(pair.parts[1], 1), q = d.source(5, 1);
  if (d.failed()) return false;
  if (to == kNoRef) to = d.f.scratch(1);
  d.alu(select_lane({LaneOp::kLop3}), to, 32, {a, b, c}, {table & 0xFF});
  Op& op = d.emit<execute_lop3_predicate>({combines == 1});
  op.d = predicate == kNoRef ? d.f.scratch_predicate() : predicate;
  op.d_rows = 0;
  op.s[0] = to;
  op.s[1] = q;
  return true;
}

bool decode_prmt(Decoding& d) {
  if (bits_of(d.take_type()) != 32) return d.unsupported("prmt is of .b32");
  const int mode = 1 + d.take_any({"f4e", "b4e", "rc8", "ecl", "ecr", "rc16"});
  if (!d.expect(4, 4) || !d.done()) return false;
  const Ref a = d.source(1, 32), b = d.source(2, 32), c = d.source(3, 32),
            to = d.destination(0, 32);
  if (d.failed()) return false;
  d.alu(select_lane({LaneOp::kPrmt}), to, 32, {a, b, c}, {static_cast<u64>(mode)});
  return true;
}

// Logic on registers or predicates.
enum class Logic : u8 { kAnd, kOr, kXor, kNot };

template <Logic logic>
Step execute_predicate_logic(Warp& warp, const Op& op, u32 mask) {
  const u32 a = warp.predicate(op.s[0]);
  const u32 b = op.s[1] == kNoRef ? 0 : warp.predicate(op.s[1]);
  const u32 r = logic == Logic::kAnd   ? a & b
                : logic == Logic::kOr  ? a | b
                : logic == Logic::kXor ? a ^ b
                                       : ~a;
  warp.set_predicate(op.d, r, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]) | warp.poison_of(op.s[1]), mask, 0);
  return Step::kNext;
}

template <LaneOp Operation, Logic logic>
bool decode_logic(Decoding& d) {
  const std::size_t sources = logic == Logic::kNot ? 1 : 2;
  if (!d.has("pred")) return decode_simple(d, {Operation, sources, true});
  d.take("pred");
  if (!d.expect(sources + 1, sources + 1) || !d.done()) return false;
  const Ref a = d.source(1, 1), b = sources == 2 ? d.source(2, 1) : kNoRef;
  Ref to = d.destination(0, 1);
  if (to == kNoRef) to = d.f.scratch_predicate();
  if (d.failed()) return false;
  Op& op = d.emit<execute_predicate_logic<logic>>();
  op.d = to;
  op.d_rows = 0;
  op.s[0] = a;
  op.s[1] = b;
  return true;
}

}  // namespace

void add_logic(InstructionTable& t) {
  t.add({"and", "", "logic", ".b16 .b32 .b64 .pred", "9.7.8.1",
         decode_logic<LaneOp::kAnd, Logic::kAnd>});
  t.add({"or", "", "logic", ".b16 .b32 .b64 .pred", "9.7.8.2",
         decode_logic<LaneOp::kOr, Logic::kOr>});
  t.add({"xor", "", "logic", ".b16 .b32 .b64 .pred", "9.7.8.3",
         decode_logic<LaneOp::kXor, Logic::kXor>});
  t.add({"not", "", "logic", ".b16 .b32 .b64 .pred", "9.7.8.4",
         decode_logic<LaneOp::kNot, Logic::kNot>});
  t.add({"cnot", "", "logic", ".b16 .b32 .b64", "9.7.8.5", simple<LaneOp::kCnot, 1, true>});
  t.add({"lop3", "", "logic", ".b32; .and .or with predicates", "9.7.8.6", decode_lop3});
  t.add({"shf", "", "logic", ".l .r .wrap .clamp", "9.7.8.7", decode_funnel});
  t.add({"shl", "", "logic", "", "9.7.8.8",
         [](Decoding& d) { return decode_shift(d, LaneOp::kShl); }});
  t.add({"shr", "", "logic", "", "9.7.8.9",
         [](Decoding& d) { return decode_shift(d, LaneOp::kShr); }});
  t.add({"prmt", "", "logic", "all modes", "9.7.9.7", decode_prmt});
}

}  // namespace attnjit::emulator
