// SPDX-License-Identifier: Apache-2.0
// The kinds of masks and of score modifications, a row each: the JSON reader and writer, the
// validator, the printer of types, the launch and the command line's flags all read these rows.
//
// What a kind means is said twice on purpose: by its device type (templates/common/) and by the
// reference that checks it (src/verify/mask_and_score_mod.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "attnjit/spec.h"

namespace attnjit::spec {

/// What else a number may be than one from min to max.
enum class Beside : std::uint8_t {
  kNothing,
  kUnbounded,  ///< -1, which stands for a bound that nothing reaches
  /// -1 too, and 0, which is a value: the kind then is of `type_without`, which lacks the number.
  kUnboundedOrAbsent,
};

/// A number that a kind takes: in the spec, or at launch where the spec leaves it out.
struct ScalarTraits {
  std::string_view name;  ///< in JSON, of the kernel's parameter and of the command line's flag
  double min, max;        ///< allowed, both included; 0 is never among them: it means "left out"
  double sample;          ///< what `verify` launches with where nobody gives a value
  Beside beside = Beside::kNothing;

  constexpr bool may_be_absent() const { return beside == Beside::kUnboundedOrAbsent; }
};

/// A number of a mask (Node is MaskSpec) or of a score modification (ScoreModSpec).
template <class Node>
struct KindScalar : ScalarTraits {
  /// Where the spec holds it. An integer is an i32 in the kernel, a real number an f32.
  std::variant<std::int64_t Node::*, double Node::*> member;

  bool is_integer() const { return member.index() == 0; }
  double get(const Node& node) const {
    return std::visit([&](auto at) { return static_cast<double>(node.*at); }, member);
  }
  void set(Node& node, double value) const {
    if (const auto* integer = std::get_if<std::int64_t Node::*>(&member)) {
      node.*(*integer) = static_cast<std::int64_t>(value);
    } else {
      node.*std::get<double Node::*>(member) = value;
    }
  }
};

/// What a kind holds beside its numbers.
enum class Holds : std::uint8_t {
  kNothing,
  kOperands,  ///< `of`: two masks or more
  kDtype,     ///< `dtype`, of a tensor given at launch
  kSlopes,    ///< `slopes`: whether they are a tensor given at launch
  kCode,      ///< `name`, `code`, `trusted`, `params`
};

template <class Node>
struct KindRow {
  std::string_view name;  ///< in JSON
  typename Node::Kind kind;
  /// The device type in namespace attnjit: templates/common/mask.cuh, score_mod.cuh. The kind's
  /// numbers are its template arguments, in order.
  std::string_view type;
  std::span<const KindScalar<Node>> scalars = {};
  Holds holds = Holds::kNothing;
  std::string_view type_without = {};  ///< where the last number is absent
  /// Of masks: the same in the language of custom code, a number as its name in braces; of those
  /// with operands, what stands between two. Empty: there is no such text.
  std::string_view expression = {};
};

/// The most keys of a window that is worth kernels of its own. Manifests have it `constant`, the
/// Python integrations ask for it so (python/attnjit/integrations/_specs.py), and the planner of
/// sm_90a knows it then.
inline constexpr std::int64_t kSmallWindow = 256;

/// Every kind, in the order of Node::Kind.
template <class Node>
std::span<const KindRow<Node>> kinds();
template <>
std::span<const KindRow<MaskSpec>> kinds();
template <>
std::span<const KindRow<ScoreModSpec>> kinds();

template <class Node>
const KindRow<Node>& row_of(const Node& node) {
  return kinds<Node>()[static_cast<std::size_t>(node.kind)];
}

/// Whether a node lacks the last number of its kind.
template <class Node>
bool lacks_last(const Node& node) {
  const auto scalars = row_of(node).scalars;
  return !scalars.empty() && scalars.back().may_be_absent() && scalars.back().get(node) == 0;
}

/// The numbers that a node has, and its device type.
template <class Node>
std::span<const KindScalar<Node>> scalars_of(const Node& node) {
  const auto all = row_of(node).scalars;
  return all.first(all.size() - (lacks_last(node) ? 1 : 0));
}
template <class Node>
std::string_view type_of(const Node& node) {
  return lacks_last(node) ? row_of(node).type_without : row_of(node).type;
}

/// The kinds' names in JSON.
template <class Node>
std::vector<std::string_view> kind_names() {
  std::vector<std::string_view> names;
  for (const KindRow<Node>& row : kinds<Node>()) names.push_back(row.name);
  return names;
}

/// The members that a kind takes in JSON beside `kind`.
template <class Node>
std::vector<std::string_view> member_names(const KindRow<Node>& row) {
  std::vector<std::string_view> names;
  for (const KindScalar<Node>& scalar : row.scalars) names.push_back(scalar.name);
  if (!row.scalars.empty()) names.push_back("constant");
  if (row.holds == Holds::kOperands) names.push_back("of");
  if (row.holds == Holds::kDtype) names.push_back("dtype");
  if (row.holds == Holds::kSlopes) names.push_back("slopes");
  if (row.holds == Holds::kCode) {
    names.insert(names.end(), {"name", "code", "trusted", "params"});
  }
  return names;
}

/// What a number may be: "an integer, 1 or more", "a number above 0 within the range of f32".
std::string allowed(const ScalarTraits& scalar, bool is_integer);
template <class Node>
std::string allowed(const KindScalar<Node>& scalar) {
  return allowed(scalar, scalar.is_integer());
}

/// True for a value that a number of a spec or a launch may have.
bool is_allowed(const ScalarTraits& scalar, bool is_integer, double value);
/// Such a value as the kernel gets it: no bound is one that nothing reaches.
double kernel_value(const ScalarTraits& scalar, double value);
template <class Node>
bool is_allowed(const KindScalar<Node>& scalar, double value) {
  return is_allowed(scalar, scalar.is_integer(), value);
}

/// Calls visit(scalar, node) for each number of a spec, in the order of launches: those of the
/// mask tree in preorder, then those of the score modification.
template <class Mask, class Visit>
void visit_mask_scalars(Mask& mask, Visit& visit) {
  const KindRow<MaskSpec>& row = row_of(mask);
  for (const KindScalar<MaskSpec>& scalar : scalars_of(std::as_const(mask))) visit(scalar, mask);
  if (row.holds != Holds::kOperands) return;
  for (auto& operand : mask.of) visit_mask_scalars(operand, visit);
}
template <class Spec, class Visit>
void visit_scalars(Spec& spec, Visit&& visit) {
  visit_mask_scalars(spec.mask, visit);
  for (const KindScalar<ScoreModSpec>& scalar : scalars_of(std::as_const(spec.score_mod))) {
    visit(scalar, spec.score_mod);
  }
}

}  // namespace attnjit::spec
