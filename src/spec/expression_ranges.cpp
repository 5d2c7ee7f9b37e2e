// SPDX-License-Identifier: Apache-2.0
// Evaluates and prints an expression over ranges.
#include "spec/expression_ranges.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <variant>

#include "spec/expression_functions.h"
#include "spec/ranges.h"

namespace attnjit::spec {
namespace {

using Op = ExprOp;

/// What an operation is over ranges. Of leaves nothing is known.
RangeRule rule_of(const ExprNode& node) {
  const Operation* operation = find_operation(node);
  return operation == nullptr ? RangeRule{} : operation->range[node.type];
}

RangeValue unknown_of(ExprType type) {
  if (type == ExprType::kF32) return any_float();
  if (type == ExprType::kU32) return any_uint();
  return type == ExprType::kBool ? any_bool() : any_int();
}

RangeValue exact(ExprType type, const ExprValue& value) {
  if (type == ExprType::kF32) return range_of(static_cast<float>(value.f));
  if (type == ExprType::kU32) return range_of(static_cast<unsigned>(value.i));
  return range_of(value.i);
}

/// Both, and what is between them. @pre they are of one type
RangeValue hull_of(const RangeValue& a, const RangeValue& b) {
  return std::visit(
      [](const auto& x, const auto& y) -> RangeValue {
        if constexpr (requires { hull(x, y); }) {
          return hull(x, y);
        } else {
          return any_float();
        }
      },
      a, b);
}

/// Whether a node is a constant that can be written as a literal: infinity and NaN cannot.
bool is_literal(const ExprNode& node) { return node.constant && std::isfinite(node.value.f); }

/// Whether a coordinate may have several values in a tile: TileCoord then has their range.
bool differs_in_tile(Coord coord) {
  return coord == Coord::kH || coord == Coord::kQIdx || coord == Coord::kQRow ||
         coord == Coord::kKvIdx || coord == Coord::kTotalRow;
}

/// Whether an index may be one number in all of a tile: it names no coordinate that differs there,
/// or a quotient of it, as blocks are numbered.
bool may_be_one(const Expression& expression, const ExprNode& node) {
  if (node.op == Op::kDivide || node.op == Op::kShiftRight) return true;
  if (node.op == Op::kCoord) return !differs_in_tile(node.coord);
  for (int i = 0; i < node.num_args; ++i) {
    if (!may_be_one(expression, expression.nodes[node.args[i]])) return false;
  }
  return true;
}

bool is_known(const Expression& expression, const ExprNode& node) {
  if (node.num_args == 0) return true;
  if (is_element(node)) return may_be_one(expression, node);
  const RangeRule rule = rule_of(node);
  if (rule.name.empty()) return false;
  bool all = true, any = false;
  for (int i = 0; i < node.num_args; ++i) {
    const bool known = is_known(expression, expression.nodes[node.args[i]]);
    all &= known;
    any |= known;
  }
  return rule.unknown == Unknown::kBounded ? any : all;
}

class Printer {
 public:
  explicit Printer(const Expression& expression) : expression_(expression) {}

  std::string run() {
    print(expression_.root());
    return std::move(out_);
  }

 private:
  void print_call(std::string_view name, const ExprNode& node, std::string_view first = {}) {
    out_ += fmt::format("{}({}", name, first);
    for (int i = 0; i < node.num_args; ++i) {
      if (i > 0 || !first.empty()) out_ += ", ";
      print(expression_.nodes[node.args[i]]);
    }
    out_ += ')';
  }

