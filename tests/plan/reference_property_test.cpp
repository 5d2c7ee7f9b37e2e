// SPDX-License-Identifier: Apache-2.0
// Random inputs against a second implementation of the published formulas, written apart from the
// first and in another style: it searches for the stage count instead of computing it.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>

#include "../in_proof.h"
#include "plan/reference/reference_json.h"

namespace attnjit {
namespace {

using Json = nlohmann::json;
using I = std::int64_t;

constexpr I kCarveout = 232448;

I bytes_of(const std::optional<Dtype>& dtype) {
  if (!dtype) return 0;
  return *dtype == Dtype::kF32 ? 4 : *dtype == Dtype::kE4m3 ? 1 : 2;
}

I round_up(I a, I b) {
  while (a % b != 0) ++a;
  return a;
}

I keys_a_tile(I budget, I step, I page) {
  I best = 0;
  for (I bn = step; bn <= 256 && bn <= budget; bn += step) best = bn;
  if (best == 0 || page == 0 || page % best == 0 || best % page == 0) return best;
  I power = 1;
  while (power * 2 <= best) power *= 2;
  return power;
}

Json expect_fa4(const Fa4Config::Args& a) {
  const I q = bytes_of(a.qkv_dtype);
  const I r = bytes_of(a.rope_dtype);
  const I s = bytes_of(a.scale_dtype);
  const I mma_k = q == 2 ? 16 : 32;
  const I rows_mma = a.pair_cta ? 256 : 128;
  const I bm = a.num_qo == 2 ? 256 : rows_mma;
  const I pqk = round_up(a.qk_depth, a.swizzle_mode / q);
  const I pov = round_up(a.ov_depth, a.swizzle_mode / q);
  const I bn = keys_a_tile(256 - pov, mma_k, a.page_size);
  Json e;
  e["supported"] = false;
  if (bn == 0) return e;
  const bool fuse = a.group > 1 && rows_mma % a.group == 0 && !a.is_mla;
  I staged = 1;
  for (I n = 2; !a.is_mla && n <= pqk; ++n) {
    if ((pqk / (a.swizzle_mode / q)) % n == 0 && (pqk / mma_k) % n == 0) staged = n;
  }
  if (a.pinned_qk_stages > 0) staged = a.pinned_qk_stages;
  const I rope = pqk - pov;
  const I k_rows = a.pair_cta ? bn / 2 : bn;
  const I v_cols = a.pair_cta ? pov / 2 : pov;
  const I barriers = 4 /* S_cons */ + 4 /* C */ + 2 /* S_prod */ + 2 /* O_prod */;
  const I base = 4 + 8 * (barriers + (a.num_qo == 2 ? staged : 0)) +
                 (r > 0 ? bm * pov * q + bm * rope * r : bm * pqk * q) + bm * s + 1024;
  auto need = [&](I slots) {
    I total = base;
    for (I slot = 0; slot < slots; ++slot) {
      total += bn * v_cols * q + 16;
      if (slot % 2 == 0) total += k_rows * (rope * r + s);
    }
    return total;
  };
  I slots = 0;
  while (need(slots + 1) <= kCarveout) ++slots;
  if (a.pinned_qk_stages > 1 && slots % 2 == 1) --slots;
  I smem = need(slots);
  const bool fused = slots % 2 == 1;
  const I kv = fused ? slots : slots / 2;
  I nqs = 1;
  if (!fused && smem + (staged - 1) * kv * 16 < kCarveout) {
    nqs = staged;
    smem += (staged - 1) * kv * 16;
  }
  const I tmem = 2 * bn + 2 * pov;
  const bool shape = a.num_qo == 1 ? a.qk_depth >= 64 && a.qk_depth <= 256 && !a.pair_cta
                     : a.pair_cta  ? a.qk_depth > 64 && a.qk_depth <= 128
                                   : a.qk_depth >= 64;
  e["supported"] = bn >= 64 && kv >= 2 && tmem <= 512 && smem <= kCarveout && shape;
  e["MMA_M"] = rows_mma;
  e["BM"] = bm;
  e["BN"] = bn;
  e["BK0"] = pqk / nqs;
  e["BK1"] = bn;
  e["padded_qk_depth"] = pqk;
  e["padded_ov_depth"] = pov;
  e["TMEM_S0"] = 0;
  e["TMEM_S1"] = bn;
  e["TMEM_P0"] = 0;
  e["TMEM_P1"] = bn;
  e["TMEM_C0"] = bn / 2;
  e["TMEM_C1"] = bn + bn / 2;
  e["TMEM_O0"] = 2 * bn;
  e["TMEM_O1"] = 2 * bn + pov;
  e["tmem_used"] = tmem;
  e["use_fused_kv"] = fused;
  e["num_kv_stages"] = kv;
  e["num_qk_stages"] = nqs;
  e["num_pv_stages"] = 2;
  e["smem_used"] = smem;
  e["fuse_gqa"] = fuse;
  e["BM_eff"] = fuse ? bm / a.group : bm;
  e["PairBM_eff"] = (fuse ? bm / a.group : bm) * (a.pair_cta ? 2 : 1);
  e["cta_group"] = a.pair_cta ? 2 : 1;
  e["v_cols_per_cta"] = v_cols;
  e["k_rows_per_cta"] = k_rows;
  e["rope_depth"] = rope;
  e["q_nope_bytes"] = bm * pov * q;
  e["q_rope_bytes"] = bm * rope * (r > 0 ? r : q);
  e["num_rope_buffers"] = fused && rope > 0 ? (kv + 1) / 2 : 0;
  e["num_k_scale_bufs"] = s == 0 ? 0 : fused ? (kv + 1) / 2 : kv;
  e["num_mbarriers"] = barriers + (a.num_qo == 2 ? nqs : 0) + 2 * nqs * kv + (fused ? 0 : 2 * kv);
  const Json k{{"BK", pqk / nqs},
               {"BMN", k_rows},
               {"full_kv_bytes", k_rows * (pov * q + rope * r)},
               {"staged_k_bytes", k_rows * (pqk / nqs) * q}};
  const Json v{{"BK", bn}, {"BMN", v_cols}, {"full_kv_bytes", v_cols * bn * q}};
  e["consumer_pipeline"] = Json{{"K", k}, {"V", v}};
  const I page = a.page_size;
  e["kv_sub_tile_rows"] = page > 0 && page < k_rows ? page : k_rows;
  return e;
}

void expect_equal(const Json& expected, const Json& actual, const std::string& what) {
  for (const auto& [name, value] : expected.items()) {
    ASSERT_TRUE(actual.contains(name)) << name;
    if (value.is_object()) {
      expect_equal(value, actual[name], what);
    } else {
      ASSERT_EQ(actual[name], value) << name << " of " << what;
    }
  }
}

struct Input {
  AttentionSpec spec;
  PlanOptions options;

