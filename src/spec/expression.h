// SPDX-License-Identifier: Apache-2.0
// The expression language of custom masks and score modifications: a typed AST, parsed from a
// snippet, printed as CUDA C++ and evaluated on the CPU.
//
// Grammar: the expressions of C over bool, int (i32), u32 and float (f32), with calls of the listed
// functions and elements of declared parameters; no comma operator, assignment, pointer, string,
// name or statement. Meanings that C leaves open are fixed, in the kernel and here alike:
// integers wrap; / and % truncate, by zero they give 0, and INT_MIN / -1 wraps; shift counts are
// taken modulo 32 and >> of an int keeps the sign; (int) and (u32) of a float truncate and
// saturate, NaN gives 0; an index outside an array reads 0; && || ?: have no effects to skip, since
// every operation is total. One meaning differs from C: & | ^ of two bools is a bool.
//
// Thread rules: Expression is a plain value; an Evaluator belongs to one thread at a time.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/spec.h"
#include "spec/names.h"

#include "../../templates/common/expression_functions.cuh"

namespace attnjit::spec {

/// What a snippet computes: whether a key is visible (bool), or a new score (f32).
enum class SnippetKind : std::uint8_t { kMask, kScoreMod };

enum class ExprType : std::uint8_t { kBool, kI32, kU32, kF32 };
std::span<const std::string_view> names_of(ExprType);  ///< "bool", "int", "u32", "float"

/// What a node computes. Operands have been converted: those of an operator have one type.
enum class ExprOp : std::uint8_t {
  kLiteral,        ///< of the node's type; see ExprNode::value
  kCoord,          ///< i32
  kScore,          ///< f32
  kParam,          ///< a scalar parameter
  kElement,        ///< params[param][args[0]]
  kMatrixElement,  ///< params[param][args[0]][args[1]]
  kCubeElement,    ///< params[param][args[0]][args[1]][args[2]]
  kToBool,         ///< != 0
  kToI32,
  kToU32,
  kToF32,
  kNot,     ///< bool
  kNegate,  ///< i32, u32 or f32
  kBitNot,  ///< i32 or u32
  kAdd,     ///< i32, u32 or f32, as the next three
  kSubtract,
  kMultiply,
  kDivide,
  kModulo,  ///< i32 or u32, as the next two
  kShiftLeft,
  kShiftRight,
  kBitAnd,  ///< i32, u32 or bool, as the next two
  kBitOr,
  kBitXor,
  kLess,  ///< bool, of i32, u32 or f32, as the next five
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kEqual,
  kNotEqual,
  kAnd,  ///< bool, as the next one
  kOr,
  kSelect,  ///< args[0] ? args[1] : args[2]
  kCall,
};

/// Functions that an expression may call. min, max and abs take i32, u32 or f32; the others f32.
enum class ExprFunction : std::uint8_t {
  kMin,
  kMax,
  kAbs,
  kFabs,
  kFmin,
  kFmax,
  kFma,
#define ATTNJIT_ENUMERATOR(Title, ...) k##Title,
  ATTNJIT_FLOAT_FUNCTIONS(ATTNJIT_ENUMERATOR, ATTNJIT_ENUMERATOR)
#undef ATTNJIT_ENUMERATOR
};

/// A value of any type: bool (0 or 1), i32 and the bits of a u32 in `i`, f32 in `f`.
struct ExprValue {
  std::int32_t i = 0;
  double f = 0;
};

struct ExprNode {
  ExprOp op = ExprOp::kLiteral;
  ExprType type = ExprType::kI32;
  Coord coord = Coord::kB;                     ///< kCoord
  ExprFunction function = ExprFunction::kMin;  ///< kCall
  std::uint8_t num_args = 0;
  bool constant = false;    ///< every leaf below is a literal: `value` is this node's value
  bool uses_score = false;  ///< depends on `score`
  std::int16_t height = 1;  ///< nodes on the longest path down from here
  std::int32_t param = -1;  ///< index of the declared parameter
  std::array<std::int32_t, 3> args{-1, -1, -1};  ///< indices of nodes, each below this node's
  ExprValue value;
  int line = 0;  ///< where in the snippet: an operator's sign, a name, a literal
  int column = 0;
};

/// A snippet that parsed and whose types are right. Nodes are in postorder: operands before their
/// operator, the root last. Of type bool for a mask, f32 for a score modification.
struct Expression {
  SnippetKind kind = SnippetKind::kMask;
  std::vector<ParamSpec> params;
  std::vector<ExprNode> nodes;

