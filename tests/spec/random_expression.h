// SPDX-License-Identifier: Apache-2.0
// Random expressions of the snippet language, with a meaning of their own: each is a tree that
// prints itself with no more brackets than C needs and evaluates itself, knowing nothing of the
// parser and evaluator that it tests.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "spec/expression.h"

namespace attnjit::spec::random {

/// Where a sequence begins in a batch that is not ragged.
inline std::int32_t first_row(std::int32_t b, std::int32_t q_len) {
  return static_cast<std::int32_t>(static_cast<std::uint32_t>(b) *
                                   static_cast<std::uint32_t>(q_len));
}

/// What the parameters of every random expression hold.
struct Params {
  std::int32_t w = 5;
  float x = 0.75F;
  std::vector<std::int32_t> doc{3, -1, 4, 1, -5, 9, 2, 6};
  std::vector<float> bias{0.5F, -0.25F, 1.5F, 1e20F, -3.0F};
  std::vector<std::int32_t> table{1, 0, -2, 7, 2147483647, 5};  // 2 x 3
  std::uint32_t u = 0x80000005U;
  std::vector<std::int32_t> words{5, -1, 0x40000000, 0};              // u32
  std::vector<std::int32_t> path{1, 3, -2147483647 - 1, 7, -1, 9};    // u32, 3 x 2
  std::vector<float> grid{0.5F, 2.5F, -1.0F, 1e9F};                   // 2 x 2
  std::vector<std::uint16_t> half{0x3fc0, 0xbf00, 0x4120};            // bf16: 1.5, -0.5, 10
  std::vector<std::uint16_t> halves{0x3f80, 0xc000, 0x0000, 0x4780};  // 2 x 2: 1, -2, 0, 65536
  std::vector<std::int32_t> cube{1, 2, 3, 4, 5, 6, 7, -8};            // 2 x 2 x 2

  static std::vector<ParamSpec> declared() {
    using Type = ParamSpec::Type;
    return {{"w", Type::kI32},
            {"x", Type::kF32},
            {"doc", Type::kI32Array},
            {"bias", Type::kF32Array},
            {"table", Type::kI32Matrix},
            {"u", Type::kU32},
            {"words", Type::kU32Array},
            {"path", Type::kU32Matrix},
            {"grid", Type::kF32Matrix},
            {"half", Type::kBf16Array},
            {"halves", Type::kBf16Matrix},
            {"cube", Type::kI32Cube}};
  }
  std::vector<ParamView> views() const {
    std::vector<ParamView> made(12);
    made[0].i32 = w;
    made[1].f32 = x;
    made[2].i32_data = doc.data();
    made[2].rows = static_cast<std::int64_t>(doc.size());
    made[3].f32_data = bias.data();
    made[3].rows = static_cast<std::int64_t>(bias.size());
    made[4].i32_data = table.data();
    made[4].rows = 2;
    made[4].columns = 3;
    made[5].i32 = static_cast<std::int32_t>(u);
    made[6].i32_data = words.data();
    made[6].rows = static_cast<std::int64_t>(words.size());
    made[7].i32_data = path.data();
    made[7].rows = 3;
    made[8].f32_data = grid.data();
    made[9].bf16_data = half.data();
    made[9].rows = static_cast<std::int64_t>(half.size());
    made[10].bf16_data = halves.data();
    made[11].i32_data = cube.data();
    made[11].planes = 2;
    for (const int n : {8, 10, 11}) made[n].rows = 2;
    for (const int n : {7, 8, 10, 11}) made[n].columns = 2;
    return made;
  }
};

enum class Type { kBool, kInt, kUint, kFloat };  // in the order of conversion

struct Value {
  Type type = Type::kInt;
  std::int32_t i = 0;  // or the bits of a kUint
  float f = 0;

