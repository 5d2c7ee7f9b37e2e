// SPDX-License-Identifier: Apache-2.0
// The generated kernels that are damaged, with the calls that reach what is in them.
#include "generated_subjects.h"

#include "description.h"

namespace attnjit::emulator {
namespace {

using Kind = MaskSpec::Kind;
using verify::InputKind;

std::vector<Description> sm90_subjects() {
  constexpr Arch kArch = Arch::kSm90a;
  // Two CTAs for several tiles of work: the memory of Q is handed over in both; in the tile that is
  // not full, consumers have no rows. Then one CTA: every buffer of Q several times, and work tiles
  // of one tile of keys, and of none. With 472 keys the first consumer has two masked tiles, so
  // that no other's turn implies what it waits for; with 440 the second has, and the first skips a
  // tile.
  return {
      {"sm90 128/128 causal",
       spec_of(kArch, 128, 128, 2, 2, Kind::kCausal),
       {{{420}, {500}, 2}, {{420}, {150}, 1}}},
      {"sm90 64/64",
       spec_of(kArch, 64, 64, 2, 2, Kind::kNull),
       {{{400}, {500}, 2}, {{420}, {60, 60}, 1}, {{420}, {200}, 1}}},
      {"sm90 192/128 causal",
       spec_of(kArch, 192, 128, 2, 2, Kind::kCausal),
       {{{300}, {472}, 2}, {{300}, {440}, 1}, {{300}, {100}, 1}}},
      {"sm90 96/64 window",
       with(spec_of(kArch, 96, 64, 8, 4, Kind::kSlidingWindow),
            [](AttentionSpec& spec) {
              spec.mask.window = 150;
              spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
              spec.score_mod.cap = 30;
              spec.qkv_dtype = Dtype::kFp16;
              spec.sink = true;
            }),
       {{{70}, {421}, 2}, {{70}, {30}, 1}, {{45}, {300}, 1, kRaised}}},
  };
}

// Sequences that are cut, and others that are whole or without keys; more than a warp has lanes,
// some without rows; and whole ones.
std::vector<Shape> heads_in_ranges() {
  Shape many = in_ranges({std::vector<std::int64_t>(34, 0), {}, 4});
  many.kv_lens.assign(34, 100);
  many.q_lens[3] = many.q_lens[32] = 1;
  many.kv_lens[32] = 2100;
  return {in_ranges({{8, 5, 0, 8, 8}, {2100, 70, 300, 0, 700}, 5, kNormal, true}), many,
          asking({{8, 0, 1, 8}, {300, 9, 40, 130}, 3})};
}

// Decodes, and parts of the keys with the merge that follows them: parts without keys, and rows
// that see the keys of some parts alone.
std::vector<Description> split_subjects() {
  constexpr Arch kArch = Arch::kSm90a;
  return {
      {"parts, sm90 128/128",
       with(spec_of(kArch, 128, 128, 6, 3, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.page_size = 16;
              spec.max_q_len = 4;
              spec.num_partitions = 0;
              spec.sink = true;
            }),
       {{{4}, {706, 0, 97, 5}, 1, kNormal, true},
        {{4}, {898, 0, 97}, 16, kRaised},
        {{4}, {600, 30}, 1, kRaised},
        {{1}, {1900, 600, 30}, 12}}},
      {"keys, sm90 64/64",
       with(spec_of(kArch, 64, 64, 4, 2, Kind::kSlidingWindow),
            [](AttentionSpec& spec) {
              spec.mask.window = 450;
              spec.ragged = true;
              spec.partition_keys = 384;
            }),
       {{{150, 0, 9, 33}, {1000, 40, 0, 31}, 1},
        {{150, 30, 70}, {380, 100, 300}, 1, kNormal, true},
        {{70, 40}, {700, 30}, 2, kRaised},
        {{2}, {6300}, 2}}},
      // Equal runs of KV tiles, which end within query tiles and between them. Tiles have one part,
      // two, and as many as there is room for; rows and tiles see nothing. Then runs of several
      // whole tiles; and launches of one partition, which have a loop of their own.
      {"runs, sm90 64/64",
       with(spec_of(kArch, 64, 64, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.num_partitions = 0;
              spec.sink = true;
            }),
       {in_parts(4, {{400}, {500}, 3}), in_parts(4, {{400}, {500}, 7, kRaised}),
        in_parts(6, {{64}, {1000}, 9, kNormal, true}), in_parts(3, {{600}, {300}, 3}),
        in_parts(2, {{420}, {500}, 1}), in_parts(1, {{420}, {500}, 2}),
        in_parts(1, {{1000}, {150}, 1})}},
      // Runs over sequences, a tile for each of several heads.
      {"sm90 runs heads 64/64",
       with(spec_of(kArch, 64, 64, 16, 8, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.max_q_len = 8;
              spec.page_size = 16;
              spec.num_partitions = 0;
              spec.sink = true;
              spec.ragged = true;
            }),
       heads_in_ranges()},
      {"runs, sm90 192/128",
       with(spec_of(kArch, 192, 128, 2, 2, Kind::kNull),
            [](AttentionSpec& spec) { spec.num_partitions = 0; }),
       {in_parts(2, {{280}, {300}, 2}), in_parts(9, {{1}, {900}, 20, kNormal, true}),
        in_parts(3, {{280}, {900}, 4, kRaised}), in_parts(2, {{280}, {472}, 1}),
        in_parts(1, {{280}, {440}, 1}), in_parts(1, {{280}, {60, 60}, 1})}},
      // Pairs that the caller has: fewer than a warp's lanes, and more.
      {"merge",
       with(spec_of(kArch, 136, 136, 3, 1, Kind::kNull),
            [](AttentionSpec& spec) {
              spec.merge = true;
              spec.ragged = true;
            }),
       {{{5, 0, 1}, {}, 132, kNormal, true, 0, 9},
        {{5, 0, 1}, {}, 1, InputKind::kLarge, false, 0, 70},
        {{7}, {}, 132, kNormal, false, 0, 2}}},
  };
}

MaskSpec expression(const char* code) {
  MaskSpec mask;
  mask.kind = Kind::kCustom;
  mask.custom.name = "decided";
  mask.custom.code = code;
  return mask;
}

// Of many keys, one tile is seen at either end.
constexpr const char* kSinksAndWindow =
    "kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < (kv_len < 5000 ? 300 : 40))";

// The same, but for launches of 700 and of 710 keys, of which some rows see nothing: between
// others, and before all others.
constexpr const char* kSinksAndGaps =
    "kv_idx <= q_idx && (kv_idx < 4 || q_idx - kv_idx < (kv_len < 5000 ? 300 : 40)) && "
    "(kv_len != 700 || q_idx < 412 || q_idx >= 508) && (kv_len != 710 || q_idx >= 518)";

// The KV tiles that an expression does not hide, in lists. Tiles are hidden before, behind and
// between those that are seen; rows of one consumer see all of some that rows of another do not;
// more than 32 tiles are asked about in runs.
std::vector<Description> listed_subjects() {
  return {
      {"sm90 listed 64/64",
       with(spec_of(Arch::kSm90a, 64, 64, 2, 2, Kind::kNull),
            [](AttentionSpec& spec) { spec.mask = expression(kSinksAndGaps); }),
       {{{200}, {400, 400}, 1},
        {{90}, {150, 150, 150, 150}, 1},
        {{90}, {20, 20}, 1},
        {{96}, {626}, 1},  // a tile among others is one consumer's alone
        {{70}, {500}, 1, kRaised},
        {{400}, {700}, 1},  // a work tile without keys between others, and behind them
        {{400}, {710}, 1},
        {{10}, {9050}, 1},
        {{10}, {8990}, 1}}},
      {"sm90 listed rows 64/64",
       with(spec_of(Arch::kSm90a, 64, 64, 2, 2, Kind::kNull),
            [](AttentionSpec& spec) {
              spec.mask = expression(kSinksAndWindow);
              spec.page_size = 3;
              spec.ragged = true;
            }),
       {{{96, 40, 0, 9, 5, 96}, {400, 490, 40, 0, 70, 300}, 1},
        {{20, 9, 3, 12, 5}, {50, 190, 40, 60, 30}, 1},
        {{20, 70}, {300, 430}, 2},
        {{10, 3}, {9050, 9010}, 1}}},
  };
}

// Work that a warp finds and publishes on sm_100a, where a CTA takes several parts or sequences:
// parts of the keys, of as many or of fixed ones, with the merge behind them, and one part, which
// is written whole; keys of sequences one behind another; parts without keys, and sequences without
// rows or keys. Fixed parts have more tiles than there are stages.
std::vector<Description> published_subjects() {
  constexpr Arch kArch = Arch::kSm100a;
  return {
      {"sm_100a 128 parts",
       with(spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.page_size = 16;
              spec.num_partitions = 0;
              spec.sink = true;
            }),
       {in_parts(3, {{150}, {430, 0, 20}, 1}),  // of the last one the second tile's rows see keys
        in_parts(3, {{20}, {1100, 30}, 1, kNormal, true}),
        in_parts(3, {{150}, {800}, 2, kRaised}),
        in_parts(3, {{20}, {1500}, 2, kRaised}),
        {{150}, {330, 0, 97}, 1},
        {{20}, {500, 30}, 1, kRaised}}},
      // Decodes that are dealt out: one in parts of several CTAs, whole ones, and such without
      // keys.
      {"sm_100a decodes 128",
       with(spec_of(kArch, 128, 128, 4, 4, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.page_size = 16;
              spec.max_q_len = 4;
              spec.num_partitions = 0;
              spec.sink = true;
            }),
       {{{4}, {1706, 0, 97, 5}, 5, kNormal, true},
        {{4}, {1898, 900, 30}, 7, kRaised},
        {{1}, {300, 0, 97, 200, 40}, 2, kRaised}}},
      {"sm_100a 64 keys",
       with(spec_of(kArch, 64, 64, 8, 4, Kind::kSlidingWindow),
            [](AttentionSpec& spec) {
              spec.mask.window = 1200;
              spec.ragged = true;
              spec.partition_keys = 1024;
              spec.qkv_dtype = Dtype::kFp16;
            }),
       {{{40, 0, 9, 33}, {2100, 40, 0, 31}, 1},
        {{50, 30}, {1042, 200}, 1, kRaised, true},  // the last part is the second tile's alone
        {{20, 5}, {1500, 300}, 1},
        {{20, 9}, {1200, 140}, 1, kRaised},
        {{50, 0, 30}, {250, 9, 140}, 1},
        {{9, 20}, {130, 250}, 1, kRaised}}},
      {"sm_100a 128 ragged keys",
       with(spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) { spec.ragged = spec.ragged_kv = true; }),
       {{{150, 0, 9, 33}, {430, 40, 0, 97}, 1},
        {{20, 150}, {600, 20}, 1, kRaised},
        {{20, 60, 60}, {1100, 200, 128}, 2, kNormal, true}}},
  };
}

