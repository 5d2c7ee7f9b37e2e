// SPDX-License-Identifier: Apache-2.0
// The operators and functions of expressions: one row says of each what it is to the parser, to the
// evaluator, over ranges, as stack code and as CUDA C++.
#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <variant>

#include "spec/expression.h"
#include "spec/ranges.h"
#include "spec/stack_code.h"

namespace attnjit::spec {

using RangeValue = std::variant<IntRange, FloatRange, UintRange>;

/// Whether an operation says anything where nothing is known of some operands.
enum class Unknown : std::uint8_t {
  kSpreads,  ///< no: neither is anything known of its value
  kBounded,  ///< yes: another operand bounds its value, or decides it
};

/// An operation over ranges: as the printed text names it, and as the host computes it.
struct RangeRule {
  std::string_view name;  ///< empty: nothing is known of its value
  RangeValue (*compute)(std::span<const RangeValue> args) = nullptr;
  Unknown unknown = Unknown::kSpreads;
};

/// One thing for each type.
template <class T>
struct ByType {
  T bool_value{}, int_value{}, uint_value{}, float_value{};

  constexpr ByType() = default;
  template <std::convertible_to<T> All>
  constexpr ByType(All all) : ByType(T(all), T(all), T(all), T(all)) {}
  constexpr ByType(T integer, T real) : ByType(integer, integer, integer, real) {}
  constexpr ByType(T i32, T u32, T f32) : ByType(i32, i32, u32, f32) {}
  constexpr ByType(T boolean, T i32, T u32, T f32)
      : bool_value(boolean), int_value(i32), uint_value(u32), float_value(f32) {}

  constexpr const T& operator[](ExprType type) const {
    if (type == ExprType::kF32) return float_value;
    if (type == ExprType::kU32) return uint_value;
    return type == ExprType::kBool ? bool_value : int_value;
  }
};

/// What an operator or a function is once it is parsed.
struct Operation {
  /// By the type that it gives: a helper that the text calls, or a sign before or between operands.
  ByType<std::string_view> cuda;
  /// Its value, before it is rounded. `operand_type`: see apply().
  ExprValue (*value)(const ExprNode& node, ExprType operand_type, std::span<const ExprValue> args);
  ByType<RangeRule> range;  ///< by the type that it gives
  /// By its operands' type; kStackLoad: it changes no bit.
  ByType<StackOp> stack;
  bool exchanged = false;  ///< in stack code the operands change places: a > b is b < a
};

struct OperatorRow {
  ExprOp op;
  std::string_view sign;  ///< between two operands; empty: it is no such operator
  int precedence;         ///< of such an operator; those of C, from 1
  Operation operation;
};

/// From kToBool to kSelect, in the order of ExprOp.
std::span<const OperatorRow> expression_operators();

struct FunctionRow {
  std::string_view name;
  std::string_view alias;  ///< C's name for float, read as the same; empty if there is none
  int arity;
  ExprFunction function;
  bool polymorphic;  ///< i32, u32 or f32; otherwise f32
  Operation operation;
};

/// In the order of ExprFunction.
std::span<const FunctionRow> expression_functions();

/// The row of a name or an alias, or null.
const FunctionRow* find_function(std::string_view name);

/// What computes a node from its operands alone; null of a literal, coordinate, score or parameter.
const Operation* find_operation(const ExprNode& node);

/// The value of such a node.
/// @param operand_type the operands' type; of kSelect, that of the two alternatives.
ExprValue apply(const ExprNode& node, ExprType operand_type, std::span<const ExprValue> args);

/// Whether a node is an element of an array.
bool is_element(const ExprNode& node);

/// The element of an array parameter, with two indices of a matrix, with three of a cube; outside
/// it 0.
ExprValue element_of(const ParamView& param, ParamSpec::Type type,
                     std::span<const std::int32_t> indices);

/// A literal of CUDA C++. @pre a float is finite.
std::string literal_text(ExprType type, const ExprValue& value);

}  // namespace attnjit::spec
