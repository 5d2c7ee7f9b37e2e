// SPDX-License-Identifier: Apache-2.0
// Evaluates an expression over linear forms of positions and lengths.
#include "spec/triangle_values.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace attnjit::spec {
namespace {

using Op = ExprOp;

/// What a form is multiplied by, at most: so no sum here overflows.
constexpr std::int64_t kMostFactor = 1 << 16;

/// Of a triangle's scores these four numbers are 0 or more, and each such choice is a score:
///
///             kSeen               kHidden
///   kv_idx    key                 key
///   q_row     row                 row
///   kv_len    key + both + far + 1        key + both + 1
///   q_len     row + both + 1              row + both + far + 2
///   q_idx     key + far                   key - far - 1
///
/// `far` is how far the score is from the diagonal. q_idx is kv_len - q_len + q_row.
enum Variable : std::uint8_t { kKey, kRow, kBoth, kFar };

/// A bool or an i32 as a sum: a constant, and multiples of the variables. A bool is 0 or 1.
struct Form {
  std::int64_t constant = 0;
  std::array<std::int64_t, 4> factors{};
  bool operator==(const Form&) const = default;
};
using Value = std::optional<Form>;

Form constant_form(std::int64_t value) { return {value, {}}; }
bool is_constant(const Form& form) { return form.factors == Form{}.factors; }

Form plus(const Form& a, const Form& b, std::int64_t factor) {
  Form sum{a.constant + factor * b.constant, {}};
  for (std::size_t i = 0; i < sum.factors.size(); ++i) {
    sum.factors[i] = a.factors[i] + factor * b.factors[i];
  }
  return sum;
}

/// The largest value of a form. NOTE: kBoth is in both lengths. With it fixed the others are two
/// simplices, whose largest values are linear in it: its two ends decide.
std::int64_t largest(const Form& form, Triangle triangle) {
  const auto& [key, row, both, far] = form.factors;
  const bool seen = triangle == Triangle::kSeen;
  const std::int64_t keys = std::int64_t{kMostLength} - 1, rows = keys - (seen ? 0 : 1);
  const std::int64_t keys_end = std::max<std::int64_t>({key, seen ? far : 0, 0});
  const std::int64_t rows_end = std::max<std::int64_t>({row, seen ? 0 : far, 0});
  const std::int64_t at_end = both * rows + (keys - rows) * keys_end;
  return form.constant + std::max(keys * keys_end + rows * rows_end, at_end);
}
std::int64_t smallest(const Form& form, Triangle triangle) {
  return -largest(plus({}, form, -1), triangle);
}

class Evaluation {
 public:
  Evaluation(const Expression& expression, Triangle triangle)
      : expression_(expression), triangle_(triangle) {}

  Value run() {
    for (const ExprNode& node : expression_.nodes) values_.push_back(compute(node));
    return values_.back();
  }

 private:
  /// NOTE: integers wrap. A form that leaves an i32 says nothing of one.
  Value within_i32(const Form& form) const {
    using Limits = std::numeric_limits<std::int32_t>;
    if (smallest(form, triangle_) < Limits::min() || largest(form, triangle_) > Limits::max()) {
      return std::nullopt;
    }
    return form;
  }

  Value coordinate(Coord coord) const {
    const bool seen = triangle_ == Triangle::kSeen;
    switch (coord) {
      case Coord::kKvIdx:
        return Form{0, {1, 0, 0, 0}};
      case Coord::kQRow:
        return Form{0, {0, 1, 0, 0}};
      case Coord::kKvLen:
        return Form{1, {1, 0, 1, seen ? 1 : 0}};
      case Coord::kQLen:
        return Form{seen ? 1 : 2, {0, 1, 1, seen ? 0 : 1}};
      case Coord::kQIdx:
        return Form{seen ? 0 : -1, {1, 0, 0, seen ? 1 : -1}};
      default:
        return std::nullopt;
    }
  }

  /// Whether a form is `least` or more in all of the triangle, or less in all of it.
  std::optional<bool> is_at_least(const Form& form, std::int64_t least) const {
    if (smallest(form, triangle_) >= least) return true;
    if (largest(form, triangle_) < least) return false;
    return std::nullopt;
  }
  static Value bool_value(std::optional<bool> known, bool inverted = false) {
    if (!known) return std::nullopt;
    return constant_form(*known != inverted ? 1 : 0);
  }
  /// Whether a form is 0 everywhere, or nowhere.
  std::optional<bool> is_zero(const Form& form) const {
    if (form == Form{}) return true;
    if (is_at_least(form, 1) == true || is_at_least(form, 0) == false) return false;
    return std::nullopt;
  }

