// SPDX-License-Identifier: Apache-2.0
// The correction warpgroup: keeps O relative to the softmax's maximum, and ends it: normalised,
// with its LSE, in the output's type, in shared memory for the store warp.
#pragma once

#include "sm100/output_registers.cuh"
#include "sm100/softmax.cuh"

namespace attnjit::sm100 {

/// 16 columns of a row of O in the output's type.
template <class Config>
ATTNJIT_DEVICE void pack_output(u32 (&words)[4 * Config::kOutputBytes], const float (&o)[16]) {
  if constexpr (Config::kOutputBytes == 1) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      words[i] = pack_e4m3(o[4 * i], o[4 * i + 1], o[4 * i + 2], o[4 * i + 3]);
    }
  } else if constexpr (Config::kOutputBytes == 2) {
    pack_pairs<Config::kOutputBf16>(words, o);
  } else {
#pragma unroll
    for (int i = 0; i < 16; ++i) words[i] = __float_as_uint(o[i]);
  }
}

// Two columns: multiplied, and packed by CVT, whose first source is the upper half.
#define ATTNJIT_PACK2(cvt, word, low, high) \
  "mov.b64 x, {%" #low ", %" #high          \
  "};\n\tmul.rn.f32x2 x, x, f;\n\t"         \
  "mov.b64 {a, b}, x;\n\t" cvt " %" #word ", b, a;\n\t"
#define ATTNJIT_PACK16(cvt)                                                                     \
  asm("{\n.reg .b64 f, x;\n.reg .f32 a, b;\n\tmov.b64 f, {%24, %24};\n\t" ATTNJIT_PACK2(        \
          cvt, 0, 8, 9) ATTNJIT_PACK2(cvt, 1, 10, 11) ATTNJIT_PACK2(cvt, 2, 12, 13)             \
          ATTNJIT_PACK2(cvt, 3, 14, 15) ATTNJIT_PACK2(cvt, 4, 16, 17) ATTNJIT_PACK2(            \
              cvt, 5, 18, 19) ATTNJIT_PACK2(cvt, 6, 20, 21) ATTNJIT_PACK2(cvt, 7, 22, 23) "}"   \
      : "=&r"(words[0]), "=&r"(words[1]), "=&r"(words[2]), "=&r"(words[3]), "=&r"(words[4]),    \
        "=&r"(words[5]), "=&r"(words[6]), "=&r"(words[7])                                       \
      : "f"(o[0]), "f"(o[1]), "f"(o[2]), "f"(o[3]), "f"(o[4]), "f"(o[5]), "f"(o[6]), "f"(o[7]), \
        "f"(o[8]), "f"(o[9]), "f"(o[10]), "f"(o[11]), "f"(o[12]), "f"(o[13]), "f"(o[14]),       \
        "f"(o[15]), "f"(scale))

/// The same of the columns times `scale`. NOTE: in one statement where O has 16 bits, for compile
/// time.
template <class Config>
ATTNJIT_DEVICE void pack_scaled_output(u32 (&words)[4 * Config::kOutputBytes], const float (&o)[16],
                                       float scale) {
  if constexpr (Config::kOutputBytes == 2) {
    if constexpr (Config::kOutputBf16) {
      ATTNJIT_PACK16("cvt.rn.bf16x2.f32");
    } else {
      ATTNJIT_PACK16("cvt.rn.f16x2.f32");
    }
  } else {
    float scaled[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) scaled[i] = o[i] * scale;
    pack_output<Config>(words, scaled);
  }
}
#undef ATTNJIT_PACK2
#undef ATTNJIT_PACK16

