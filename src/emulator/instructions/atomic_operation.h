// SPDX-License-Identifier: Apache-2.0
// The operations of atom, red and of bulk reductions, on one element.
//
// Thread rules: apply_atomic is pure; AtomicLock serialises the host threads that run CTAs.
#pragma once

#include "emulator/integers.h"
#include "emulator/ptx/ast.h"

namespace attnjit::emulator {

class Decoding;

enum class AtomicOperation : u8 {
  kAdd,
  kMin,
  kMax,
  kInc,
  kDec,
  kAnd,
  kOr,
  kXor,
  kExchange,
  kCompareExchange
};

/// a: in memory; b: the operand; c: compare-exchange's new value. Values zero-extended.
u64 apply_atomic(AtomicOperation operation, Type type, u64 a, u64 b, u64 c);

class AtomicLock {
 public:
  void lock();
  void unlock();
};

bool take_atomic_operation(Decoding& d, AtomicOperation* operation);
bool check_atomic_type(Decoding& d, AtomicOperation operation, Type type);

}  // namespace attnjit::emulator