// A mask that hangs on an array, and the map that a kernel makes of it: blocks that are hidden,
// seen in part and whole, decided by ranges and by scores, of which lanes of a warp know different
// elements; lists of more than a warp's 32 places; more rows of blocks than CTAs; tiles that one
// consumer's rows see and another's do not, before and behind others; a sequence's last tile, which
// ends early, before whole ones; blocks of which the map has no room for bits; and launches whose
// map lies where the launch before still reads its own.
std::vector<Description> map_subjects() {
  MaskSpec mask = expression("p.doc[q_idx] == p.doc[kv_idx] || kv_idx - q_idx > 5000");
  mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}};
  MaskSpec causal;
  causal.kind = Kind::kCausal;
  MaskSpec both;
  both.kind = Kind::kAnd;
  both.of = {causal, mask};
  return {
      {"maps, sm90 64/64",
       with(spec_of(Arch::kSm90a, 64, 64, 2, 2, Kind::kNull),
            [&](AttentionSpec& spec) { spec.mask = both; }),
       {{{300}, {700}, 1, kNormal, true, 250},
        {{200}, {400, 400}, 2, kNormal, false, 128},
        {{140}, {270}, 1},
        {{530}, {530}, 1, kNormal, false, 140},
        {{160}, {600}, 1, kNormal, false, 118},
        {{90}, {100, 100}, 1, kNormal, false, 40},
        {{500}, {250}, 1, kNormal, false, 40},  // work tiles without keys, behind others
        {{70}, {1500}, 1, kRaised, false, 1400},
        of_few_bits(1, {{300}, {700}, 1, kNormal, false, 250})}},
      {"maps, sm90 128/128 pages",
       with(spec_of(Arch::kSm90a, 128, 128, 2, 2, Kind::kNull),
            [&](AttentionSpec& spec) {
              spec.mask = mask;
              spec.ragged = true;
              spec.page_size = 16;
            }),
       {{{150, 0, 9}, {600, 40, 70}, 1, kNormal, false, 200},
        {{160, 20, 9, 5}, {600, 0, 70, 40}, 1, kNormal, false, 118},
        {{150}, {1100}, 1, kNormal, true, 1090},
        {{20}, {300}, 2},
        of_few_bits(1, {{150, 9}, {700, 40}, 1, kNormal, false, 300})}},
      // A second kernel joins the map's lists to those of work tiles, of one row of blocks and of
      // two; of more tiles than there are stages, and of none.
      {"sm_100a 64 maps",
       with(spec_of(Arch::kSm100a, 64, 64, 2, 1, Kind::kNull),
            [&](AttentionSpec& spec) { spec.mask = both; }),
       {{{300}, {700}, 1, kNormal, true, 250},
        {{160}, {600}, 1, kNormal, false, 118},
        {{70}, {1500}, 1, kRaised, false, 1400},
        {{300}, {500}, 1, kRaised},
        {{150}, {1100}, 1, kNormal, false, 1090},
        {{300}, {40}, 1}},
       persistent()},
      // A mask that is a tensor of bits.
      {"sm_100a 64 tensors",
       with(spec_of(Arch::kSm100a, 64, 64, 2, 1, Kind::kNull),
            [](AttentionSpec& spec) {
              spec.mask.kind = Kind::kMaterialized;
              spec.mask.dtype = Dtype::kBits;
            }),
       {{{300}, {400}, 1}, {{70}, {500}, 1, kRaised}},
       persistent()},
  };
}

