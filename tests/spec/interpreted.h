// SPDX-License-Identifier: Apache-2.0
// Expressions compiled to stack code, and interpreted by templates/common/interpreter.cuh, which
// this file compiles for the host.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "printed_shim.h"
#include "spec/expression_ranges.h"
#include "spec/spec_fields.h"
#include "spec/stack_code.h"

namespace attnjit {

using u32 = unsigned;
using i64 = long long;

struct Coord {
  int b, h, kv_h, q_idx, kv_idx, q_len, kv_len;
  int q_row() const {
    return static_cast<int>(static_cast<u32>(q_idx) - static_cast<u32>(kv_len) +
                            static_cast<u32>(q_len));
  }
};

inline float __uint_as_float(u32 bits) { return std::bit_cast<float>(bits); }
inline u32 __float_as_uint(float value) { return std::bit_cast<u32>(value); }

using spec::shim::expr_abs, spec::shim::expr_min, spec::shim::expr_max, spec::shim::expr_shl,
    spec::shim::expr_shr, spec::shim::expr_div, spec::shim::expr_mod;
#define ATTNJIT_USING(title, name, ...) using spec::shim::expr_##name;
ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_USING, ATTNJIT_USING)
#undef ATTNJIT_USING
inline float expr_div(float a, float b) { return a / b; }
inline float expr_fma(float a, float b, float c) { return std::fma(a, b, c); }

}  // namespace attnjit

#define ATTNJIT_INTERPRETER_ON_HOST
#define ATTNJIT_FUNCTION inline
#include "../../templates/common/stack_arrays.cuh"

// NOTE: it names what that file has.
#include "../../templates/common/interpreted_ranges.cuh"

#include "../../templates/common/interpreter.cuh"

namespace attnjit::spec {

/// A tile whose arrays are known, as a warp that makes a map knows them
/// (templates/maps/warp_tile.cuh).
struct KnownTile : TileCoord {};

/// Of the elements made(i) of a range, as far as there are few of them.
template <class Make>
auto hull_of_few(IntRange i, const Make& made) {
  auto all = made(i.lo);
  if (std::int64_t{i.hi} - i.lo >= kMostElements)
    return decltype(all)(any_like(decltype(all.lo){}));
  for (std::int64_t n = std::int64_t{i.lo} + 1; n <= i.hi; ++n) {
    all = hull(all, made(static_cast<int>(n)));
  }
  return all;
}
template <class Array>
auto range_element(const KnownTile&, const Array& array, IntRange i, IntRange j, IntRange k) {
  return hull_of_few(i, [&](int n) {
    return hull_of_few(j, [&](int m) {
      return hull_of_few(k, [&](int l) { return range_of(cube_at(array, n, m, l)); });
    });
  });
}

/// An expression as a kernel interprets it.
class Interpreted {
 public:
  /// @pre compile_stack_code takes the expression. @param q_offsets of a ragged batch
  Interpreted(const Expression& expression, std::vector<ParamView> params,
              const std::vector<std::int32_t>& q_offsets = {}) {
    params.resize(expression.params.size());
    const bool mask = expression.kind == SnippetKind::kMask;
    program_ = *compile_stack_code(mask ? &expression : nullptr, mask ? nullptr : &expression,
                                   params, static_cast<std::int32_t>(q_offsets.size()));
    for (std::size_t i = 0; i < program_.arrays.size(); ++i) {
      const std::uint32_t param = program_.arrays[i];
      if (param == StackProgram::kQOffsets) {
        words_.emplace_back(q_offsets.begin(), q_offsets.end());
        continue;
      }
      words_.push_back(words_of(expression.params[param].type, params[param]));
    }
    for (std::size_t i = 0; i < words_.size(); ++i) arrays_.address[i] = words_[i].data();
  }

  /// Whether compile_stack_code takes an expression.
  static bool takes(const Expression& mask, std::vector<ParamView> params) {
    params.resize(mask.params.size());
    return static_cast<bool>(compile_stack_code(&mask, nullptr, params));
  }

  /// What a mask's code says of a tile.
  TileStatus status(const ScoreTile& tile, ArrayRanges arrays = ArrayRanges::kUnknown) const {
    const auto range = [](const CoordRange& of) { return IntRange{of.lo, of.hi}; };
    const KnownTile known{{tile.b, tile.kv_h, range(tile.h), range(tile.q_idx), range(tile.kv_idx),
                           tile.q_len, tile.kv_len}};
    const TileCoord& unknown = known;
    const IntRange said = arrays == ArrayRanges::kKnown
                              ? interpret_ranges(program_.code, arrays_, known)
                              : interpret_ranges(program_.code, arrays_, unknown);
    return {said.hi != 0, said.lo == 0};
  }

  bool visible(const Coordinates& at) const { return run(0, program_.code.mask_end, at, 0) != 0; }
  float score(const Coordinates& at, float score) const {
    return std::bit_cast<float>(run(program_.code.mask_end, program_.code.score_end, at, score));
  }

 private:
  // NOTE: a copy: elements are read as words, or as halves of words, whatever they are.
  static std::vector<u32> words_of(ParamSpec::Type type, const ParamView& view) {
    const ParamShape shape = shape_of(type);
    const std::int64_t count =
        (shape.rank == 3 ? view.planes : 1) * view.rows * (shape.rank >= 2 ? view.columns : 1);
    std::vector<u32> words(static_cast<std::size_t>(count) + 1);
    const bool bf16 = shape.element == Dtype::kBf16;
    const void* const data = bf16 ? static_cast<const void*>(view.bf16_data)
                             : shape.element == Dtype::kF32
                                 ? static_cast<const void*>(view.f32_data)
                                 : view.i32_data;
    if (count > 0)
      std::memcpy(words.data(), data, static_cast<std::size_t>(count) * (bf16 ? 2 : 4));
    return words;
  }

  /// NOTE: the lanes stand at different keys; the one that is asked about is among them.
  u32 run(int begin, int end, const Coordinates& at, float score) const {
    constexpr int kLane = 2;
    float scores[kLanes];
    u32 values[kLanes] = {};
    for (int i = 0; i < kLanes; ++i) scores[i] = score + static_cast<float>(i - kLane);
    int keys[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      keys[i] = static_cast<int>(static_cast<u32>(at.kv_idx) + static_cast<u32>(i - kLane));
    }
    const ::attnjit::Coord place{at.b, at.h, at.kv_h, at.q_idx, at.kv_idx, at.q_len, at.kv_len};
    interpret(program_.code, begin, end, arrays_, RowCoords(place), keys, scores, values);
    return values[kLane];
  }

  StackProgram program_;
  std::vector<std::vector<u32>> words_;
  StackArrays arrays_ = {};
};

}  // namespace attnjit::spec
