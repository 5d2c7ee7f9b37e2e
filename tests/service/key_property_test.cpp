// SPDX-License-Identifier: Apache-2.0
// "Equal text if and only if equal key", over random pairs of specs: two requests share a key
// exactly where the compiler would be given the same.
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "../sanitized.h"
#include "attnjit/cache.h"
#include "attnjit/plan.h"
#include "attnjit/source.h"

namespace attnjit {
namespace {

using Random = std::mt19937;

template <class T>
T one_of(Random& random, const std::vector<T>& values) {
  return values[random() % values.size()];
}

MaskSpec random_mask(Random& random, int depth = 0) {
  using Kind = MaskSpec::Kind;
  MaskSpec mask;
  std::vector<Kind> kinds{Kind::kNull, Kind::kCausal, Kind::kSlidingWindow, Kind::kChunked,
                          Kind::kCustom};
  if (depth < 2) kinds.insert(kinds.end(), {Kind::kAnd, Kind::kOr});
  mask.kind = one_of(random, kinds);
  mask.constant = random() % 3 == 0;
  switch (mask.kind) {
    case Kind::kSlidingWindow:
      mask.window = one_of<std::int64_t>(random, {1, 2, 300});
      break;
    case Kind::kChunked:
      mask.chunk = one_of<std::int64_t>(random, {1, 2, 300});
      break;
    case Kind::kAnd:
    case Kind::kOr:
      mask.of = {random_mask(random, depth + 1), random_mask(random, depth + 1)};
      break;
    case Kind::kCustom: {
      // Three spellings of one thing, and another thing. The name is the code's: names are unique.
      const std::vector<std::string> codes{"q_idx > p.a", "q_idx>p.a", "( q_idx ) > p.a",
                                           "q_idx > p.a + 1"};
      const std::size_t code = random() % codes.size();
      mask.custom = {std::string(1, static_cast<char>('k' + code)),
                     codes[code],
                     false,
                     {{"a", ParamSpec::Type::kI32}}};
      break;
    }
    default:
      break;
  }
  return mask;
}

ScoreModSpec random_score_mod(Random& random) {
  using Kind = ScoreModSpec::Kind;
  ScoreModSpec mod;
  mod.kind = one_of(
      random, std::vector<Kind>{Kind::kIdentity, Kind::kAlibi, Kind::kSoftcap, Kind::kCustom});
  if (mod.kind == Kind::kSoftcap) {
    mod.cap = one_of<double>(random, {1.5, 1.5000000001, 50});  // the first two are one f32
    mod.constant = random() % 2 == 0;
  }
  if (mod.kind == Kind::kCustom) {
    mod.custom = {"s",
                  one_of<std::string>(random, {"score * 2", "score*2.0", "score * p.x"}),
                  false,
                  {{"x", ParamSpec::Type::kF32}}};
    if (random() % 3 == 0) {
      mod.custom.trusted = true;
      mod.custom.code = "return score * 2.0f;";
    }
  }
  return mod;
}

/// Changes one thing of a spec; whether it matters to the kernel is for the key to say.
void change(Random& random, AttentionSpec& spec, PlanOptions& options) {
  const std::vector<std::function<void()>> changes = {
      [&] {
        spec.num_q_heads = one_of<int>(random, {8, 16, 32});
      },
      [&] {
        spec.group = one_of<int>(random, {1, 2, 4});
      },
      [&] {
        spec.qk_depth = one_of<int>(random, {64, 96, 128});
      },
      [&] {
        spec.ov_depth = one_of<int>(random, {0, spec.qk_depth});
      },
      [&] {
        spec.qkv_dtype = one_of(random, std::vector<Dtype>{Dtype::kBf16, Dtype::kFp16});
      },
      [&] { spec.output_dtype = spec.qkv_dtype; },
      [&] {
        spec.page_size = one_of<int>(random, {0, 64, 128});
      },
      [&] { spec.ragged = !spec.ragged; },
      [&] { spec.sink = !spec.sink; },
      [&] { spec.return_lse = !spec.return_lse; },
      [&] { spec.lse_includes_sink = !spec.lse_includes_sink; },
      [&] {
        spec.max_seq_len = one_of<int>(random, {0, 4096});
      },
      [&] { spec.mask = random_mask(random); },
      [&] {
        spec.mask.window = one_of<std::int64_t>(random, {1, 2, 300});
      },
      [&] { spec.mask.constant = !spec.mask.constant; },
      [&] { spec.score_mod = random_score_mod(random); },
      [&] {
        spec.arch = one_of(random, std::vector<Arch>{Arch::kSm90a, Arch::kSm100a});
      },
      [&] { options.mask_map = random() % 2 == 0; },
      [&] { options.num_qo = random() % 2 == 0 ? std::nullopt : std::optional<int>(2); },
  };
  one_of(random, changes)();
}

struct Request {
  std::string given_to_compiler;
  std::string key;
};

/// Nothing where the spec is not valid or not supported.
std::optional<Request> request_of(const AttentionSpec& spec, const PlanOptions& options) {
  const Result<ResolvedSpec> resolved = ResolvedSpec::make(spec, options);
  if (!resolved) return std::nullopt;
  const Result<KernelPlan> planned = plan(*resolved);
  if (!planned || !planned->supported) return std::nullopt;
  const Result<KernelSource> source = generate(*planned);
  if (!source) {
    ADD_FAILURE() << source.error().to_string();
    return std::nullopt;
  }
  Request request;
  const auto add = [&](const std::string& text) {
    request.given_to_compiler += std::to_string(text.size()) + ":" + text;
  };
  add(source->name);
  add(source->text);
  for (const std::string& option : source->options) add(option);
  for (const SourceFile& header : source->headers) {
    add(header.name);
    add(header.text);
  }
  for (const std::string& entry : source->entries) add(entry);
  add(source->trusted ? "in the helper" : "");
  request.key = request_key(*planned, *source).hex;
  return request;
}

TEST(RequestKeyProperty, EqualTextIfAndOnlyIfEqualKey) {
  Random random(20261121);
  int equal = 0;
  int different = 0;
  constexpr int kCount = kSanitized ? 450 : 1500;
  for (int i = 0; i < kCount; ++i) {
    AttentionSpec spec;
    PlanOptions options;
    spec.arch = Arch::kSm90a;
    spec.num_q_heads = 16;
    spec.qk_depth = 64;
    spec.mask = random_mask(random);
    spec.score_mod = random_score_mod(random);
    for (int k = 0; k < 3; ++k) change(random, spec, options);
    AttentionSpec other = spec;
    PlanOptions other_options = options;
    change(random, other, other_options);
    const std::optional<Request> a = request_of(spec, options);
    const std::optional<Request> b = request_of(other, other_options);
    if (!a || !b) continue;
    const bool same = a->given_to_compiler == b->given_to_compiler;
    EXPECT_EQ(same, a->key == b->key) << spec_to_json(spec, options) << "\n"
                                      << spec_to_json(other, other_options);
    ++(same ? equal : different);
  }
  // Both happen, so that neither direction holds for want of cases.
  EXPECT_GT(equal, kCount / 15);
  EXPECT_GT(different, kCount / 15);
}

}  // namespace
}  // namespace attnjit