  /// The number that an integer is.
  std::int64_t wide() const { return type == Type::kUint ? bits() : std::int64_t{i}; }
  std::int64_t bits() const { return std::int64_t{static_cast<std::uint32_t>(i)}; }
};

inline Value of_bool(bool b) { return {Type::kBool, b ? 1 : 0, 0}; }
inline Value of_int(std::int64_t wide) {
  return {Type::kInt, static_cast<std::int32_t>(static_cast<std::uint32_t>(wide)), 0};
}
inline Value of_uint(std::uint64_t wide) {
  return {Type::kUint, static_cast<std::int32_t>(static_cast<std::uint32_t>(wide)), 0};
}
inline Value of_float(double f) { return {Type::kFloat, 0, static_cast<float>(f)}; }

inline float as_float(const Value& v) {
  return v.type == Type::kFloat ? v.f : static_cast<float>(v.wide());
}
inline bool as_bool(const Value& v) { return v.type == Type::kFloat ? v.f != 0 : v.i != 0; }
inline std::int32_t as_int(const Value& v) {
  if (v.type != Type::kFloat) return v.i;
  if (std::isnan(v.f)) return 0;
  if (v.f >= 2147483648.0F) return std::numeric_limits<std::int32_t>::max();
  if (v.f < -2147483648.0F) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(v.f);
}

inline Value as_uint(const Value& v) {
  if (v.type != Type::kFloat) return of_uint(static_cast<std::uint32_t>(v.i));
  if (!(v.f > 0)) return of_uint(0);
  return of_uint(v.f >= 4294967296.0F ? 0xffffffffU : static_cast<std::uint64_t>(v.f));
}
/// An element of an array that `extents` describe: its place, or nothing outside.
inline std::optional<std::size_t> place_in(std::initializer_list<std::int64_t> extents,
                                           const std::vector<Value>& indices) {
  std::size_t place = 0, axis = 0;
  for (const std::int64_t extent : extents) {
    const std::int64_t index = indices[axis++].i;
    if (index < 0 || index >= extent) return std::nullopt;
    place = place * static_cast<std::size_t>(extent) + static_cast<std::size_t>(index);
  }
  return place;
}

/// One node: how it prints, how tightly it binds, what it means.
struct Node {
  std::string name;     // an operator's sign, a function, a cast's type, or a leaf's text
  int precedence = 12;  // C's, 12 for what needs no brackets, 11 for prefixes, 0 for ?:
  Type type = Type::kInt;
  std::vector<std::unique_ptr<Node>> args;

  std::string text(int at_least = 0) const {
    std::string made = bare();
    return precedence < at_least ? "(" + made + ")" : made;
  }

  Value value(const Coordinates& c, const Params& p) const;