  Value compare(Op op, const Form& a, const Form& b) const {
    const Form difference = plus(a, b, -1);
    switch (op) {
      case Op::kLess:
        return bool_value(is_at_least(difference, 0), true);
      case Op::kLessEqual:
        return bool_value(is_at_least(difference, 1), true);
      case Op::kGreater:
        return bool_value(is_at_least(difference, 1));
      case Op::kGreaterEqual:
        return bool_value(is_at_least(difference, 0));
      case Op::kEqual:
        return bool_value(is_zero(difference));
      default:
        return bool_value(is_zero(difference), true);
    }
  }

  /// `and` of bools is decided by one 0, `or` by one 1.
  static Value combine(const Value& a, const Value& b, std::int64_t deciding) {
    const Form decided = constant_form(deciding);
    if (a == decided || b == decided) return decided;
    return a && b ? a : std::nullopt;
  }

  /// The larger of two, where it is the same one everywhere; of equal ones either.
  Value larger(const Form& a, const Form& b) const {
    if (is_at_least(plus(a, b, -1), 0) == true) return a;
    if (is_at_least(plus(b, a, -1), 0) == true) return b;
    return std::nullopt;
  }
  Value call(ExprFunction function, const Value& a, const Value& b) const {
    if (function == ExprFunction::kAbs && a) {
      const Value absolute = larger(*a, plus({}, *a, -1));
      return absolute ? within_i32(*absolute) : std::nullopt;
    }
    if (!a || !b) return std::nullopt;
    if (function == ExprFunction::kMax) return larger(*a, *b);
    if (function != ExprFunction::kMin) return std::nullopt;
    const Value first = larger(*a, *b);
    return first ? (first == a ? b : a) : std::nullopt;
  }

  Value compute(const ExprNode& node) const {
    if (node.type != ExprType::kBool && node.type != ExprType::kI32) return std::nullopt;
    if (node.constant) return constant_form(node.value.i);
    const auto arg = [&](int i) {
      return node.args[i] >= 0 ? values_[static_cast<std::size_t>(node.args[i])] : Value{};
    };
    const Value a = arg(0), b = arg(1);
    const bool bools = node.type == ExprType::kBool;
    switch (node.op) {
      case Op::kCoord:
        return coordinate(node.coord);
      case Op::kToI32:  // of a bool: a u32 or a float has no form
        return a;
      case Op::kToBool:
        return a ? bool_value(is_zero(*a), true) : std::nullopt;
      case Op::kNot:
        return a ? bool_value(is_zero(*a)) : std::nullopt;
      case Op::kNegate:
        return a ? within_i32(plus({}, *a, -1)) : std::nullopt;
      case Op::kAdd:
        return a && b ? within_i32(plus(*a, *b, 1)) : std::nullopt;
      case Op::kSubtract:
        return a && b ? within_i32(plus(*a, *b, -1)) : std::nullopt;
      case Op::kMultiply:
        return a && b ? multiply(*a, *b) : std::nullopt;
      case Op::kLess:
      case Op::kLessEqual:
      case Op::kGreater:
      case Op::kGreaterEqual:
      case Op::kEqual:
      case Op::kNotEqual:
        return a && b ? compare(node.op, *a, *b) : std::nullopt;
      case Op::kAnd:
      case Op::kBitAnd:
        return bools ? combine(a, b, 0) : std::nullopt;
      case Op::kOr:
      case Op::kBitOr:
        return bools ? combine(a, b, 1) : std::nullopt;
      case Op::kBitXor:
        return bools && a && b ? compare(Op::kNotEqual, *a, *b) : std::nullopt;
      case Op::kSelect:
        if (!a) return b == arg(2) ? b : std::nullopt;
        return *a == Form{} ? arg(2) : b;
      case Op::kCall:
        return call(node.function, a, b);
      default:
        return std::nullopt;
    }
  }

  Value multiply(const Form& a, const Form& b) const {
    if (!is_constant(b)) return is_constant(a) ? multiply(b, a) : std::nullopt;
    if (b.constant < -kMostFactor || b.constant > kMostFactor) return std::nullopt;
    return within_i32(plus({}, a, b.constant));
  }

  const Expression& expression_;
  const Triangle triangle_;
  std::vector<Value> values_;
};

}  // namespace

std::optional<bool> value_in(const Expression& expression, Triangle triangle) {
  const Value value = Evaluation(expression, triangle).run();
  if (!value) return std::nullopt;
  return *value != Form{};
}

}  // namespace attnjit::spec
