// SPDX-License-Identifier: Apache-2.0
// Specs by name over what the kernels of both families serve: what compile reports compile, and
// what scripts/same-kernels compares.
//
// Thread rules: pure functions; manifest_specs reads files.
#pragma once

#include <string>
#include <vector>

#include "attnjit/spec.h"

namespace attnjit::kernel_test {

struct NamedSpec {
  std::string name;
  AttentionSpec spec;
  PlanOptions options;
};

/// The specs of the manifests in cache/, for each of the architectures.
std::vector<NamedSpec> manifest_specs(const std::vector<Arch>& archs);

/// sm_90a: depths, types, masks and layouts, each with each, and absorbed MLA. Some of them no
/// kernel serves.
std::vector<NamedSpec> sm90_grid();

/// sm_100a and sm_103a: keys split by number and by keys, over every way in which K and V come.
std::vector<NamedSpec> sm100_grid();

}  // namespace attnjit::kernel_test
