// SPDX-License-Identifier: Apache-2.0
// Score modifications as types, for every architecture's template.
//
// A modification M has prepare(head, num_q_heads, p): what is the same for a head's scores,
// computed once, and apply(state, score, c, p): the score after it, natural, or where kExponents is
// true an exponent of 2. Where kIdentity is true, that is the score itself; where kReads is true, M
// reads a number of memory for each score; and where kInterprets is true, it is interpreted
// (common/interpreter.cuh): it is asked about many scores at one place of the kernel.
#pragma once

#include "common/expression.cuh"
#include "common/mask_tensor.cuh"

namespace attnjit {

struct NoState {};

/// What makes exponents of 2 of the scores that a modification gives. NOTE: what users give may be
/// far from 0, as -1e10 for a key that is not to count. The fused product and difference that
/// follow would leave a residue of such an origin's rounding, which 2^x makes infinite; so these
/// modifications multiply, and the difference of two equal scores is 0.
template <class ScoreMod>
constexpr float exponent_factor() {
  return ScoreMod::kExponents ? 1.0f : kLog2e;
}

/// What a modification is that says nothing else.
struct NaturalScoreMod {
  static constexpr bool kIdentity = false;
  static constexpr bool kExponents = false;
  static constexpr bool kReads = false;
  static constexpr bool kInterprets = false;
};

/// Shared by modifications for which nothing of a head is computed.
struct Stateless : NaturalScoreMod {
  using State = NoState;

  template <class Params>
  ATTNJIT_DEVICE static State prepare(int, int, const Params&) {
    return {};
  }
};

/// The score as it is.
struct IdentityScoreMod : Stateless {
  static constexpr bool kIdentity = true;

  template <class Params>
  ATTNJIT_DEVICE static float apply(const State&, float score, const Coord&, const Params&) {
    return score;
  }
};

/// The slope of a head (Press et al., "Train Short, Test Long", 2022): 2^(-8(h+1)/n) for n heads, n
/// a power of two; the heads past the largest such n take every other slope of 2n heads.
ATTNJIT_DEVICE float alibi_slope(int head, int num_q_heads) {
  const int floor_log2 = 31 - __clz(num_q_heads);
  const int power = 1 << floor_log2;
  const float exponent =
      head < power ? -8.0f * static_cast<float>(head + 1) / static_cast<float>(power)
                   : -4.0f * static_cast<float>(2 * (head - power) + 1) / static_cast<float>(power);
  return exp2f(exponent);
}

/// score - slope[h] * |q_idx - kv_idx|.
struct AlibiScoreMod : NaturalScoreMod {
  struct State {
    float slope;
  };

  template <class Params>
  ATTNJIT_DEVICE static State prepare(int head, int num_q_heads, const Params&) {
    return {alibi_slope(head, num_q_heads)};
  }
  template <class Params>
  ATTNJIT_DEVICE static float apply(const State& state, float score, const Coord& c,
                                    const Params&) {
    return score - state.slope * fabsf(static_cast<float>(c.q_idx - c.kv_idx));
  }
};

/// The same with slopes that the launch is given. kSlopes: a pointer to a member of Params.
template <auto kSlopes>
struct AlibiSlopesScoreMod : AlibiScoreMod {
  template <class Params>
  ATTNJIT_DEVICE static State prepare(int head, int, const Params& p) {
    return {(p.*kSlopes)[head]};
  }
};

/// Inner, and what the tensor of a mask adds. -inf hides. What is added for keys that the sequence
/// has not is of the last one: the mask hides them.
template <class Inner, class Tensor>
struct AddedScoreMod : NaturalScoreMod {
  static constexpr bool kExponents = true;
  static constexpr bool kReads = true;
  using State = typename Inner::State;

  template <class Params>
  ATTNJIT_DEVICE static State prepare(int head, int num_q_heads, const Params& p) {
    return Inner::prepare(head, num_q_heads, p);
  }
  template <class Params>
  ATTNJIT_DEVICE static float apply(const State& state, float score, const Coord& c,
                                    const Params& p) {
    return apply_reading(state, score, c, min(c.kv_idx, c.kv_len - 1), p);
  }
  /// The same, where it is known that there is a key to read at.
  template <class Params>
  ATTNJIT_DEVICE static float apply_reading(const State& state, float score, const Coord& c,
                                            int kv_idx, const Params& p) {
    const float inner = Inner::apply(state, score, c, p) * exponent_factor<Inner>();
    return fmaf(Tensor::added(c, kv_idx, p), kLog2e, inner);
  }
};

/// cap * tanh(score / cap). kCap: a constant, or a pointer to a member of Params.
template <auto kCap>
struct SoftcapScoreMod : NaturalScoreMod {
  struct State {
    float cap, twice_log2e_over_cap;
  };

  template <class Params>
  ATTNJIT_DEVICE static State prepare(int, int, const Params& p) {
    const float cap = scalar_value<kCap>(p);
    return {cap, 2.0f * kLog2e / cap};
  }
  /// tanh(x) = 1 - 2 / (1 + e^2x): within 3e-7 of it everywhere, where tanh.approx (2^-11 relative)
  /// is too coarse for fp16. A large x gives e^2x = inf and 1, a large negative one 0 and -1.
  template <class Params>
  ATTNJIT_DEVICE static float apply(const State& state, float score, const Coord&, const Params&) {
    const float e = exp2_approx(score * state.twice_log2e_over_cap);
    return fmaf(-2.0f * state.cap, reciprocal_approx(1.0f + e), state.cap);
  }
};

/// A user's modification: User::apply(score, c, p).
template <class User>
struct CustomScoreMod : Stateless {
  static constexpr bool kExponents = true;

  template <class Params>
  ATTNJIT_DEVICE static float apply(const State&, float score, const Coord& c, const Params& p) {
    return User::apply(score, c, p) * kLog2e;
  }
};

}  // namespace attnjit
