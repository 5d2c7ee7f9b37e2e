// SPDX-License-Identifier: Apache-2.0
// Fuzz target: manifests.
#include "attnjit/manifest.h"

#include <string>

#include "fuzz_check.h"
#include "fuzz_targets.h"

namespace attnjit::fuzz {

void fuzz_manifest(std::string_view input) {
  const Result<Manifest> manifest = manifest_from_json(input);
  if (!manifest) return check_error(manifest.error());
  require(manifest->specs.size() <= 65536);
  for (std::size_t i = 0; i < manifest->specs.size(); ++i) {
    const Result<SpecDocument>& spec = manifest->specs[i];
    if (!spec) {
      check_error(spec.error());
      require(spec.error().field.starts_with("specs[" + std::to_string(i) + "]"));
      continue;
    }
    require(validate(spec->spec, spec->options).empty());
    require(spec->spec.arch == AttentionSpec{}.arch);
  }
}

}  // namespace attnjit::fuzz
