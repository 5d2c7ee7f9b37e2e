// SPDX-License-Identifier: Apache-2.0
// Lists the masks, the score modifications and their combinations that kernels are verified with.
#include "verify_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <iterator>

namespace attnjit::verify {

MaskSpec mask_of(MaskSpec::Kind kind) {
  MaskSpec mask;
  mask.kind = kind;
  if (kind == MaskSpec::Kind::kSlidingWindow) mask.window = 50;
  if (kind == MaskSpec::Kind::kChunked) mask.chunk = 37;
  return mask;
}

MaskSpec tree(MaskSpec::Kind kind, std::vector<MaskSpec> of) {
  MaskSpec mask = mask_of(kind);
  mask.of = std::move(of);
  return mask;
}

MaskSpec custom_mask() {
  MaskSpec mask = mask_of(MaskSpec::Kind::kCustom);
  mask.custom.name = "documents";
  mask.custom.code = "p.doc[q_idx] == p.doc[kv_idx] || kv_idx < p.prefix";
  mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}, {"prefix", ParamSpec::Type::kI32}};
  return mask;
}

MaskSpec materialized_mask(Dtype type) {
  MaskSpec mask = mask_of(MaskSpec::Kind::kMaterialized);
  mask.dtype = type;
  return mask;
}

MaskSpec mask_of_every_type() {
  using Type = ParamSpec::Type;
  MaskSpec mask = mask_of(MaskSpec::Kind::kCustom);
  mask.custom.name = "every_type";
  mask.custom.code =
      "(p.words[kv_idx] >> (q_idx & 31) & 1) != 0 || p.cube[h][q_row % 3][kv_idx % 5] > p.n || "
      "(p.tree[q_row][kv_idx / 32] >> kv_idx & p.one) > 2147483647 || "
      "(p.more[b][h][kv_idx % 7] & 1) == 1";
  mask.custom.params = {{"words", Type::kU32Array}, {"cube", Type::kI32Cube},
                        {"n", Type::kI32},          {"tree", Type::kU32Matrix},
                        {"one", Type::kU32},        {"more", Type::kU32Cube}};
  return mask;
}

ScoreModSpec score_mod_of_every_type() {
  using Type = ParamSpec::Type;
  ScoreModSpec mod;
  mod.kind = ScoreModSpec::Kind::kCustom;
  mod.custom.name = "every_type";
  mod.custom.code =
      "score * p.gain + p.by_distance[h][abs(q_idx - kv_idx)] - p.half[kv_idx] * "
      "p.halves[h][kv_idx % 7] + p.of_pairs[b][h][kv_idx % 3] + p.bias[q_row]";
  mod.custom.params = {{"gain", Type::kF32},         {"by_distance", Type::kF32Matrix},
                       {"half", Type::kBf16Array},   {"halves", Type::kBf16Matrix},
                       {"of_pairs", Type::kF32Cube}, {"bias", Type::kF32Array}};
  return mod;
}

std::vector<std::pair<std::string, MaskSpec>> masks() {
  using Kind = MaskSpec::Kind;
  return {
      {"null", mask_of(Kind::kNull)},
      {"causal", mask_of(Kind::kCausal)},
      {"window", mask_of(Kind::kSlidingWindow)},
      {"chunked", mask_of(Kind::kChunked)},
      {"causal-and-chunked", tree(Kind::kAnd, {mask_of(Kind::kCausal), mask_of(Kind::kChunked)})},
      {"window-or-chunked",
       tree(Kind::kOr, {mask_of(Kind::kSlidingWindow), mask_of(Kind::kChunked)})},
      {"custom", custom_mask()},
      {"causal-and-custom", tree(Kind::kAnd, {mask_of(Kind::kCausal), custom_mask()})}};
}

std::vector<std::pair<std::string, ScoreModSpec>> score_mods() {
  ScoreModSpec identity, alibi, softcap, custom;
  alibi.kind = ScoreModSpec::Kind::kAlibi;
  softcap.kind = ScoreModSpec::Kind::kSoftcap;
  softcap.cap = 30;
  custom.kind = ScoreModSpec::Kind::kCustom;
  custom.custom.name = "bias";
  custom.custom.code = "score * p.slope + p.bias[kv_idx] - 0.01f * abs(q_idx - kv_idx)";
  custom.custom.params = {{"slope", ParamSpec::Type::kF32}, {"bias", ParamSpec::Type::kF32Array}};
  return {{"identity", identity}, {"alibi", alibi}, {"softcap", softcap}, {"custom", custom}};
}

void set_constant(MaskSpec& mask) {
  if (mask.window > 0 || mask.chunk > 0) mask.constant = true;
  for (MaskSpec& child : mask.of) set_constant(child);
}

std::vector<std::int64_t> mixed_lengths(std::int64_t longest, std::int64_t batch,
                                        std::uint64_t turn) {
  const std::int64_t others[] = {0, std::min<std::int64_t>(1, longest), longest / 2,
                                 std::max<std::int64_t>(longest - 1, 0)};
  std::vector<std::int64_t> lengths;
  for (std::int64_t b = 0; b < batch; ++b) {
    lengths.push_back(b == 0 ? longest : others[(static_cast<std::uint64_t>(b - 1) + turn) % 4]);
  }
  return lengths;
}