  // Recursion is bounded by kMaxExpressionHeight.
  void print(const ExprNode& node) {
    if (is_literal(node)) {
      out_ += fmt::format("range_of({})", literal_text(node.type, node.value));
      return;
    }
    switch (node.op) {
      case Op::kCoord:
        return print_coordinate(node.coord);
      case Op::kParam:
        out_ += fmt::format("range_of(p.{})", expression_.params[node.param].name);
        return;
      case Op::kElement:
      case Op::kMatrixElement:
      case Op::kCubeElement:
        return print_call("range_element", node, "t, p." + expression_.params[node.param].name);
      default:
        break;
    }
    const RangeRule rule = rule_of(node);
    if (rule.name.empty() || node.constant) {
      out_ += "any_float()";
    } else {
      print_call(rule.name, node);
    }
  }

  void print_coordinate(Coord coord) {
    const std::string text = coord_text("t", coord);
    out_ += differs_in_tile(coord) ? text : fmt::format("range_of({})", text);
  }

  const Expression& expression_;
  std::string out_;
};

}  // namespace

struct RangeEvaluator::State {
  const Expression& expression;
  std::vector<ParamView> params;
  ArrayRanges arrays;
  bool any_params;  ///< nothing is known of them
  std::vector<RangeValue> values;
  std::vector<RangeRule> rules;

  State(const Expression& of, std::vector<ParamView> given, ArrayRanges known, bool any)
      : expression(of), params(std::move(given)), arrays(known), any_params(any) {
    params.resize(of.params.size());
    for (const ExprNode& node : of.nodes) {
      values.push_back(is_literal(node) ? exact(node.type, node.value) : unknown_of(node.type));
      rules.push_back(rule_of(node));
    }
  }

  static RangeValue coordinate(const ScoreTile& tile, Coord coord) {
    const auto range = [](const CoordRange& of) { return IntRange{of.lo, of.hi}; };
    switch (coord) {
      case Coord::kB:
        return range_of(tile.b);
      case Coord::kH:
        return range(tile.h);
      case Coord::kKvH:
        return range_of(tile.kv_h);
      case Coord::kQIdx:
        return range(tile.q_idx);
      case Coord::kQRow:
        return q_row_range(range(tile.q_idx), tile.q_len, tile.kv_len);
      case Coord::kKvIdx:
        return range(tile.kv_idx);
      case Coord::kQLen:
        return range_of(tile.q_len);
      case Coord::kTotalRow:
        return range_add(q_row_range(range(tile.q_idx), tile.q_len, tile.kv_len),
                         range_of(tile.first_row));
      case Coord::kKvLen:
        break;
    }
    return range_of(tile.kv_len);
  }

  /// How many elements an element's indices name; none where they are too many to read.
  std::optional<std::int64_t> elements(const ExprNode& node) const {
    const std::int64_t most = arrays == ArrayRanges::kKnown ? kMostElements : 1;
    std::int64_t count = 1;
    for (int i = 0; i < node.num_args; ++i) {
      const IntRange range = std::get<IntRange>(values[node.args[i]]);
      const std::int64_t extent = std::int64_t{range.hi} - range.lo + 1;
      if (extent > most) return std::nullopt;
      count *= extent;
      if (count > most) return std::nullopt;
    }
    return count;
  }

  RangeValue element(const ExprNode& node) const {
    const std::optional<std::int64_t> count = any_params ? std::nullopt : elements(node);
    if (!count) return unknown_of(node.type);
    RangeValue all;
    for (std::int64_t n = 0; n < *count; ++n) {
      std::array<std::int32_t, 3> index{};
      std::int64_t rest = n;
      for (int i = node.num_args - 1; i >= 0; --i) {
        const IntRange range = std::get<IntRange>(values[node.args[i]]);
        const std::int64_t extent = std::int64_t{range.hi} - range.lo + 1;
        index[i] = static_cast<std::int32_t>(range.lo + rest % extent);
        rest /= extent;
      }
      const RangeValue one =
          exact(node.type, element_of(params[node.param], expression.params[node.param].type,
                                      std::span<const std::int32_t>(index.data(), node.num_args)));
      all = n == 0 ? one : hull_of(all, one);
    }
    return all;
  }

