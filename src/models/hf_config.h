// SPDX-License-Identifier: Apache-2.0
// Reads a Hugging Face configuration (config.json) as far as it describes attention.
//
// Thread rules: pure functions.
#pragma once

#include <string_view>

#include "attnjit/result.h"
#include "models/layers.h"

namespace attnjit::models {

/// The attention layers of a configuration; of a model with several parts, those of its language
/// model. Errors: kInvalid, with the field and its place in the text; an architecture that is not
/// known is named, with the known ones.
Result<ModelAttention> read_hf_config(std::string_view json);

}  // namespace attnjit::models