 private:
  std::string bare() const {
    switch (precedence) {
      case 12:
        if (args.empty()) return name;
        if (name.starts_with("p.")) {
          std::string made = name;
          for (const auto& arg : args) made += "[" + arg->text() + "]";
          return made;
        }
        {
          std::string made = name + "(" + args[0]->text();
          for (std::size_t i = 1; i < args.size(); ++i) made += ", " + args[i]->text();
          return made + ")";
        }
      case 11: {
        // NOTE: `- -x`, since C reads `--x` otherwise.
        const std::string operand = args[0]->text(11);
        const bool space = (name == "-" && operand[0] == '-') || (name == "+" && operand[0] == '+');
        return name + (space ? " " : "") + operand;
      }
      case 0:
        return args[0]->text(1) + " ? " + args[1]->text() + " : " + args[2]->text();
      default: {
        // Comparisons of one precedence do not chain in this language.
        const bool comparison = precedence == 6 || precedence == 7;
        return args[0]->text(comparison ? precedence + 1 : precedence) + " " + name + " " +
               args[1]->text(precedence + 1);
      }
    }
  }
};

inline Value Node::value(const Coordinates& c, const Params& p) const {
  if (args.empty()) {
    if (name == "true" || name == "false") return of_bool(name == "true");
    if (name == "b") return of_int(c.b);
    if (name == "h") return of_int(c.h);
    if (name == "kv_h") return of_int(c.kv_h);
    if (name == "q_idx") return of_int(c.q_idx);
    if (name == "q_row") return of_int(std::int64_t{c.q_idx} - c.kv_len + c.q_len);
    if (name == "total_row") {
      return of_int(std::int64_t{c.q_idx} - c.kv_len + c.q_len + c.first_row);
    }
    if (name == "kv_idx") return of_int(c.kv_idx);
    if (name == "q_len") return of_int(c.q_len);
    if (name == "kv_len") return of_int(c.kv_len);
    if (name == "p.w") return of_int(p.w);
    if (name == "p.u") return of_uint(p.u);
    if (name == "p.x") return of_float(static_cast<double>(p.x));
    if (type == Type::kFloat)
      return of_float(static_cast<double>(std::strtof(name.c_str(), nullptr)));
    return of_int(std::stoll(name, nullptr, 0));
  }
  std::vector<Value> v;
  for (const auto& arg : args) v.push_back(arg->value(c, p));
  const Value& a = v[0];
  const bool real = a.type == Type::kFloat || (v.size() > 1 && v[1].type == Type::kFloat);
  const bool natural =
      !real && (a.type == Type::kUint || (v.size() > 1 && v[1].type == Type::kUint));
  const auto integer = [&](std::int64_t wide) {
    return natural ? of_uint(static_cast<std::uint64_t>(wide)) : of_int(wide);
  };
  if (precedence == 0) {
    const Value& chosen = as_bool(a) ? v[1] : v[2];
    if (type == Type::kFloat) return of_float(static_cast<double>(as_float(chosen)));
    if (type == Type::kUint) return as_uint(chosen);
    return type == Type::kInt ? of_int(as_int(chosen)) : chosen;
  }
  if (precedence == 11) {
    if (name == "(int)") return of_int(as_int(a));
    if (name == "(u32)") return as_uint(a);
    if (name == "(float)") return of_float(static_cast<double>(as_float(a)));
    if (name == "(bool)") return of_bool(as_bool(a));
    if (name == "!") return of_bool(!as_bool(a));
    if (name == "~") return integer(~static_cast<std::int64_t>(a.i));
    if (real) return of_float(static_cast<double>(name == "-" ? -a.f : a.f));
    return integer(name == "-" ? -static_cast<std::int64_t>(a.i) : a.i);
  }
  if (precedence == 12) {
    const auto ints = [&](const std::vector<std::int32_t>& data,
                          std::initializer_list<std::int64_t> extents) {
      const auto place = place_in(extents, v);
      return place ? data[*place] : 0;
    };
    const auto halves = [&](const std::vector<std::uint16_t>& data,
                            std::initializer_list<std::int64_t> extents) {
      const auto place = place_in(extents, v);
      const auto bits = static_cast<std::uint32_t>(place ? data[*place] : 0) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof value);
      return of_float(static_cast<double>(value));
    };
    if (name == "p.doc") return of_int(ints(p.doc, {8}));
    if (name == "p.table") return of_int(ints(p.table, {2, 3}));
    if (name == "p.cube") return of_int(ints(p.cube, {2, 2, 2}));
    if (name == "p.words") return of_uint(static_cast<std::uint32_t>(ints(p.words, {4})));
    if (name == "p.path") return of_uint(static_cast<std::uint32_t>(ints(p.path, {3, 2})));
    if (name == "p.half") return halves(p.half, {3});
    if (name == "p.halves") return halves(p.halves, {2, 2});
    if (name == "p.bias" || name == "p.grid") {
      const auto place = name == "p.bias" ? place_in({5}, v) : place_in({2, 2}, v);
      const std::vector<float>& data = name == "p.bias" ? p.bias : p.grid;
      return of_float(place ? static_cast<double>(data[*place]) : 0.0);
    }
    if (name == "int") return of_int(as_int(a));
    if (name == "u32") return as_uint(a);
    const bool two = v.size() > 1;
    if (name == "min" && real) return of_float(std::fmin(as_float(a), as_float(v[1])));
    if (name == "max" && real) return of_float(std::fmax(as_float(a), as_float(v[1])));
    if (natural && two) {
      const auto x = static_cast<std::uint32_t>(a.i), y = static_cast<std::uint32_t>(v[1].i);
      if (name == "min") return of_uint(std::min(x, y));
      if (name == "max") return of_uint(std::max(x, y));
    }
    if (name == "min" && !real) return of_int(std::min(a.i, v[1].i));
    if (name == "max" && !real) return of_int(std::max(a.i, v[1].i));
    if (name == "abs" && !real) return integer(std::abs(a.wide()));
    const auto x = static_cast<double>(as_float(a));
    const double y = two ? static_cast<double>(as_float(v[1])) : 0;
    if (name == "abs" || name == "fabs") return of_float(std::fabs(x));
    if (name == "floorf") return of_float(std::floor(x));
    if (name == "ceil") return of_float(std::ceil(x));
    if (name == "round") return of_float(std::round(x));
    if (name == "trunc") return of_float(std::trunc(x));
    if (name == "sqrt") return of_float(std::sqrt(x));
    if (name == "exp2") return of_float(std::exp2(x));
    if (name == "fmod") return of_float(std::fmod(x, y));
    return of_float(std::fmax(x, y));  // fmaxf
  }
  const Value& b = v[1];
  if (name == "&&") return of_bool(as_bool(a) && as_bool(b));
  if (name == "||") return of_bool(as_bool(a) || as_bool(b));
  if (real) {
    const float x = as_float(a);
    const float y = as_float(b);
    if (name == "<") return of_bool(x < y);
    if (name == "<=") return of_bool(x <= y);
    if (name == ">") return of_bool(x > y);
    if (name == ">=") return of_bool(x >= y);
    if (name == "==") return of_bool(x == y);
    if (name == "!=") return of_bool(x != y);
    if (name == "+") return of_float(static_cast<double>(x + y));
    if (name == "-") return of_float(static_cast<double>(x - y));
    if (name == "*") return of_float(static_cast<double>(x * y));
    return of_float(static_cast<double>(x / y));
  }
  if (name == "<<" || name == ">>") {
    // Of the left operand's type, whatever counts.
    const int count = b.i & 31;
    if (a.type == Type::kUint) {
      const auto bits = static_cast<std::uint64_t>(static_cast<std::uint32_t>(a.i));
      return of_uint(name == "<<" ? bits << count : bits >> count);
    }
    const std::int64_t signed_bits = a.i;
    return of_int(name == "<<" ? signed_bits << count : signed_bits >> count);
  }
  const std::int64_t x = natural ? a.bits() : std::int64_t{a.i};
  const std::int64_t y = natural ? b.bits() : std::int64_t{b.i};
  if (name == "<") return of_bool(x < y);
  if (name == "<=") return of_bool(x <= y);
  if (name == ">") return of_bool(x > y);
  if (name == ">=") return of_bool(x >= y);
  if (name == "==") return of_bool(x == y);
  if (name == "!=") return of_bool(x != y);
  if (name == "+") return integer(x + y);
  if (name == "-") return integer(x - y);
  if (name == "*" && natural) {
    return of_uint(static_cast<std::uint64_t>(x) * static_cast<std::uint64_t>(y));
  }
  if (name == "*") return of_int(x * y);
  if (name == "/") return integer(y == 0 ? 0 : x / y);
  if (name == "%") return integer(y == 0 ? 0 : x % y);
  const bool both_bool = a.type == Type::kBool && b.type == Type::kBool;
  const std::int64_t bits = name == "&" ? (x & y) : name == "|" ? (x | y) : (x ^ y);
  return both_bool ? of_bool(bits != 0) : integer(bits);
}

