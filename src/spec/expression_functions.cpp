// SPDX-License-Identifier: Apache-2.0
// The tables of operators and functions of expressions.
#include "spec/expression_functions.h"

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "base/in_order.h"

namespace attnjit::spec {
namespace {

using F = ExprFunction;
using Op = ExprOp;
using Args = std::span<const ExprValue>;

// ---- Values: functions of i32 (of a bool, too), u32 and double ----------

template <class T>
concept Integer = std::integral<T>;
template <class T>
concept Real = std::same_as<T, double>;

/// Where sums, products and negatives are computed: integers wrap.
std::uint32_t bits(std::int32_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t bits(std::uint32_t value) { return value; }
double bits(double value) { return value; }

std::int32_t quotient(std::int32_t a, std::int32_t b) {
  if (b == 0) return 0;
  return b == -1 ? static_cast<std::int32_t>(0U - bits(a)) : a / b;
}
std::uint32_t quotient(std::uint32_t a, std::uint32_t b) { return b == 0 ? 0 : a / b; }
double quotient(double a, double b) { return a / b; }

std::int32_t remainder(std::int32_t a, std::int32_t b) { return b == 0 || b == -1 ? 0 : a % b; }
std::uint32_t remainder(std::uint32_t a, std::uint32_t b) { return b == 0 ? 0 : a % b; }

std::uint32_t truncated_i32(Integer auto a) { return bits(a); }
std::int32_t truncated_i32(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 2147483648.0) return std::numeric_limits<std::int32_t>::max();
  if (value <= -2147483649.0) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(value);
}

std::uint32_t truncated_u32(Integer auto a) { return bits(a); }
std::uint32_t truncated_u32(double value) {
  if (!(value > 0)) return 0;
  return value >= 4294967296.0 ? std::numeric_limits<std::uint32_t>::max()
                               : static_cast<std::uint32_t>(value);
}

template <Integer T>
T least(T a, T b) {
  return a < b ? a : b;
}
double least(double a, double b) { return std::fmin(a, b); }
template <Integer T>
T most(T a, T b) {
  return a > b ? a : b;
}
double most(double a, double b) { return std::fmax(a, b); }
std::uint32_t absolute(std::int32_t a) { return a < 0 ? 0U - bits(a) : bits(a); }
std::uint32_t absolute(std::uint32_t a) { return a; }
double absolute(double a) { return std::fabs(a); }

/// Rounds to f32 as IEEE 754 does, overflow to infinity included.
double rounded(double value) {
  // NOTE: converting a double beyond float's range is defined under IEEE 754 (Annex F) and UBSan's
  // float-cast-overflow, which says otherwise, is not part of -fsanitize=undefined.
  return static_cast<double>(static_cast<float>(value));
}

template <class Function, class T>
ExprValue computed(Args args) {
  const auto arg = [&](std::size_t i) {
    if constexpr (Real<T>) {
      return args[i].f;
    } else {
      return static_cast<T>(args[i].i);
    }
  };
  const auto made = [](auto value) {
    ExprValue result;
    if constexpr (Real<decltype(value)>) {
      result.f = value;
    } else {
      result.i = static_cast<std::int32_t>(value);
    }
    return result;
  };
  if constexpr (std::is_invocable_v<Function, T>) {
    return made(Function{}(arg(0)));
  } else if constexpr (std::is_invocable_v<Function, T, T>) {
    return made(Function{}(arg(0), arg(1)));
  } else {
    return {};  // the parser makes no such node
  }
}

/// What computes values by a function of the operands, which have one type.
template <class Function>
constexpr auto by(Function /*function*/) {
  return [](const ExprNode& /*node*/, ExprType operand_type, Args args) {
    switch (operand_type) {
      case ExprType::kF32:
        return computed<Function, double>(args);
      case ExprType::kU32:
        return computed<Function, std::uint32_t>(args);
      case ExprType::kBool:
      case ExprType::kI32:
        break;
    }
    return computed<Function, std::int32_t>(args);
  };
}

ExprValue selected(const ExprNode& /*node*/, ExprType /*operand_type*/, Args args) {
  return args[0].i != 0 ? args[1] : args[2];
}

/// NOTE: rounding fma's double result to float would round twice; the other operations are exact
/// enough in double for that to be harmless.
ExprValue fused(const ExprNode& node, ExprType /*operand_type*/, Args args) {
  const double a = args[0].f, b = args[1].f, c = args[2].f;
  const auto single = [](double value) { return static_cast<float>(value); };
  ExprValue result;
  result.f = node.uses_score ? std::fma(a, b, c)
                             : static_cast<double>(std::fma(single(a), single(b), single(c)));
  return result;
}

// ---- Ranges ----------

/// Calls a function with operands of the types that they have.
template <class Function, class... Ranges>
RangeValue call_ranges(Function function, const Ranges&... args) {
  return std::visit(
      [&](const auto&... typed) -> RangeValue {
        if constexpr (requires { function(typed...); }) {
          return function(typed...);
        } else {
          return any_float();  // the parser makes no such node
        }
      },
      args...);
}
template <class Function>
RangeValue call_ranges(Function function, std::span<const RangeValue> args) {
  switch (args.size()) {
    case 1:
      return call_ranges(function, args[0]);
    case 2:
      return call_ranges(function, args[0], args[1]);
    default:
      return call_ranges(function, args[0], args[1], args[2]);
  }
}

// NOTE: a macro, so that a row says once which function it is, for the host and for the device.
#define ATTNJIT_RANGE(function, ...)                                             \
  RangeRule {                                                                    \
#function, [](std::span<const RangeValue> args) {                              \
      return call_ranges([](const auto&... range) -> decltype(function(range...)) { \
        return function(range...);                                               \
      }, args);                                                                  \
    } __VA_OPT__(, ) __VA_ARGS__ \
  }
constexpr Unknown kBounded = Unknown::kBounded;

// ---- The tables ----------

using Text = ByType<std::string_view>;
using Code = ByType<StackOp>;

template <class Value>
constexpr OperatorRow row(Op op, Text cuda, Value value, ByType<RangeRule> range, Code stack) {
  return {op, "", 0, {cuda, value, range, stack}};
}
/// An operator between two operands.
template <class Value>
constexpr OperatorRow row(Op op, std::string_view sign, int precedence, Text cuda, Value value,
                          ByType<RangeRule> range, Code stack, bool exchanged = false) {
  return {op, sign, precedence, {cuda, value, range, stack, exchanged}};
}

constexpr ByType<RangeRule> bools_or_bits(RangeRule bools_rule, RangeRule bits_rule) {
  return {bools_rule, bits_rule, bits_rule, {}};
}

constexpr OperatorRow kOperators[] = {
    row(Op::kToBool, "", by([](auto a) { return a != 0; }), ATTNJIT_RANGE(range_to_bool),
        {kStackLoad, kStackIntToBool, kStackIntToBool, kStackFloatToBool}),
    row(Op::kToI32, "to_i32", by([](auto a) { return truncated_i32(a); }),
        ATTNJIT_RANGE(range_to_i32), {kStackLoad, kStackFloatToInt}),
    row(Op::kToU32, "to_u32", by([](auto a) { return truncated_u32(a); }),
        ATTNJIT_RANGE(range_to_u32), {kStackLoad, kStackFloatToUint}),
    row(Op::kToF32, "to_f32", by([](auto a) { return double{1} * a; }), ATTNJIT_RANGE(range_to_f32),
        {kStackIntToFloat, kStackUintToFloat, kStackLoad}),
    row(Op::kNot, "!", by([](Integer auto a) { return a == 0; }), ATTNJIT_RANGE(range_not),
        kStackNot),
    row(Op::kNegate, {"expr_neg", "-"}, by([](auto a) { return -bits(a); }),
        ATTNJIT_RANGE(range_negate), {kStackNegateInt, kStackNegateFloat}),
    row(Op::kBitNot, "~", by([](Integer auto a) { return ~a; }), ATTNJIT_RANGE(range_bit_not),
        kStackBitNot),
    row(Op::kAdd, "+", 9, {"expr_add", "+"}, by([](auto a, auto b) { return bits(a) + bits(b); }),
        ATTNJIT_RANGE(range_add), {kStackAdd, kStackAddFloat}),
    row(Op::kSubtract, "-", 9, {"expr_sub", "-"},
        by([](auto a, auto b) { return bits(a) - bits(b); }), ATTNJIT_RANGE(range_subtract),
        {kStackSubtract, kStackSubtractFloat}),
    row(Op::kMultiply, "*", 10, "expr_mul", by([](auto a, auto b) { return bits(a) * bits(b); }),
        ATTNJIT_RANGE(range_multiply), {kStackMultiply, kStackMultiplyFloat}),
    row(Op::kDivide, "/", 10, {"expr_div", "/"}, by([](auto a, auto b) { return quotient(a, b); }),
        ATTNJIT_RANGE(range_divide, kBounded),
        {kStackDivideInt, kStackDivideUint, kStackDivideFloat}),
    row(Op::kModulo, "%", 10, "expr_mod",
        by([](Integer auto a, Integer auto b) { return remainder(a, b); }),
        ATTNJIT_RANGE(range_modulo, kBounded), {kStackModuloInt, kStackModuloUint, kStackFmod}),
    row(Op::kShiftLeft, "<<", 8, "expr_shl",
        by([](Integer auto a, Integer auto b) { return bits(a) << (bits(b) & 31U); }),
        ATTNJIT_RANGE(range_shift_left), kStackShiftLeft),
    row(Op::kShiftRight, ">>", 8, "expr_shr",
        by([](Integer auto a, Integer auto b) { return a >> (bits(b) & 31U); }),
        ATTNJIT_RANGE(range_shift_right, kBounded),
        {kStackShiftRightInt, kStackShiftRightUint, kStackShiftRightInt}),
    row(Op::kBitAnd, "&", 5, "&", by([](Integer auto a, Integer auto b) { return a & b; }),
        bools_or_bits(ATTNJIT_RANGE(range_and, kBounded), ATTNJIT_RANGE(range_bit_and, kBounded)),
        kStackAnd),
    row(Op::kBitOr, "|", 3, "|", by([](Integer auto a, Integer auto b) { return a | b; }),
        bools_or_bits(ATTNJIT_RANGE(range_or, kBounded), ATTNJIT_RANGE(range_bit_or, kBounded)),
        kStackOr),
    row(Op::kBitXor, "^", 4, {"!=", "^", "^", ""},
        by([](Integer auto a, Integer auto b) { return a ^ b; }),
        bools_or_bits(ATTNJIT_RANGE(range_not_equal), ATTNJIT_RANGE(range_bit_xor)), kStackXor),
    row(Op::kLess, "<", 7, "<", by([](auto a, auto b) { return a < b; }), ATTNJIT_RANGE(range_less),
        {kStackLessInt, kStackLessUint, kStackLessFloat}),
    row(Op::kLessEqual, "<=", 7, "<=", by([](auto a, auto b) { return a <= b; }),
        ATTNJIT_RANGE(range_less_equal),
        {kStackLessEqualInt, kStackLessEqualUint, kStackLessEqualFloat}),
    row(Op::kGreater, ">", 7, ">", by([](auto a, auto b) { return a > b; }),
        ATTNJIT_RANGE(range_greater), {kStackLessInt, kStackLessUint, kStackLessFloat}, true),
    row(Op::kGreaterEqual, ">=", 7, ">=", by([](auto a, auto b) { return a >= b; }),
        ATTNJIT_RANGE(range_greater_equal),
        {kStackLessEqualInt, kStackLessEqualUint, kStackLessEqualFloat}, true),
    row(Op::kEqual, "==", 6, "==", by([](auto a, auto b) { return a == b; }),
        ATTNJIT_RANGE(range_equal), {kStackEqualInt, kStackEqualFloat}),
    row(Op::kNotEqual, "!=", 6, "!=", by([](auto a, auto b) { return a != b; }),
        ATTNJIT_RANGE(range_not_equal), {kStackNotEqualInt, kStackNotEqualFloat}),
    // NOTE: in CUDA C++ both sides are computed, which nobody sees: && and || become a branch for
    // each score, with which a mask of four tests took twice the instructions.
    row(Op::kAnd, "&&", 2, "&", by([](Integer auto a, Integer auto b) { return a & b; }),
        ATTNJIT_RANGE(range_and, kBounded), kStackAnd),
    row(Op::kOr, "||", 1, "|", by([](Integer auto a, Integer auto b) { return a | b; }),
        ATTNJIT_RANGE(range_or, kBounded), kStackOr),
    row(Op::kSelect, "", selected, ATTNJIT_RANGE(range_select, kBounded), kStackSelect),
};

static_assert(in_order(kOperators, &OperatorRow::op, static_cast<std::size_t>(Op::kToBool)) &&
                  std::rbegin(kOperators)->op == Op::kSelect,
              "kOperators is indexed by ExprOp");

template <class Value>
constexpr FunctionRow row(F function, std::string_view name, std::string_view alias, int arity,
                          Text cuda, Value value, RangeRule range, Code stack) {
  return {name, alias, arity, function, alias.empty(), {cuda, value, range, stack}};
}

#define ATTNJIT_FUNCTION(title, name, c_name, arity, value_of, range) \
  row(F::k##title, #name, #c_name, arity, "expr_" #name,              \
      by([](ATTNJIT_PARAMS_##arity(Real auto)) { return value_of; }), range, kStack##title),
#define ATTNJIT_OPAQUE(title, name, ...) ATTNJIT_FUNCTION(title, name, __VA_ARGS__, {})
#define ATTNJIT_RANGED(title, name, ...) \
  ATTNJIT_FUNCTION(title, name, __VA_ARGS__, ATTNJIT_RANGE(range_##name))

constexpr FunctionRow kFunctions[] = {
    row(F::kMin, "min", "", 2, "expr_min", by([](auto a, auto b) { return least(a, b); }),
        ATTNJIT_RANGE(range_min, kBounded), {kStackMinInt, kStackMinUint, kStackMinFloat}),
    row(F::kMax, "max", "", 2, "expr_max", by([](auto a, auto b) { return most(a, b); }),
        ATTNJIT_RANGE(range_max, kBounded), {kStackMaxInt, kStackMaxUint, kStackMaxFloat}),
    row(F::kAbs, "abs", "", 1, "expr_abs", by([](auto a) { return absolute(a); }),
        ATTNJIT_RANGE(range_abs), {kStackAbsInt, kStackLoad, kStackAbsFloat}),
    row(F::kFabs, "fabs", "fabsf", 1, "expr_fabs", by([](Real auto a) { return absolute(a); }),
        ATTNJIT_RANGE(range_abs), kStackAbsFloat),
    row(F::kFmin, "fmin", "fminf", 2, "expr_fmin",
        by([](Real auto a, Real auto b) { return least(a, b); }),
        ATTNJIT_RANGE(range_min, kBounded), kStackMinFloat),
    row(F::kFmax, "fmax", "fmaxf", 2, "expr_fmax",
        by([](Real auto a, Real auto b) { return most(a, b); }), ATTNJIT_RANGE(range_max, kBounded),
        kStackMaxFloat),
    row(F::kFma, "fma", "fmaf", 3, "expr_fma", fused, {}, kStackFma),
    ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_OPAQUE, ATTNJIT_RANGED)};

static_assert(in_order(kFunctions, &FunctionRow::function),
              "kFunctions is indexed by ExprFunction");

#undef ATTNJIT_FUNCTION
#undef ATTNJIT_OPAQUE
#undef ATTNJIT_RANGED
#undef ATTNJIT_RANGE

}  // namespace

std::span<const OperatorRow> expression_operators() { return kOperators; }
std::span<const FunctionRow> expression_functions() { return kFunctions; }

const FunctionRow* find_function(std::string_view name) {
  for (const FunctionRow& row : kFunctions) {
    if (row.name == name || (!row.alias.empty() && row.alias == name)) return &row;
  }
  return nullptr;
}

const Operation* find_operation(const ExprNode& node) {
  if (node.op == Op::kCall) return &kFunctions[static_cast<std::size_t>(node.function)].operation;
  if (node.op < Op::kToBool) return nullptr;
  return &kOperators[static_cast<std::size_t>(node.op) - static_cast<std::size_t>(Op::kToBool)]
              .operation;
}

bool is_element(const ExprNode& node) {
  return node.op == Op::kElement || node.op == Op::kMatrixElement || node.op == Op::kCubeElement;
}

ExprValue apply(const ExprNode& node, ExprType operand_type, Args args) {
  ExprValue result;
  if (const Operation* operation = find_operation(node)) {
    result = operation->value(node, operand_type, args);
  }
  if (node.type == ExprType::kF32 && !node.uses_score) result.f = rounded(result.f);
  return result;
}

}  // namespace attnjit::spec
