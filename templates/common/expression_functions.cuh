// SPDX-License-Identifier: Apache-2.0
// The functions of floats that an expression may call: a row is all that the kernels and the
// library know of one.
//
//     ROW(Title, name, c_name, arity, value)
//
// Title: kStack<Title> is its instruction, k<Title> its ExprFunction. name: as expressions write
// it; the kernels call it expr_<name>. c_name: the device's function, and another spelling in
// expressions. value: in double, of a, b. A row is a RANGED one where range_<name> says what the
// function is over a range (common/ranges.cuh), and an OPAQUE one where nothing is told of how the
// device rounds it, and so neither whether it keeps its operand's order.
//
// NOTE: the library compiles this file for the host, too: it is plain C++. Functions that are
// instructions of their own for each type, as min, are not here
// (src/spec/expression_functions.cpp).
#pragma once

#define ATTNJIT_FLOAT_FUNCTIONS(OPAQUE, RANGED)       \
  OPAQUE(Exp, exp, expf, 1, std::exp(a))              \
  OPAQUE(Exp2, exp2, exp2f, 1, std::exp2(a))          \
  OPAQUE(Log, log, logf, 1, std::log(a))              \
  OPAQUE(Log2, log2, log2f, 1, std::log2(a))          \
  RANGED(Sqrt, sqrt, sqrtf, 1, std::sqrt(a))          \
  OPAQUE(Rsqrt, rsqrt, rsqrtf, 1, 1.0 / std::sqrt(a)) \
  OPAQUE(Tanh, tanh, tanhf, 1, std::tanh(a))          \
  OPAQUE(Sin, sin, sinf, 1, std::sin(a))              \
  OPAQUE(Cos, cos, cosf, 1, std::cos(a))              \
  OPAQUE(Erf, erf, erff, 1, std::erf(a))              \
  RANGED(Floor, floor, floorf, 1, std::floor(a))      \
  RANGED(Ceil, ceil, ceilf, 1, std::ceil(a))          \
  RANGED(Round, round, roundf, 1, std::round(a))      \
  RANGED(Trunc, trunc, truncf, 1, std::trunc(a))      \
  OPAQUE(Pow, pow, powf, 2, std::pow(a, b))           \
  OPAQUE(Fmod, fmod, fmodf, 2, std::fmod(a, b))

/// What a reader of some rows makes of the others.
#define ATTNJIT_NO_ROW(...)
/// Of so many parameters, declared with a type; and of so many of two arguments.
#define ATTNJIT_PARAMS_1(type) type a
#define ATTNJIT_PARAMS_2(type) type a, type b
#define ATTNJIT_ARGS_1(a, b) a
#define ATTNJIT_ARGS_2(a, b) a, b