/// Makes trees. What the parser must refuse (a constant divisor of 0, a constant shift count out of
/// range) can come up; callers skip what is refused for those reasons.
class Generator {
 public:
  explicit Generator(std::uint32_t seed) : random_(seed) {}

  std::unique_ptr<Node> mask() {
    // A root of type bool, whatever is below it.
    static const char* kSigns[] = {"<", "<=", ">", ">=", "==", "!=", "&&", "||"};
    static const int kPrecedences[] = {7, 7, 7, 7, 6, 6, 2, 1};
    const int which = below(8);
    return binary(kSigns[which], kPrecedences[which], Type::kBool, any(5), any(5));
  }

  Coordinates place() {
    const auto coordinate = [&]() -> std::int32_t {
      switch (below(8)) {
        case 0:
          return std::numeric_limits<std::int32_t>::min();
        case 1:
          return std::numeric_limits<std::int32_t>::max();
        case 2:
          return static_cast<std::int32_t>(random_());
        default:
          return below(20) - 6;
      }
    };
    Coordinates made{coordinate(), coordinate(), coordinate(), coordinate(),
                     coordinate(), coordinate(), coordinate()};
    made.first_row = first_row(made.b, made.q_len);
    return made;
  }

 private:
  using Ptr = std::unique_ptr<Node>;

