// SPDX-License-Identifier: Apache-2.0
// The damages to the hand-written kernels and to the generated sm_90a ones.
#include "mutation.h"

namespace attnjit::emulator {

// clang-format off
const std::vector<Rule>& rules() {
  // $& is the whole match. Inserted registers live in a scope of their own.
  static const std::vector<Rule> list = {
      // ---- fences
      {"", "fence.mbarrier_init dropped", "fence.mbarrier_init", R"(fence\.mbarrier_init\S*;)", ";"},
      {"sm90", "fence.proxy.async dropped", "fence.proxy.async", R"(fence\.proxy\.async\S*;)", ";"},
      {"sm90", "wgmma.fence dropped", "wgmma.fence", R"(wgmma\.fence\S*;)", ";", 4},
      {"sm100", "tcgen05.fence::after_thread_sync dropped", "tcgen05.fence::after", R"(tcgen05\.fence\S*;)", ";", 6},
      {"sm100", "tcgen05.fence::before_thread_sync dropped", "tcgen05.fence::before", R"(tcgen05\.fence\S*;)", ";", 6},
      // ---- waits of mbarriers
      {"", "parity of a wait flipped", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)",
       "{ .reg .b32 flipped; xor.b32 flipped, $4, 1; mbarrier.try_wait$1 $2, [$3], flipped; }", 4},
      {"sm90", "wait removed", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)", "setp.eq.u32 $2, 0, 0;", 60},
      {"sm100", "wait removed", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)", "setp.eq.u32 $2, 0, 0;", 10},
      {"", "answer taken for yes", "mbarrier.test_wait", R"(mbarrier\.test_wait(\S+) (\S+), \[(\S+)\], (\S+);)", "setp.eq.u32 $2, 0, 0;", 20},
      {"", "parity of a question flipped", "mbarrier.test_wait", R"(mbarrier\.test_wait(\S+) (\S+), \[(\S+)\], (\S+);)",
       "{ .reg .b32 flipped; xor.b32 flipped, $4, 1; mbarrier.test_wait$1 $2, [$3], flipped; }", 6},
      {"", "question of the next barrier", "mbarrier.test_wait", R"(mbarrier\.test_wait(\S+) (\S+), \[(\S+)\], (\S+);)",
       "mbarrier.test_wait$1 $2, [$3+8], $4;", 4},
      {"", "wait on the next barrier", "mbarrier.try_wait", R"(mbarrier\.try_wait(\S+) (\S+), \[(\S+)\], (\S+);)",
       "mbarrier.try_wait$1 $2, [$3+8], $4;", 3},
      // ---- arrivals
      {"", "arrival count one more", "mbarrier.init", R"(mbarrier\.init(\S+) \[(\S+)\], (\S+);)",
       "{ .reg .b32 count; add.s32 count, $3, 1; mbarrier.init$1 [$2], count; }", 2},
      {"", "arrival count one less", "mbarrier.init", R"(mbarrier\.init(\S+) \[(\S+)\], (\S+);)",
       "{ .reg .b32 count; sub.s32 count, $3, 1; mbarrier.init$1 [$2], count; }", 3},
      {"", "mbarrier.init removed", "mbarrier.init", R"(mbarrier\.init\S+ \[\S+\], \S+;)", ";", 2},
      {"sm90", "arrival removed", "mbarrier.arrive.shared", R"(mbarrier\.arrive\.shared\S+ _, \[\S+\];)", ";", 5},
      {"sm100 attention", "arrival removed", "mbarrier.arrive.shared", R"(mbarrier\.arrive\.shared\S+ _, \[\S+\];)", ";", 6},
      {"", "expect_tx 16 bytes more", "expect_tx", R"((mbarrier\.arrive\.expect_tx\S+ _, \[\S+\]), (\S+);)",
       "{ .reg .b32 bytes; add.s32 bytes, $2, 16; $1, bytes; }", 2},
      {"", "expect_tx 16 bytes less", "expect_tx", R"((mbarrier\.arrive\.expect_tx\S+ _, \[\S+\]), (\S+);)",
       "{ .reg .b32 bytes; sub.s32 bytes, $2, 16; $1, bytes; }", 2},
      {"", "expect_tx removed", "expect_tx", R"(mbarrier\.arrive\.expect_tx\S+ _, \[\S+\], \S+;)", ";"},
      {"", "elect removed: every lane goes on", "elect.sync", R"(elect\.sync\s+_\|(\S+), \S+;)", "setp.eq.u32 $1, 0, 0;", 2},
      // ---- bulk tensor copies
      {"", "TMA coordinate one more", ".complete_tx", R"((cp\.async\.bulk\.tensor\S+ \[\S+\]), \[(\S+), \{([^,]+), *([^,}]+)(.*);)",
       "{ .reg .b32 moved; add.s32 moved, $4, 1; $1, [$2, {$3, moved$5; }", 4},
      {"", "TMA destination in the wrong place", ".complete_tx", R"((cp\.async\.bulk\.tensor\S+) \[([^\],]+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1024; $1 [moved]$3; }", 3},
      {"", "TMA load removed", ".complete_tx", R"(cp\.async\.bulk\.tensor.*;)", ";", 2},
      {"sm90", "TMA store's coordinate one more", ".bulk_group", R"((cp\.async\.bulk\.tensor\S+) \[(\S+), \{([^,]+), *([^,}]+)(.*);)",
       "{ .reg .b32 moved; add.s32 moved, $4, 1; $1 [$2, {$3, moved$5; }"},
      {"sm90", "TMA store's source in the wrong place", ".bulk_group", R"((cp\.async\.bulk\.tensor.*), \[(%r\d+)\];)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1024; $1, [moved]; }"},
      {"sm90", "bulk commit_group removed", "bulk.commit_group", R"(cp\.async\.bulk\.commit_group;)", ";"},
      {"sm90", "bulk wait_group removed", "bulk.wait_group", R"(cp\.async\.bulk\.wait_group\S* 0;)", ";"},
      // ---- the merge of partitions, and the lists of KV tiles
      {"parts", "step of a shuffle left out", "shfl.sync.bfly", R"(shfl\.sync\.bfly\.b32\s+(%r\d+)\|%p\d+, (%r\d+),.*;)", "mov.b32 $1, $2;", 12},
      {"keys", "step of a shuffle left out", "shfl.sync.bfly", R"(shfl\.sync\.bfly\.b32\s+(%r\d+)\|%p\d+, (%r\d+),.*;)", "mov.b32 $1, $2;", 12},
      {"merge", "step of a shuffle left out", "shfl.sync.bfly", R"(shfl\.sync\.bfly\.b32\s+(%r\d+)\|%p\d+, (%r\d+),.*;)", "mov.b32 $1, $2;", 12},
      {"sm90 topk", "step of a shuffle left out", "shfl.sync.bfly", R"(shfl\.sync\.bfly\.b32\s+(%r\d+)\|%p\d+, (%r\d+),.*;)", "mov.b32 $1, $2;", 12},
      {"sm90 listed", "first tile of a vote left out", "vote.sync.ballot", R"(vote\.sync\.ballot\.b32\s+(%r\d+), .*;)",
       "$& { .reg .b32 rest; sub.s32 rest, $1, 1; and.b32 $1, $1, rest; }", 4},
      {"maps", "first tile of a vote left out", "vote.sync.ballot", R"(vote\.sync\.ballot\.b32\s+(%r\d+), .*;)",
       "$& { .reg .b32 rest; sub.s32 rest, $1, 1; and.b32 $1, $1, rest; }", 4},
      {"maps", "least of a warp for the most", "redux.sync.max", R"(redux\.sync\.max(.*;))", "redux.sync.min$1"},
      {"maps", "most of a warp for the least", "redux.sync.min", R"(redux\.sync\.min(.*;))", "redux.sync.max$1"},
      {"maps", "any of a warp: the lane's own", "vote.sync.any", R"(vote\.sync\.any\.pred\s+(%p\d+), (%p\d+),.*;)", "mov.pred $1, $2;", 2},
      {"sm90 mla", "step of a shuffle left out", "shfl.sync.bfly", R"(shfl\.sync\.bfly\.b32\s+(%r\d+)\|%p\d+, (%r\d+),.*;)", "mov.b32 $1, $2;", 12},
      // ---- what one CTA of a cluster gives the other
      {"sm90 runs", "store to the other CTA removed", "st.async", R"(st\.async.*;)", ";", 3},
      {"sm90 runs", "store to the other CTA for other rows", "st.async", R"((st\.async\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; xor.b32 moved, $2, 128; $1 [moved]$3; }", 3},
      {"sm90 runs", "the CTA's own address for the other's", "mapa", R"(mapa\S+\s+(\S+), (\S+), %r\d+;)", "mov.b32 $1, $2;", 3},
      {"sm90 dsv32 pairs", "the CTA's own address for the other's", "mapa", R"(mapa\S+\s+(\S+), (\S+), %r\d+;)", "mov.b32 $1, $2;", 4},
      {"sm90 dsv32 pairs", "copy to the other CTA removed", "shared::cluster.shared::cta", R"(cp\.async\.bulk\.shared::cluster\.shared::cta.*;)", ";", 2},
      {"sm90 dsv32 pairs", "copy to the other CTA in the wrong place", "shared::cluster.shared::cta", R"((cp\.async\.bulk\.shared::cluster\.shared::cta\S+) \[(\S+)\](.*);)",
       "{ .reg .b32 moved; xor.b32 moved, $2, 1024; $1 [moved]$3; }", 2},
      {"sm90 runs", "fence of shared memory dropped", "sync_restrict", R"(fence\.\w+\.sync_restrict\S*;)", ";", 2},
      {"sm90 dsv32 pairs", "fence of shared memory dropped", "sync_restrict", R"(fence\.\w+\.sync_restrict\S*;)", ";", 8},
      // ---- barriers of threads
      {"sm90", "named barrier's count 32 more", "barrier.sync.aligned", R"(barrier\.sync\.aligned (\S+), (\S+);)",
       "{ .reg .b32 count; add.s32 count, $2, 32; barrier.sync.aligned $1, count; }", 2},
      {"sm90", "named barrier's count 32 less", "barrier.arrive.aligned", R"(barrier\.arrive\.aligned (\S+), (\S+);)",
       "{ .reg .b32 count; sub.s32 count, $2, 32; barrier.arrive.aligned $1, count; }", 2},
      {"sm90", "barrier.arrive removed", "barrier.arrive.aligned", R"(barrier\.arrive\.aligned \S+, \S+;)", ";", 2},
      {"sm90", "barrier.sync removed", "barrier.sync.aligned", R"(barrier\.sync\.aligned \S+, \S+;)", ";", 2},
      {"", "bar.sync removed", "bar.sync", R"(bar\.sync\s+0;)", ";", 2},
      {"sm100 pair", "cluster barrier removed", "barrier.cluster.wait", R"(barrier\.cluster\.wait\S*;)", ";", 3},
      // ---- registers
      {"sm90", "setmaxnreg.inc 8 more", "setmaxnreg.inc", R"((setmaxnreg\.inc\S+) 240;)", "$1 248;"},
      {"sm90 64", "setmaxnreg.inc 8 more", "setmaxnreg.inc", R"((setmaxnreg\.inc\S+) 160;)", "$1 168;"},
      {"sm90", "setmaxnreg.inc no multiple of 8", "setmaxnreg.inc", R"((setmaxnreg\.inc\S+) \d+;)", "$1 156;"},
      {"", "setmaxnreg.dec below the registers in use", "setmaxnreg.dec", R"((setmaxnreg\.dec\S+) \d+;)", "$1 16;"},
      {"", "setmaxnreg.dec removed", "setmaxnreg.dec", R"(setmaxnreg\.dec\S+ \d+;)", ";"},
      {"sm100 attention", "setmaxnreg.inc past the register file", "setmaxnreg.inc", R"((setmaxnreg\.inc\S+) 232;)", "$1 248;"},
      // ---- wgmma
      {"sm90", "wgmma.commit_group removed", "wgmma.commit_group", R"(wgmma\.commit_group\S*;)", ";", 4},
      {"sm90", "wgmma.wait_group one more", "wgmma.wait_group", R"((wgmma\.wait_group\S+) 0;)", "$1 1;", 3},
      {"sm90", "wgmma.wait_group one more", "wgmma.wait_group", R"((wgmma\.wait_group\S+) 1;)", "$1 2;"},
      {"sm90", "wgmma.wait_group removed", "wgmma.wait_group", R"(wgmma\.wait_group\S+ \d;)", ";", 4},
      {"sm90", "descriptor: start 128 bytes off", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 8;", 4},
      {"sm90", "descriptor: start in the next kilobyte", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 64;", 3},
      {"sm90", "descriptor: stride byte offset halved", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0x6000000000;", 2},
      {"sm90 128", "descriptor of V: leading byte offset halved", "4611686293372403712", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0x6000000;", 2},
      {"sm90", "descriptor: swizzle 64", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0xC000000000000000;", 3},
      {"sm90", "descriptor: no swizzle", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0x4000000000000000;", 2},
      {"sm90", "scale-d flipped", "setp.ne.b32 p,", R"(setp\.ne\.b32 p,)", "setp.eq.b32 p,", 4},
      {"sm90", "stmatrix 16 bytes off", "stmatrix", R"((stmatrix\S+) \[(\S+)\](.*);)", "{ .reg .b32 moved; xor.b32 moved, $2, 16; $1 [moved]$3; }", 2},
      // ---- tcgen05
      {"sm100", "tcgen05.commit removed", "tcgen05.commit", R"(tcgen05\.commit\S+ \[[^;]*;)", ";", 6},
      {"sm100", "tcgen05.commit to the next barrier", "tcgen05.commit", R"((tcgen05\.commit\S+) \[([^\]]+)\])", "$1 [$2+8]", 3},
      {"sm100", "tcgen05.wait::ld removed", "tcgen05.wait::ld", R"(tcgen05\.wait\S*;)", ";", 5},
      {"sm100 attention", "tcgen05.wait::st removed", "tcgen05.wait::st", R"(tcgen05\.wait\S*;)", ";", 2},
      {"sm100", "tcgen05.mma's D 8 columns off", "tcgen05.mma", R"((tcgen05\.mma\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 8; $1 [moved]$3; }", 3},
      {"sm100 attention", "tcgen05.mma's A 8 columns off", "tcgen05.mma", R"((tcgen05\.mma\S+ \[%r\d+\]), \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 8; $1, [moved]$3; }", 2},
      {"sm100", "tcgen05.mma's D 32 lanes off", "tcgen05.mma", R"((tcgen05\.mma\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 2097152; $1 [moved]$3; }"},
      {"sm100", "tcgen05.mma removed", "tcgen05.mma", R"(tcgen05\.mma.*;)", ";"},
      {"sm100", "tcgen05.ld a column off", "tcgen05.ld", R"((tcgen05\.ld\S+ \{[^}]*\}), \[(%r\d+)\];)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1; $1, [moved]; }", 3},
      {"sm100", "tcgen05.ld of another warp's lanes", "tcgen05.ld", R"((tcgen05\.ld\S+ \{[^}]*\}), \[(%r\d+)\];)",
       "{ .reg .b32 moved; xor.b32 moved, $2, 2097152; $1, [moved]; }"},
      {"sm100 attention", "tcgen05.st a column off", "tcgen05.st", R"((tcgen05\.st\S+) \[(%r\d+)\](.*);)",
       "{ .reg .b32 moved; add.s32 moved, $2, 1; $1 [moved]$3; }", 3},
      {"sm100", "descriptor: start 128 bytes off", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 8;", 3},
      {"sm100", "descriptor: stride byte offset halved", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0x6000000000;", 3},
      {"sm100", "descriptor: swizzle 64", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0xC000000000000000;", 2},
      {"sm100", "descriptor: the fixed field cleared", "or.b64", R"(or\.b64\s+(%rd\d+), %rd\d+, 46\d{17};)", "$& xor.b64 $1, $1, 0x400000000000;", 2},
      {"sm100", "instruction descriptor: N 8 less", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7}|27\d{7});)", "$& sub.s32 $1, $1, 131072;", 2},
      {"sm100", "instruction descriptor: M of another size", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7}|27\d{7});)", "$& xor.b32 $1, $1, 0x0C000000;", 2},
      {"sm100", "instruction descriptor: B transposed", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7}|27\d{7});)", "$& xor.b32 $1, $1, 65536;", 2},
      {"sm100", "instruction descriptor: A of another type", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7}|27\d{7});)", "$& xor.b32 $1, $1, 128;", 2},
      {"sm100", "instruction descriptor: A negated", "mov.b32", R"(mov\.b32\s+(%r\d+), (13\d{7}|27\d{7});)", "$& xor.b32 $1, $1, 8192;"},
      {"sm100", "enable-input-d flipped", "setp.ne.b32 p,", R"(setp\.ne\.b32 p,)", "setp.eq.b32 p,", 3},
      {"sm100", "tcgen05.alloc of half the columns", "tcgen05.alloc", R"((tcgen05\.alloc\S+ \[\S+\]), (\S+);)",
       "{ .reg .b32 half; shr.u32 half, $2, 1; $1, half; }"},
      {"sm100", "tcgen05.dealloc removed", "tcgen05.dealloc", R"(tcgen05\.dealloc.*;)", ";"},
      {"sm100", "tcgen05.dealloc of half the columns", "tcgen05.dealloc", R"((tcgen05\.dealloc\S+ [^,]+), (\S+);)",
       "{ .reg .b32 half; shr.u32 half, $2, 1; $1, half; }"},
      {"sm100 pair", "multicast commit to one CTA", "tcgen05.commit", R"((tcgen05\.commit\S+ \[[^\]]+\]), (\S+);)",
       "{ .reg .b16 one; mov.b16 one, 1; $1, one; }", 3},
      {"sm100 pair", "the leader's barrier not chosen", "and.b32", R"(and\.b32\s+(%r\d+), (%r\d+), -16777217;)", "mov.b32 $1, $2;", 2},
  };
  return list;
}

const std::vector<LaunchRule>& launch_rules() {
  static const std::vector<LaunchRule> list = {
      {"sm90", "tensor map without swizzle", "q", 0},
      {"sm90", "tensor map without swizzle", "k", 0},
      {"sm90", "tensor map without swizzle", "v", 0},
      {"sm90", "tensor map without swizzle", "o", 0},
      {"sm100 gemm", "tensor map without swizzle", "a", 0},
      {"sm100 gemm", "tensor map without swizzle", "b", 0},
      {"sm100 pair", "tensor map without swizzle", "b", 0},
      {"sm100 attention", "tensor map without swizzle", "k", 0},
      {"sm100 attention", "tensor map without swizzle", "v", 0},
  };
  return list;
}
// clang-format on

}  // namespace attnjit::emulator
