// SPDX-License-Identifier: Apache-2.0
// The functions that an expression may call, and what each operation of an AST node computes.
#include "spec/expression_functions.h"

#include <cmath>
#include <cstdint>
#include <limits>

namespace attnjit::spec {
namespace {

using F = ExprFunction;

constexpr FunctionRow kFunctions[] = {
    {"min", "", 2, F::kMin, true},
    {"max", "", 2, F::kMax, true},
    {"abs", "", 1, F::kAbs, true},
    {"exp", "expf", 1, F::kExp, false},
    {"exp2", "exp2f", 1, F::kExp2, false},
    {"log", "logf", 1, F::kLog, false},
    {"log2", "log2f", 1, F::kLog2, false},
    {"sqrt", "sqrtf", 1, F::kSqrt, false},
    {"rsqrt", "rsqrtf", 1, F::kRsqrt, false},
    {"tanh", "tanhf", 1, F::kTanh, false},
    {"sin", "sinf", 1, F::kSin, false},
    {"cos", "cosf", 1, F::kCos, false},
    {"erf", "erff", 1, F::kErf, false},
    {"floor", "floorf", 1, F::kFloor, false},
    {"ceil", "ceilf", 1, F::kCeil, false},
    {"round", "roundf", 1, F::kRound, false},
    {"trunc", "truncf", 1, F::kTrunc, false},
    {"fabs", "fabsf", 1, F::kFabs, false},
    {"pow", "powf", 2, F::kPow, false},
    {"fmod", "fmodf", 2, F::kFmod, false},
    {"fmin", "fminf", 2, F::kFmin, false},
    {"fmax", "fmaxf", 2, F::kFmax, false},
    {"fma", "fmaf", 3, F::kFma, false},
};

constexpr bool in_order() {
  for (std::size_t i = 0; i < std::size(kFunctions); ++i) {
    if (static_cast<std::size_t>(kFunctions[i].function) != i) return false;
  }
  return true;
}
static_assert(in_order(), "kFunctions is indexed by ExprFunction");

std::uint32_t bits(std::int32_t value) { return static_cast<std::uint32_t>(value); }
std::int32_t wrapped(std::uint32_t value) { return static_cast<std::int32_t>(value); }

std::int32_t to_i32(double value) {
  if (std::isnan(value)) return 0;
  if (value >= 2147483648.0) return std::numeric_limits<std::int32_t>::max();
  if (value <= -2147483649.0) return std::numeric_limits<std::int32_t>::min();
  return static_cast<std::int32_t>(value);
}

std::uint32_t to_u32(double value) {
  if (!(value > 0)) return 0;
  return value >= 4294967296.0 ? std::numeric_limits<std::uint32_t>::max()
                               : static_cast<std::uint32_t>(value);
}

std::int32_t apply_i32(ExprOp op, std::int32_t a, std::int32_t b) {
  switch (op) {
    case ExprOp::kAdd:
      return wrapped(bits(a) + bits(b));
    case ExprOp::kSubtract:
      return wrapped(bits(a) - bits(b));
    case ExprOp::kMultiply:
      return wrapped(bits(a) * bits(b));
    case ExprOp::kDivide:
      if (b == 0) return 0;
      return b == -1 ? wrapped(0U - bits(a)) : a / b;
    case ExprOp::kModulo:
      return b == 0 || b == -1 ? 0 : a % b;
    case ExprOp::kShiftLeft:
      return wrapped(bits(a) << (bits(b) & 31U));
    case ExprOp::kShiftRight:
      return a >> (bits(b) & 31U);
    case ExprOp::kBitAnd:
      return wrapped(bits(a) & bits(b));
    case ExprOp::kBitOr:
      return wrapped(bits(a) | bits(b));
    case ExprOp::kBitXor:
      return wrapped(bits(a) ^ bits(b));
    default:
      return 0;
  }
}

std::uint32_t apply_u32(ExprOp op, std::uint32_t a, std::uint32_t b) {
  switch (op) {
    case ExprOp::kDivide:
      return b == 0 ? 0 : a / b;
    case ExprOp::kModulo:
      return b == 0 ? 0 : a % b;
    case ExprOp::kShiftRight:
      return a >> (b & 31U);
    default:
      // The bits of the others are those of signed integers.
      return bits(apply_i32(op, wrapped(a), wrapped(b)));
  }
}

double apply_f32(ExprOp op, double a, double b) {
  switch (op) {
    case ExprOp::kAdd:
      return a + b;
    case ExprOp::kSubtract:
      return a - b;
    case ExprOp::kMultiply:
      return a * b;
    default:
      return a / b;
  }
}

template <class T>
bool compare(ExprOp op, T a, T b) {
  switch (op) {
    case ExprOp::kLess:
      return a < b;
    case ExprOp::kLessEqual:
      return a <= b;
    case ExprOp::kGreater:
      return a > b;
    case ExprOp::kGreaterEqual:
      return a >= b;
    case ExprOp::kEqual:
      return a == b;
    default:
      return a != b;
  }
}

std::int32_t call_i32(ExprFunction function, std::int32_t a, std::int32_t b) {
  switch (function) {
    case F::kMin:
      return a < b ? a : b;
    case F::kMax:
      return a > b ? a : b;
    default:
      return a < 0 ? wrapped(0U - bits(a)) : a;
  }
}

std::uint32_t call_u32(ExprFunction function, std::uint32_t a, std::uint32_t b) {
  switch (function) {
    case F::kMin:
      return a < b ? a : b;
    case F::kMax:
      return a > b ? a : b;
    default:
      return a;
  }
}

double call_f32(ExprFunction function, double a, double b, double c, bool in_double) {
  switch (function) {
    case F::kMin:
    case F::kFmin:
      return std::fmin(a, b);
    case F::kMax:
    case F::kFmax:
      return std::fmax(a, b);
    case F::kAbs:
    case F::kFabs:
      return std::fabs(a);
    case F::kExp:
      return std::exp(a);
    case F::kExp2:
      return std::exp2(a);
    case F::kLog:
      return std::log(a);
    case F::kLog2:
      return std::log2(a);
    case F::kSqrt:
      return std::sqrt(a);
    case F::kRsqrt:
      return 1.0 / std::sqrt(a);
    case F::kTanh:
      return std::tanh(a);
    case F::kSin:
      return std::sin(a);
    case F::kCos:
      return std::cos(a);
    case F::kErf:
      return std::erf(a);
    case F::kFloor:
      return std::floor(a);
    case F::kCeil:
      return std::ceil(a);
    case F::kRound:
      return std::round(a);
    case F::kTrunc:
      return std::trunc(a);
    case F::kPow:
      return std::pow(a, b);
    case F::kFmod:
      return std::fmod(a, b);
    case F::kFma:
      // NOTE: rounding fma's double result to float would round twice; the other operations are
      // exact enough in double for that to be harmless.
      return in_double ? std::fma(a, b, c)
                       : static_cast<double>(std::fma(static_cast<float>(a), static_cast<float>(b),
                                                      static_cast<float>(c)));
  }
  return 0;
}

/// Rounds to f32 as IEEE 754 does, overflow to infinity included.
double rounded(double value) {
  // NOTE: converting a double beyond float's range is defined under IEEE 754 (Annex F) and UBSan's
  // float-cast-overflow, which says otherwise, is not part of -fsanitize=undefined.
  return static_cast<double>(static_cast<float>(value));
}

}  // namespace

std::span<const FunctionRow> expression_functions() { return kFunctions; }

bool is_element(const ExprNode& node) {
  return node.op == ExprOp::kElement || node.op == ExprOp::kMatrixElement ||
         node.op == ExprOp::kCubeElement;
}

const FunctionRow* find_function(std::string_view name) {
  for (const FunctionRow& row : kFunctions) {
    if (row.name == name || (!row.alias.empty() && row.alias == name)) return &row;
  }
  return nullptr;
}

ExprValue apply(const ExprNode& node, ExprType operand_type, std::span<const ExprValue> args) {
  const ExprValue a = args[0];
  const ExprValue b = args.size() > 1 ? args[1] : ExprValue{};
  const bool real = operand_type == ExprType::kF32;
  const bool natural = operand_type == ExprType::kU32;
  ExprValue result;
  const auto set_by_type = [&](auto of_real, auto of_natural, auto of_integer) {
    if (real) {
      result.f = of_real();
    } else if (natural) {
      result.i = wrapped(of_natural());
    } else {
      result.i = of_integer();
    }
  };
  switch (node.op) {
    case ExprOp::kToBool:
      result.i = real ? a.f != 0 : a.i != 0;
      break;
    case ExprOp::kToI32:
      result.i = real ? to_i32(a.f) : a.i;
      break;
    case ExprOp::kToU32:
      result.i = real ? wrapped(to_u32(a.f)) : a.i;
      break;
    case ExprOp::kToF32:
      // NOTE: one by one: beside an unsigned integer a signed one loses its sign.
      if (real) {
        result.f = a.f;
      } else if (natural) {
        result.f = bits(a.i);
      } else {
        result.f = a.i;
      }
      break;
    case ExprOp::kNot:
      result.i = a.i == 0;
      break;
    case ExprOp::kNegate:
      if (real) {
        result.f = -a.f;
      } else {
        result.i = wrapped(0U - bits(a.i));
      }
      break;
    case ExprOp::kBitNot:
      result.i = ~a.i;
      break;
    case ExprOp::kAdd:
    case ExprOp::kSubtract:
    case ExprOp::kMultiply:
    case ExprOp::kDivide:
    case ExprOp::kModulo:
    case ExprOp::kShiftLeft:
    case ExprOp::kShiftRight:
    case ExprOp::kBitAnd:
    case ExprOp::kBitOr:
    case ExprOp::kBitXor:
      set_by_type([&] { return apply_f32(node.op, a.f, b.f); },
                  [&] { return apply_u32(node.op, bits(a.i), bits(b.i)); },
                  [&] { return apply_i32(node.op, a.i, b.i); });
      break;
    case ExprOp::kLess:
    case ExprOp::kLessEqual:
    case ExprOp::kGreater:
    case ExprOp::kGreaterEqual:
    case ExprOp::kEqual:
    case ExprOp::kNotEqual:
      result.i = real      ? compare(node.op, a.f, b.f)
                 : natural ? compare(node.op, bits(a.i), bits(b.i))
                           : compare(node.op, a.i, b.i);
      break;
    case ExprOp::kAnd:
      result.i = (a.i != 0) && (b.i != 0);
      break;
    case ExprOp::kOr:
      result.i = (a.i != 0) || (b.i != 0);
      break;
    case ExprOp::kSelect:
      result = a.i != 0 ? b : args[2];
      break;
    case ExprOp::kCall:
      set_by_type(
          [&] {
            return call_f32(node.function, a.f, b.f, args.size() > 2 ? args[2].f : 0,
                            node.uses_score);
          },
          [&] { return call_u32(node.function, bits(a.i), bits(b.i)); },
          [&] { return call_i32(node.function, a.i, b.i); });
      break;
    case ExprOp::kLiteral:
    case ExprOp::kCoord:
    case ExprOp::kScore:
    case ExprOp::kParam:
    case ExprOp::kElement:
    case ExprOp::kMatrixElement:
    case ExprOp::kCubeElement:
      break;
  }
  if (node.type == ExprType::kF32 && !node.uses_score) result.f = rounded(result.f);
  return result;
}

}  // namespace attnjit::spec