  int below(int n) { return static_cast<int>(random_() % static_cast<std::uint32_t>(n)); }

  static Ptr leaf(std::string name, Type type) {
    auto node = std::make_unique<Node>();
    node->name = std::move(name);
    node->type = type;
    return node;
  }
  static Ptr binary(const char* sign, int precedence, Type type, Ptr a, Ptr b) {
    Ptr node = leaf(sign, type);
    node->precedence = precedence;
    node->args.push_back(std::move(a));
    node->args.push_back(std::move(b));
    return node;
  }
  static Ptr prefix(const char* sign, Type type, Ptr a) {
    Ptr node = leaf(sign, type);
    node->precedence = 11;
    node->args.push_back(std::move(a));
    return node;
  }
  static Ptr call(const char* name, Type type, Ptr a, Ptr b = nullptr) {
    Ptr node = leaf(name, type);
    node->args.push_back(std::move(a));
    if (b) node->args.push_back(std::move(b));
    return node;
  }
  static Ptr of_integers(const char* sign, int precedence, Ptr a, Ptr b) {
    const Type type = common(a, b);
    return binary(sign, precedence, type, std::move(a), std::move(b));
  }
  static Type common(const Ptr& a, const Ptr& b) {
    return std::max({a->type, b->type, Type::kInt});
  }

  Ptr any_leaf() {
    static const char* kCoordNames[] = {"b",      "h",     "kv_h",   "q_idx",    "q_row",
                                        "kv_idx", "q_len", "kv_len", "total_row"};
    switch (below(8)) {
      case 0:
        return leaf(below(2) == 0 ? "true" : "false", Type::kBool);
      case 1:
        return leaf(std::to_string(below(40)), Type::kInt);
      case 2: {
        static const char* kInts[] = {"0x7fffffff", "2147483647", "0", "1", "31", "0x0"};
        return leaf(kInts[below(6)], Type::kInt);
      }
      case 3: {
        static const char* kFloats[] = {"0.1f", "1.5",   "2.",   ".25f",
                                        "1e10", "1e-3f", "3.0F", "0.0"};
        return leaf(kFloats[below(8)], Type::kFloat);
      }
      case 4:
        switch (below(3)) {
          case 0:
            return leaf("p.w", Type::kInt);
          case 1:
            return leaf("p.x", Type::kFloat);
          default:
            return leaf("p.u", Type::kUint);
        }
      default:
        return leaf(kCoordNames[below(9)], Type::kInt);
    }
  }

  /// Of int, bool or u32 type.
  Ptr integer(int depth) {
    Ptr node = any(depth);
    return node->type == Type::kFloat ? prefix("(int)", Type::kInt, std::move(node))
                                      : std::move(node);
  }

