// SPDX-License-Identifier: Apache-2.0
// What is known of single places: why a change there is no damage, and why a survivor survives.
#include "generated_subjects.h"
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

std::string_view no_damage_by_context(std::string_view kind, const Context& context) {
  const std::string_view before = last_lines(context.before, 1);
  const std::string_view after = first_lines(context.after, 1);
  constexpr std::string_view kAllocation =
      "around the allocation: the fences order asynchronous tcgen05 operations, and before it "
      "there is none";
  constexpr std::string_view kFreed =
      "before the deallocation, which is not asynchronous: tcgen05.wait::ld has completed every "
      "load, and the barrier orders the rest";
  if (kind == "tcgen05.fence::after_thread_sync dropped") {
    if (has(before, "bar.sync")) return kAllocation;
    if (has(after, "tcgen05.dealloc")) return kFreed;
  }
  if (kind == "tcgen05.fence::before_thread_sync dropped") {
    // The same places from the other side.
    if (has(before, "tcgen05.relinquish")) return kAllocation;
    if (has(after, "bra.uni") || (has(after, "mov.b32") && has(context.after, "barrier.arrive"))) {
      return kFreed;
    }
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

// clang-format off
std::string_view no_damage_by_number(std::string_view subject, std::string_view kind, int occurrence) {
  struct Known {
    std::string_view subjects, kind;
    std::vector<int> occurrences;
    std::string_view reason;
  };
  static constexpr std::string_view kFirstProduct = "the first P V of a work tile: O is 0";
  static constexpr std::string_view kLastAnnouncement =
      "the end is announced where the work tile before the last was: the wait for Q of the last one implies that it was read";
  static constexpr std::string_view kAllocation =
      "around the allocation: the fences order asynchronous tcgen05 operations, and before it there is none";
  static constexpr std::string_view kFreed =
      "before the deallocation, which is not asynchronous: tcgen05.wait::ld has completed every load, and the barrier orders the rest";
  static const std::vector<Known> list = {
      {"sm90 64", "wgmma.fence dropped", {2}, "between two products: the fence before the first covers O and P too"},
      {"sm90 64", "barrier.sync removed", {0}, "the consumers' turns: they decide the speed, not the data"},
      {"sm90 128", "scale-d flipped", {0}, kFirstProduct},
      {"sm90 192", "scale-d flipped", {0}, kFirstProduct},
      {"sm90", "elect removed: every lane goes on", {0}, "a wait for bulk groups: the other lanes have none"},
      {"sm100", "tcgen05.fence::after_thread_sync dropped", {0}, kAllocation},
      {"sm100", "tcgen05.fence::before_thread_sync dropped", {0}, kAllocation},
      {"sm100 gemm", "tcgen05.fence::after_thread_sync dropped", {5}, kFreed},
      {"sm100 pair", "tcgen05.fence::after_thread_sync dropped", {5}, kFreed},
      {"sm100 attention", "tcgen05.fence::after_thread_sync dropped", {8}, kFreed},
      {"sm100 gemm", "tcgen05.fence::before_thread_sync dropped", {1}, kFreed},
      {"sm100 pair", "tcgen05.fence::before_thread_sync dropped", {1}, kFreed},
      {"sm100 attention", "tcgen05.fence::before_thread_sync dropped", {4}, kFreed},
      {"sm100 attention", "wait removed", {20}, "the commit that gives S covers the product that read P"},
      {"sm100 attention", "wait removed", {6, 8}, "the commit that frees V's stage covers the product that read K's"},
      {"sm90 64", "wait removed", {14, 15, 16}, kLastAnnouncement},
      {"sm90", "wait removed", {1}, "K of a tile that is skipped: nothing here reads it, and its memory is free only when the consumer that does has waited"},
      {"sm100 attention", "wait removed", {0, 2}, "the commit that frees V's stage covers the product that read K's"},
      {"sm100 attention", "wait on the next barrier", {0}, "K's other stage: the load waits longer, and the wait for V implies the right one"},
      {"sm100 attention", "wait on the next barrier", {12}, "the other S is given back later: the product waits longer, and is right"},
      {"sm100 attention", "tcgen05.fence::before_thread_sync dropped", {1}, "S is overwritten after P of the same tile was waited for: the fence before that arrival covers the load of S"},
      {"sm100 gemm", "tcgen05.commit removed", {2}, "the loop's remainder, the last step: nobody waits for its stage any more"},
      {"sm100 pair", "tcgen05.commit removed", {2}, "the loop's remainder, the last step: nobody waits for its stage any more"},
      {"sm100 pair", "bar.sync removed", {0, 1}, "the cluster's barrier beside it covers the CTA"},
      {"sm100 pair", "cluster barrier removed", {2}, "every product of the pair was committed and seen before"},
  };
  for (const Known& known : list) {
    if (!subject.starts_with(known.subjects) || kind != known.kind) continue;
    for (const int n : known.occurrences) {
      if (n == occurrence) return known.reason;
    }
  }
  return {};
}
// clang-format on

}  // namespace

std::string_view no_damage(std::string_view subject, std::string_view kind, int occurrence,
                           const Context& context) {
  if (subject.starts_with(kTemplatePrefix)) return no_damage_by_context(kind, context);
  return no_damage_by_number(subject, kind, occurrence);
}

std::string_view reason_of(const Mutant& mutant) {
  if (mutant.subject.starts_with(kTemplatePrefix)) return template_reason_of(mutant);
  struct Known {
    std::string_view subjects, kind, reason;
    int occurrence = -1;  // any
  };
  static const std::vector<Known> list = {
      {"sm90 128", "wait on the next barrier",
       "the next stage is given back later, so that the load only waits longer; the last stage, "
       "behind which V's barrier lies, was not seen to differ in these shapes",
       8},
      {"sm90 128", "arrival count one less",
       "damage that 20 seeds do not show: one consumer's buffer of Q is given back too early only "
       "where the warp that stores O is the last of four to arrive",
       11},
      {"sm100 attention", "arrival count one less",
       "one arrival of 128 too few to wait for: the lanes of a warp have all read what it guards "
       "before the first of them arrives here, and the surplus, one a phase, needs 32 phases to "
       "stand for a warp",
       20},
      // Not explained yet: whether the emulator lets them or the kernel does not need them.
      {"sm100 attention", "tcgen05.fence::after above the wait", "not explained yet", 5},
      {"sm90 64", "bulk wait_group below the barrier", "not explained yet", 1},
      {"sm90 64", "arrival count one less", "not explained yet", 9},
      {"sm90 96", "barrier of a warp removed", "not explained yet", 1},
  };
  for (const Known& known : list) {
    if (mutant.subject.starts_with(known.subjects) && mutant.kind == known.kind &&
        (known.occurrence < 0 || known.occurrence == mutant.occurrence)) {
      return known.reason;
    }
  }
  return {};
}

}  // namespace attnjit::emulator