  RangeValue compute(std::size_t n, const ScoreTile& tile) const {
    const ExprNode& node = expression.nodes[n];
    switch (node.op) {
      case Op::kCoord:
        return coordinate(tile, node.coord);
      case Op::kParam:
        if (any_params) return unknown_of(node.type);
        return exact(node.type, {params[node.param].i32, double{params[node.param].f32}});
      case Op::kElement:
      case Op::kMatrixElement:
      case Op::kCubeElement:
        return element(node);
      default:
        break;
    }
    if (rules[n].compute == nullptr) return unknown_of(node.type);
    std::array<RangeValue, 3> args;
    for (std::size_t i = 0; i < args.size() && i < node.num_args; ++i) {
      args[i] = values[node.args[i]];
    }
    return rules[n].compute(std::span<const RangeValue>(args.data(), node.num_args));
  }
};

RangeEvaluator::RangeEvaluator(const Expression& expression, std::vector<ParamView> params,
                               ArrayRanges arrays)
    : state_(new State(expression, std::move(params), arrays, false)) {}

RangeEvaluator::RangeEvaluator(const Expression& expression)
    : state_(new State(expression, {}, ArrayRanges::kUnknown, true)) {}

RangeEvaluator::~RangeEvaluator() = default;

TileStatus RangeEvaluator::status(const ScoreTile& tile) {
  for (std::size_t n = 0; n < state_->values.size(); ++n) {
    if (!state_->expression.nodes[n].constant) state_->values[n] = state_->compute(n, tile);
  }
  const IntRange visible = std::get<IntRange>(state_->values.back());
  return {visible.hi != 0, visible.lo == 0};
}

std::string print_cuda_ranges(const Expression& expression) { return Printer(expression).run(); }

bool reads_arrays(const Expression& expression) {
  return std::any_of(expression.nodes.begin(), expression.nodes.end(), [&](const ExprNode& node) {
    return is_element(node) && !node.constant && !may_be_one(expression, node);
  });
}

bool hides_again(const Expression& expression) {
  std::vector<bool> key_nodes;  // which nodes depend on kv_idx
  for (const ExprNode& node : expression.nodes) {
    bool keys = node.op == Op::kCoord && node.coord == Coord::kKvIdx;
    for (int i = 0; i < node.num_args; ++i) keys = keys || key_nodes[node.args[i]];
    key_nodes.push_back(keys);
    // NOTE: `&` and `^` of bools are no bits of a key.
    const bool bits =
        (node.op == Op::kBitAnd || node.op == Op::kBitXor) && node.type != ExprType::kBool;
    if (keys && (bits || node.op == Op::kModulo || is_element(node))) return true;
  }
  return false;
}

int looked_up_block(const Expression& expression, Coord coord) {
  const std::vector<ExprNode>& nodes = expression.nodes;
  int least = 0;
  for (const ExprNode& element : nodes) {
    if (!is_element(element)) continue;
    for (int i = 0; i < element.num_args; ++i) {
      const ExprNode& index = nodes[element.args[i]];
      if (index.op != Op::kDivide && index.op != Op::kShiftRight) continue;
      const ExprNode& what = nodes[index.args[0]];
      const ExprNode& by = nodes[index.args[1]];
      if (what.op != Op::kCoord || what.coord != coord || !by.constant) continue;
      const int value = by.value.i;
      if (index.op == Op::kShiftRight && (value < 0 || value > 30)) continue;
      const int block = index.op == Op::kShiftRight ? 1 << value : value;
      if (block > 0 && (least == 0 || block < least)) least = block;
    }
  }
  return least;
}

bool names(const Expression& expression, Coord coord) {
  return std::any_of(expression.nodes.begin(), expression.nodes.end(), [&](const ExprNode& node) {
    return node.op == Op::kCoord && node.coord == coord;
  });
}

bool decides_tiles(const Expression& expression) { return is_known(expression, expression.root()); }

}  // namespace attnjit::spec
