// SPDX-License-Identifier: Apache-2.0
// Fuzz target: specs and manifests from JSON.
#include <string>

#include "attnjit/manifest.h"
#include "attnjit/spec.h"
#include "fuzz_check.h"
#include "fuzz_targets.h"

namespace attnjit::fuzz {
namespace {

void check_document(const SpecDocument& document) {
  require(validate(document.spec, document.options).empty());
  const std::string json = spec_to_json(document.spec, document.options);
  const Result<SpecDocument> again = spec_from_json(json);
  // NOTE: what a spec says by default is left out of its text.
  require(again.ok() && resolve(again->spec) == resolve(document.spec) &&
          again->options == document.options);
  require(spec_to_json(again->spec, again->options) == json);
  const AttentionSpec resolved = resolve(document.spec);
  require(resolved.ov_depth > 0 && resolved.output_dtype.has_value());
  require(validate(resolved, document.options).empty());
  require(resolve(resolved) == resolved);
}

}  // namespace

void fuzz_spec_json(std::string_view input) {
  const Result<SpecDocument> read = spec_from_json(input);
  if (read) {
    check_document(*read);
  } else {
    check_error(read.error());
  }
  const Result<Manifest> manifest = manifest_from_json(input);
  if (!manifest) return check_error(manifest.error());
  for (const Result<SpecDocument>& spec : manifest->specs) {
    if (!spec) check_error(spec.error());
  }
}

}  // namespace attnjit::fuzz