  std::string text() const {
    Json json{{"dtype", to_string(spec.qkv_dtype)},
              {"group", spec.group},
              {"qk", spec.qk_depth},
              {"ov", spec.ov_depth},
              {"page", spec.page_size},
              {"mla", static_cast<int>(spec.mla)},
              {"swizzle", *options.swizzle_bytes},
              {"num_qo", *options.num_qo},
              {"pair", *options.pair_cta}};
    if (spec.rope_dtype) json["rope"] = to_string(*spec.rope_dtype);
    if (spec.scale_dtype) json["scale"] = to_string(*spec.scale_dtype);
    return json.dump();
  }
};

template <class T>
T pick(std::mt19937& rng, std::initializer_list<T> values) {
  return values.begin()[rng() % values.size()];
}

Input draw(std::mt19937& rng) {
  Input input;
  AttentionSpec& spec = input.spec;
  spec.qkv_dtype = pick(rng, {Dtype::kBf16, Dtype::kFp16, Dtype::kE4m3});
  spec.group = pick(rng, {1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64, 96, 128, 256});
  spec.num_q_heads = spec.group * static_cast<int>(1 + rng() % 64);
  spec.qk_depth = rng() % 2 == 0 ? pick(rng, {64, 72, 80, 96, 112, 128, 160, 192, 256})
                                 : 8 * static_cast<int>(1 + rng() % 128);
  spec.ov_depth = spec.qk_depth;
  if (rng() % 4 == 0 && spec.qk_depth > 64) spec.ov_depth = spec.qk_depth - 64;
  spec.page_size = pick(rng, {0, 0, 1, 16, 24, 32, 48, 64, 96, 100, 128, 192, 256, 512});
  const bool one_byte = spec.qkv_dtype == Dtype::kE4m3;
  if (rng() % 4 == 0) spec.mla = Mla::kPrefill;
  if (rng() % 2 == 0 || spec.mla != Mla::kNone) {
    spec.rope_dtype = one_byte && rng() % 2 == 0 ? Dtype::kBf16 : spec.qkv_dtype;
  }
  if (one_byte && rng() % 4 == 0) spec.scale_dtype = Dtype::kF32;
  input.options.swizzle_bytes = one_byte ? pick(rng, {64, 128}) : pick(rng, {128, 128, 64, 32});
  input.options.num_qo = pick(rng, {1, 2, 2});
  input.options.pair_cta = rng() % 5 == 0;
  return input;
}

TEST(ReferenceProperty, Fa4MatchesASecondImplementation) {
  std::mt19937 rng(20260101);
  const int inputs = proof::in_proof() ? 8000 : 2000;
  int supported = 0;
  int fused = 0;
  int switchable = 0;
  for (int i = 0; i < inputs; ++i) {
    const Input input = draw(rng);
    const Fa4Config::Args args = fa4_args(input.spec, input.options);
    const Json actual =
        Json::parse(reference_to_json(input.spec, input.options, ConfigKind::kFa4, nullptr).dump());
    const Json expected = expect_fa4(args);
    expect_equal(expected, actual, input.text());
    if (HasFatalFailure()) return;
    if (!expected["supported"]) {
      EXPECT_NE(actual["reason"], "") << input.text();
      continue;
    }
    ++supported;
    fused += expected["use_fused_kv"].get<bool>() ? 1 : 0;
    // The switch to one query tile.
    Fa4Config::Args one = args;
    one.num_qo = 1;
    one.pair_cta = false;
    one.pinned_qk_stages = expected["num_qk_stages"];
    const Json switched = expect_fa4(one);
    const bool can_switch = args.num_qo == 2 && !args.pair_cta && switched["supported"] &&
                            switched["num_qk_stages"] == expected["num_qk_stages"];
    EXPECT_EQ(actual["can_switch_to_1q"], can_switch) << input.text();
    switchable += can_switch ? 1 : 0;
    I launch = expected["smem_used"];
    if (can_switch) launch = std::max<I>(launch, switched["smem_used"]);
    EXPECT_EQ(actual["launch_smem_used"], launch) << input.text();
    if (switched.contains("smem_used")) {
      EXPECT_EQ(actual["switch_1q_smem_used"], switched["smem_used"]) << input.text();
      EXPECT_EQ(actual["switch_1q_num_kv_stages"], switched["num_kv_stages"]) << input.text();
      EXPECT_EQ(actual["switch_1q_use_fused_kv"], switched["use_fused_kv"]) << input.text();
    }
  }
  // The draw reaches every branch.
  EXPECT_GT(supported, inputs / 8);
  EXPECT_GT(fused, inputs / 40);
  EXPECT_GT(switchable, inputs / 40);
}

TEST(ReferenceProperty, MlaIsFa4WithItsOwnSwizzles) {
  std::mt19937 rng(7);
  for (int i = 0; i < (proof::in_proof() ? 2000 : 500); ++i) {
    Input input = draw(rng);
    input.spec.mla = Mla::kPrefill;
    input.spec.ov_depth = input.spec.qk_depth - 64;
    input.options.pair_cta = false;
    if (input.spec.ov_depth <= 0) continue;
    const Json actual =
        Json::parse(reference_to_json(input.spec, input.options, ConfigKind::kMla, nullptr).dump());
    PlanOptions options = input.options;
    const bool one_byte = input.spec.qkv_dtype == Dtype::kE4m3;
    options.swizzle_bytes = one_byte ? 64 : 128;
    Json expected = expect_fa4(fa4_args(input.spec, options));
    // MLA has no upper bound on qk_depth with one query tile.
    expected.erase("supported");
    expected["rope_depth"] = 64;
    expected["nope_depth"] = input.spec.qk_depth - 64;
    expected["cache_depth"] = 576;
    expected["qkv_swizzle_mode"] = one_byte ? 64 : 128;
    expected["output_swizzle_mode"] = 128;
    expect_equal(expected, actual, input.text());
    if (HasFatalFailure()) return;
  }
}

TEST(ReferenceProperty, Prefer1qFollowsItsRule) {
  std::mt19937 rng(11);
  int preferred = 0;
  for (int i = 0; i < 5000; ++i) {
    Fa4Config::Args args;
    args.num_q_heads = 1 + static_cast<int>(rng() % 128);
    args.qk_depth = args.ov_depth = 128;
    const Fa4Config config(args);
    const std::uint32_t prompt = rng() % 4096;
    const std::uint32_t parts = 1 + rng() % 4;
    const std::uint32_t batch = 1 + rng() % 4;
    const I sms = 16 + rng() % 200;
    const I tiles = static_cast<I>(std::ceil(prompt / 256.0));
    const bool expected = prompt <= 128 || tiles * parts * args.num_q_heads * batch * 2 <= sms;
    EXPECT_EQ(config.prefer_1q(prompt, parts, batch, sms), expected);
    preferred += expected ? 1 : 0;
  }
  EXPECT_GT(preferred, 100);
  EXPECT_LT(preferred, 4900);
}

TEST(ReferenceProperty, NoInputCrashesAConfiguration) {
  constexpr I kMax = std::numeric_limits<I>::max();
  constexpr I kMin = std::numeric_limits<I>::min();
  std::mt19937_64 rng(3);
  auto extreme = [&]() -> I {
    switch (rng() % 8) {
      case 0:
        return kMax;
      case 1:
        return kMin;
      case 2:
        return 0;
      case 3:
        return -1;
      case 4:
        return std::numeric_limits<std::int32_t>::max();
      default:
        return static_cast<I>(rng() % 1024);
    }
  };
  for (int i = 0; i < 20000; ++i) {
    Fa4Config::Args args;
    args.qkv_dtype = static_cast<Dtype>(rng() % 14);
    if (rng() % 2) args.rope_dtype = static_cast<Dtype>(rng() % 14);
    if (rng() % 2) args.scale_dtype = static_cast<Dtype>(rng() % 14);
    args.num_q_heads = extreme();
    args.group = extreme();
    args.qk_depth = extreme();
    args.ov_depth = extreme();
    args.swizzle_mode = extreme();
    args.page_size = extreme();
    args.num_qo = extreme();
    args.pinned_qk_stages = extreme();
    args.pair_cta = rng() % 2;
    args.is_mla = rng() % 2;
    const Fa4Config config(args);
    if (config.supported()) {
      EXPECT_LE(config.smem_used, kCarveout);
      EXPECT_LE(config.tmem_used(), 512);
    }
    (void)config.description();
    (void)config.launch_smem_used();
    (void)config.num_mbarriers();
    nlohmann::ordered_json json;
    add_fa4(json, config);
    (void)config.prefer_1q(0xffffffff, 0xffffffff, 0xffffffff, args.num_q_heads);
    MlaConfig::Args mla;
    mla.qkv_dtype = args.qkv_dtype;
    mla.num_q_heads = args.num_q_heads;
    mla.group = args.group;
    mla.depth = args.qk_depth;
    mla.page_size = args.page_size;
    mla.num_qo = args.num_qo;
    (void)MlaConfig(mla).launch_smem_used();
    Depth512Config::Args deep;
    deep.qkv_dtype = args.qkv_dtype;
    deep.num_q_heads = args.num_q_heads;
    deep.group = args.group;
    deep.qk_depth = args.qk_depth;
    deep.ov_depth = args.ov_depth;
    deep.page_size = args.page_size;
    (void)Depth512Config(deep).unsupported_reason();
  }
}

}  // namespace
}  // namespace attnjit
