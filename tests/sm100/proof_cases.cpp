// SPDX-License-Identifier: Apache-2.0
// Lists the named cases of the proof, and draws random ones.
#include "proof_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "../gpu/verify_cases.h"
#include "../spec/random_expression.h"
#include "attnjit/plan.h"
#include "plan/sm100/sm100_plan.h"
#include "spec/names.h"
#include "verify/random.h"

namespace attnjit::sm100 {
namespace {

using verify::mask_of;
using verify::tree;
using Kind = MaskSpec::Kind;

constexpr Dtype kBf = Dtype::kBf16, kFp = Dtype::kFp16, kE4 = Dtype::kE4m3;

// The shared enumeration's masks, and a few of this proof's own.
MaskSpec mask_named(std::string_view name) {
  for (auto& [known, mask] : verify::masks()) {
    if (known == name) return mask;
  }
  MaskSpec mask;
  if (name == "window-1") {  // a query sees itself alone
    mask = mask_of(Kind::kSlidingWindow);
    mask.window = 1;
  } else if (name == "window-200") {  // more than a tile of keys
    mask = mask_of(Kind::kSlidingWindow);
    mask.window = 200;
  } else if (name == "chunk-128") {  // whole tiles
    mask = mask_of(Kind::kChunked);
    mask.chunk = 128;
  } else if (name == "nothing") {
    mask = mask_of(Kind::kCustom);
    mask.custom.name = "nothing";
    mask.custom.code = "kv_idx < 0";
  } else if (name == "thirds") {
    mask = mask_of(Kind::kCustom);
    mask.custom.name = "thirds";
    mask.custom.code = "q_idx % 3 != 0 && kv_idx % 5 == 1";
  } else if (name == "prefix") {
    MaskSpec prefix = mask_of(Kind::kCustom);
    prefix.custom.name = "prefix";
    prefix.custom.code = "kv_idx < p.prefix";
    prefix.custom.params = {{"prefix", ParamSpec::Type::kI32}};
    mask = tree(Kind::kOr, {mask_of(Kind::kCausal), prefix});
  } else if (name == "two-windows") {
    mask = tree(Kind::kOr, {mask_named("window-1"), mask_named("window")});
    mask.of[1].window = 90;
  } else if (name == "deep") {
    mask = tree(Kind::kAnd, {mask_of(Kind::kCausal), tree(Kind::kOr, {mask_of(Kind::kChunked),
                                                                      mask_of(Kind::kSlidingWindow),
                                                                      verify::custom_mask()})});
  } else if (name == "bits" || name == "bools" || name.starts_with("bias-")) {
    for (const auto& [known, type] :
         std::initializer_list<std::pair<std::string_view, Dtype>>{{"bits", Dtype::kBits},
                                                                   {"bools", Dtype::kU8},
                                                                   {"bias-f32", Dtype::kF32},
                                                                   {"bias-bf16", kBf},
                                                                   {"bias-fp16", kFp}}) {
      if (name == known) mask = verify::materialized_mask(type);
    }
  } else if (name == "causal-and-bits") {
    mask = tree(Kind::kAnd, {mask_of(Kind::kCausal), mask_named("bits")});
  } else {
    std::abort();
  }
  return mask;
}

ScoreModSpec score_mod_named(std::string_view name) {
  for (auto& [known, mod] : verify::score_mods()) {
    if (known == name) return mod;
  }
  std::abort();
}

struct Row {
  const char* what;
  Dtype dtype;
  int qk_depth, ov_depth;
  int heads, group;
  const char* mask;
  const char* mod;
  ProofShape shape;
  // Of "sink", "lse", "bare-lse" (without the sink), "constant", "1q", "2q", "103", "mla",
  // "fp16-out", "bf16-out", "kv-e4m3" (K and V), "persistent", "parts" (three of the keys), "pair"
  // (of CTAs), and of e4m3 "tensor", "head": who has a scale, and "rope-bf16", "rope-fp16": the
  // rope part's type.
  std::vector<std::string_view> with = {};
};

// Few rows and keys suffice: a tile holds 128 of each (of rows, two tiles a CTA). 141 rows take two
// query tiles, 300 four; 150 keys take two tiles of 128, 400 four.
const std::vector<Row>& rows() {
  // clang-format off
  static const std::vector<Row> list = {
      // Masks, both bodies.
      {"null", kBf, 128, 128, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse"}},
      {"null, one query tile", kBf, 128, 128, 1, 1, "null", "identity", {1, 100, 300, 2}, {"lse"}},
      {"causal", kBf, 128, 128, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse"}},
      {"causal, one query tile", kBf, 128, 128, 1, 1, "causal", "identity", {1, 141, 300, 148}, {"lse"}},
      {"window", kBf, 128, 128, 1, 1, "window", "identity", {1, 141, 300, 1}, {"lse"}},
      {"window of one key", kBf, 64, 64, 1, 1, "window-1", "identity", {1, 141, 150, 1}, {"lse"}},
      {"window of more than a tile", kBf, 64, 64, 1, 1, "window-200", "identity", {1, 141, 400, 1}, {"lse", "constant"}},
      {"chunked", kBf, 128, 128, 1, 1, "chunked", "identity", {1, 141, 300, 1}, {"lse", "constant"}},
      {"chunks of whole tiles", kBf, 64, 64, 1, 1, "chunk-128", "identity", {1, 141, 390, 1}, {"lse"}},
      {"causal and chunked", kBf, 128, 128, 1, 1, "causal-and-chunked", "identity", {1, 141, 200, 1}, {"lse"}},
      {"window or chunked", kBf, 64, 64, 1, 1, "window-or-chunked", "identity", {1, 141, 260, 1}, {"lse"}},
      {"two windows", kBf, 64, 64, 1, 1, "two-windows", "identity", {1, 141, 260, 1}, {"lse"}},
      {"documents", kBf, 128, 128, 1, 1, "custom", "identity", {1, 141, 150, 1}, {"lse"}},
      {"causal and documents", kBf, 64, 64, 1, 1, "causal-and-custom", "identity", {1, 141, 200, 1}, {"lse"}},
      {"prefix", kBf, 64, 64, 1, 1, "prefix", "identity", {1, 141, 141, 1}, {"lse"}},
      {"masks within masks", kBf, 64, 64, 1, 1, "deep", "identity", {1, 141, 150, 1}, {"lse"}},
      // Masks that are tensors.
      {"bits", kBf, 128, 128, 1, 1, "bits", "identity", {1, 141, 300, 1}, {"lse"}},
      {"bools, one query tile, group", kBf, 64, 64, 2, 2, "bools", "identity", {1, 40, 300, 1}, {"lse", "1q"}},
      {"bias of f32, ragged, pages of 16", kFp, 64, 64, 2, 1, "bias-f32", "identity", {3, 70, 200, 1}, {"lse", "ragged", "page-16"}},
      {"bias of bf16, softcap, sink", kBf, 128, 128, 2, 1, "bias-bf16", "softcap", {2, 70, 150, 2}, {"lse", "sink"}},
      {"bias of fp16, 192/128", kBf, 192, 128, 1, 1, "bias-fp16", "identity", {1, 141, 200, 1}, {"lse"}},
      {"causal and bits, e4m3", kE4, 128, 128, 2, 1, "causal-and-bits", "identity", {1, 141, 300, 1}, {"lse", "head"}},
      {"bits, more queries than keys", kFp, 64, 64, 1, 1, "causal-and-bits", "alibi", {1, 300, 77, 1}, {"lse"}},
      {"bits, pair", kBf, 128, 128, 1, 1, "bits", "identity", {1, 300, 300, 2}, {"lse", "pair"}},
      // Score modifications.
      {"softcap", kBf, 128, 128, 1, 1, "causal", "softcap", {1, 141, 150, 1}, {"lse"}},
      {"softcap, compiled in", kBf, 64, 64, 1, 1, "null", "softcap", {1, 141, 150, 1}, {"lse", "constant"}},
      {"alibi", kBf, 128, 128, 3, 1, "causal", "alibi", {1, 60, 150, 1}, {"lse"}},
      {"alibi without a mask", kFp, 64, 64, 4, 2, "null", "alibi", {1, 70, 150, 1}, {"lse"}},
      {"custom score", kBf, 64, 64, 2, 2, "null", "custom", {1, 90, 150, 1}, {"lse"}},
      {"custom score and documents", kBf, 64, 64, 1, 1, "custom", "custom", {1, 141, 150, 1}, {"lse"}},
      {"softcap and window", kFp, 128, 128, 1, 1, "window", "softcap", {1, 141, 200, 1}, {"lse"}},
      // Sinks.
      {"sink", kBf, 64, 64, 2, 1, "causal", "identity", {1, 141, 150, 1}, {"lse", "sink"}},
      {"sink, one query tile", kBf, 64, 64, 2, 1, "window", "identity", {1, 40, 300, 1}, {"lse", "sink", "1q"}},
      {"sink that the LSE leaves out", kBf, 64, 64, 2, 2, "null", "identity", {1, 80, 150, 1}, {"lse", "sink", "bare-lse"}},
      {"sink of rows that see nothing", kBf, 64, 64, 2, 1, "causal", "identity", {1, 150, 40, 1}, {"lse", "sink"}},
      {"sink, no keys at all", kFp, 64, 64, 2, 1, "null", "identity", {1, 141, 0, 1}, {"lse", "sink"}},
      {"sink, softcap, group", kBf, 128, 128, 4, 4, "causal", "softcap", {1, 50, 150, 1}, {"lse", "sink"}},
      // Types.
      {"fp16", kFp, 128, 128, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse"}},
      {"fp16 causal", kFp, 64, 64, 1, 1, "causal", "identity", {1, 300, 300, 1}, {"lse"}},
      {"bf16 to fp16", kBf, 64, 64, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse", "fp16-out"}},
      {"fp16 to bf16", kFp, 128, 128, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"bf16-out"}},
      // Depths.
      {"depth 8", kBf, 8, 8, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse"}},
      {"depth 16, one query tile", kFp, 16, 16, 4, 4, "null", "softcap", {2, 20, 300, 148}, {"lse", "sink"}},
      {"depth 40", kBf, 40, 40, 1, 1, "window", "identity", {1, 141, 300, 1}, {"lse"}},
      {"depth 32 from pages, ragged", kFp, 32, 32, 2, 2, "causal", "identity", {4, 70, 200, 1}, {"lse", "ragged", "page-16"}},
      {"depth 56", kBf, 56, 56, 1, 1, "custom", "identity", {1, 141, 150, 1}, {"lse"}},
      {"56/24", kBf, 56, 24, 2, 1, "causal", "alibi", {1, 141, 150, 1}, {"lse"}},
      {"depth 72", kBf, 72, 72, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse"}},
      {"depth 80", kFp, 80, 80, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse"}},
      {"depth 88", kBf, 88, 88, 2, 2, "window", "identity", {1, 70, 150, 1}, {"lse"}},
      {"depth 96", kBf, 96, 96, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse"}},
      {"depth 104", kFp, 104, 104, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse", "1q"}},
      {"depth 112", kBf, 112, 112, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse"}},
      {"depth 120", kBf, 120, 120, 1, 1, "chunked", "identity", {1, 141, 150, 1}, {"lse"}},
      {"depth 192", kBf, 192, 192, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse"}},
      {"depth 192, one query tile", kBf, 192, 192, 1, 1, "null", "identity", {1, 100, 200, 1}, {"lse", "1q"}},
      {"depth 160", kFp, 160, 160, 1, 1, "null", "identity", {1, 141, 100, 1}, {"lse"}},
      {"192/128", kBf, 192, 128, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse"}},
      {"192/128, one query tile", kBf, 192, 128, 1, 1, "causal", "identity", {1, 100, 400, 1}, {"lse", "1q"}},
      {"192/128 prefill of MLA", kBf, 192, 128, 2, 1, "causal", "identity", {1, 141, 200, 1}, {"lse", "mla"}},
      {"192/64", kBf, 192, 64, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse"}},
      {"192/64, one query tile", kFp, 192, 64, 2, 2, "null", "identity", {2, 40, 400, 148}, {"lse", "sink", "1q"}},
      {"136/8", kBf, 136, 8, 1, 1, "window", "softcap", {1, 141, 400, 1}, {"lse"}},
      {"184/40 from pages, ragged", kFp, 184, 40, 2, 2, "causal", "identity", {4, 70, 200, 1}, {"lse", "ragged", "page-16"}},
      {"144/64 from pages of 12", kBf, 144, 64, 2, 1, "causal", "identity", {2, 70, 300, 1}, {"lse", "page-12"}},
      {"200/64", kBf, 200, 64, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse"}},
      {"240/128", kFp, 240, 128, 2, 2, "null", "identity", {2, 70, 200, 1}, {"lse", "sink"}},
      {"248/72 from pages, ragged", kBf, 248, 72, 2, 1, "window", "identity", {4, 70, 200, 1}, {"lse", "ragged", "page-64"}},
      {"depth 200", kBf, 200, 200, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse"}},
      {"depth 224", kFp, 224, 224, 2, 2, "causal", "identity", {2, 70, 200, 1}, {"lse", "1q"}},
      {"depth 248", kBf, 248, 248, 1, 1, "window", "softcap", {1, 141, 150, 1}, {"lse"}},
      {"256/208", kBf, 256, 208, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse"}},
      {"256/128", kFp, 256, 128, 1, 1, "causal", "identity", {3, 70, 200, 2}, {"lse"}},
      {"256/64 from pages", kBf, 256, 64, 1, 1, "null", "identity", {3, 70, 300, 1}, {"lse", "page-64"}},
      {"depth 320", kBf, 320, 320, 2, 2, "causal", "identity", {2, 70, 300, 1}, {"lse", "sink"}},
      {"depth 384 from pages, ragged", kFp, 384, 384, 4, 2, "causal", "identity", {4, 40, 200, 1}, {"lse", "ragged", "page-16"}},
      {"depth 448", kBf, 448, 448, 3, 3, "window", "softcap", {1, 70, 300, 2}, {"lse"}},
      {"112/64", kBf, 112, 64, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse"}},
      {"128/72", kFp, 128, 72, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse"}},
      // Groups of heads.
      {"group 4 fused", kBf, 128, 128, 8, 4, "causal", "identity", {1, 40, 150, 1}, {"lse"}},
      {"group 8 fused", kBf, 64, 64, 8, 8, "causal", "identity", {2, 19, 150, 1}, {"lse"}},
      {"group 128 fused: a position a tile", kBf, 64, 64, 128, 128, "causal", "identity", {1, 3, 130, 1}, {"lse"}},
      {"group 3 unfused", kBf, 64, 64, 3, 3, "causal", "identity", {1, 141, 150, 1}, {"lse"}},
      {"group 7 unfused", kFp, 64, 64, 7, 7, "null", "identity", {1, 20, 150, 1}, {"lse"}},
      {"group 2 of 192", kBf, 192, 192, 2, 2, "causal", "identity", {1, 70, 100, 1}, {"lse"}},
      // Lengths.
      {"one query", kBf, 128, 128, 8, 8, "null", "identity", {2, 1, 257, 2}, {"lse"}},
      {"one query, causal, many SMs", kBf, 64, 64, 4, 1, "causal", "identity", {1, 1, 257, 148}, {"lse"}},
      {"one key", kBf, 64, 64, 1, 1, "null", "identity", {1, 141, 1, 1}, {"lse"}},
      {"one key, causal", kFp, 128, 128, 1, 1, "causal", "identity", {1, 141, 1, 1}, {"lse"}},
      {"no key", kBf, 128, 128, 1, 1, "causal", "identity", {2, 141, 0, 1}, {"lse"}},
      {"no key, one query tile", kBf, 64, 64, 2, 2, "null", "identity", {1, 30, 0, 2}, {"lse"}},
      {"more queries than keys, causal", kBf, 128, 128, 1, 1, "causal", "identity", {1, 300, 77, 1}, {"lse"}},
      {"more queries than keys, window", kBf, 64, 64, 1, 1, "window", "identity", {1, 300, 77, 1}, {"lse"}},
      {"a mask that shows nothing", kBf, 64, 64, 1, 1, "nothing", "identity", {1, 141, 150, 1}, {"lse"}},
      {"rows that see nothing among others", kBf, 64, 64, 1, 1, "thirds", "identity", {1, 141, 150, 1}, {"lse"}},
      {"whole tiles", kBf, 128, 128, 1, 1, "causal", "identity", {1, 256, 256, 1}, {"lse"}},
      {"one past whole tiles", kBf, 64, 64, 1, 1, "causal", "identity", {1, 257, 257, 1}, {"lse"}},
      {"one short of whole tiles", kBf, 64, 64, 1, 1, "null", "identity", {1, 255, 383, 1}, {"lse"}},
      {"many tiles a CTA", kBf, 64, 64, 3, 1, "null", "identity", {3, 33, 70, 2}, {"lse"}},
      {"many tiles a CTA, one query tile", kBf, 128, 128, 2, 1, "null", "identity", {2, 33, 70, 1}, {"lse", "1q"}},
      {"without LSE", kBf, 128, 128, 1, 1, "causal", "identity", {1, 141, 150, 1}, {}},
      // CTAs that walk work tiles, whose products run into one another: behind a work tile of which
      // one half of the rows sees no key, or all of them, and behind one of one query tile.
      {"window, a half that sees nothing", kBf, 128, 128, 2, 1, "window", "identity", {2, 300, 77, 1}, {"lse"}},
      {"window, halves and tiles that see nothing", kBf, 64, 64, 2, 1, "window-200", "identity", {1, 700, 200, 1}, {"lse", "sink"}},
      {"window, no keys between others", kFp, 64, 64, 3, 1, "window", "identity", {1, 530, 100, 2}, {"lse"}},
      {"causal, walked", kBf, 128, 128, 2, 1, "causal", "identity", {1, 600, 600, 1}, {"lse", "persistent"}},
      {"causal, walked by two", kFp, 64, 64, 3, 1, "causal", "identity", {1, 530, 400, 2}, {"lse", "persistent"}},
      {"causal, walked, a half that sees nothing", kBf, 64, 64, 2, 1, "causal", "softcap", {2, 400, 150, 1}, {"lse", "persistent", "sink"}},
      {"causal, walked, O of f32", kBf, 64, 64, 2, 1, "causal", "identity", {1, 400, 400, 1}, {"lse", "persistent", "f32-out"}},
      {"causal, walked, O over Q", kBf, 192, 192, 2, 1, "causal", "identity", {1, 400, 300, 1}, {"lse", "persistent"}},
      {"e4m3 causal, walked", kE4, 128, 128, 2, 1, "causal", "identity", {1, 600, 600, 1}, {"lse", "head", "persistent"}},
      {"window, parts that a half sees", kBf, 128, 128, 2, 2, "window", "identity", {2, 80, 400, 1}, {"lse", "parts"}},
      {"causal, parts that a half sees", kFp, 64, 64, 2, 1, "causal", "identity", {2, 200, 330, 1}, {"lse", "parts", "sink"}},
      // Pages of K and V, ragged batches.
      {"pages of 16", kBf, 64, 64, 1, 1, "causal", "identity", {3, 60, 150, 1}, {"lse", "page-16"}},
      {"pages of 64", kBf, 128, 128, 8, 8, "null", "identity", {4, 20, 300, 1}, {"lse", "page-64"}},
      {"pages of 128", kFp, 128, 128, 1, 1, "causal", "identity", {2, 141, 300, 1}, {"lse", "page-128"}},
      {"pages of 512", kBf, 64, 64, 1, 1, "window", "identity", {3, 70, 300, 1}, {"lse", "page-512"}},
      {"pages of 64, depth 192", kBf, 192, 192, 1, 1, "causal", "identity", {2, 70, 150, 1}, {"lse", "page-64"}},
      {"pages of 64, 192/128, one query tile", kBf, 192, 128, 1, 1, "causal", "identity", {2, 70, 150, 1}, {"lse", "page-64", "1q"}},
      {"decoding from pages", kBf, 128, 128, 8, 8, "null", "identity", {5, 1, 260, 148}, {"lse", "page-64", "sink"}},
      {"ragged", kBf, 128, 128, 1, 1, "null", "identity", {4, 141, 150, 1}, {"lse", "ragged"}},
      {"ragged causal, group", kBf, 64, 64, 4, 4, "causal", "identity", {5, 80, 150, 1}, {"lse", "ragged"}},
      {"ragged, one query tile", kFp, 64, 64, 2, 1, "causal", "identity", {4, 150, 200, 1}, {"lse", "ragged", "1q"}},
      {"ragged and paged", kBf, 128, 128, 2, 2, "causal", "identity", {4, 70, 200, 1}, {"lse", "ragged", "page-64"}},
      {"ragged and paged, documents, sink", kBf, 64, 64, 2, 1, "causal-and-custom", "softcap", {3, 141, 150, 1}, {"lse", "ragged", "page-16", "sink"}},
      // e4m3: both swizzles, all scales, all ways in which keys come.
      {"e4m3", kE4, 128, 128, 1, 1, "null", "identity", {1, 141, 300, 1}, {"lse"}},
      {"e4m3 causal", kE4, 128, 128, 4, 2, "causal", "identity", {2, 141, 300, 1}, {"lse", "head"}},
      {"e4m3, one query tile", kE4, 128, 128, 1, 1, "null", "identity", {1, 100, 600, 2}, {"lse", "tensor"}},
      {"e4m3 depth 64", kE4, 64, 64, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "head"}},
      {"e4m3 depth 64, one query tile", kE4, 64, 64, 2, 2, "window", "identity", {1, 40, 400, 1}, {"lse", "tensor", "1q"}},
      {"e4m3 depth 16", kE4, 16, 16, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse", "tensor"}},
      {"e4m3 depth 96", kE4, 96, 96, 1, 1, "chunked", "identity", {1, 141, 200, 1}, {"lse"}},
      {"e4m3 depth 192", kE4, 192, 192, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse", "head"}},
      {"e4m3 192/128", kE4, 192, 128, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "head"}},
      {"e4m3 192/128, prefill of MLA", kE4, 192, 128, 2, 1, "causal", "identity", {1, 141, 200, 1}, {"lse", "tensor", "mla"}},
      {"e4m3 128/64", kE4, 128, 64, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse"}},
      {"e4m3 160/32", kE4, 160, 32, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "head"}},
      {"e4m3 208/64", kE4, 208, 64, 1, 1, "window", "identity", {1, 141, 300, 1}, {"lse", "tensor"}},
      {"e4m3 depth 208", kE4, 208, 208, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse", "tensor"}},
      {"e4m3 256/128", kE4, 256, 128, 1, 1, "null", "identity", {1, 70, 200, 1}, {"lse", "head"}},
      {"e4m3, sink", kE4, 128, 128, 2, 1, "causal", "identity", {1, 141, 150, 1}, {"lse", "sink", "head"}},
      {"e4m3, sink that the LSE leaves out", kE4, 64, 64, 2, 2, "null", "identity", {1, 80, 150, 1}, {"lse", "sink", "bare-lse"}},
      {"e4m3, sink of rows that see nothing", kE4, 64, 64, 2, 1, "causal", "identity", {1, 150, 40, 1}, {"lse", "sink", "tensor"}},
      {"e4m3, softcap, group", kE4, 128, 128, 4, 4, "causal", "softcap", {2, 50, 150, 1}, {"lse", "head"}},
      {"e4m3, alibi", kE4, 64, 64, 3, 1, "causal", "alibi", {1, 60, 150, 1}, {"lse", "tensor"}},
      {"e4m3, custom score and documents", kE4, 64, 64, 1, 1, "custom", "custom", {1, 141, 150, 1}, {"lse"}},
      {"e4m3 to fp16", kE4, 128, 128, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse", "fp16-out", "tensor"}},
      {"e4m3, no key", kE4, 128, 128, 1, 1, "causal", "identity", {2, 141, 0, 1}, {"lse", "head"}},
      {"e4m3, a mask that shows nothing", kE4, 64, 64, 1, 1, "nothing", "identity", {1, 141, 150, 1}, {"lse"}},
      {"e4m3, pages of 16", kE4, 64, 64, 2, 2, "causal", "identity", {3, 60, 150, 1}, {"lse", "page-16", "head"}},
      {"e4m3, pages of 64", kE4, 128, 128, 8, 8, "null", "identity", {4, 20, 300, 1}, {"lse", "page-64", "tensor"}},
      {"e4m3, ragged", kE4, 128, 128, 2, 1, "null", "identity", {4, 141, 150, 1}, {"lse", "ragged", "head"}},
      {"e4m3, ragged and paged", kE4, 128, 128, 4, 2, "causal", "identity", {4, 70, 200, 1}, {"lse", "ragged", "page-64", "head", "sink"}},
      {"e4m3, sm_103a", kE4, 128, 128, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "103", "tensor"}},
      // Rows with scales of their own.
      {"e4m3, rows' scales", kE4, 128, 128, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "token"}},
      {"e4m3, rows' scales, one query tile", kE4, 64, 64, 2, 2, "window", "identity", {2, 40, 400, 1}, {"lse", "token", "1q"}},
      {"e4m3, rows' scales, sink, softcap", kE4, 64, 64, 4, 4, "causal", "softcap", {2, 50, 150, 1}, {"lse", "sink", "token"}},
      {"e4m3, rows' scales, pages, ragged", kE4, 128, 128, 4, 2, "causal", "identity", {4, 70, 200, 1}, {"lse", "ragged", "page-64", "token"}},
      {"e4m3, rows' scales, documents, pages", kE4, 64, 64, 1, 1, "custom", "custom", {3, 70, 150, 1}, {"lse", "page-16", "token"}},
      {"e4m3, rows' scales, 192/128", kE4, 192, 128, 2, 1, "causal", "identity", {1, 141, 200, 1}, {"lse", "token"}},
      {"e4m3, rows' scales, no key", kE4, 64, 64, 1, 1, "null", "identity", {2, 141, 0, 1}, {"lse", "token"}},
      {"e4m3, rows' scales, sm_103a", kE4, 128, 128, 1, 1, "null", "identity", {1, 141, 300, 1}, {"lse", "103", "token"}},
      // A rope part of 16 bits, in tensors of its own.
      {"e4m3, 16-bit rope", kE4, 192, 128, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "mla", "rope-bf16", "tensor"}},
      {"e4m3, 16-bit rope, null, fp16", kE4, 192, 128, 2, 2, "null", "identity", {2, 141, 150, 2}, {"lse", "mla", "rope-fp16"}},
      {"e4m3, 16-bit rope, one query tile", kE4, 192, 128, 2, 1, "causal", "identity", {1, 100, 600, 2}, {"lse", "mla", "rope-bf16", "head", "1q"}},
      {"e4m3, 16-bit rope, walked", kE4, 192, 128, 2, 1, "causal", "identity", {1, 530, 400, 1}, {"lse", "mla", "rope-bf16", "persistent"}},
      {"e4m3, 16-bit rope, pages of 64, ragged, sink", kE4, 192, 128, 4, 2, "causal", "identity", {4, 70, 200, 1}, {"lse", "mla", "rope-bf16", "ragged", "page-64", "head", "sink"}},
      {"e4m3, 16-bit rope, rows' scales, pages of 16", kE4, 192, 128, 1, 1, "custom", "custom", {3, 70, 150, 1}, {"lse", "mla", "rope-bf16", "page-16", "token"}},
      {"e4m3, 16-bit rope, parts, to f32", kE4, 192, 128, 2, 1, "window", "softcap", {2, 80, 400, 1}, {"lse", "mla", "rope-fp16", "parts", "f32-out"}},
      {"e4m3, 16-bit rope, no key", kE4, 192, 128, 2, 1, "causal", "identity", {2, 141, 0, 1}, {"lse", "mla", "rope-bf16"}},
      {"e4m3, 16-bit rope, 256/192", kE4, 256, 192, 1, 1, "causal", "identity", {1, 100, 300, 1}, {"lse", "mla", "rope-bf16"}},
      {"e4m3, 16-bit rope, 96/32", kE4, 96, 32, 2, 1, "null", "identity", {1, 141, 300, 1}, {"lse", "mla", "rope-bf16", "tensor"}},
      {"e4m3, 16-bit rope, sm_103a", kE4, 192, 128, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "mla", "rope-bf16", "103"}},
      // O of other sizes than the inputs.
      {"e4m3 to e4m3", kE4, 128, 128, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "e4m3-out", "head"}},
      {"e4m3 to f32, ragged", kE4, 64, 64, 2, 2, "causal", "identity", {4, 80, 150, 1}, {"lse", "ragged", "f32-out"}},
      {"bf16 to e4m3, ragged, sink", kBf, 64, 64, 2, 2, "causal", "identity", {4, 80, 150, 1}, {"lse", "ragged", "sink", "e4m3-out"}},
      {"bf16 to f32", kBf, 128, 128, 1, 1, "null", "identity", {1, 141, 150, 1}, {"lse", "f32-out"}},
      {"fp16 to e4m3, one query tile", kFp, 64, 64, 4, 4, "causal", "identity", {2, 30, 300, 1}, {"lse", "e4m3-out", "1q"}},
      {"bf16 to f32, depth 192", kBf, 192, 192, 1, 1, "causal", "identity", {1, 141, 150, 1}, {"lse", "f32-out"}},
      // e4m3 K and V beside a Q of 16 bits, which are upcast: two query tiles and one, and a single accumulator.
      {"e4m3 K and V", kBf, 128, 128, 1, 1, "null", "identity", {1, 141, 300, 1}, {"lse", "kv-e4m3"}},
      {"e4m3 K and V, causal, group", kBf, 128, 128, 4, 2, "causal", "identity", {2, 141, 300, 1}, {"lse", "kv-e4m3", "head"}},
      {"e4m3 K and V, one query tile", kFp, 64, 64, 2, 2, "window", "identity", {1, 40, 400, 1}, {"lse", "kv-e4m3", "tensor", "1q"}},
      {"e4m3 K and V, depth 96", kBf, 96, 96, 1, 1, "chunked", "identity", {1, 141, 200, 1}, {"lse", "kv-e4m3"}},
      {"e4m3 K and V, 192/128, prefill of MLA", kBf, 192, 128, 2, 1, "causal", "identity", {1, 141, 200, 1}, {"lse", "kv-e4m3", "tensor", "mla"}},
      {"e4m3 K and V, 192/64", kBf, 192, 64, 2, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "kv-e4m3", "head"}},
      {"e4m3 K and V, depth 256", kBf, 256, 256, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "kv-e4m3", "head"}},
      {"e4m3 K and V, 224/64", kFp, 224, 64, 1, 1, "null", "identity", {1, 70, 200, 1}, {"lse", "kv-e4m3"}},
      {"e4m3 K and V, pages of 16, ragged, sink", kBf, 64, 64, 4, 2, "causal", "identity", {4, 70, 200, 1}, {"lse", "kv-e4m3", "ragged", "page-16", "head", "sink"}},
      {"e4m3 K and V, documents, pages of 64", kBf, 128, 128, 1, 1, "custom", "custom", {3, 70, 150, 1}, {"lse", "kv-e4m3", "page-64"}},
      {"e4m3 K and V, softcap, to e4m3", kFp, 128, 128, 4, 4, "causal", "softcap", {2, 50, 150, 1}, {"lse", "kv-e4m3", "head", "e4m3-out"}},
      {"e4m3 K and V, no key", kBf, 128, 128, 1, 1, "causal", "identity", {2, 141, 0, 1}, {"lse", "kv-e4m3", "head"}},
      {"e4m3 K and V, sm_103a", kBf, 128, 128, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "103", "kv-e4m3", "tensor"}},
      // Pairs of CTAs, of 512 rows, or of 256 with a single accumulator.
      {"pair", kBf, 128, 128, 1, 1, "null", "identity", {1, 600, 300, 2}, {"lse", "pair"}},
      {"pair, causal, sink", kBf, 128, 128, 2, 1, "causal", "identity", {1, 300, 400, 148}, {"lse", "pair", "sink"}},
      {"pair, causal, more queries than keys", kFp, 128, 128, 1, 1, "causal", "identity", {1, 600, 200, 148}, {"lse", "pair"}},
      {"pair, causal, walked", kBf, 128, 128, 2, 1, "causal", "identity", {1, 600, 300, 2}, {"lse", "pair", "persistent"}},
      {"pair, window, one query tile", kBf, 96, 96, 1, 1, "window", "softcap", {2, 141, 300, 2}, {"lse", "pair"}},
      {"pair, documents, group", kBf, 128, 128, 4, 4, "custom", "custom", {1, 90, 300, 2}, {"lse", "pair"}},
      {"pair, 192/128", kBf, 192, 128, 1, 1, "causal", "identity", {1, 400, 400, 2}, {"lse", "pair"}},
      {"pair, one row, no key", kBf, 128, 128, 1, 1, "null", "identity", {2, 1, 0, 2}, {"lse", "pair", "sink"}},
      {"pair, e4m3", kE4, 128, 128, 1, 1, "causal", "identity", {1, 400, 300, 2}, {"lse", "pair", "head"}},
      {"pair, e4m3, rows' scales, to f32", kE4, 128, 128, 1, 1, "null", "identity", {1, 300, 300, 2}, {"lse", "pair", "token", "f32-out"}},
      {"pair, depth 256", kBf, 256, 256, 1, 1, "null", "identity", {1, 300, 300, 2}, {"lse", "pair"}},
      {"pair, depth 256, causal, group", kFp, 256, 256, 2, 2, "causal", "identity", {1, 150, 300, 148}, {"lse", "pair", "sink"}},
      {"pair, depth 256, window", kBf, 256, 256, 1, 1, "window-200", "softcap", {2, 200, 300, 2}, {"lse", "pair"}},
      {"pair, 224/96", kBf, 224, 96, 1, 1, "causal", "identity", {1, 200, 300, 2}, {"lse", "pair"}},
      {"pair, depth 256, e4m3", kE4, 256, 256, 1, 1, "causal", "identity", {1, 200, 300, 2}, {"lse", "pair", "tensor"}},
      {"pair, pages of 64", kBf, 128, 128, 1, 1, "causal", "identity", {3, 300, 300, 2}, {"lse", "pair", "page-64"}},
      {"pair, ragged, pages of 16", kBf, 128, 128, 2, 2, "causal", "identity", {4, 150, 300, 2}, {"lse", "pair", "ragged", "page-16", "sink"}},
      {"pair, ragged, depth 256", kBf, 256, 256, 1, 1, "causal", "identity", {3, 200, 300, 2}, {"lse", "pair", "ragged"}},
      {"pair, sm_103a", kBf, 128, 128, 1, 1, "causal", "identity", {1, 400, 300, 2}, {"lse", "pair", "103"}},
      // sm_103a: every exponential on the MUFU.
      {"sm_103a causal", kBf, 128, 128, 1, 1, "causal", "identity", {1, 141, 300, 1}, {"lse", "103"}},
      {"sm_103a, one query tile", kBf, 64, 64, 1, 1, "null", "identity", {1, 100, 300, 2}, {"lse", "103"}},
      {"sm_103a 192/128", kFp, 192, 128, 1, 1, "causal", "identity", {1, 141, 200, 1}, {"lse", "103"}},
      {"sm_103a documents, sink", kBf, 64, 64, 2, 2, "custom", "softcap", {1, 70, 150, 1}, {"lse", "103", "sink"}},
  };
  // clang-format on
  return list;
}

ProofCase case_of(const Row& row) {
  const auto with = [&](std::string_view word) {
    return std::find(row.with.begin(), row.with.end(), word) != row.with.end();
  };
  ProofCase one;
  one.name = row.what;
  one.shape = row.shape;
  one.spec.arch = with("103") ? Arch::kSm103a : Arch::kSm100a;
  one.spec.num_q_heads = row.heads;
  one.spec.group = row.group;
  one.spec.qk_depth = row.qk_depth;
  one.spec.ov_depth = row.ov_depth;
  one.spec.qkv_dtype = row.dtype;
  if (with("fp16-out")) one.spec.output_dtype = Dtype::kFp16;
  if (with("bf16-out")) one.spec.output_dtype = Dtype::kBf16;
  if (with("e4m3-out")) one.spec.output_dtype = Dtype::kE4m3;
  if (with("f32-out")) one.spec.output_dtype = Dtype::kF32;
  if (with("kv-e4m3")) one.spec.kv_dtype = kE4;
  if (with("tensor")) one.spec.scales = Scales::kTensor;
  if (with("head")) one.spec.scales = Scales::kHead;
  if (with("token")) one.spec.scales = Scales::kToken;
  one.spec.ragged = with("ragged");
  if (with("parts")) one.spec.num_partitions = 3;
  one.persistent = with("persistent");
  for (const int size : {12, 16, 64, 128, 512}) {
    if (with(fmt::format("page-{}", size))) one.spec.page_size = size;
  }
  if (with("mla")) one.spec.mla = Mla::kPrefill;
  if (with("rope-bf16")) one.spec.rope_dtype = kBf;
  if (with("rope-fp16")) one.spec.rope_dtype = kFp;
  one.spec.mask = mask_named(row.mask);
  one.spec.score_mod = score_mod_named(row.mod);
  one.spec.sink = with("sink");
  one.spec.return_lse = with("lse");
  one.spec.lse_includes_sink = !with("bare-lse");
  if (with("constant")) {
    verify::set_constant(one.spec.mask);
    one.spec.score_mod.constant = one.spec.score_mod.kind == ScoreModSpec::Kind::kSoftcap;
  }
  if (with("1q")) one.options.num_qo = 1;
  if (with("2q")) one.options.num_qo = 2;
  if (with("pair")) one.options.pair_cta = true;
  return one;
}

// --- at random -----------------------------------------------------------------------------------

class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t index) : stream_(seed, "sm100 proof"), at_(index << 16) {}

  std::uint32_t bits() { return stream_.bits(at_++); }
  int below(int n) { return static_cast<int>(bits() % static_cast<std::uint32_t>(n)); }
  /// True once in n.
  bool once_in(int n) { return below(n) == 0; }
  template <class T>
  T of(std::initializer_list<T> list) {
    return *(list.begin() + below(static_cast<int>(list.size())));
  }

 private:
  verify::RandomStream stream_;
  std::uint64_t at_;
};

MaskSpec random_expression_mask(Draw& draw) {
  MaskSpec mask = mask_of(Kind::kCustom);
  mask.custom.name = "drawn";
  for (;;) {
    mask.custom.code = spec::random::Generator(draw.bits()).mask()->text();
    mask.custom.params.clear();
    for (ParamSpec& param : spec::random::Params::declared()) {
      if (mask.custom.code.find("p." + param.name) != std::string::npos) {
        mask.custom.params.push_back(std::move(param));
      }
    }
    // Short ones compile quickly. A constant divisor of zero is refused by the parser, for one.
    AttentionSpec spec;
    spec.num_q_heads = 1;
    spec.qk_depth = 64;
    spec.mask = mask;
    if (mask.custom.code.size() < 160 && validate(spec).empty()) return mask;
  }
}

MaskSpec random_mask(Draw& draw, int depth) {
  const int kind = draw.below(depth > 0 ? 13 : 10);
  if (kind < 2) return mask_of(Kind::kNull);
  if (kind < 5) return mask_of(Kind::kCausal);
  MaskSpec mask;
  if (kind == 5) {
    mask = mask_of(Kind::kSlidingWindow);
    mask.window = draw.of({1, 2, 31, 50, 127, 128, 129, 200, 1000000});
    mask.constant = draw.once_in(3);
  } else if (kind == 6) {
    mask = mask_of(Kind::kChunked);
    mask.chunk = draw.of({1, 7, 37, 64, 128, 160, 1000000});
    mask.constant = draw.once_in(3);
  } else if (kind == 7) {
    mask = verify::custom_mask();
  } else if (kind == 8) {
    mask = random_expression_mask(draw);
  } else if (kind == 9) {
    mask = verify::materialized_mask(draw.of({Dtype::kBits, Dtype::kU8, Dtype::kF32, kBf, kFp}));
  } else {
    mask = mask_of(draw.once_in(2) ? Kind::kAnd : Kind::kOr);
    const int children = 2 + draw.below(2);
    // User's functions have one name each, their parameters one type each, and tensors one place.
    bool custom = false;
    while (static_cast<int>(mask.of.size()) < children) {
      MaskSpec child = random_mask(draw, depth - 1);
      const bool is_custom =
          child.kind == Kind::kCustom || child.kind == Kind::kMaterialized || !child.of.empty();
      if (custom && is_custom) continue;
      custom |= is_custom;
      mask.of.push_back(std::move(child));
    }
  }
  return mask;
}

AttentionSpec random_spec(Draw& draw) {
  AttentionSpec spec;
  spec.arch = draw.once_in(8) ? Arch::kSm103a : Arch::kSm100a;
  spec.qkv_dtype = draw.of({kBf, kFp});
  if (draw.once_in(5)) spec.output_dtype = draw.of({kBf, kFp});
  const int depths = draw.below(14);
  if (depths < 3) {
    spec.qk_depth = 64;
  } else if (depths < 5) {
    spec.qk_depth = 128;
  } else if (depths < 7) {
    spec.qk_depth = 64 + 8 * draw.below(9);
  } else if (depths == 7) {
    spec.qk_depth = 136 + 8 * draw.below(8);
  } else if (depths == 13) {
    spec.qk_depth = 320 + 64 * draw.below(4);
  } else if (depths == 12) {
    spec.qk_depth = 8 + 8 * draw.below(7);
    if (draw.once_in(2)) spec.ov_depth = 8 + 8 * draw.below(spec.qk_depth / 8);
  } else if (depths >= 10) {
    spec.qk_depth = depths == 10 ? 256 : 200 + 8 * draw.below(8);
    if (depths == 11 && draw.once_in(2)) spec.ov_depth = 8 + 8 * draw.below(spec.qk_depth / 8);
  } else {
    spec.qk_depth = depths == 8 ? 192 : 72 + 8 * draw.below(16);
    spec.ov_depth = depths == 8 ? 128 : 8 + 8 * draw.below(spec.qk_depth / 8);
  }
  spec.group = draw.of({1, 1, 1, 2, 2, 3, 4, 5, 6, 8, 16, 64});
  spec.num_q_heads = spec.group * (spec.group > 8 ? 1 : 1 + draw.below(2));
  spec.mask = random_mask(draw, 1);
  const int mod = draw.below(10);
  const auto mods = verify::score_mods();
  spec.score_mod = mods[mod < 6 ? 0 : static_cast<std::size_t>(mod - 6)].second;
  spec.score_mod.constant = spec.score_mod.kind == ScoreModSpec::Kind::kSoftcap && draw.once_in(2);
  if (draw.once_in(4)) spec.page_size = draw.of({16, 32, 64, 128, 256});
  spec.ragged = draw.once_in(5);
  spec.sink = draw.once_in(4);
  spec.return_lse = !draw.once_in(5);
  spec.lse_includes_sink = !(spec.sink && draw.once_in(3));
  if (draw.once_in(5)) {
    spec.qkv_dtype = kE4;
    spec.scales = draw.of({Scales::kNone, Scales::kTensor, Scales::kHead, Scales::kToken});
    spec.qk_depth = (spec.qk_depth + 15) / 16 * 16;
    spec.ov_depth = (spec.ov_depth + 15) / 16 * 16;
  }
  if (draw.once_in(4)) {
    spec.output_dtype = draw.of({kE4, Dtype::kF32});
    if (spec.output_dtype == kE4) {
      spec.qk_depth = (spec.qk_depth + 15) / 16 * 16;
      spec.ov_depth = (spec.ov_depth + 15) / 16 * 16;
    }
  }
  if (spec.qkv_dtype != kE4 && spec.qk_depth <= 256 && draw.once_in(6)) {
    spec.kv_dtype = kE4;
    spec.scales = draw.of({Scales::kNone, Scales::kTensor, Scales::kHead});
    spec.qk_depth = (spec.qk_depth + 15) / 16 * 16;
    spec.ov_depth = (spec.ov_depth + 15) / 16 * 16;
  }
  return spec;
}

ProofShape random_shape(Draw& draw, const AttentionSpec& spec) {
  ProofShape shape;
  shape.sm_count = draw.of({1, 1, 2, 3, 148});
  const auto length = [&](int most) {
    const int edge = draw.of({1, 2, 31, 63, 64, 65, 127, 128, 129, 160, 255, 256, 257, 384, 385});
    return std::min(draw.once_in(2) ? edge : 1 + draw.below(most), most);
  };
  // Tiles of 128 x 128, and what their products cost, are bounded: the proof is to end.
  const int heads = spec.num_q_heads;
  const int cost = spec.qk_depth > 256 ? 4 : spec.qk_depth > 192 ? 3 : spec.qk_depth > 128 ? 2 : 1;
  const bool several = spec.ragged || spec.page_size > 0;
  shape.batch = several || draw.once_in(4) ? 1 + draw.below(several ? 5 : 3) : 1;
  shape.q_len = length(std::max(1, 420 / heads / cost / shape.batch));
  shape.kv_len = draw.once_in(20) ? 0 : length(heads > 16 ? 200 : 400 / cost);
  return shape;
}

}  // namespace

std::vector<ProofCase> named_cases() {
  std::vector<ProofCase> all;
  for (const Row& row : rows()) all.push_back(case_of(row));
  // All of it again by the kernel with a single accumulator, and what has 16 bits by that of
  // head_dim above 256.
  for (const int depth : {256, 512}) {
    for (const Row& row : rows()) {
      if (row.qk_depth != row.ov_depth || (row.qk_depth != 64 && row.qk_depth != 128)) continue;
      ProofCase deep = case_of(row);
      const bool wide = size_of(row.dtype) == 2 && !deep.spec.kv_dtype &&
                        size_of(deep.spec.output_dtype.value_or(row.dtype)) == 2;
      if (depth == 512 && !wide) continue;
      deep.name += fmt::format(", depth {}", depth);
      deep.spec.qk_depth = deep.spec.ov_depth = depth;
      deep.persistent &= depth == 256;  // the other has no such knob, and no pairs
      if (depth == 512) deep.options.pair_cta.reset();
      all.push_back(std::move(deep));
    }
  }
  // What pairs of CTAs compute where nobody says, by CTAs alone, too.
  for (std::size_t i = 0, count = all.size(); i < count; ++i) {
    const Result<KernelPlan> planned = plan(all[i].spec, all[i].options);
    if (!planned || planned->main().cluster == 1 || all[i].options.pair_cta) continue;
    ProofCase alone = all[i];
    alone.name += ", alone";
    alone.options.pair_cta = false;
    all.push_back(std::move(alone));
  }
  return all;
}

ProofCase random_case(std::uint64_t seed, std::uint64_t index) {
  Draw draw(seed, index);
  ProofCase one;
  one.name = fmt::format("random {} {}", seed, index);
  bool walks = false;
  for (;;) {
    one.spec = random_spec(draw);
    one.options = {};
    const int num_qo = draw.below(5);
    if (num_qo >= 3) one.options.num_qo = num_qo - 2;
    if (!validate(one.spec, one.options).empty()) continue;
    const Result<KernelPlan> planned = plan(one.spec, one.options);
    if (!planned || !planned->supported) continue;
    walks = planned->sm100 != nullptr && planned->sm100->can_persist;
    break;
  }
  one.shape = random_shape(draw, one.spec);
  one.persistent = walks && draw.once_in(2);
  return one;
}

}  // namespace attnjit::sm100
