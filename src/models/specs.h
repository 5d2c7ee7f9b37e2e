// SPDX-License-Identifier: Apache-2.0
// The specs that serve a model: prompts and decodes of each kind of layer, on each number of GPUs.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "attnjit/result.h"
#include "attnjit/types.h"
#include "models/layers.h"

namespace attnjit::models {

struct ServingOptions {
  std::vector<int> tensor_parallel = {1};  ///< numbers of GPUs that share the heads
  std::vector<int> page_sizes = {16, 64};  ///< rows of the cache's pages
  std::optional<Dtype> kv_dtype = {};      ///< of the cache; by default the model's
};

/// The text of a manifest: one line for each spec, each once. Errors: kInvalid where the heads
/// cannot be divided.
Result<std::string> write_manifest(const ModelAttention& model, const std::string& name,
                                   const std::string& source, const ServingOptions& options);

}  // namespace attnjit::models
