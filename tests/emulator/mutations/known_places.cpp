// SPDX-License-Identifier: Apache-2.0
// What is known of single places: why a change there is no damage, and why a survivor survives.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "generated_subjects.h"
#include "known_numbers.h"
#include "mutation.h"

namespace attnjit::emulator {
namespace {

// Lines of a Context, each of which ends with a newline.
std::string_view first_lines(std::string_view text, int count) {
  std::size_t end = 0;
  for (; count > 0 && end < text.size(); --count) end = text.find('\n', end) + 1;
  return text.substr(0, end);
}
std::string_view last_lines(std::string_view text, int count) {
  std::size_t begin = text.size();
  for (; count > 0 && begin > 0; --count) {
    begin = begin == 1 ? 0 : text.rfind('\n', begin - 2) + 1;  // npos + 1 is 0: the first line
  }
  return text.substr(begin);
}

bool has(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

/// Instructions that read or write memory, or wait for it.
constexpr std::string_view kAccesses[] = {"wgmma", "ld.",       "ldmatrix", "st.",
                                          "cp.",   "expect_tx", "try_wait"};

bool has_access(std::string_view text) {
  return std::any_of(std::begin(kAccesses), std::end(kAccesses),
                     [&](std::string_view access) { return has(text, access); });
}

/// Whether nothing between the wait and the arrival reads what was waited for.
bool reads_nothing(std::string_view between) {
  return std::count(between.begin(), between.end(), '\n') <= 12 && !has_access(between);
}

/// Whether a line adds 1 to a register, as a loop does to its counter.
bool counts_up(std::string_view line) {
  const std::size_t begin = line.find('%'), comma = line.find(',');
  if (!has(line, "add.s32") || begin > comma || comma == line.npos) return false;
  const std::string_view counter = line.substr(begin, comma - begin);
  return has(line, fmt::format("{}, {}, 1;", counter, counter));
}

/// Whether a second wait is all that stands between a fence and the next one.
bool waits_again(std::string_view after) {
  const std::size_t next = after.find("tcgen05.");
  if (next == after.npos || !after.substr(next).starts_with("tcgen05.fence::after")) return false;
  const std::string_view between = after.substr(0, next);
  const std::size_t retry = between.find("bra");
  return has(between, "try_wait") && !has(between, "mbarrier.arrive") && retry != between.npos &&
         !has(between.substr(retry + 1), "bra");
}

/// The parity that a line waits for, or what it is the opposite of in `text`; empty: it does not
/// wait.
std::string parity_of(std::string_view line, std::string_view text) {
  const std::size_t wait = line.find("try_wait"), parity = line.rfind(", ");
  if (wait == line.npos || parity == line.npos) return {};
  const std::string_view name = line.substr(parity + 2, line.find(';', parity) - parity - 2);
  const std::string inverts = fmt::format("xor.b32  \t{}, ", name);
  const std::size_t made = text.rfind(inverts);
  if (made == text.npos) return std::string(name);
  const std::size_t of = made + inverts.size();
  return std::string(text.substr(of, text.find('\n', of) - of));
}

/// The line of a text around a place.
std::string_view line_at(std::string_view text, std::size_t at) {
  const std::size_t begin = text.rfind('\n', at) + 1;  // npos + 1 is 0: the first line
  return text.substr(begin, text.find('\n', at) - begin);
}

/// Whether another wait is for the same parity, and nothing is done between.
bool is_twin(const Context& context, std::string_view line, std::string_view between) {
  const std::string text = context.before + context.after;
  return parity_of(line, text) == parity_of(context.line, text) &&
         !has(between, "mbarrier.arrive") && !has_access(between);
}
bool has_next_twin(const Context& context) {
  const std::string_view after = context.after;
  const std::size_t next = after.find("mbarrier.try_wait");
  return next != after.npos && is_twin(context, line_at(after, next), after.substr(0, next));
}
bool has_last_twin(const Context& context) {
  const std::string_view before = context.before;
  const std::size_t last = before.rfind("mbarrier.try_wait");
  return last != before.npos &&
         is_twin(context, line_at(before, last), before.substr(before.find('\n', last)));
}

std::string_view no_damage_by_context(std::string_view subject, std::string_view kind,
                                      const Context& context) {
  const std::string_view before = last_lines(context.before, 1);
  const std::string_view after = first_lines(context.after, 1);
  constexpr std::string_view kAllocation =
      "around the allocation: the fences order asynchronous tcgen05 operations, and before it "
      "there is none";
  constexpr std::string_view kFreed =
      "before the deallocation, which is not asynchronous: tcgen05.wait::ld has completed every "
      "load, and the barrier orders the rest";
  if (kind == "tcgen05.fence::after_thread_sync dropped") {
    const bool of_cluster =
        has(before, "barrier.cluster.wait") && has(first_lines(context.after, 6), "ld.shared.b32");
    if (has(before, "bar.sync") || of_cluster) return kAllocation;
    if (has(after, "tcgen05.dealloc")) return kFreed;
  }
  if (kind == "tcgen05.fence::after_thread_sync dropped" && waits_again(context.after)) {
    return "between two waits: the fence behind the second covers what was learned from the first";
  }
  if (kind == "tcgen05.fence::before_thread_sync dropped") {
    // The same places from the other side.
    if (has(before, "tcgen05.relinquish")) return kAllocation;
    if (has(after, "bra.uni") || (has(after, "mov.b32") && has(context.after, "barrier.arrive"))) {
      return kFreed;
    }
  }
  if (kind == "elect removed: every lane goes on" && has(first_lines(context.after, 8), "1023;")) {
    return "the memory's alignment: what one lane checks all may";
  }
  // The correction warps' first words: that O, of which nothing was read yet, may be written.
  const bool no_o_yet =
      has(context.before, "tcgen05.fence::before") || kind.starts_with("tcgen05.fence::before");
  if (no_o_yet && has(context.before, ", 127;") && has(context.before, "shfl.sync.idx") &&
      !has(context.before, "try_wait") && !has(context.before, "tcgen05.wait")) {
    if (kind.starts_with("tcgen05.fence::before") || kind == "arrival made relaxed" ||
        kind == "barrier of a warp removed") {
      return "before the first work tile: no O was read that it would hand on";
    }
  }
  // And their last of a work tile whose O are two.
  const std::size_t given = context.before.rfind("tcgen05.fence::before");
  if (given != context.before.npos && given > 0 && kind.starts_with("tcgen05.fence::before") &&
      has(context.before.substr(given), "mbarrier.arrive") &&
      !has(context.before.substr(given), "tcgen05.wait") &&
      !has(context.before.substr(given), "try_wait")) {
    return "behind the same fence for the other warpgroup's O, which covers all that was read";
  }
  // NOTE: of these the correction's arrival, unlike that of P, also tells the softmax that the
  // correction slot of the work tile before was read, which lies in shared memory.
  constexpr std::string_view kSaysSlotIsRead[] = {"sm_100a 96", "sm_100a 192", "sm_100a 256",
                                                  "sm_100a e4m3 rope 192",
                                                  "sm_100a 128 steals tiles"};
  const bool says_slot_is_read =
      !has(context.before, "tcgen05.wait::st") &&
      std::any_of(std::begin(kSaysSlotIsRead), std::end(kSaysSlotIsRead),
                  [&](std::string_view name) { return subject.starts_with(name); });
  if (kind == "arrival made relaxed" && has(context.before, "tcgen05.fence::before") &&
      has(context.before, "cvt.rn.") && !says_slot_is_read) {
    return kTensorMemory;
  }
  // NOTE: V of head_dim above 256, which has memory of its own, is waited for in front of the same
  // products.
  if (kind == "wait made relaxed" && has(first_lines(context.after, 10), "tcgen05.fence::after") &&
      has(context.after, "], [%r") && !subject.starts_with("sm_100a 512") &&
      !subject.starts_with("sm_100a latent e4m3 lists")) {
    return "P is waited for, which lies in tensor memory alone: tcgen05.fence orders it behind a "
           "relaxed wait (9.7.16.6.4)";
  }
  if (kind == "arrival made relaxed" && subject.starts_with(kTemplatePrefix)) {
    const std::string_view all = context.before;
    const std::size_t wait = all.rfind("try_wait");
    const std::string_view between =
        wait == all.npos ? "tcgen05" : all.substr(all.find('\n', wait));
    if (reads_nothing(between) && !has(between, "tcgen05")) {
      return "the load says that its wait has passed: it hands on nothing";
    }
  }
  if (kind == "barrier of a warp removed" &&
      has(first_lines(context.after, 6), "barrier.sync.aligned")) {
    return "the roles' end: all lanes go to an aligned barrier, or exit";
  }
  // The retry, and then the end of a loop over barriers. NOTE: a loop's: the sm_100a store warp
  // goes on from its wait for O by a sum and a branch, too, and reads O.
  const std::string_view behind = first_lines(context.after, 6);
  // NOTE: before the teardown it is the products that are waited for: the CTA's memory must stay.
  if (kind == "wait made relaxed" && counts_up(last_lines(first_lines(context.after, 4), 1)) &&
      has(last_lines(behind, 1), "bra") && reads_nothing(behind) &&
      !has(context.after, "barrier.sync.aligned")) {
    return "the load warp waits for all stages or query tiles, and loads nothing then: what it "
           "loads "
           "later waits on the same barrier again";
  }
  if (kind == "wait made relaxed" &&
      has(last_lines(first_lines(context.after, 4), 1), "mbarrier.arrive.shared") &&
      context.after.find("try_wait") <= context.after.find("expect_tx")) {
    return "a work tile without keys: the load waits, says so, and loads nothing; what it loads "
           "later waits on the same barrier again";
  }
  if ((kind == "wait removed" || kind == "wait on the next barrier") &&
      ((has(subject, "dsv32") && has_next_twin(context)) ||
       (has(subject, "latent") && has_last_twin(context)))) {
    return "the other block is waited for beside it, which is handed back by a later commit of the "
           "same warp, or as S is before the product with V: it implies this one";
  }
  if (kind == "instruction descriptor: N 16 less" && subject.starts_with("sm_100a 96") &&
      has(context.after, "], [%r")) {
    return "N of P V is the depth rounded up to 128: nobody reads O's columns past the depth";
  }
  return {};
}

/// A consumer of sm_90a lets a tile pass that its rows do not see.
std::string_view skipped_tile_reason_of(std::string_view kind, const Context& context) {
  const std::string_view before = context.before, after = context.after;
  bool skips = false;
  if (kind == "arrival made relaxed") {
    // Where tiles are listed, a note was read from the memory that is handed back, and shared.
    const std::size_t wait = before.rfind("try_wait");
    skips = wait != before.npos && reads_nothing(before.substr(before.find('\n', wait))) &&
            !has(before, "shfl.sync.idx");
  } else if (kind == "wait removed" || kind == "wait made relaxed") {
    const std::size_t arrival = after.find("mbarrier.arrive");
    skips = arrival != after.npos && reads_nothing(after.substr(0, after.find('\n', arrival)));
    // NOTE: to go on without V is damage, though nothing here reads it: K was handed back before,
    // and lets a consumer arrive twice while another still multiplies with V of the same stage.
    const std::size_t k = before.rfind("mbarrier.arrive");
    const bool is_v = has(before, "barrier.arrive") ||  // the turn is taken between them
                      (k != before.npos && !has_access(before.substr(before.find('\n', k))));
    skips &= !is_v || kind == "wait made relaxed";
  }
  if (!skips) return {};
  return "K or V of a tile that is skipped: nothing here reads it, and its memory is free only "
         "when the consumer that does has waited";
}

/// Of the fences that wgmma needs. `product`: what stands behind each product before such a fence.
std::string_view product_fence_reason_of(std::string_view kind, const Context& context,
                                         std::size_t product) {
  if (kind != "wgmma.fence dropped" && kind != "wgmma.fence below the product") return {};
  // Behind the product before nothing is written that a product reads: no f32, no packed pair.
  if (product == context.before.npos) return {};
  const std::string_view between = std::string_view(context.before).substr(product);
  if (has(between, "%f") || has(between, "cvt.rn") || has(between, "wait_group") ||
      has(between, "mov.f32 ") || has(between, "selp.f32 ")) {
    return {};
  }
  // Nor does another way come from where there was no product.
  if (has(between, "bra.uni")) return {};
  return "between two products: the fence before the first covers O and P too";
}

std::string_view product_fence_of_group(std::string_view kind, const Context& context) {
  return product_fence_reason_of(kind, context, context.before.rfind("wgmma.commit_group"));
}

/// Whether the next product adds to what is in its registers, as that of each block of columns but
/// the first does for S.
bool adds_to_product(std::string_view after) {
  constexpr std::string_view kTest = "setp.ne.b32 p, ";
  const std::size_t test = after.find(kTest);
  return test != after.npos && after.substr(test + kTest.size()).starts_with("1,");
}

/// Whether the last product made S, whose registers' names begin so.
bool is_behind_scores(std::string_view before) {
  const std::size_t product = before.rfind("wgmma.mma_async");
  return product != before.npos && has(line_at(before, product), "{s0_");
}

/// Of absorbed MLA on sm_90a.
std::string_view mla_reason_of(std::string_view subject, std::string_view kind,
                               const Context& context) {
  const std::string_view before = context.before, after = context.after;
  const std::size_t product = before.rfind("wgmma.mma_async");
  if (product != before.npos) {
    const std::string_view reason =
        product_fence_reason_of(kind, context, before.find('\n', product));
    if (!reason.empty()) return reason;
  }
  if (adds_to_product(after)) {
    const std::string_view reason = product_fence_reason_of(kind, context, 0);
    if (!reason.empty()) return reason;
  }
  const std::size_t waited = before.rfind("try_wait");
  const std::size_t arrives = after.find("mbarrier.arrive");
  if ((kind == "arrival made relaxed" && waited != before.npos &&
       reads_nothing(before.substr(before.find('\n', waited)))) ||
      (kind == "wait made relaxed" && arrives != after.npos &&
       after.substr(arrives).starts_with("mbarrier.arrive.shared") &&
       reads_nothing(after.substr(0, arrives)))) {
    return "Q of a work tile of one KV tile, of which this warp makes no S: it reads nothing of Q, "
           "whose memory is free only when those have arrived that do";
  }
  // Of the format dsv32: K is upcast, two blocks at a time.
  if (!has(subject, "dsv32")) return {};
  const bool lists = subject.starts_with("sm90 dsv32");
  if (kind == "arrival made relaxed" && has(last_lines(before, 20), "wgmma.wait_group") &&
      !is_behind_scores(before) &&
      (has(last_lines(before, 6), "mbarrier.arrive") ||
       has(first_lines(after, 6), "mbarrier.arrive"))) {
    return "two blocks of V are handed back together, behind a product of both: who stores there "
           "waits for both, and the other's arrival releases";
  }
  // NOTE: what is said of a list is stored behind the wait for the rope's block alone.
  const std::size_t all_made = before.rfind("wgmma.wait_group");
  if (kind == "arrival made relaxed" && !lists && is_behind_scores(before) &&
      has(last_lines(before, 10), "wgmma.wait_group") &&
      !has(before.substr(all_made), "mbarrier.arrive")) {
    return "the rope's block: the same warps hand back their half of V behind it, by arrivals that "
           "release, and the copy waits for that half, too";
  }
  if (kind == "wait removed" && (has_next_twin(context) || has_last_twin(context))) {
    return "what is waited for beside it implies it: the other block of the same product with V, "
           "or of the rope's block the half of V that the same warps hand back later";
  }
  if ((kind == "answer taken for yes" || kind == "parity of a question flipped" ||
       kind == "question of the next barrier") &&
      has(first_lines(after, 6), "vote.sync.all")) {
    return "whether the next tile can be asked for already: its memory is waited for all the same, "
           "and the answer decides the speed, not the data";
  }
  return {};
}

/// The instructions up to and with the next arrival; empty: there is none near.
std::string_view up_to_arrival(std::string_view after) {
  const std::string_view near = first_lines(after, 8);
  const std::size_t arrival = near.find("mbarrier.arrive.shared");
  if (arrival == near.npos) return {};
  return near.substr(0, near.find('\n', arrival) + 1);
}

/// A consumer of sm_90a hands Q's memory back, which may still be read to store O.
std::string_view release_reason_of(std::string_view kind, const Context& context) {
  // What stands behind the arrival, seen from there or from the barrier of the warp before it.
  std::string_view behind = context.after;
  if (kind == "barrier of a warp removed") {
    const std::string_view arrives = up_to_arrival(behind);
    if (arrives.empty() || !has(last_lines(context.before, 3), "bulk.wait_group.read")) return {};
    behind.remove_prefix(arrives.size());
    if (has(first_lines(behind, 6), "shfl.sync.bfly")) {
      return "a partition's result is stored by the threads: there is no bulk group to wait for";
    }
  } else if (!kind.starts_with("arrival ") || !has(context.line, "mbarrier.arrive.shared") ||
             !has(last_lines(context.before, 10), "bulk.wait_group.read")) {
    return {};
  }
  // Where more comes, the next stage's number is made first.
  if (kind != "arrival at the next barrier" && has(first_lines(behind, 1), "bra.uni")) {
    return "Q's memory is given back after the last work tile: nobody waits for it any more";
  }
  return {};
}

/// The end of an sm_90a producer's work is published.
std::string_view end_reason_of(std::string_view subject, std::string_view kind,
                               const Context& context) {
  // NOTE: O has memory of its own elsewhere, or launches whose parts are merged: then Q's is given
  // back before the next work tile is read.
  constexpr std::string_view kGivesBackLate[] = {
      "sm90 64",       "sm90 96", "sm90 e4m3 64 pages", "sm90 kv_dtype 64 pages",
      "maps, sm90 64", "ragged"};
  if (std::none_of(std::begin(kGivesBackLate), std::end(kGivesBackLate),
                   [&](std::string_view name) { return subject.starts_with(name); })) {
    return {};
  }
  const std::string_view stored = first_lines(context.after, 14);
  const std::size_t store = stored.find("st.shared.v4");
  if (kind == "wait removed" && store != stored.npos && has(stored.substr(0, store), ", -1;")) {
    return "the end is published where the work tile before the last was: the wait for Q of the "
           "last one implies that it was read";
  }
  return {};
}

/// The end of what the threads of a warp copy is told to those that rewrite it, by an arrival of
/// the lane that stores the word, and one of each lane.
std::string_view last_word_reason_of(std::string_view kind, const Context& context) {
  if (kind != "arrival made relaxed") return {};
  constexpr std::string_view kArrive = "mbarrier.arrive.shared";
  const std::string_view behind = up_to_arrival(context.after);
  const std::string_view before = last_lines(context.before, 12);
  const std::size_t arrival = before.rfind(kArrive);
  const bool first = has(last_lines(context.before, 3), "st.shared.b32") &&
                     has(behind, "bar.warp.sync") && !has_access(behind);
  const bool second = arrival != before.npos && has(before.substr(0, arrival), "st.shared.b32") &&
                      has(before.substr(arrival), "bar.warp.sync") &&
                      !has_access(before.substr(before.find('\n', arrival)));
  if (!first && !second) return {};
  return "the lane that stores the word arrives before a barrier of the warp and behind it: the "
         "other of its arrivals releases, and the phase needs both";
}

/// Of the fences behind a wait for what cp.async copied.
std::string_view copy_fence_reason_of(std::string_view kind, const Context& context) {
  if (!kind.starts_with("fence.proxy.async")) return {};
  const std::size_t waited = context.before.rfind("try_wait");
  const std::size_t arrives = context.after.find("mbarrier.arrive");
  if (waited != context.before.npos && arrives != context.after.npos &&
      reads_nothing(std::string_view(context.before).substr(context.before.find('\n', waited))) &&
      reads_nothing(std::string_view(context.after).substr(0, arrives))) {
    return "K of a tile that is skipped: nothing here reads it";
  }
  const std::size_t next = context.after.find("fence.proxy.async");
  const std::string_view between = std::string_view(context.after).substr(0, next);
  if (next == context.after.npos || !has(context.before, "try_wait") || has(between, "wgmma") ||
      !has(between, "ld.shared")) {
    return {};
  }
  return "K is waited for again before its product, and fenced behind that";
}

// Of what the lanes of a warp wait for behind what one of them does alone.
std::string_view warp_barrier_reason_of(std::string_view subject, const Context& context) {
  if (has(first_lines(context.after, 2), "and.b32") && has(context.before, "1023;")) {
    return "behind what one lane checks of the memory: nothing of it is another lane's next";
  }
  const std::string_view of_one_step = last_lines(context.before, 2);
  if (has(of_one_step, "setp.ne.s32") && has(of_one_step, ", 1;") && has(of_one_step, "bra") &&
      has(first_lines(context.after, 12), "mbarrier.arrive")) {
    return "of a work tile of one KV tile: the lanes have read the correction slot of the work "
           "tile "
           "before, and met behind that, before they gave O back";
  }
  // NOTE: a barrier in front of another arrival, as that of O in shared memory, does not cover this
  // fence: each lane's own stands behind it.
  const std::size_t arrived = context.before.rfind("mbarrier.arrive.shared");
  const std::size_t fenced = context.before.rfind("tcgen05.fence::before", arrived);
  if (arrived != context.before.npos && fenced != context.before.npos &&
      has(context.before.substr(arrived), "tcgen05.fence::before") &&
      !has_access(context.before.substr(fenced, arrived - fenced)) &&
      !has_access(context.before.substr(context.before.find('\n', arrived)))) {
    return "the warp met before it said the same of the other warpgroup's O";
  }
  const std::size_t stashed = context.before.rfind("st.shared");
  if (is_sm90_mla(subject) && stashed != std::string::npos) {
    const std::string_view behind = std::string_view(context.before).substr(stashed);
    const bool at_once = std::count(behind.begin(), behind.end(), '\n') <= 6 &&
                         !has(behind, "fence") && !has(behind, "mbarrier") && !has(behind, "bar.");
    // A work tile is more than one store.
    const std::string_view before = last_lines(context.before.substr(0, stashed), 6);
    if (at_once && has(before, "st.shared.v4.b32") && !has(before, "bar.") &&
        !has(before, "mbarrier")) {
      return "behind the work tile that lane 0 stashes, and takes back itself";
    }
    // NOTE: not where warps load tiles of every second stage: one may have none to load.
    if (at_once && (has(subject, "dsv32") || has(subject, "latent"))) {
      return "behind the tile list that lane 0 stashes: it is read behind barriers that the "
             "copies of a tile have";
    }
  }
  const std::string_view asked = last_lines(context.before, 5);
  const std::size_t copied = asked.rfind("cp.async.cg");
  if (copied != asked.npos && reads_nothing(asked.substr(asked.find('\n', copied)))) {
    return "behind copies that are on their way: nothing of one lane is another's next";
  }
  const std::string_view loop = last_lines(context.before, 4);
  const std::size_t commit = loop.rfind("tcgen05.commit");
  if (commit != loop.npos && reads_nothing(loop.substr(loop.find('\n', commit)))) {
    return "behind commits, which one lane makes: nothing of it is another lane's next";
  }
  if (has(last_lines(context.before, 3), "st.global") &&
      has(first_lines(context.after, 4), "0fFF800000")) {
    return "the merge's, behind the read of the old LSE where a launch accumulates: here nothing "
           "reads it";
  }
  const std::size_t store = context.before.rfind("st.shared");
  if (has(last_lines(context.before, 2), "mbarrier.arrive.shared") && store != std::string::npos) {
    const std::string_view told = std::string_view(context.before).substr(store);
    if (std::count(told.begin(), told.end(), '\n') <= 5 && !has(told, "elect.sync") &&
        !has(told, "bar.")) {
      return "behind what one lane stores and says to other warps: nothing of it is another lane's "
             "next";
    }
  }
  const std::string_view expecting = last_lines(context.before, 4);
  const std::size_t expected = expecting.rfind("expect_tx");
  if (expected != expecting.npos &&
      reads_nothing(expecting.substr(expecting.find('\n', expected)))) {
    return "between one lane's expect_tx and the lanes' copies: each lane has waited for the stage "
           "itself, and bytes that land before they are expected do not complete a phase whose "
           "arrival is pending";
  }
  // Behind the last of them, or behind a loop over them.
  const std::string_view copies = last_lines(context.before, 5);
  const std::size_t last = copies.rfind("cp.async.bulk.tensor");
  if (last != copies.npos && reads_nothing(copies.substr(copies.find('\n', last)))) {
    return "behind the lanes' copies: nothing of one lane is another's next";
  }
  return {};
}

std::string_view template_reason_of(const Mutant& mutant) {
  if (mutant.kind.find("wait") == std::string::npos &&
      mutant.kind.find("setmaxnreg") == std::string::npos) {
    return {};
  }
  if (mutant.kind == "setmaxnreg.dec removed") {
    return "the increases of the others would wait for ever on a GPU; the emulator tells only an "
           "increase that nobody can make room for any more, and here a warpgroup lives that still "
           "could";
  }
  const Context context = context_of(mutant.ptx, mutant.line);
  const bool loads = has(context.after, "expect_tx");
  if (!loads && (mutant.kind == "wait removed" || mutant.kind == "parity of a wait flipped") &&
      (has(first_lines(context.after, 6), "try_wait") ||
       has(last_lines(context.before, 6), "try_wait")) &&
      !has(context.before, ".pragma")) {
    return "one of two waits, a query tile each, of the load warp for a work tile without keys: "
           "the "
           "store warp gives the tiles' memory back in order, so that either wait implies the "
           "other";
  }
  if (mutant.kind == "wait removed" && loads) {
    return "the second K of a work tile: Q's memory was waited for before, and with it every "
           "product of the work tile before";
  }
  if (mutant.kind == "wait on the next barrier" && loads) {
    return "the next stage is given back later: the load waits longer, and is right";
  }
  return {};
}

bool is_sm90_forward(std::string_view subject) {
  for (const std::string_view name :
       {"sm90 1", "sm90 6", "sm90 9", "sm90 listed", "sm90 e4m3", "sm90 kv_dtype", "pages", "rows",
        "ragged", "parts", "keys", "maps", "runs", "sm90 runs heads"}) {
    if (subject.starts_with(name)) return true;
  }
  return false;
}

// The subject whose kernel this one's is, to the letter; the launches differ.
std::string_view kernel_of(std::string_view subject) {
  if (subject == "sm_100a runs mla 192/128") return "sm_100a mla 192/128";
  if (subject == "sm_100a runs dsv32") return "sm_100a dsv32 dense";
  return subject;
}

// The kind of damage that does all that this kind does, at the same place.
std::string_view stronger_than(std::string_view kind) {
  if (kind == "wait made relaxed" || kind == "retry loop removed" || kind == "wait at CTA scope") {
    return "wait removed";
  }
  if (kind == "arrival at CTA scope") return "arrival made relaxed";
  if (kind == "arrival made relaxed") return "arrival removed";
  if (kind == "tcgen05.fence::before below the arrival") {
    return "tcgen05.fence::before_thread_sync dropped";
  }
  if (kind == "tcgen05.fence::after above the wait") {
    return "tcgen05.fence::after_thread_sync dropped";
  }
  return {};
}

std::string_view no_damage_of_kind(std::string_view subject, std::string_view kind, int occurrence,
                                   const Context& context) {
  if (kind == "barrier of a warp removed") {
    const std::string_view reason = warp_barrier_reason_of(subject, context);
    if (!reason.empty()) return reason;
  }
  if (kind == "least of a warp for the most" &&
      has(last_lines(context.before, 1), "redux.sync.add")) {
    return "the longest sequence: of a shorter one the launch takes uniform splits, which takes "
           "longer "
           "and comes to the same";
  }
  // NOTE: the declaration of the wait's predicate stands between them.
  if (kind == "parity of a wait always 0" && has(last_lines(context.before, 2), "mov.b32") &&
      has(last_lines(context.before, 2), ", 0;")) {
    return "of the first phase: its parity is 0";
  }
  if (subject.starts_with(kTemplatePrefix)) {
    const std::string_view reason = no_damage_by_context(subject, kind, context);
    return reason.empty() ? no_damage_by_number(subject, kind, occurrence) : reason;
  }
  if (kind == "elect removed: every lane goes on" &&
      has(first_lines(context.after, 5), "bulk.wait_group")) {
    return "a wait for bulk groups: the other lanes have none";
  }
  if (is_sm90_mla(subject)) {
    const std::string_view reason = mla_reason_of(subject, kind, context);
    if (!reason.empty()) return reason;
  }
  if (is_sm90_forward(subject)) {
    for (const std::string_view reason :
         {release_reason_of(kind, context), end_reason_of(subject, kind, context),
          last_word_reason_of(kind, context)}) {
      if (!reason.empty()) return reason;
    }
    const bool upcasts = subject.starts_with("sm90 kv_dtype");
    for (const auto reason_of_place :
         {&skipped_tile_reason_of, &product_fence_of_group, &copy_fence_reason_of}) {
      // NOTE: where warps apart upcast K and V, V of a tile may be there before K. Who has not
      // waited for K then takes the barrier's phase before for that of K's next use.
      if (upcasts && reason_of_place == &skipped_tile_reason_of && kind == "wait removed") continue;
      const std::string_view reason = reason_of_place(kind, context);
      if (!reason.empty()) return reason;
    }
  }
  if (kind == "fence.proxy.async below the arrival" &&
      has(first_lines(context.after, 3), "barrier.sync.aligned")) {
    return "the fence stands behind the barrier, in the thread that issues the store: on the path "
           "of causality all the same (8.9.5)";
  }
  return no_damage_by_number(subject, kind, occurrence);
}

}  // namespace

std::string_view no_damage(std::string_view subject, std::string_view kind, int occurrence,
                           const Context& context) {
  subject = kernel_of(subject);
  const std::string_view reason = no_damage_of_kind(subject, kind, occurrence, context);
  if (!reason.empty()) return reason;
  const std::string_view stronger = stronger_than(kind);
  if (stronger.empty()) return {};
  // NOTE: a fence that is moved has another number than where it is dropped: not every fence has
  // something near that it could be moved across. What stands around it tells.
  constexpr int kNoNumber = -1;
  return no_damage_of_kind(subject, stronger, kind.starts_with("tcgen05") ? kNoNumber : occurrence,
                           context);
}

std::vector<std::string> stale_numbers(const std::vector<Spared>& spared) {
  std::vector<NumberedPlace> places;
  for (const Spared& place : spared) {
    // What does less is no damage where what does more is none.
    for (std::string_view kind = place.mutant.kind; !kind.empty(); kind = stronger_than(kind)) {
      places.push_back({kernel_of(place.mutant.subject), kind, place.mutant.occurrence});
    }
  }
  return numbers_without_place(places);
}

std::string_view reason_of(const Mutant& mutant) {
  if (mutant.subject.starts_with(kTemplatePrefix)) {
    const std::string_view reason = template_reason_of(mutant);
    if (!reason.empty()) return reason;
  }
  struct Known {
    std::string_view subjects, kind, reason;
    int occurrence = -1;  // any
  };
  static constexpr std::string_view kNextStage =
      "the next stage is given back later, so that the load only waits longer; the last stage, "
      "behind which V's barrier lies, was not seen to differ in these shapes";
  static constexpr std::string_view kSkippedEarly =
      "K of a tile that is skipped, which nothing here reads: the wait may pass early";
  static constexpr std::string_view kLanded =
      "damage that 20 seeds do not show: the V tile that ends a sequence has landed by the time "
      "that "
      "the producer comes to zero its tail, a load later";
  static constexpr std::string_view kQuietColumns =
      "damage that these inputs do not show: V is K's own columns, and what is rescaled for a "
      "raised "
      "key's sake is a mean of quiet ones, which differ by less than is tolerated";
  static constexpr std::string_view kForeignWait =
      "a known gap of the checks (docs/emulator.md): another warp has waited for K, and its "
      "products "
      "hand on that the copies are complete";
  static constexpr std::string_view kSeldomLate =
      "damage that one seed in 32 shows: behind its turn a consumer seldom finds V not there";
  static const std::vector<Known> list = {
      {"sm90 128", "wait on the next barrier", kNextStage, 8},
      {"pages", "wait on the next barrier", kNextStage, 8},
      {"parts", "wait on the next barrier", kNextStage, 8},
      {"parts", "retry loop removed", kLanded, 11},
      {"maps, sm90 128", "retry loop removed", kLanded, 12},
      {"sm90 listed", "retry loop removed", kSeldomLate, 2},
      {"sm90 listed rows", "retry loop removed", kSeldomLate, 4},
      {"ragged", "parity of a wait always 1", kSkippedEarly, 9},
      {"sm_100a 96", "retry loop removed",
       "damage that 20 seeds do not show: where two warpgroups share a query tile, the second's O "
       "is "
       "seldom later than the first's, which was waited for",
       9},
      {"keys", "parity of a wait always 1", kSkippedEarly, 9},
      {"sm_100a topk", "wait removed", kForeignWait, 15},
      {"sm_100a mla rows", "wait removed", kForeignWait, 14},
      {"sm_100a runs mla rows", "wait removed", kForeignWait, 14},
      {"sm_100a dsv32", "tcgen05.ld a column off", kQuietColumns},
      {"sm_100a topk", "tcgen05.ld a column off", kQuietColumns},
      {"sm_100a mla", "tcgen05.ld a column off", kQuietColumns},
      {"sm_100a latent", "tcgen05.ld a column off", kQuietColumns},
      {"parts", "setmaxnreg.dec removed",
       "the increases of the others would wait for ever on a GPU; the emulator tells only an "
       "increase that nobody can make room for any more, and here a warpgroup lives that still "
       "could"},
      {"sm90 128", "arrival count one less",
       "damage that 20 seeds do not show: one consumer's buffer of Q is given back too early only "
       "where the warp that stores O is the last of four to arrive",
       11},
      {"sm100 attention", "arrival count one less",
       "one arrival of 128 too few to wait for: the lanes of a warp have all read what it guards "
       "before the first of them arrives here, and the surplus, one a phase, needs 32 phases to "
       "stand for a warp",
       20},
      {"sm90 exchange", "arrival count one less",
       "one arrival of 64 too few to wait for: the lanes of a warp have all written before the "
       "first of them arrives here, and the surplus, one a phase, needs 32 phases to stand for a "
       "warp"},
      {"sm90 64", "arrival count one less",
       "damage that 20 seeds do not show: one consumer's buffer of Q is given back too early only "
       "where the warp that stores O is the last of four to arrive",
       9},
      {"sm100 attention", "parity of a wait always 0",
       "the last O of an odd number of KV tiles, which this launch has, has parity 0", 31},
      {"sm100 gemm", "parity of a wait always 0",
       "the remainder's only step has parity 0 in a product of this size", 5},
      {"sm100 pair", "parity of a wait always 0",
       "the remainder's only step has parity 0 in a product of this size", 5},
      {"rows", "retry loop removed", kSeldomLate, 4},
      {"sm90 128", "retry loop removed", kSeldomLate, 4},
      {"sm90 192", "retry loop removed", kSeldomLate, 4},
      {"rows", "wait on the next barrier",
       "the next stage's V implies this one's; at the last stage, behind which V's empty barriers "
       "lie, the turn came from a consumer that had waited for it",
       6},
  };
  for (const Known& known : list) {
    if (kernel_of(mutant.subject).starts_with(known.subjects) && mutant.kind == known.kind &&
        (known.occurrence < 0 || known.occurrence == mutant.occurrence)) {
      return known.reason;
    }
  }
  return {};
}

}  // namespace attnjit::emulator