// NOTE: their names do not begin as the others' do, of which places are known by their number.
std::vector<Description> sequence_subjects() {
  constexpr Arch kArch = Arch::kSm90a;
  // Sequences with and without keys, of all lengths and of none; pages that are not full, of
  // several boxes and of a part of one; one CTA and two.
  return {
      {"pages, sm90 128/128",
       with(spec_of(kArch, 128, 128, 4, 4, Kind::kCausal),
            [](AttentionSpec& spec) { spec.page_size = 48; }),
       {{{70}, {410, 0, 97}, 2}, {{20}, {190, 190, 194, 300, 30, 64}, 1}}},
      {"rows, sm90 128/64",
       with(spec_of(kArch, 128, 64, 2, 2, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.page_size = 3;
              spec.ragged = true;
            }),
       {{{96, 40, 96, 33, 20, 0, 9, 12, 5}, {400, 190, 290, 31, 200, 40, 0, 70, 20}, 1},
        {{20, 1, 3}, {300, 30, 9}, 2}}},
      {"ragged, sm90 64/64",
       with(spec_of(kArch, 64, 64, 4, 4, Kind::kSlidingWindow),
            [](AttentionSpec& spec) {
              spec.mask.window = 200;
              spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
              spec.score_mod.cap = 30;
              spec.qkv_dtype = Dtype::kFp16;
              spec.ragged = true;
              spec.sink = true;
            }),
       {{{70, 0, 9, 33}, {500, 40, 0, 31}, 1},
        {{70, 40}, {300, 30}, 2, kRaised},
        // One work tile, two and three.
        {{9}, {100}, 1},
        {{70}, {100}, 1},
        {{70, 9}, {100, 40}, 1}}},
  };
}