  const ExprNode& root() const { return nodes.back(); }
};

/// Bounds that keep hostile snippets cheap, for the parser, the printer and the compiler after it.
inline constexpr std::size_t kMaxExpressionLength = 16 << 10;  ///< bytes
inline constexpr int kMaxExpressionNesting = 256;  ///< prefixes 1, brackets, calls and ?: 2 each
inline constexpr int kMaxExpressionHeight = 256;   ///< of the AST
inline constexpr int kMaxExpressionNodes = 2048;

/// Parses and type-checks a snippet of the expression tier.
/// Errors: kInvalid with line, column and a hint; `field` is left empty.
/// @pre the params' names are good (validate).
Result<Expression> parse_expression(std::string_view code, SnippetKind kind,
                                    std::span<const ParamSpec> params);

/// The expression as CUDA C++, printed from the AST: coordinates as c.q_idx, c.q_row() and
/// total_row(c, p), the score as score, parameters as p.NAME, array_at(p.NAME, i),
/// matrix_at(p.NAME, i, j), cube_at(p.NAME, i, j, k); operators whose meaning C leaves open as
/// expr_add(a, b) and so on; functions as expr_<name>(..); casts as to_i32, to_u32, to_f32.
/// templates/common/expression.cuh defines all of them. Deterministic.
std::string print_cuda(const Expression& expression);

/// A coordinate of the kernels' Coord or TileCoord that `place` names: "c.q_idx", "c.q_row()",
/// "total_row(c, p)".
std::string coord_text(std::string_view place, Coord coord);

/// Where a score stands.
struct Coordinates {
  std::int32_t b = 0, h = 0, kv_h = 0, q_idx = 0, kv_idx = 0, q_len = 0, kv_len = 0;
  std::int32_t first_row = 0;  ///< rows of q before the sequence's

  /// The row within the call's sequence.
  std::int32_t q_row() const {
    return static_cast<std::int32_t>(static_cast<std::uint32_t>(q_idx) -
                                     static_cast<std::uint32_t>(kv_len) +
                                     static_cast<std::uint32_t>(q_len));
  }
};

/// The value of one declared parameter. Arrays are borrowed; a vector has `rows` elements, a
/// row-major matrix rows * columns, a cube as many in each of its planes.
struct ParamView {
  std::int32_t i32 = 0;  ///< or the bits of a u32
  float f32 = 0;
  const std::int32_t* i32_data = nullptr;  ///< or of u32
  const float* f32_data = nullptr;
  const std::uint16_t* bf16_data = nullptr;
  std::int64_t planes = 0;
  std::int64_t rows = 0;
  std::int64_t columns = 0;
};

/// Evaluates an expression for the float64 reference. What depends on the score is computed in
/// double. What does not is rounded to f32 after each operation, so that a comparison decides as
/// it does in the kernel.
class Evaluator {
 public:
  /// Borrows the expression and the arrays. @param params in the order of Expression::params.
  Evaluator(const Expression& expression, std::vector<ParamView> params);

  /// @pre the expression is a mask's.
  bool visible(const Coordinates& at) { return run(at, 0).i != 0; }
  /// @pre the expression is a score modification's.
  double score(const Coordinates& at, double score) { return run(at, score).f; }

 private:
  ExprValue run(const Coordinates& at, double score);

  const Expression& expression_;
  std::vector<ParamView> params_;
  std::vector<ExprValue> values_;
};

}  // namespace attnjit::spec
