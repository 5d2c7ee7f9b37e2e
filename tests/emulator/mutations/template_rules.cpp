// SPDX-License-Identifier: Apache-2.0
// The damages to the generated sm_100a kernels.
#include <fmt/format.h>

#include <deque>
#include <string>

#include "mutation.h"

namespace attnjit::emulator {
namespace {

// Of the kernels whose barriers a warp initialises, one a lane: another number of arrivals of a
// lane's. Kernels with K of 256, and of 192, have fewer barriers than the others, and those of 128
// whose CTAs have one work tile.
void add_arrival_counts(std::vector<Rule>& rules) {
  static std::deque<std::string> texts;  // what the rules view
  for (const int lane : {0, 3, 7, 11, 15, 19, 23, 27}) {
    for (const auto& [word, change] : {std::pair{"more", "1"}, {"less", "-1"}}) {
      const std::string& kind =
          texts.emplace_back(fmt::format("arrival count of barrier {} one {}", lane, word));
      const std::string& replacement = texts.emplace_back(fmt::format(
          "{{ .reg .pred here; .reg .b32 count; mov.u32 count, %laneid; setp.eq.u32 here, count, "
          "{}; selp.s32 count, {}, 0, here; add.s32 count, $3, count; mbarrier.init$1 [$2], "
          "count; }}",
          lane, change));
      for (const auto& [subjects, barriers] : {std::pair{"sm_100a 64", 28},
                                               {"sm_100a 96", 28},
                                               {"sm_100a 128 causal", 26},
                                               {"sm_100a 128 paged", 27},
                                               {"sm_100a 128 parts", 28},
                                               {"sm_100a 128 ragged", 28},
                                               {"sm_100a 192", 27},
                                               {"sm_100a 256", 23},
                                               {"sm_100a e4m3", 28},
                                               {"sm_100a kv_dtype", 28}}) {
        if (lane >= barriers) continue;
        rules.push_back({subjects, kind, "mbarrier.init",
                         R"(mbarrier\.init(\S+) \[(\S+)\], (\S+);)", replacement});
      }
    }
  }
}

}  // namespace

// clang-format off
const std::vector<Rule>& template_rules() {
  // $& is the whole match. Inserted registers live in a scope of their own.
  static const std::vector<Rule> list = [] {
    std::vector<Rule> all = {
      // ---- fences
      {"sm_100a", "fence.mbarrier_init dropped", "fence.mbarrier_init", R"(fence\.mbarrier_init\S*;)", ";", 2},
      {"sm_100a", "fence.proxy.async dropped", "fence.proxy.async", R"(fence\.proxy\.async\S*;)", ";", 2},
      {"sm_100a", "tcgen05.fence::after_thread_sync dropped", "tcgen05.fence::after", R"(tcgen05\.fence\S*;)", ";", 24},
      {"sm_100a", "tcgen05.fence::before_thread_sync dropped", "tcgen05.fence::before", R"(tcgen05\.fence\S*;)", ";", 12},
      // ---- waits and arrivals of mbarriers
      {"sm_100a", "parity of a wait flipped", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)",
       "{ .reg .b32 flipped; xor.b32 flipped, $4, 1; mbarrier.try_wait$1 $2, [$3], flipped; }", 12},
      {"sm_100a", "wait removed", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)", "setp.eq.u32 $2, 0, 0;", 60},
      {"sm_100a", "wait on the next barrier", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)",
       "mbarrier.try_wait$1 $2, [$3+8], $4;", 8},
      {"sm_100a", "arrival count one more", "mbarrier.init", R"(mbarrier\.init(\S+) \[(\S+)\], (\S+);)",
       "{ .reg .b32 count; add.s32 count, $3, 1; mbarrier.init$1 [$2], count; }", 8},
      {"sm_100a", "arrival count one less", "mbarrier.init", R"(mbarrier\.init(\S+) \[(\S+)\], (\S+);)",
       "{ .reg .b32 count; sub.s32 count, $3, 1; mbarrier.init$1 [$2], count; }", 8},
      {"sm_100a", "mbarrier.init removed", "mbarrier.init", R"(mbarrier\.init\S+ \[\S+\], \S+;)", ";", 3},
      {"sm_100a", "arrival removed", "mbarrier.arrive.shared", R"((@\S+ )?mbarrier\.arrive\.shared\S+ _, \[\S+\];)", ";", 30},
      {"sm_100a", "arrival at the next barrier", "mbarrier.arrive.shared", R"(mbarrier\.arrive\.shared(\S+) _, \[(\S+)\];)", "mbarrier.arrive.shared$1 _, [$2+8];", 4},
      {"sm_100a", "expect_tx 16 bytes more", "expect_tx", R"((mbarrier\.arrive\.expect_tx\S+ _, \[\S+\]), (\S+);)",
       "{ .reg .b32 bytes; add.s32 bytes, $2, 16; $1, bytes; }", 3},
      {"sm_100a", "expect_tx 16 bytes less", "expect_tx", R"((mbarrier\.arrive\.expect_tx\S+ _, \[\S+\]), (\S+);)",
       "{ .reg .b32 bytes; sub.s32 bytes, $2, 16; $1, bytes; }", 3},
      {"sm_100a", "expect_tx removed", "expect_tx", R"(mbarrier\.arrive\.expect_tx\S+ _, \[\S+\], \S+;)", ";", 2},
      {"sm_100a", "elect removed: every lane goes on", "elect.sync", R"(elect\.sync\s+_\|(\S+), \S+;)", "setp.eq.u32 $1, 0, 0;", 5},
      // ---- bulk tensor copies
      {"sm_100a", "TMA coordinate one more", ".complete_tx", R"((cp\.async\.bulk\.tensor\S+ \[\S+\]), \[(\S+), \{([^,]+), *([^,}]+)(.*);)",
       "{ .reg .b32 moved; add.s32 moved, $4, 1; $1, [$2, {$3, moved$5; }", 4},
      {"sm_100a", "TMA row one more", ".complete_tx", R"((cp\.async\.bulk\.tensor\S+ \[\S+\]), \[(\S+), \{(.*), *([^,}]+), *([^,}]+)\}(.*);)",
       "{ .reg .b32 moved; add.s32 moved, $4, 1; $1, [$2, {$3, moved, $5}$6; }", 4},
      {"sm_100a", "TMA destination in the wrong place", ".complete_tx", R"((cp\.async\.bulk\.tensor\S+) \[([^\],]+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1024; $1 [moved]$3; }", 4},
      {"sm_100a", "TMA load removed", ".complete_tx", R"(cp\.async\.bulk\.tensor.*;)", ";", 3},
      {"sm_100a", "TMA store's coordinate one more", ".bulk_group", R"((cp\.async\.bulk\.tensor\S+) \[(\S+), \{([^,]+), *([^,}]+)(.*);)",
       "{ .reg .b32 moved; add.s32 moved, $4, 1; $1 [$2, {$3, moved$5; }"},
      {"sm_100a", "TMA store's source in the wrong place", ".bulk_group", R"((cp\.async\.bulk\.tensor.*), \[(%r\d+)\];)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1024; $1, [moved]; }", 2},
      {"sm_100a", "TMA store removed", ".bulk_group", R"(cp\.async\.bulk\.tensor.*;)", ";"},
      {"sm_100a", "bulk commit_group removed", "bulk.commit_group", R"(cp\.async\.bulk\.commit_group;)", ";", 3},
      {"sm_100a", "bulk wait_group removed", "bulk.wait_group", R"(cp\.async\.bulk\.wait_group\S* \d;)", ";", 3},
      {"sm_100a", "bulk wait_group one more", "bulk.wait_group", R"((cp\.async\.bulk\.wait_group\S*) 1;)", "$1 2;"},
      // ---- barriers of threads, registers
      {"sm_100a", "bar.sync removed", "bar.sync", R"(bar\.sync\s+0;)", ";"},
      {"sm_100a", "teardown's barrier removed", "barrier.sync.aligned", R"(barrier\.sync\.aligned \S+, \S+;)", ";"},
      {"sm_100a", "teardown's arrival removed", "barrier.arrive.aligned", R"(barrier\.arrive\.aligned \S+, \S+;)", ";"},
      {"sm_100a", "teardown's barrier counts 32 less", "barrier.sync.aligned", R"(barrier\.sync\.aligned (\S+), (\S+);)",
       "{ .reg .b32 count; sub.s32 count, $2, 32; barrier.sync.aligned $1, count; }"},
      {"sm_100a", "setmaxnreg.inc 8 more", "setmaxnreg.inc", R"((setmaxnreg\.inc\S+) (192|184);)", "$1 200;"},
      {"sm_100a", "setmaxnreg.dec below the registers in use", "setmaxnreg.dec", R"((setmaxnreg\.dec\S+) \d+;)", "$1 16;", 2},
      {"sm_100a", "setmaxnreg.dec removed", "setmaxnreg.dec", R"(setmaxnreg\.dec\S+ \d+;)", ";", 2},
      // ---- tcgen05
      {"sm_100a", "tcgen05.commit removed", "tcgen05.commit", R"(tcgen05\.commit\S+ \[[^;]*;)", ";", 20},
      {"sm_100a", "tcgen05.commit to the next barrier", "tcgen05.commit", R"((tcgen05\.commit\S+) \[([^\]]+)\])", "$1 [$2+8]", 6},
      {"sm_100a", "tcgen05.wait::ld removed", "tcgen05.wait::ld", R"(tcgen05\.wait\S*;)", ";", 8},
      {"sm_100a", "tcgen05.wait::st removed", "tcgen05.wait::st", R"(tcgen05\.wait\S*;)", ";", 4},
      {"sm_100a", "tcgen05.mma's D 8 columns off", "tcgen05.mma", R"((tcgen05\.mma\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 8; $1 [moved]$3; }", 6},
      {"sm_100a", "tcgen05.mma's D 32 lanes off", "tcgen05.mma", R"((tcgen05\.mma\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 2097152; $1 [moved]$3; }"},
      {"sm_100a", "tcgen05.mma's A 8 columns off", "tcgen05.mma", R"((tcgen05\.mma\S+ \[%r\d+\]), \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 8; $1, [moved]$3; }", 4},
      {"sm_100a", "tcgen05.mma removed", "tcgen05.mma", R"(tcgen05\.mma.*;)", ";", 4},
      {"sm_100a", "tcgen05.cp removed", "tcgen05.cp", R"(tcgen05\.cp.*;)", ";", 4},
      {"sm_100a", "tcgen05.cp 8 columns off", "tcgen05.cp", R"((tcgen05\.cp\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 8; $1 [moved]$3; }", 4},
      {"sm_100a", "enable-input-d flipped", "setp.ne.b32 p,", R"(setp\.ne\.b32 p,)", "setp.eq.b32 p,", 6},
      {"sm_100a", "tcgen05.ld a column off", "tcgen05.ld", R"((tcgen05\.ld\S+ \{[^}]*\}), \[(%r\d+)\];)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1; $1, [moved]; }", 4},
      {"sm_100a", "tcgen05.ld of another warp's lanes", "tcgen05.ld", R"((tcgen05\.ld\S+ \{[^}]*\}), \[(%r\d+)\];)",
       "{ .reg .b32 moved; xor.b32 moved, $2, 2097152; $1, [moved]; }", 2},
      {"sm_100a", "tcgen05.st a column off", "tcgen05.st", R"((tcgen05\.st\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1; $1 [moved]$3; }", 6},
      {"sm_100a", "tcgen05.st removed", "tcgen05.st.", R"(tcgen05\.st\..*;)", ";", 3},
      {"sm_100a", "descriptor: start 32 bytes off", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 2;", 3},
      {"sm_100a", "descriptor: start in the next kilobyte", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 64;", 3},
      {"sm_100a", "descriptor: stride byte offset halved", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0x6000000000;", 3},
      {"sm_100a", "descriptor: swizzle 64", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0xC000000000000000;", 3},
      {"sm_100a", "descriptor: the fixed field cleared", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0x400000000000;", 2},
      {"sm_100a", "instruction descriptor: N 16 less", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7});)", "$& sub.s32 $1, $1, 262144;", 3},
      {"sm_100a", "instruction descriptor: M of another size", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7});)", "$& xor.b32 $1, $1, 0x0C000000;", 2},
      {"sm_100a", "instruction descriptor: B transposed", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7});)", "$& xor.b32 $1, $1, 65536;", 3},
      {"sm_100a", "instruction descriptor: A of another type", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7});)", "$& xor.b32 $1, $1, 128;", 2},
      {"sm_100a", "tcgen05.alloc of half the columns", "tcgen05.alloc", R"((tcgen05\.alloc\S+ \[\S+\]), (\S+);)",
       "{ .reg .b32 half; shr.u32 half, $2, 1; $1, half; }"},
      {"sm_100a", "tcgen05.dealloc removed", "tcgen05.dealloc", R"(tcgen05\.dealloc.*;)", ";"},
      {"sm_100a", "tcgen05.dealloc of half the columns", "tcgen05.dealloc", R"((tcgen05\.dealloc\S+ [^,]+), (\S+);)",
       "{ .reg .b32 half; shr.u32 half, $2, 1; $1, half; }"},
      // ---- softmax and correction
      {"sm_100a", "vote for a rescale: none of its lanes", "vote.sync.any", R"(vote\.sync\.any\.pred\s+(%p\d+), (%p\d+), \S+;)", "setp.ne.u32 $1, 0, 0;", 2},
      {"sm_100a", "correction slot written to the next row", "st.shared.f32", R"(st\.shared\.f32 \[(%r\d+)\])", "st.shared.f32 [$1+4]", 3},
      {"sm_100a", "correction slot read from the next row", "ld.shared.f32", R"(ld\.shared\.f32 (%f\d+), \[(%r\d+)\])", "ld.shared.f32 $1, [$2+4]", 4},
    };
    add_arrival_counts(all);
    return all;
  }();
  return list;
}

const std::vector<LaunchRule>& template_launch_rules() {
  static const std::vector<LaunchRule> list = {
      {"sm_100a", "tensor map without swizzle", "q", 0},
      {"sm_100a", "tensor map without swizzle", "k", 0},
      {"sm_100a", "tensor map without swizzle", "v", 0},
      {"sm_100a", "tensor map without swizzle", "o", 0},
      {"sm_100a", "tensor map with swizzle 64", "k", 64},
  };
  return list;
}
// clang-format on

}  // namespace attnjit::emulator