  Ptr any(int depth) {
    if (depth <= 0 || below(6) == 0) return any_leaf();
    const int next = depth - 1;
    switch (below(13)) {
      case 0: {
        static const char* kSigns[] = {"+", "-", "*", "/"};
        static const int kPrecedences[] = {9, 9, 10, 10};
        const int which = below(4);
        Ptr a = any(next);
        Ptr b = any(next);
        const Type type = common(a, b);
        return binary(kSigns[which], kPrecedences[which], type, std::move(a), std::move(b));
      }
      case 1:
        return of_integers(below(2) == 0 ? "+" : "-", 9, integer(next), integer(next));
      case 2:
        return of_integers("%", 10, integer(next), integer(next));
      case 3: {
        Ptr a = integer(next);
        const Type type = std::max(a->type, Type::kInt);
        return binary(below(2) == 0 ? "<<" : ">>", 8, type, std::move(a), integer(next));
      }
      case 4: {
        static const char* kSigns[] = {"&", "^", "|"};
        const int which = below(3);
        Ptr a = integer(next);
        Ptr b = integer(next);
        const bool bools = a->type == Type::kBool && b->type == Type::kBool;
        const Type type = bools ? Type::kBool : common(a, b);
        return binary(kSigns[which], 5 - which, type, std::move(a), std::move(b));
      }
      case 5:
        return mask_of(next);
      case 6: {
        Ptr a = any(next);
        Ptr b = any(next);
        const Type type = a->type == b->type ? a->type : common(a, b);
        Ptr node = binary("?:", 0, type, any(next), std::move(a));
        node->args.push_back(std::move(b));
        return node;
      }
      case 7:
        return prefix("!", Type::kBool, any(next));
      case 8: {
        Ptr a = any(next);
        const Type type = a->type == Type::kBool ? Type::kInt : a->type;
        return prefix(below(3) == 0 ? "+" : "-", type, std::move(a));
      }
      case 9: {
        Ptr a = integer(next);
        if (a->type == Type::kBool) a = prefix("(int)", Type::kInt, std::move(a));
        const Type type = a->type;
        return prefix("~", type, std::move(a));
      }
      case 10:
        switch (below(6)) {
          case 0:
            return prefix("(int)", Type::kInt, any(next));
          case 1:
            return prefix("(float)", Type::kFloat, any(next));
          case 3:
            return prefix("(u32)", Type::kUint, any(next));
          case 4:
            return call("u32", Type::kUint, any(next));
          case 2:
            return call("int", Type::kInt, any(next));
          default:
            return prefix("(bool)", Type::kBool, any(next));
        }
      case 11:
        switch (below(9)) {
          case 0:
            return call("p.doc", Type::kInt, integer(next));
          case 1:
            return call("p.bias", Type::kFloat, integer(next));
          case 2:
            return call("p.table", Type::kInt, integer(next), integer(next));
          case 3:
            return call("p.words", Type::kUint, integer(next));
          case 4:
            return call("p.path", Type::kUint, integer(next), integer(next));
          case 5:
            return call("p.grid", Type::kFloat, integer(next), integer(next));
          case 6:
            return call("p.half", Type::kFloat, integer(next));
          case 7:
            return call("p.halves", Type::kFloat, integer(next), integer(next));
          default: {
            Ptr node = call("p.cube", Type::kInt, integer(next), integer(next));
            node->args.push_back(integer(next));
            return node;
          }
        }
      default:
        switch (below(3)) {
          case 0: {
            Ptr a = any(next);
            Ptr b = any(next);
            const Type type = common(a, b);
            return call(below(2) == 0 ? "min" : "max", type, std::move(a), std::move(b));
          }
          case 1: {
            Ptr a = any(next);
            const Type type = std::max(a->type, Type::kInt);
            return call("abs", type, std::move(a));
          }
          default: {
            static const char* kNames[] = {"floorf", "ceil", "round", "trunc", "sqrt",
                                           "exp2",   "fabs", "fmod",  "fmaxf"};
            const int which = below(9);
            return call(kNames[which], Type::kFloat, any(next), which >= 7 ? any(next) : nullptr);
          }
        }
    }
  }

  Ptr mask_of(int depth) {
    static const char* kSigns[] = {"<", "<=", ">", ">=", "==", "!=", "&&", "||"};
    static const int kPrecedences[] = {7, 7, 7, 7, 6, 6, 2, 1};
    const int which = below(8);
    return binary(kSigns[which], kPrecedences[which], Type::kBool, any(depth), any(depth));
  }

  std::mt19937 random_;
};

/// True where a refusal is one that random expressions provoke.
inline bool is_expected_refusal(const Error& error) {
  return error.message.find("by 0") != std::string::npos ||
         error.message.find("a shift by") != std::string::npos;
}

}  // namespace attnjit::spec::random