/// Writes 16 columns of a row of O, packed, to shared memory, swizzled as the TMA store will undo
/// it. `row`: where the row begins, with the 16-byte unit that the swizzle takes its column 0 to;
/// `column`: of the blocks that lie there.
template <class Config>
ATTNJIT_DEVICE void stage_words(u32 row, int column, const u32 (&words)[4 * Config::kOutputBytes]) {
  using Layout = LayoutOf<Config>;
#pragma unroll
  for (int i = 0; i < Config::kOutputBytes; ++i) {
    const int chunk = column / Layout::kOutputUnitColumns + i;  // of 16 bytes
    const u32 block = static_cast<u32>(chunk / 8 * Layout::kOBlockBytes);
    store_shared_v4((row ^ static_cast<u32>((chunk & 7) << 4)) + block, words[4 * i],
                    words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  }
}
/// The same of columns that are not packed yet.
template <class Config>
ATTNJIT_DEVICE void stage_output(u32 row, int column, const float (&o)[16]) {
  u32 words[4 * Config::kOutputBytes];
  pack_output<Config>(words, o);
  stage_words<Config>(row, column, words);
}

/// Whether columns of O are in registers with names: where they are packed to 16 bits.
template <class Config>
constexpr bool kNamedOutput = Config::kOutputBytes == 2;

/// stage_words of those that are packed there.
template <class Config>
ATTNJIT_DEVICE void stage_packed(u32 row, int column) {
  const int chunk = column / LayoutOf<Config>::kOutputUnitColumns;  // of 16 bytes, even
  const u32 first = (row ^ static_cast<u32>((chunk & 7) << 4)) +
                    static_cast<u32>(chunk / 8 * LayoutOf<Config>::kOBlockBytes);
  OutputRegisters::store(first, first ^ 16u);
}

/// Lets the first product of a work tile write a warpgroup's O.
template <class Config>
ATTNJIT_DEVICE void give_o(const Smem<Config>& smem, int warpgroup) {
  tcgen05_fence_before();
  smem.arrive_warp_at_leader(smem.p_full(warpgroup, 0));
}

/// The same of the next work tile, where a CTA has several: O has been read. NOTE: said then, and
/// not when the next one begins. A warpgroup that has no more does not wait for it.
template <class Config>
ATTNJIT_DEVICE void release_o(const Smem<Config>& smem, int warpgroup) {
  if constexpr (!Config::kOneWorkTile) give_o(smem, warpgroup);
}

/// Waits until the next buffer of O may be written.
template <class Config>
ATTNJIT_DEVICE void await_buffer(const Smem<Config>& smem, const Ring& ring) {
  if constexpr (LayoutOf<Config>::kReusesO) {
    smem.wait(smem.o_empty(ring.stage), ring.parity ^ 1);
  }
}

/// Hands a block of O to the store warp.
template <class Config>
ATTNJIT_DEVICE void hand_over_block(const Smem<Config>& smem, Ring& ring) {
  fence_proxy_async_shared();
  arrive_warp(smem.o_staged(ring.stage));
  ring.advance(Config::kOBuffers);
}

/// Stages a query tile's O, of one warpgroup, in O's buffers: 16 columns are read while 16 are
/// written. `in_block`: where the row lies in a block. NOTE: a loop of its own, without the
/// branches of the other cases, which would take as long as the rest of it.
template <class Config>
ATTNJIT_DEVICE void stage_tile(const Smem<Config>& smem, Ring& ring, u32 o, float scale,
                               u32 in_block, int warpgroup) {
  using Layout = LayoutOf<Config>;
  [[maybe_unused]] float next[16];
  const auto load = [&](u32 address) {
    if constexpr (kNamedOutput<Config>) {
      OutputRegisters::load(address);
    } else {
      tcgen05_ld_16(next, 0, address);
    }
  };
  load(o);
#pragma unroll 1
  for (int column = 0; column < Layout::kOutputColumns; column += 16) {
    const int in_buffer = column % Layout::kOutputBlockColumns;
    if (in_buffer == 0) await_buffer(smem, ring);
    [[maybe_unused]] u32 now[4 * Config::kOutputBytes];
    if constexpr (kNamedOutput<Config>) {
      OutputRegisters::pack<Config::kOutputBf16>(scale);
    } else {
      tcgen05_wait_ld_16(next, 0);
      pack_scaled_output<Config>(now, next, scale);
    }
    const bool last = column + 16 == Layout::kOutputColumns;
    if (last) {
      release_o(smem, warpgroup);
    } else {
      load(o + static_cast<u32>(column + 16));
    }
    const u32 row = smem.o_buffer(ring.stage) + in_block;
    if constexpr (kNamedOutput<Config>) {
      stage_packed<Config>(row, in_buffer);
    } else {
      stage_words<Config>(row, in_buffer, now);
    }
    if (last || in_buffer + 16 == Layout::kOutputBlockColumns) hand_over_block(smem, ring);
  }
}

/// Writes 16 columns of a row of O to global memory.
template <class Config>
ATTNJIT_DEVICE void write_output(unsigned char* row, int column, const float (&o)[16]) {
  constexpr int kUnit = LayoutOf<Config>::kOutputUnitColumns;
  u32 words[4 * Config::kOutputBytes];
  pack_output<Config>(words, o);
#pragma unroll
  for (int i = 0; i < Config::kOutputBytes; ++i) {
    if (column + kUnit * i >= Config::kOvDepth) return;
    store_global_v4(row + Config::kOutputBytes * (column + kUnit * i), words[4 * i],
                    words[4 * i + 1], words[4 * i + 2], words[4 * i + 3]);
  }
}

/// Writes 16 columns of a row of a partition's O.
template <class Config>
ATTNJIT_DEVICE void write_partial(float* row, int column, const float (&o)[16]) {
#pragma unroll
  for (int i = 0; i < 16; i += 4) {
    if (column + i >= Config::kOvDepth) return;
    store_global_v4(row + column + i, __float_as_uint(o[i]), __float_as_uint(o[i + 1]),
                    __float_as_uint(o[i + 2]), __float_as_uint(o[i + 3]));
  }
}

/// Ends a row of a partition, whose sink is the merge's: writes its LSE, and returns what its
/// output is to be multiplied by. `partial`: where that goes; nowhere if the row saw no key.
/// `tile_row`: which of the work tile's rows it is.
template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE float finish_part(const WorkTile& work, int tile_row, int head, int position,
                                 RowMaxSum own, float*& partial, const Arguments& arguments,
                                 const Params& params) {
  float lse;
  const float scale = finish_row<Config, false>(own, 0.0f, lse);
  const bool real = position < work.q_len;
  store_part_lse<Config>(work, tile_row, real, head, position, lse, arguments);
  partial = nullptr;
  if (real && lse != -infinity()) {
    partial = arguments.partial_o +
              part_row<Config>(work, tile_row, head, position, arguments) * Config::kOvDepth;
  }
  if constexpr (Config::kPartitionTiles > 0) {
    const PartRange parts = parts_of<Config, Mask>({work.q_len, work.kv_len}, arguments, params);
    if (real && work.partition == parts.begin) {
      store_no_keys(parts, packed_row<Config>(work, head, position, arguments), 0, 1, arguments);
    }
  }
  return scale;
}

// A statement that loads 16 columns of O, and makes values[i] of column i by INSTRUCTION.
#define ATTNJIT_TAKE16(INSTRUCTION, OPERAND)                                                   \
  asm volatile(                                                                                \
      "{\n.reg .f32 o<16>;\n\t"                                                                \
      "tcgen05.ld.sync.aligned.32x32b.x16.b32 {o0,o1,o2,o3,o4,o5,o6,o7,o8,o9,o10,o11,o12,o13," \
      "o14,o15}, [%16];\n\ttcgen05.wait::ld.sync.aligned;\n\t" INSTRUCTION(0) INSTRUCTION(1)   \
          INSTRUCTION(2) INSTRUCTION(3) INSTRUCTION(4) INSTRUCTION(5) INSTRUCTION(6)           \
              INSTRUCTION(7) INSTRUCTION(8) INSTRUCTION(9) INSTRUCTION(10) INSTRUCTION(11)     \
                  INSTRUCTION(12) INSTRUCTION(13) INSTRUCTION(14) INSTRUCTION(15) "}"          \
      : OPERAND(values[0]), OPERAND(values[1]), OPERAND(values[2]), OPERAND(values[3]),        \
        OPERAND(values[4]), OPERAND(values[5]), OPERAND(values[6]), OPERAND(values[7]),        \
        OPERAND(values[8]), OPERAND(values[9]), OPERAND(values[10]), OPERAND(values[11]),      \
        OPERAND(values[12]), OPERAND(values[13]), OPERAND(values[14]), OPERAND(values[15])     \
      : "r"(address), "f"(weight)                                                              \
      : "memory")
#define ATTNJIT_MUL(i) "mul.f32 %" #i ", o" #i ", %17;\n\t"
#define ATTNJIT_FMA(i) "fma.rn.f32 %" #i ", o" #i ", %17, %" #i ";\n\t"

/// 16 columns of a row of O times a weight. NOTE: a statement, for compile time.
ATTNJIT_DEVICE void take_output(float (&values)[16], u32 address, float weight) {
  ATTNJIT_TAKE16(ATTNJIT_MUL, "=f");
}
/// The same of another O, added to `values`.
ATTNJIT_DEVICE void add_output(float (&values)[16], u32 address, float weight) {
  ATTNJIT_TAKE16(ATTNJIT_FMA, "+f");
}
#undef ATTNJIT_TAKE16
#undef ATTNJIT_MUL
#undef ATTNJIT_FMA

template <class Config, class Mask, class Arguments, class Params>
ATTNJIT_DEVICE void correct(const Smem<Config>& smem, const Tmem<Config>& tmem,
                            const Arguments& arguments, const Params& params) {
  using Layout = LayoutOf<Config>;
  const int row = static_cast<int>(threadIdx.x & 127u);
  const int warp = warp_uniform(static_cast<int>(threadIdx.x >> 5));
  const u32 lanes = Tmem<Config>::lanes(warp);
  // Parities of barriers, a bit a warpgroup or query tile.
  u32 slot_parity = 0;
  u32 o_parity = 0;
  u32 q_parity = 3;
  Ring o_ring;  // O's buffers
  if constexpr (kNamedOutput<Config>) OutputRegisters::name();

  const auto wait = [&](u32 barrier, u32& parities, int index) {
    smem.wait(barrier, static_cast<int>(parities >> index & 1u));
    parities ^= 1u << index;
  };

  // Where a CTA has one work tile each of two O is waited for once.
  const auto await_o = [&](int warpgroup) {
    if constexpr (Config::kOneWorkTile && !Layout::kSingleAccumulator) {
      smem.wait(smem.o_full(warpgroup), 0);
    } else {
      wait(smem.o_full(warpgroup), o_parity, warpgroup);
    }
  };

  give_o(smem, 0);
  if constexpr (!Layout::kSingleAccumulator) give_o(smem, 1);

  for (SchedulerOf<true, Config, Mask, Arguments, Params> list(smem, arguments, params);
       !list.done(); list.advance()) {
    const WorkTile begun = list.tile();
    const bool shared = begun.num_qo == 1;  // the warpgroups share the query tile
    const Share share_0 = begun.share(0);
    const Share share_1 = begun.share(1);

    if constexpr (Layout::kSingleAccumulator) {
      const int steps = begun.seen_0.count();
      // The slot of the tile before has been read, and no factor comes before this tile's.
      if (!Config::kOneWorkTile && !Layout::kPair && steps == 1) {
        arrive_warp(smem.correction_slot_empty(0));
      }
#pragma unroll 1
      for (int step = 1; step < steps; ++step) {
        wait(smem.correction_slot_full(0), slot_parity, 0);
        const float factor = load_shared(smem.correction_slot(0, 0, row));
        if (Layout::kPair || step == steps - 1) arrive_warp(smem.correction_slot_empty(0));
        // The product of the tile before, which S of this one does not wait for.
        wait(smem.o_full(0), o_parity, 0);
        tcgen05_fence_after();
        if (__any_sync(0xffffffffu, factor != 1.0f)) {
          rescale<Layout::kOutputColumns>(tmem.o(0) + lanes, factor);
        }
        tcgen05_fence_before();
        smem.arrive_warp_at_leader(smem.p_full(step & 1, 0));
      }
    } else {
      if constexpr (!Config::kOneWorkTile && !Layout::kPair) {
        if (share_0.steps == 1) arrive_warp(smem.correction_slot_empty(0));
        if (share_1.steps == 1) arrive_warp(smem.correction_slot_empty(1));
      }

      // In the order in which the products wait for it.
      const int rounds = begun.rounds();
#pragma unroll 1
      for (int round = 0; round < rounds; ++round) {
#pragma unroll 1
        for (int warpgroup = 0; warpgroup < 2; ++warpgroup) {
          const Share share = warpgroup == 0 ? share_0 : share_1;
          const int step = share.step(round);
          if (step == 0 || !share.has(step)) continue;
          wait(smem.correction_slot_full(warpgroup), slot_parity, warpgroup);
          const float factor = load_shared(smem.correction_slot(warpgroup, 0, row));
          if (Layout::kPair || step == share.steps - 1) {
            arrive_warp(smem.correction_slot_empty(warpgroup));
          }
          // NOTE: O is not being added to: the commit behind this tile's S came after all
          // earlier products, and the next ones wait for the arrival below.
          tcgen05_fence_after();
          if (__any_sync(0xffffffffu, factor != 1.0f)) {
            rescale<Layout::kOutputColumns>(tmem.o(warpgroup) + lanes, factor);
          }
          tcgen05_fence_before();
          smem.arrive_warp_at_leader(smem.p_full(warpgroup, 0));
        }
      }
    }

    const WorkTile work = list.again(begun);
    // NOTE: opaque: what is made of the row here would be kept from one work tile to the next.
    const int thread_row = static_cast<int>(opaque(static_cast<u32>(row)));
    const auto max_sum = [&](int warpgroup) {
      if ((warpgroup == 0 ? share_0 : share_1).steps == 0) return RowMaxSum{0.0f, kMaxFloor};
      wait(smem.correction_slot_full(warpgroup), slot_parity, warpgroup);
      const RowMaxSum read{load_shared(smem.correction_slot(warpgroup, 0, row)),
                           load_shared(smem.correction_slot(warpgroup, 1, row))};
      if constexpr (Layout::kPair && !Config::kOneWorkTile) {
        arrive_warp(smem.correction_slot_empty(warpgroup));
      }
      return read;
    };
#pragma unroll 1
    for (int tile = 0; tile < work.num_qo; ++tile) {
      RowMaxSum own = max_sum(tile);
      float weight_0 = 1.0f;
      float weight_1 = 0.0f;
      if (!Layout::kSingleAccumulator && shared) own = merge(own, max_sum(1), weight_0, weight_1);
      int position = work.first_position + tile * Layout::kTileStep + thread_row / Layout::kFused;
      if constexpr (Layout::kBoxQRows < kRows) {
        if (thread_row >= Layout::kBoxQRows) position = work.q_len;  // nobody's
      }
      const int head = work.head + thread_row % Layout::kFused;
      float sink = 0.0f;
      if constexpr (Config::kSink) sink = arguments.sink[head];
      float lse;
      float scale = finish_row<Config>(own, sink, lse);
      float* partial = nullptr;
      const bool merged = is_merged<Config>(work, arguments);
      if constexpr (Config::kSplit) {
        if (merged) {
          scale = finish_part<Config, Mask>(work, kRows * tile + thread_row, head, position, own,
                                            partial, arguments, params);
        }
      }
      scale *= value_scale<Config>(work, arguments);
      if constexpr (Config::kOutputBytes == 1) {
        if (!merged) scale /= arguments.output_scale[0];
      }
      if constexpr (Config::kReturnLse) {
        if (position < work.q_len && !merged) {
          arguments.lse[lse_row<Config>(work, head, position, arguments)] = lse;
        }
      }
      weight_0 *= scale;
      weight_1 *= scale;

      // The memory is free of the O before, also where no Q was loaded since.
      if constexpr (Layout::kOOverQ && !Config::kOneWorkTile) {
        wait(smem.q_empty(tile), q_parity, tile);
      }
      const bool any = (tile == 0 ? share_0 : share_1).steps > 0;
      const bool second = !Layout::kSingleAccumulator && shared && share_1.steps > 0;
      if (any) await_o(tile);
      if (second) await_o(1);
      tcgen05_fence_after();
      const u32 o = tmem.o(tile) + lanes;
      const u32 other = tmem.o(1) + lanes;
      const u32 in_block = static_cast<u32>(thread_row * kBlockRowBytes + ((thread_row & 7) << 4));
      // Ragged: a TMA store would go on into the next sequence. Rows of a tile that ends past its
      // own are written from here.
      const bool direct =
          Config::kRagged &&
          work.first_position + tile * Layout::kTileStep + Layout::kPositions > work.q_len;
      unsigned char* output = nullptr;
      if constexpr (Config::kRagged) {
        if (position < work.q_len) {
          output = arguments.o + static_cast<i64>(work.q_begin + position) * arguments.o_row_bytes +
                   head * arguments.o_head_bytes;
        }
      }
      // NOTE: to 64 columns the loop below is as fast by the clock, and compiles sooner.
      if constexpr (!Layout::kOOverQ && Layout::kOutputColumns > 64) {
        if (any && !second && !merged && !direct) {
          stage_tile(smem, o_ring, o, weight_0, in_block, tile);
          continue;
        }
      }
#pragma unroll 1
      for (int column = 0; column < Layout::kOutputColumns; column += 16) {
        [[maybe_unused]] float values[16];
        if constexpr (kNamedOutput<Config>) {
          if (any) {
            OutputRegisters::take(o + static_cast<u32>(column), weight_0);
          } else {
            OutputRegisters::zero();
          }
          if (second) OutputRegisters::add(other + static_cast<u32>(column), weight_1);
          if (!merged) OutputRegisters::pack<Config::kOutputBf16>(1.0f);
        } else {
#pragma unroll
          for (int i = 0; i < 16; ++i) values[i] = 0.0f;
          if (any) take_output(values, o + static_cast<u32>(column), weight_0);
          if (second) add_output(values, other + static_cast<u32>(column), weight_1);
        }
        const auto stage = [&](u32 row, int in_row) {
          if constexpr (kNamedOutput<Config>) {
            stage_packed<Config>(row, in_row);
          } else {
            stage_output<Config>(row, in_row, values);
          }
        };
        // NOTE: rows have whole units of eight columns.
        [[maybe_unused]] const int units =
            Config::kOvDepth % 16 == 0 ? 2 : (Config::kOvDepth - column) / 8;
        if (merged) {
          if (partial == nullptr) {
          } else if constexpr (kNamedOutput<Config>) {
            OutputRegisters::store_columns(partial + column, units);
          } else {
            write_partial<Config>(partial, column, values);
          }
        } else if (Config::kRagged && direct) {
          if (output == nullptr) {
          } else if constexpr (kNamedOutput<Config>) {
            OutputRegisters::store_global(output + 2 * column, units);
          } else {
            write_output<Config>(output, column, values);
          }
        } else if constexpr (Layout::kOOverQ) {
          stage(smem.q(tile) + in_block, column);
        } else {
          const int in_buffer = column % Layout::kOutputBlockColumns;
          if (in_buffer == 0) await_buffer(smem, o_ring);
          stage(smem.o_buffer(o_ring.stage) + in_block, in_buffer);
          if (in_buffer + 16 == Layout::kOutputBlockColumns ||
              column + 16 == Layout::kOutputColumns) {
            hand_over_block(smem, o_ring);
          }
        }
      }
      if (any) release_o(smem, tile);
      if (second) release_o(smem, 1);
      if constexpr (Layout::kOOverQ) {
        fence_proxy_async_shared();
        arrive_warp(smem.o_staged(tile));
      }
    }
  }
  tcgen05_fence_before();
}

}  // namespace attnjit::sm100
