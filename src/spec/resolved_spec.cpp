// SPDX-License-Identifier: Apache-2.0
// ResolvedSpec: a spec that was looked at once.
#include "spec/resolved_spec.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "spec/builtin.h"
#include "spec/json_value.h"
#include "spec/names.h"
#include "spec/scalars.h"
#include "spec/spec_reader.h"
#include "spec/text.h"

namespace attnjit {

namespace spec {
namespace {

/// Puts built-in masks for expressions that are no more, and takes the others' snippets over in
/// their order. An expression with parameters stays: a launch gives them.
void with_builtin_masks(MaskSpec& mask, Snippets::iterator& next, Snippets& kept) {
  for (MaskSpec& operand : mask.of) with_builtin_masks(operand, next, kept);
  if (mask.kind != MaskSpec::Kind::kCustom) return;
  std::optional<Expression>& snippet = *next++;
  if (snippet && mask.custom.params.empty()) {
    if (const auto builtin = builtin_mask(*snippet)) {
      mask = {};
      mask.kind = *builtin;
      return;
    }
  }
  kept.push_back(std::move(snippet));
}

/// The same of the score modification, whose snippet is the last.
void with_builtin_score_mod(ScoreModSpec& score_mod, Snippets::iterator& next) {
  const bool has_code = score_mod.kind == ScoreModSpec::Kind::kCustom && *next;
  if (!has_code || !score_mod.custom.params.empty()) return;
  const auto builtin = builtin_score_mod(**next);
  if (!builtin) return;
  score_mod = *builtin;
  ++next;
}

}  // namespace

ResolvedSpec resolved_spec(SpecDocument document, Snippets snippets, ArchFrom arch_from) {
  auto state = std::make_shared<ResolvedSpec::State>();
  state->arch_from = arch_from;
  AttentionSpec resolved = resolve(document.spec);
  // Pairs of CTAs split no keys: where they are asked for, what is not said is one partition.
  if (document.options.pair_cta.value_or(false) &&
      document.spec.num_partitions == AttentionSpec::kDefaultPartitions) {
    resolved.num_partitions = 1;
  }
  state->given = std::move(document.spec);
  state->options = document.options;
  auto next = snippets.begin();
  // NOTE: of what is interpreted the kernel is not to depend.
  if (!resolved.interpreted) {
    with_builtin_masks(resolved.mask, next, state->snippets);
    with_builtin_score_mod(resolved.score_mod, next);
  }
  std::move(next, snippets.end(), std::back_inserter(state->snippets));
  state->spec = SpecFacts(std::move(resolved), state->snippets);
  state->params = declared_params(state->spec);
  state->scalars = spec_scalars(state->spec);
  return ResolvedSpec(std::move(state));
}

ResolvedSpec with_arch(const ResolvedSpec& spec, Arch arch) {
  auto state = std::make_shared<ResolvedSpec::State>(spec.state());
  state->given.arch = state->spec.arch = arch;
  state->arch_from = ArchFrom::kSpec;
  return ResolvedSpec(std::move(state));
}

}  // namespace spec

ResolvedSpec::ResolvedSpec() {
  static const auto nothing = std::make_shared<const State>();
  state_ = nothing;
}

Result<ResolvedSpec> ResolvedSpec::make(const AttentionSpec& spec, const PlanOptions& options) {
  spec::CheckedSpec checked = spec::check_spec(spec, options);
  if (!checked.problems.empty()) return spec::combine(std::move(checked.problems));
  return spec::resolved_spec({spec, options}, std::move(checked.snippets));
}

Result<ResolvedSpec> ResolvedSpec::from_json(std::string_view json) {
  Result<spec::JsonValue> root = spec::parse_json(json);
  if (!root) return std::move(root).error();
  return spec::read_spec(*root);
}

std::optional<SpecDocument> fallback_spec(const ResolvedSpec& spec) {
  if (spec->interpreted || spec->merge) return std::nullopt;
  const auto scalars = spec::spec_scalars(spec);
  const bool constants =
      std::any_of(scalars.begin(), scalars.end(), [](const auto& one) { return one.constant; });
  const spec::Snippets& snippets = spec.state().snippets;
  if (snippets.empty() && !constants) return std::nullopt;
  // A trusted body is no expression.
  if (!std::all_of(snippets.begin(), snippets.end(), [](const auto& one) { return one; })) {
    return std::nullopt;
  }
  SpecDocument document{spec.given(), spec.options()};
  document.spec.mask = spec->mask;  // expressions that are no more than a built-in mask are that
  document.spec.interpreted = true;
  return document;
}

const AttentionSpec& ResolvedSpec::operator*() const { return state_->spec; }
ResolvedSpec::operator const SpecFacts&() const { return state_->spec; }
const AttentionSpec& ResolvedSpec::given() const { return state_->given; }
const PlanOptions& ResolvedSpec::options() const { return state_->options; }

}  // namespace attnjit
