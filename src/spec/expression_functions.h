// SPDX-License-Identifier: Apache-2.0
// The functions that an expression may call, and what each operation of an AST node computes.
//
// Thread rules: constant data and pure functions.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "spec/expression.h"

namespace attnjit::spec {

struct FunctionRow {
  std::string_view name;   ///< as the kernel's helper expr_<name> is called
  std::string_view alias;  ///< C's name for float, read as the same; empty if there is none
  int arity;
  ExprFunction function;
  bool polymorphic;  ///< i32, u32 or f32; otherwise f32
};

/// In the order of ExprFunction.
std::span<const FunctionRow> expression_functions();

/// The row of a name or an alias, or null.
const FunctionRow* find_function(std::string_view name);

/// The value of a node that is computed from its operands alone: not a literal, coordinate, score
/// or parameter.
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