std::vector<Description> sm100_subjects() {
  constexpr Arch kArch = Arch::kSm100a;
  // More than 128 rows: two query tiles per CTA, on one SM; fewer rows, or many SMs: one. Counts of
  // KV tiles that the stages divide and do not, odd and even; with a causal mask and few keys, work
  // tiles that see nothing, among others where a CTA has several.
  return {
      {"sm_100a 128 causal",
       with(spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) { spec.sink = true; }),
       {{{150}, {440}, 1},
        {{150}, {440}, 1, kRaised},
        {{60}, {330}, 1},
        {{60}, {440}, 1, kRaised},
        {{300}, {30}, 1},
        {{300}, {30}, 148}}},
      {"sm_100a 64 group",
       spec_of(kArch, 64, 64, 8, 4, Kind::kCausal),
       {{{40}, {1030}, 1},
        {{40}, {500}, 1, kRaised},
        {{20}, {1100}, 1},
        {{20}, {500}, 1, kRaised},
        {{150}, {30}, 1},
        {{150}, {30}, 148}},
       persistent()},
      {"sm_100a 128 steals tiles",
       spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
       {{{600}, {440}, 1},
        {{300, 300}, {430, 430}, 1, kRaised},
        {{60, 60, 60}, {330, 330, 330}, 1},
        {{60, 60}, {440, 440}, 1, kRaised},
        {{530}, {30}, 1},
        {{530}, {30}, 148}},
       taking_over()},
      {"sm_100a 192/128",
       spec_of(kArch, 192, 128, 2, 1, Kind::kCausal),
       {{{150}, {430}, 1},
        {{150}, {430}, 1, kRaised},
        {{60}, {330}, 1},
        {{60}, {430}, 1, kRaised},
        {{300}, {30}, 1},
        {{300}, {30}, 148}},
       persistent()},
      // Sequences with and without keys, pages that are not full.
      {"sm_100a 128 paged",
       with(spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) { spec.page_size = 64; }),
       {{{150}, {430, 0, 97}, 1},
        {{150}, {600}, 1, kRaised},
        {{20}, {1100, 30}, 148},
        {{20}, {600}, 148, kRaised}}},
      // Sequences of all lengths, of none as well; several heads in a tile, masked and modified.
      {"sm_100a 64 ragged",
       with(spec_of(kArch, 64, 64, 4, 4, Kind::kSlidingWindow),
            [](AttentionSpec& spec) {
              spec.mask.window = 900;
              spec.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
              spec.score_mod.cap = 30;
              spec.qkv_dtype = Dtype::kFp16;
              spec.ragged = true;
              spec.page_size = 16;
              spec.sink = true;
            }),
       {{{70, 0, 9, 33}, {1100, 40, 0, 31}, 1},
        {{70, 40}, {700, 30}, 1, kRaised},
        {{20, 0, 1}, {1100, 7, 3}, 148},
        {{20}, {600}, 148, kRaised}}},
      // One O: all KV tiles of a query tile follow one another, an odd number and an even one.
      {"sm_100a 256",
       with(spec_of(kArch, 256, 256, 3, 1, Kind::kNull),
            [](AttentionSpec& spec) { spec.sink = true; }),
       {{{60}, {260}, 1}, {{60}, {370}, 1, kRaised}, {{60}, {60}, 1}, {{60}, {0}, 1}},
       {},
       in_pairs(false)},
      {"sm_100a 256 pages",
       with(spec_of(kArch, 256, 256, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) { spec.page_size = 16; }),
       {{{20}, {430, 0, 97}, 148}, {{140}, {330}, 1, kRaised}},
       {},
       in_pairs(false)},
      // e4m3 with the 64-byte swizzle and with the 128-byte one, from pages of few rows and of
      // many.
      {"sm_100a e4m3 64 group",
       with(spec_of(kArch, 64, 64, 8, 4, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.qkv_dtype = Dtype::kE4m3;
              spec.scales = Scales::kHead;
              spec.sink = true;
            }),
       {{{40}, {1530}, 1},
        {{40}, {500}, 1, kRaised},
        {{20}, {1100}, 1},
        {{20}, {500}, 148, kRaised},
        {{150}, {30}, 1}},
       persistent()},
      {"sm_100a e4m3 128 pages",
       with(spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.qkv_dtype = Dtype::kE4m3;
              spec.scales = Scales::kTensor;
              spec.page_size = 16;
              spec.ragged = true;
            }),
       {{{150, 0, 9, 5}, {930, 40, 97, 0}, 1},
        {{256, 256}, {600, 0}, 1, kRaised},  // full query tiles: TMA stores them
        {{20}, {1100}, 148},
        {{128}, {600}, 148, kRaised}}},
      // MLA's prefill with a rope part of 16 bits: in K's stage, and from pages.
      {"sm_100a e4m3 rope 192/128",
       with(spec_of(kArch, 192, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.qkv_dtype = Dtype::kE4m3;
              spec.rope_dtype = Dtype::kBf16;
              spec.mla = Mla::kPrefill;
            }),
       {{{150}, {530}, 1},
        {{150}, {430}, 1, kRaised},
        {{60}, {630}, 1},
        {{60}, {330}, 1},
        {{60}, {430}, 1, kRaised},
        {{300}, {30}, 1},
        {{300}, {30}, 148}},
       persistent()},
      {"sm_100a e4m3 rope pages",
       with(spec_of(kArch, 192, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.qkv_dtype = Dtype::kE4m3;
              spec.rope_dtype = Dtype::kFp16;
              spec.mla = Mla::kPrefill;
              spec.page_size = 64;
              spec.ragged = true;
            }),
       {{{150, 0, 9, 5}, {930, 40, 97, 0}, 1},
        {{256, 256}, {600, 0}, 1, kRaised},  // full query tiles: TMA stores them
        {{20}, {1100}, 148},
        {{128}, {600}, 148, kRaised}}},
      // A scale for each row, and O of e4m3.
      {"sm_100a e4m3 64 tokens",
       with(spec_of(kArch, 64, 64, 4, 2, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.qkv_dtype = Dtype::kE4m3;
              spec.output_dtype = Dtype::kE4m3;
              spec.scales = Scales::kToken;
            }),
       {{{80}, {1530}, 1},
        {{80}, {400}, 1, kRaised},
        {{40}, {700}, 1},
        {{40}, {500}, 1, kRaised},
        {{300}, {30}, 1}},
       persistent()},
      // The same with a single accumulator, of keys that lie in pages.
      {"sm_100a e4m3 256 tokens",
       with(spec_of(kArch, 256, 256, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.qkv_dtype = Dtype::kE4m3;
              spec.scales = Scales::kToken;
              spec.page_size = 16;
            }),
       {{{20}, {730, 0, 97}, 148}, {{140}, {530}, 1, kRaised}},
       {},
       in_pairs(false)},
      // Pairs of CTAs: that walk work tiles, over pages, with a single accumulator.
      {"sm_100a pair 128",
       with(spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) { spec.sink = true; }),
       {{{300}, {440}, 2},
        {{300}, {600}, 2, kRaised},
        {{150}, {440}, 2},
        {{150}, {440}, 2, kRaised},
        {{600}, {30}, 2}},
       persistent(),
       in_pairs()},
      {"sm_100a pair pages",
       with(spec_of(kArch, 128, 128, 2, 1, Kind::kCausal),
            [](AttentionSpec& spec) {
              spec.page_size = 16;
              spec.ragged = true;
            }),
       {{{300, 0, 9}, {700, 40, 97}, 148},
        {{512}, {300}, 148},  // full query tiles: TMA stores them
        {{256}, {600}, 148, kRaised},
        {{100}, {500}, 148, kRaised}},
       {},
       in_pairs()},
      {"sm_100a pair 256",
       spec_of(kArch, 256, 256, 1, 1, Kind::kNull),
       {{{200}, {520}, 2},
        {{300}, {700}, 2, kRaised},
        {{100}, {100}, 2},
        {{100}, {5}, 2},  // each score has a share that is seen
        {{100}, {0}, 2}},
       {},
       in_pairs()},
      // Work tiles of equal work: a CTA takes several, and loads ahead over their borders.
      {"sm_100a 96 alibi",
       with(spec_of(kArch, 96, 96, 3, 1, Kind::kNull),
            [](AttentionSpec& spec) { spec.score_mod.kind = ScoreModSpec::Kind::kAlibi; }),
       {{{150}, {260}, 1},
        {{150}, {400}, 1, kRaised},
        {{60}, {260}, 1},
        {{60}, {530}, 1, kRaised},
        {{150}, {100}, 1},
        {{150}, {0}, 1}}},
  };
}

}  // namespace

Result<Subjects> make_generated_subjects(const Wanted& wanted) {
  return make_described(
      {sm90_subjects(), listed_subjects(), sm100_subjects(), published_subjects()}, wanted);
}

Result<Subjects> make_sequence_subjects(const Wanted& wanted) {
  return make_described({sequence_subjects(), split_subjects(), map_subjects()}, wanted);
}

}  // namespace attnjit::emulator
