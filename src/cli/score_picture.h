// SPDX-License-Identifier: Apache-2.0
// What a score modification makes of scores: of one score at each place, and of every score at a
// few places.
//
// Thread rules: plain values and pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "attnjit/spec.h"
#include "verify/given_inputs.h"
#include "verify/problem.h"

namespace attnjit::cli {

/// What is asked: of which head's scores, and which of them.
struct ScoreQuestion {
  std::int64_t sequence = 0, head = 0;
  double score = 0;              ///< at every place
  verify::NamedTensors tensors;  ///< that the mask and the score modification read
};

struct ScorePicture {
  /// A place in the last row, and what becomes there of each of `before`.
  struct Curve {
    int kv_idx = 0;
    std::vector<double> after;
  };

  std::string title;  ///< the score modification, in words
  double score = 0;
  int q_len = 0, kv_len = 0;
  int cell_queries = 1, cell_keys = 1;
  /// What becomes of `score` in the middle of each cell, the first queries first; nothing where the
  /// mask hides it.
  std::vector<std::vector<std::optional<double>>> rows;
  std::vector<double> before;
  std::vector<Curve> curves;  ///< those that differ

  /// A line a row of cells, and what the signs say.
  std::string text() const;
  std::string json() const;
  /// The cells in shades, and the curves beside them.
  std::string svg() const;
};

/// Errors: kInvalid where a parameter or a number has no value, and of a head or a sequence that
/// there is none of; kUnsupported for trusted code.
Result<ScorePicture> draw_score_mod(const ResolvedSpec& spec, ScoreQuestion question,
                                    const verify::ProblemRequest& request);

}  // namespace attnjit::cli
