// SPDX-License-Identifier: Apache-2.0
// Computes which keys each kind of mask shows, and what each score modification makes of a score.
#include "verify/mask_and_score_mod.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "spec/names.h"
#include "verify/custom.h"
#include "verify/mask_map.h"
#include "verify/numeric.h"

namespace attnjit::verify {
namespace {

using Visible = std::function<bool(const spec::Coordinates&)>;
using Modify = std::function<double(double, const spec::Coordinates&)>;
using Range = std::function<KeyRange(int, int)>;

constexpr KeyRange kEverything{std::numeric_limits<std::int64_t>::min(),
                               std::numeric_limits<std::int64_t>::max()};

// Element of a materialized mask for a score: [batch or 1, heads or 1, q_len or 1, kv_len].
std::int64_t mask_index(const Tensor& mask, const spec::Coordinates& at, std::int64_t column) {
  std::int64_t index = mask.shape[0] == 1 ? 0 : at.b;
  index = index * mask.shape[1] + (mask.shape[1] == 1 ? 0 : at.h);
  index = index * mask.shape[2] + (mask.shape[2] == 1 ? 0 : at.q_row());
  return index * mask.shape[3] + column;
}

/// The keys of a window: -1 is no bound.
Range window_range(const MaskSpec& mask) {
  return [left = mask.window, right = mask.window_right](int q_idx, int) {
    return KeyRange{left == -1 ? kEverything.begin : q_idx - left + 1,
                    right == -1 ? kEverything.end : q_idx + right + 1};
  };
}

Result<Visible> visibility(const MaskSpec& mask, const Problem& problem) {
  switch (mask.kind) {
    case MaskSpec::Kind::kNull:
      return Visible([](const spec::Coordinates&) { return true; });
    case MaskSpec::Kind::kCausal:
      return Visible([](const spec::Coordinates& at) { return at.kv_idx <= at.q_idx; });
    case MaskSpec::Kind::kSlidingWindow:
      return Visible([window = window_range(mask)](const spec::Coordinates& at) {
        const KeyRange seen = window(at.q_idx, at.kv_len);
        return seen.begin <= at.kv_idx && at.kv_idx < seen.end;
      });
    case MaskSpec::Kind::kChunked:
      return Visible([chunk = mask.chunk](const spec::Coordinates& at) {
        return floor_divide(at.q_idx, chunk) == floor_divide(at.kv_idx, chunk);
      });
    case MaskSpec::Kind::kAnd:
    case MaskSpec::Kind::kOr: {
      const bool all = mask.kind == MaskSpec::Kind::kAnd;
      std::vector<Visible> children;
      for (const MaskSpec& child : mask.of) {
        Result<Visible> one = visibility(child, problem);
        if (!one) return one;
        children.push_back(std::move(*one));
      }
      return Visible([all, children = std::move(children)](const spec::Coordinates& at) {
        for (const Visible& child : children) {
          if (child(at) != all) return !all;
        }
        return all;
      });
    }
    case MaskSpec::Kind::kMaterialized: {
      const Tensor* tensor = &problem.at("mask");
      if (mask.dtype == Dtype::kBits) {
        return Visible([tensor](const spec::Coordinates& at) {
          const auto byte = static_cast<std::size_t>(mask_index(*tensor, at, at.kv_idx / 8));
          return (tensor->bytes[byte] >> at.kv_idx % 8 & 1) != 0;
        });
      }
      if (mask.dtype == Dtype::kU8) {
        return Visible([tensor](const spec::Coordinates& at) {
          return tensor->bytes[static_cast<std::size_t>(mask_index(*tensor, at, at.kv_idx))] != 0;
        });
      }
      return Visible([tensor](const spec::Coordinates& at) {
        return load_float(*tensor, mask_index(*tensor, at, at.kv_idx)) !=
               -std::numeric_limits<float>::infinity();
      });
    }
    case MaskSpec::Kind::kCustom: {
      auto function = CustomFunction::make(mask.custom, spec::SnippetKind::kMask, problem);
      if (!function) return std::move(function).error();
      return Visible([function = std::move(*function)](const spec::Coordinates& at) {
        return function->visible(at);
      });
    }
  }
  return make_error(ErrorCode::kInternal, "a mask of unknown kind", "mask");
}

Range range_of(const MaskSpec& mask) {
  switch (mask.kind) {
    case MaskSpec::Kind::kCausal:
      return [](int q_idx, int) { return KeyRange{0, std::int64_t{q_idx} + 1}; };
    case MaskSpec::Kind::kSlidingWindow:
      return window_range(mask);
    case MaskSpec::Kind::kChunked:
      return [chunk = mask.chunk](int q_idx, int) {
        const std::int64_t begin = floor_divide(q_idx, chunk) * chunk;
        return KeyRange{begin, begin + chunk};
      };
    case MaskSpec::Kind::kAnd:
    case MaskSpec::Kind::kOr: {
      std::vector<Range> children;
      for (const MaskSpec& child : mask.of) children.push_back(range_of(child));
      const bool all = mask.kind == MaskSpec::Kind::kAnd;
      return [all, children = std::move(children)](int q_idx, int kv_len) {
        KeyRange range = children.front()(q_idx, kv_len);
        for (const Range& child : children) {
          const KeyRange other = child(q_idx, kv_len);
          range.begin =
              all ? std::max(range.begin, other.begin) : std::min(range.begin, other.begin);
          range.end = all ? std::min(range.end, other.end) : std::max(range.end, other.end);
        }
        return range;
      };
    }
    default:
      return [](int, int) { return kEverything; };
  }
}

Result<Modify> modification(const Problem& problem) {
  const ScoreModSpec& mod = problem.spec.score_mod;
  switch (mod.kind) {
    case ScoreModSpec::Kind::kIdentity:
      return Modify([](double score, const spec::Coordinates&) { return score; });
    case ScoreModSpec::Kind::kAlibi: {
      std::vector<double> slopes;
      slopes.reserve(static_cast<std::size_t>(problem.spec.num_q_heads));
      for (int h = 0; h < problem.spec.num_q_heads; ++h) {
        slopes.push_back(mod.slopes ? double{problem.at("slopes").as<float>()[h]}
                                    : alibi_slope(h, problem.spec.num_q_heads));
      }
      return Modify([slopes = std::move(slopes)](double score, const spec::Coordinates& at) {
        return score - slopes[at.h] * std::abs(double{1} * at.q_idx - at.kv_idx);
      });
    }
    case ScoreModSpec::Kind::kSoftcap:
      return Modify(
          [cap = double{static_cast<float>(mod.cap)}](double score, const spec::Coordinates&) {
            return cap * std::tanh(score / cap);
          });
    case ScoreModSpec::Kind::kCustom: {
      auto function = CustomFunction::make(mod.custom, spec::SnippetKind::kScoreMod, problem);
      if (!function) return std::move(function).error();
      return Modify([function = std::move(*function)](double score, const spec::Coordinates& at) {
        return function->score(at, score);
      });
    }
  }
  return make_error(ErrorCode::kInternal, "a score modification of unknown kind", "score_mod");
}

}  // namespace

double alibi_slope(int h, int heads) {
  int power = 1;
  while (power * 2 <= heads) power *= 2;
  if (h < power) return std::exp2(-8.0 * (h + 1) / power);
  // The odd members of the sequence for twice as many heads.
  return std::exp2(-8.0 * (2 * (h - power) + 1) / (2 * power));
}

Result<MaskAndScoreMod> MaskAndScoreMod::of(const Problem& problem) {
  MaskAndScoreMod rules;
  Result<Visible> visible = visibility(problem.spec.mask, problem);
  if (!visible) return std::move(visible).error();
  Result<Modify> modify = modification(problem);
  if (!modify) return std::move(modify).error();
  rules.visible_ = std::move(*visible);
  rules.range_ = range_of(problem.spec.mask);
  if (problem.mask_map.use == MaskMapUse::kRead) {
    rules.visible_ = [map = GivenMap(problem),
                      mask = std::move(rules.visible_)](const spec::Coordinates& at) {
      const BlockSeen seen = map.at(at.b, at.h, at.q_row(), at.kv_idx);
      return seen == BlockSeen::kWhole || (seen == BlockSeen::kInPart && mask(at));
    };
    rules.range_ = [](int, int) { return kEverything; };
  }
  rules.modify_ = std::move(*modify);
  if (spec::adds_to_scores(problem.spec.mask)) {
    rules.modify_ = [tensor = &problem.at("mask"), inner = std::move(rules.modify_)](
                        double score, const spec::Coordinates& at) {
      return inner(score, at) + double{load_float(*tensor, mask_index(*tensor, at, at.kv_idx))};
    };
  }
  return rules;
}

}  // namespace attnjit::verify
