// SPDX-License-Identifier: Apache-2.0
// Collects the numbers of a mask tree and the parameters of a spec's custom code.
#include "plan/mask_scalars.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnjit {
namespace {

void collect(const MaskSpec& mask, int& windows, int& chunks, std::vector<MaskScalar>& found) {
  const auto add = [&](const char* name, const char* constant_name, int position,
                       std::int64_t value) {
    const std::string suffix = position == 0 ? "" : fmt::format("_{}", position);
    found.push_back({&mask, name + suffix, constant_name + suffix, position, value, mask.constant});
  };
  if (mask.kind == MaskSpec::Kind::kSlidingWindow) add("window", "kWindow", windows++, mask.window);
  if (mask.kind == MaskSpec::Kind::kChunked) add("chunk", "kChunk", chunks++, mask.chunk);
  for (const MaskSpec& child : mask.of) collect(child, windows, chunks, found);
}

void collect(const std::vector<ParamSpec>& params, std::vector<ParamSpec>& found) {
  for (const ParamSpec& param : params) {
    const bool known = std::any_of(found.begin(), found.end(), [&](const ParamSpec& other) {
      return other.name == param.name;
    });
    if (!known) found.push_back(param);
  }
}

void collect(const MaskSpec& mask, std::vector<ParamSpec>& found) {
  if (mask.kind == MaskSpec::Kind::kCustom) collect(mask.custom.params, found);
  for (const MaskSpec& child : mask.of) collect(child, found);
}

}  // namespace

std::vector<MaskScalar> mask_scalars(const MaskSpec& mask) {
  std::vector<MaskScalar> found;
  int windows = 0;
  int chunks = 0;
  collect(mask, windows, chunks, found);
  return found;
}

std::vector<ParamSpec> user_parameters(const AttentionSpec& spec) {
  std::vector<ParamSpec> found;
  collect(spec.mask, found);
  if (spec.score_mod.kind == ScoreModSpec::Kind::kCustom) {
    collect(spec.score_mod.custom.params, found);
  }
  return found;
}

}  // namespace attnjit
