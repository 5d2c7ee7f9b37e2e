// SPDX-License-Identifier: Apache-2.0
// ResolvedSpec: a spec that was looked at once.
#include "spec/resolved_spec.h"

#include <utility>

#include "spec/json_value.h"
#include "spec/spec_reader.h"
#include "spec/text.h"

namespace attnjit {

namespace spec {

ResolvedSpec resolved_spec(SpecDocument document, Snippets snippets) {
  auto state = std::make_shared<ResolvedSpec::State>();
  state->spec = resolve(document.spec);
  state->given = std::move(document.spec);
  state->options = document.options;
  state->snippets = std::move(snippets);
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

const AttentionSpec& ResolvedSpec::operator*() const { return state_->spec; }
const AttentionSpec& ResolvedSpec::given() const { return state_->given; }
const PlanOptions& ResolvedSpec::options() const { return state_->options; }

}  // namespace attnjit