std::vector<Case> cases(Arch arch) {
  constexpr std::pair<int, int> kDepths[] = {{64, 64}, {128, 128}, {256, 256}, {192, 128}};
  constexpr std::pair<int, int> kHeads[] = {{2, 1}, {4, 2}, {4, 4}, {3, 3}, {8, 8}, {6, 2}};
  std::vector<Case> all;
  const auto add = [&](Dtype dtype, std::pair<int, int> depth, const auto& mask, const auto& mod,
                       bool sink) {
    const std::size_t n = all.size();
    const auto [heads, group] = kHeads[n % std::size(kHeads)];
    Case one;
    one.spec.arch = arch;
    one.spec.num_q_heads = heads;
    one.spec.group = group;
    one.spec.qk_depth = depth.first;
    one.spec.ov_depth = depth.second;
    one.spec.qkv_dtype = dtype;
    one.spec.mask = mask.second;
    one.spec.score_mod = mod.second;
    one.spec.sink = sink;
    one.spec.return_lse = n % 7 != 3;
    const bool constant = n % 3 == 1;
    if (constant) {
      set_constant(one.spec.mask);
      one.spec.score_mod.constant = one.spec.score_mod.kind == ScoreModSpec::Kind::kSoftcap;
    }
    one.name = fmt::format("{} {}/{} heads {} group {} {} {}{}{}{}", to_string(dtype), depth.first,
                           depth.second, heads, group, mask.first, mod.first, sink ? " sink" : "",
                           constant ? " constant" : "", one.spec.return_lse ? " lse" : "");
    all.push_back(std::move(one));
  };
  for (const Dtype dtype : {Dtype::kBf16, Dtype::kFp16}) {
    for (const auto& depth : kDepths) {
      for (const auto& mask : masks()) {
        for (const auto& mod : score_mods()) {
          for (const bool sink : {false, true}) add(dtype, depth, mask, mod, sink);
        }
      }
    }
    // Depths between the usual ones, with two masks.
    for (const auto& depth : {std::pair{8, 8}, std::pair{40, 40}, std::pair{96, 96},
                              std::pair{112, 64}, std::pair{160, 160}, std::pair{224, 200}}) {
      for (const std::size_t mask : {std::size_t{0}, std::size_t{1}}) {
        add(dtype, depth, masks()[mask], score_mods()[0], false);
      }
    }
  }
  // Sequences of several lengths. sm_100 takes a page that a tile holds whole times.
  const std::vector<int> pages = arch == Arch::kSm90a
                                     ? std::vector<int>{0, 1, 3, 8, 16, 40, 64, 256}
                                     : std::vector<int>{0, 16, 64, 256};
  constexpr int kPartitions[] = {1, 3, 0};  // 0: chosen at launch
  const auto add_sequences = [&](int page_size, bool ragged, bool ragged_kv) {
    for (const auto& mask : masks()) {
      const std::size_t n = all.size();
      add(n % 2 == 0 ? Dtype::kBf16 : Dtype::kFp16, kDepths[n % 5 % std::size(kDepths)], mask,
          score_mods()[n % 3], ragged);
      Case& one = all.back();
      one.spec.page_size = page_size;
      one.spec.ragged = ragged;
      one.spec.ragged_kv = ragged_kv;
      if (arch == Arch::kSm90a) {
        one.spec.kv_lens_exclude_new = !ragged_kv && n % 5 == 2;
        if (n / 3 % 4 == 3) {
          one.spec.partition_keys = 64 * static_cast<int>(1 + n % 3);
        } else {
          one.spec.num_partitions = kPartitions[n / 3 % 4];
        }
      }
      one.name += fmt::format(" page_size {}{}{}{} partitions {} keys {}", page_size,
                              ragged ? " ragged" : "", ragged_kv ? " ragged_kv" : "",
                              one.spec.kv_lens_exclude_new ? " kv_lens_exclude_new" : "",
                              one.spec.num_partitions, one.spec.partition_keys);
    }
  };
  for (const int page_size : pages) {
    for (const bool ragged : {false, true}) {
      if (page_size > 0 || ragged) add_sequences(page_size, ragged, false);
    }
  }
  if (arch == Arch::kSm90a) {
    for (const bool ragged : {false, true}) add_sequences(0, ragged, true);
  }
  for (const int page_size : {0, 64}) {
    for (const bool ragged : {false, true}) {
      for (const Dtype type : {Dtype::kBits, Dtype::kU8, Dtype::kF32, Dtype::kBf16, Dtype::kFp16}) {
        const std::size_t n = all.size();
        std::pair mask{fmt::format("materialized-{}", to_string(type)), materialized_mask(type)};
        if (n % 3 == 2) {
          mask = {"causal-and-" + mask.first,
                  tree(MaskSpec::Kind::kAnd, {mask_of(MaskSpec::Kind::kCausal), mask.second})};
        }
        add(n % 2 == 0 ? Dtype::kBf16 : Dtype::kFp16, kDepths[n % std::size(kDepths)], mask,
            score_mods()[n % 3], ragged);
        Case& one = all.back();
        one.spec.page_size = page_size;
        one.spec.ragged = ragged;
        one.name += fmt::format(" page_size {}{}", page_size, ragged ? " ragged" : "");
      }
    }
  }
  return all;
}

}  // namespace attnjit::verify
