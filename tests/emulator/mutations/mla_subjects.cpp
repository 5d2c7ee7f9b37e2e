// SPDX-License-Identifier: Apache-2.0
// The kernels of absorbed MLA and head_dim above 256 that are damaged: dense ones, over lists of
// keys, and over caches in the format dsv32 and of e4m3.
#include "description.h"
#include "generated_subjects.h"

namespace attnjit::emulator {
namespace {

using Kind = MaskSpec::Kind;

// Of a latent part that runs soon.
AttentionSpec absorbed(Arch arch, Kind mask) {
  AttentionSpec spec = spec_of(arch, 192, 0, 20, 20, mask);
  spec.mla = Mla::kDecode;
  spec.page_size = 64;
  return spec;
}

AttentionSpec listed(Arch arch) {
  return with(absorbed(arch, Kind::kNull), [](AttentionSpec& spec) {
    spec.topk = 320;
    spec.num_partitions = 0;
    spec.sink = true;
  });
}

AttentionSpec packed(Arch arch, int topk, Kind mask) {
  return with(absorbed(arch, mask), [&](AttentionSpec& spec) {
    spec.num_partitions = 0;
    spec.qk_depth = 576;
    spec.cache_format = CacheFormat::kDsv32;
    spec.topk = topk;
  });
}

// Of an odd number of blocks.
AttentionSpec narrow(Arch arch, int topk, Kind mask) {
  return with(absorbed(arch, mask), [&](AttentionSpec& spec) {
    spec.kv_dtype = Dtype::kE4m3;
    spec.scales = Scales::kHead;
    spec.topk = topk;
    spec.num_partitions = 0;
  });
}

Tuning of_stages(int stages) {
  Tuning tuning;
  tuning.rows.push_back({{}, {{"num_stages", stages}}});
  return tuning;
}

// As few stages as at the depths of models, so that memory is handed back and forth.
Tuning two_stages() { return of_stages(2); }

// Two that load K and V for each other.
Tuning two_ctas() {
  Tuning tuning;
  tuning.rows.push_back({{}, {{"cluster", 2}}});
  return tuning;
}

// With two, the K of a tile's S would come after the product of the tile two before, and imply what
// the softmax waits for itself.
Tuning three_stages() { return of_stages(3); }

// Even and odd numbers of tiles, sequences without keys, heads that are no power of two, and parts;
// and a tile that the follower has alone, behind which the next work tile begins in the stage of
// the warp that does not load Q. sm_90a's batch is ragged: others deal out stream-K ranges, and are
// run_subjects().
std::vector<Description> dense_subjects() {
  const AttentionSpec sm90 = absorbed(Arch::kSm90a, Kind::kCausal);
  const AttentionSpec sm100 = absorbed(Arch::kSm100a, Kind::kCausal);
  const auto in_parts = [](AttentionSpec& spec) {
    spec.num_partitions = 0;
    spec.sink = true;
  };
  const auto of_rows = [](AttentionSpec& spec) { spec.page_size = 3; };
  const std::vector<Shape> parts = {written({{1}, {400, 0, 31, 264}, 1, kNormal, true}),
                                    {{5}, {1000}, 132},
                                    {{1}, {60, 60, 60, 60, 60}, 1},
                                    {{2}, {500, 130}, 1, kRaised}};
  const std::vector<Shape> ragged_parts = {
      written({{1, 1, 2, 1}, {400, 0, 31, 264}, 1, kNormal, true}),
      {{5, 1}, {1000, 30}, 132},
      {{1, 1, 1, 0, 1}, {60, 128, 60, 60, 60}, 1},
      {{2, 2}, {500, 130}, 1, kRaised}};
  const std::vector<Shape> rows = {written({{4}, {270, 0, 200}, 1}),
                                   {{1}, {60, 128, 60, 60, 60}, 1},
                                   {{2}, {500, 130}, 1, kRaised, true}};
  const auto ragged = [](AttentionSpec& spec) {
    spec.num_partitions = 0;
    spec.ragged = true;
    spec.sink = true;
  };
  return {
      {"sm90 mla 192/128", with(sm90, ragged), ragged_parts, two_stages()},
      {"sm90 mla rows 192/128", with(sm90, of_rows), rows, two_stages()},
      {"sm_100a mla 192/128", with(sm100, in_parts), parts, three_stages()},
      {"sm_100a mla rows 192/128", with(sm100, of_rows), rows, three_stages()},
  };
}

// Sequences that differ in length, whose keys are dealt out in stream-K ranges: a sequence with a
// part in every CTA, others whole and without keys; runs that end between sequences; sequences of
// two query tiles, whose teams are two CTAs; a maximum that grows in every part; uniform splits, by
// which nothing is cut and the merge has nothing to do; and halves that two CTAs join. Long rows of
// many parts are merged by code of their own.
std::vector<Description> run_subjects() {
  const auto with_sink = [](AttentionSpec& spec) {
    spec.num_partitions = 0;
    spec.sink = true;
  };
  const auto of_rows = [](AttentionSpec& spec) {
    spec.num_partitions = 0;
    spec.page_size = 3;
  };
  // More sequences than a warp has lanes. Runs of 13 units cut the last in 3 parts. Its first unit
  // is number 160.
  Shape many = in_ranges({{1}, std::vector<std::int64_t>(33, 5), 15});
  many.kv_lens.back() = 24 * 64;
  const std::vector<Shape> runs = {written(in_ranges({{1}, {430, 70, 0, 330}, 3, kNormal, true})),
                                   in_ranges({{2}, {700, 130}, 4, kRaised}),
                                   in_ranges({{4}, {500, 2}, 5}),
                                   in_ranges({{1}, {2100, 70}, 2}),
                                   many,
                                   in_ranges({{1}, {1150, 5}, 20, kRaised}),
                                   {{5}, {1000}, 132},
                                   in_parts(1, {{1}, {150, 70}, 1}),
                                   asking({{1}, {150, 140}, 2})};
  // Halves that two CTAs join; of sequences without keys, and of one tile.
  std::vector<Shape> with_halves = runs;
  with_halves.push_back(reduced(1, {{1}, {330, 0, 60}, 6, kRaised}));
  with_halves.push_back(written(reduced(2, {{5}, {520, 130}, 24, kNormal, true})));
  with_halves.push_back({{1}, {60, 128, 60, 60, 60}, 1});
  const std::vector<Shape> rows = {written(in_ranges({{2}, {430, 70, 0, 330}, 3, kNormal, true})),
                                   in_ranges({{1}, {60, 700}, 2, kRaised}), many,
                                   written({{1}, {260, 330}, 1, kRaised, true}),
                                   asking({{1}, {150, 140}, 2})};
  std::vector<Shape> rows_with_halves = rows;
  rows_with_halves.push_back(written(reduced(2, {{5}, {520, 130}, 24, kNormal, true})));
  return {
      {"sm90 runs mla 192/128", with(absorbed(Arch::kSm90a, Kind::kCausal), with_sink), with_halves,
       two_stages()},
      {"sm90 runs mla rows 192/128", with(absorbed(Arch::kSm90a, Kind::kCausal), of_rows),
       rows_with_halves, two_stages()},
      {"sm90 runs dsv32", packed(Arch::kSm90a, 0, Kind::kCausal), rows},
      {"sm_100a runs mla 192/128", with(absorbed(Arch::kSm100a, Kind::kCausal), with_sink), runs,
       three_stages()},
      {"sm_100a runs mla rows 192/128", with(absorbed(Arch::kSm100a, Kind::kCausal), of_rows), rows,
       three_stages()},
      {"sm_100a runs dsv32", packed(Arch::kSm100a, 0, Kind::kCausal), rows},
  };
}

// Lists that are longer than their sequence, and shorter; in one part, and in several that one CTA
// takes one behind another, of which the last have no keys, or several CTAs, which end soon; and
// the format dsv32 and e4m3, with lists and without, and of two CTAs that upcast for each other.
// Where lengths are asked for, another wait is that for the launch before.
std::vector<Description> list_subjects() {
  const std::vector<Shape> lists = {written({{3}, {200, 0, 31}, 1, kNormal, true}),
                                    in_parts(5, {{1}, {600, 7}, 1}),
                                    {{1}, {60, 70, 60, 65, 60}, 1},
                                    {{2}, {500, 130}, 1, kRaised}};
  const std::vector<Shape> packed_lists = {written({{2}, {200, 0, 31}, 1, kNormal, true}),
                                           in_parts(9, {{1}, {60, 70}, 1}),
                                           in_parts(2, {{1}, {60, 70}, 1, kRaised}),
                                           {{1}, {60, 70, 60}, 1},
                                           {{1}, {300, 70}, 1, kRaised}};
  const std::vector<Shape> packed_dense = {written({{2}, {300, 0, 31}, 1, kNormal, true}),
                                           in_parts(9, {{1}, {260, 70}, 1}),
                                           in_parts(2, {{1}, {70, 130}, 1}),
                                           in_parts(4, {{1}, {500, 450}, 132}),
                                           {{1}, {260, 330}, 1, kRaised},
                                           written(asking({{1}, {150, 140}, 2}))};
  const auto ragged = [](AttentionSpec& spec) { spec.ragged = true; };
  const auto of_128_heads = [](AttentionSpec& spec) { spec.num_q_heads = spec.group = 128; };
  return {
      {"sm90 topk 192/128", listed(Arch::kSm90a), lists, two_stages()},
      {"sm_100a topk 192/128", listed(Arch::kSm100a), lists, three_stages()},
      {"sm90 dsv32", packed(Arch::kSm90a, 320, Kind::kNull), packed_lists},
      {"sm90 dsv32 pairs",
       with(packed(Arch::kSm90a, 320, Kind::kNull), of_128_heads),
       {written({{1}, {200, 0, 31}, 2, kNormal, true}),
        in_parts(9, {{1}, {130}, 2, kRaised}),
        {{1}, {60, 70, 60}, 2},
        {{1}, {300, 70}, 2, kRaised}}},
      {"sm_100a dsv32 lists", packed(Arch::kSm100a, 192, Kind::kNull), packed_lists},
      {"sm90 ragged dsv32",
       with(packed(Arch::kSm90a, 0, Kind::kCausal), ragged),
       {written({{2, 0, 5}, {300, 40, 31}, 1, kNormal, true}),
        {{1, 3}, {260, 70}, 1, kRaised},
        {{1, 1, 1}, {60, 70, 60}, 1}}},
      {"sm_100a dsv32 dense", packed(Arch::kSm100a, 0, Kind::kCausal), packed_dense},
      {"sm90 latent e4m3 dense", narrow(Arch::kSm90a, 0, Kind::kCausal), packed_dense,
       two_stages()},
      {"sm90 latent e4m3 lists", narrow(Arch::kSm90a, 320, Kind::kNull), packed_lists,
       two_stages()},
      {"sm_100a latent e4m3 dense", narrow(Arch::kSm100a, 0, Kind::kCausal), packed_dense,
       three_stages()},
      {"sm_100a latent e4m3 lists", narrow(Arch::kSm100a, 192, Kind::kNull), packed_lists,
       two_stages()},
  };
}

// head_dim above 256, by boxes of TMA and row by row: V's memory in turns of its own, tails of V
// that are zeroed, several work tiles for a CTA, CTAs that end soon, and maxima that grow.
std::vector<Description> deep_subjects() {
  const AttentionSpec sm100 = with(spec_of(Arch::kSm100a, 512, 512, 4, 2, Kind::kCausal),
                                   [](AttentionSpec& spec) { spec.page_size = 64; });
  const auto parts_of_rows = [](AttentionSpec& spec) {
    spec.page_size = 3;
    spec.num_partitions = 2;
    spec.sink = true;
  };
  return {
      {"sm_100a 512 pages",
       sm100,
       {{{40}, {200, 0, 70}, 1, kNormal, true},
        {{3}, {330, 64}, 2},
        {{40}, {128}, 8},
        {{20}, {260, 70}, 1, kRaised}}},
      {"sm_100a 512 rows",
       with(sm100, parts_of_rows),
       {{{20}, {270, 0, 40}, 1, kNormal, true}, {{20}, {256}, 8}, {{2}, {390, 130}, 1, kRaised}}},
      {"sm_100a 512 cluster",
       with(sm100, [](AttentionSpec& spec) { spec.ragged = true; }),
       {{{70, 9, 0}, {200, 70, 20}, 2, kNormal, true}, {{40}, {330}, 4}, {{64}, {260}, 2, kRaised}},
       two_ctas()},
  };
}

}  // namespace

Result<Subjects> make_mla_subjects(const Wanted& wanted) {
  return make_described({dense_subjects(), run_subjects(), list_subjects(), deep_subjects()},
                        wanted);
}

}  // namespace attnjit::emulator
