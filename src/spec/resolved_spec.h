// SPDX-License-Identifier: Apache-2.0
// What a ResolvedSpec holds, and how one is made.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "attnjit/spec.h"
#include "spec/scalars.h"
#include "spec/spec_facts.h"

namespace attnjit {

namespace spec {

/// What came of looking at a spec: its problems, and, where it has none, its custom code.
struct CheckedSpec {
  std::vector<Error> problems;
  Snippets snippets;
};
CheckedSpec check_spec(const AttentionSpec& spec, const PlanOptions& options);

/// Who says which architecture a spec is for. Only where the spec itself does, its arch means
/// anything; else with_arch() is to give it one (driver/native_arch.h).
enum class ArchFrom : std::uint8_t {
  kSpec,
  kNative,   ///< "native": that of the GPU at hand
  kNothing,  ///< it is left out, which means the same
};
inline constexpr std::string_view kNativeArch = "native";

/// @pre check_spec found no problem of this document, and gave `snippets`.
ResolvedSpec resolved_spec(SpecDocument document, Snippets snippets,
                           ArchFrom arch_from = ArchFrom::kSpec);

/// The same spec for an architecture.
ResolvedSpec with_arch(const ResolvedSpec& spec, Arch arch);

}  // namespace spec

struct ResolvedSpec::State {
  AttentionSpec given;
  SpecFacts spec;  ///< with its defaults, and built-in masks for expressions that are no more
  PlanOptions options;
  spec::ArchFrom arch_from = spec::ArchFrom::kSpec;
  spec::Snippets snippets;
  // Of `spec`: each launch asks.
  std::vector<ParamSpec> params;          ///< declared_params()
  std::vector<spec::SpecScalar> scalars;  ///< spec_scalars()
};

}  // namespace attnjit
