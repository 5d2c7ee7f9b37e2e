// SPDX-License-Identifier: Apache-2.0
// The numbers in a mask tree (window, chunk): their names as kernel parameters and as constants.
//
// Thread rules: pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "attnjit/spec.h"

namespace attnjit {

/// One window or chunk of a mask tree.
struct MaskScalar {
  const MaskSpec* node =
      nullptr;                ///< the sliding_window or chunked mask; lives as long as the tree
  std::string name;           ///< run-time parameter: "window", "window_1", .. and "chunk", ..
  std::string constant_name;  ///< Config member: "kWindow", "kWindow_1", .. and "kChunk", ..
  int position = 0;           ///< among the tree's windows, or chunks, in preorder: the suffix
  std::int64_t value = 0;     ///< the spec's; 0: given at launch
  bool constant = false;      ///< compiled in
};

/// All of a tree's, in preorder.
std::vector<MaskScalar> mask_scalars(const MaskSpec& mask);

/// The parameters of all custom code of a spec, in preorder of the mask tree, then the score
/// modification's; a name that several declare is there once.
std::vector<ParamSpec> user_parameters(const AttentionSpec& spec);

}  // namespace attnjit
