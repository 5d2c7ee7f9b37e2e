// SPDX-License-Identifier: Apache-2.0
// The one table of a spec's fields: the JSON reader and writer, the validator and the command
// line's flags all read it, so a field is described once.
#pragma once

#include <algorithm>
#include <climits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <variant>
#include <vector>

#include "attnjit/spec.h"

namespace attnjit::spec {

/// The names of an enumeration's values, in their order.
std::span<const std::string_view> names_of(Mla);
std::span<const std::string_view> names_of(CacheFormat);
std::span<const std::string_view> names_of(VLayout);
std::span<const std::string_view> names_of(Scales);
std::span<const std::string_view> names_of(ParamSpec::Type);

template <class Enum>
concept NamedEnum = std::is_enum_v<Enum> && requires(Enum value) {
  names_of(value);
};

/// What `mask` and `score_mod` are.
template <class Node>
concept Masking = std::is_same_v<Node, MaskSpec> || std::is_same_v<Node, ScoreModSpec>;

template <NamedEnum Enum>
std::string_view to_string(Enum value) {
  return names_of(value)[static_cast<std::size_t>(value)];
}
template <NamedEnum Enum>
std::optional<Enum> from_string(std::string_view name) {
  const std::span<const std::string_view> names = names_of(Enum{});
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<Enum>(found - names.begin());
}

/// A top-level field of the flat JSON object, in canonical order.
struct SpecField {
  using Member = std::variant<int AttentionSpec::*, bool AttentionSpec::*, Arch AttentionSpec::*,
                              Mla AttentionSpec::*, Scales AttentionSpec::*, Dtype AttentionSpec::*,
                              std::optional<Dtype> AttentionSpec::*, CacheFormat AttentionSpec::*,
                              VLayout AttentionSpec::*, MaskSpec AttentionSpec::*,
                              ScoreModSpec AttentionSpec::*, std::optional<int> PlanOptions::*,
                              std::optional<bool> PlanOptions::*>;

  std::string_view name;
  Member member;
  std::string_view help;
  bool required = false;
  int min = 0;  ///< integers
  int max = INT_MAX;
  std::span<const int> values = {};    ///< integers: nothing but these, if not empty
  std::span<const Dtype> dtypes = {};  ///< element types: nothing but these
  /// What in the struct says "left out"; JSON leaves the field out.
  std::optional<int> unset = {};
};

std::span<const SpecField> spec_fields();
const SpecField* find_field(std::string_view name);

/// Whether a field is one of PlanOptions.
inline bool is_option(const SpecField& field) {
  return std::holds_alternative<std::optional<int> PlanOptions::*>(field.member) ||
         std::holds_alternative<std::optional<bool> PlanOptions::*>(field.member);
}

/// Calls visit() with what a document has of a field: an int, bool, Arch, NamedEnum, Dtype or
/// Masking, or an optional one.
template <class Document, class Visit>
decltype(auto) visit_field(const SpecField& field, Document&& document, Visit&& visit) {
  return std::visit(
      [&](auto member) -> decltype(auto) {
        if constexpr (std::is_invocable_v<decltype(member), PlanOptions>) {
          return visit(document.options.*member);
        } else {
          return visit(document.spec.*member);
        }
      },
      field.member);
}

/// What a field takes, for messages and --help: "an integer, 1 to 16384", "bf16, fp16, e4m3".
std::string allowed(const SpecField& field);

/// What a spec's field is, as canonical JSON text; of a mask or a score modification its kind.
std::string field_text(const SpecField& field, const AttentionSpec& spec);

/// The num_partitions of a spec that says nothing of them.
int default_partitions(const AttentionSpec& spec);

/// What is wrong with num_partitions where partition_keys is given as well.
std::string partitions_beside_keys(int num_partitions);

/// What a parameter of custom code is: a number (rank 0), or an array with so many indices.
struct ParamShape {
  Dtype element = Dtype::kI32;
  int rank = 0;
};
ParamShape shape_of(ParamSpec::Type type);

/// The element types of a materialized mask, and their names.
inline constexpr Dtype kMaskDtypes[] = {Dtype::kF32, Dtype::kU8, Dtype::kBits, Dtype::kBf16,
                                        Dtype::kFp16};
std::vector<std::string_view> dtype_names(std::span<const Dtype> dtypes);

/// Bounds that hold for every spec, so that hostile size ends in an error.
inline constexpr int kMaxMaskNodes = 64;
inline constexpr int kMaxMaskDepth = 16;
inline constexpr int kMaxParams = 32;
inline constexpr int kMaxProblems = 64;  ///< more are not collected

}  // namespace attnjit::spec
