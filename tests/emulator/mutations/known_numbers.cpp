// SPDX-License-Identifier: Apache-2.0
// The table of places that are known by their number.
#include "known_numbers.h"

#include <fmt/format.h>

#include <algorithm>

namespace attnjit::emulator {

bool is_sm90_mla(std::string_view subject) {
  if (subject.starts_with("sm90 runs heads")) return false;
  for (const std::string_view name :
       {"sm90 mla", "sm90 runs", "sm90 topk", "sm90 dsv32", "sm90 ragged dsv32", "sm90 latent"}) {
    if (subject.starts_with(name)) return true;
  }
  return false;
}

namespace {

struct Known {
  std::string_view subjects, kind;
  std::vector<int> occurrences;
  std::string_view reason;
};
struct Tables {
  std::vector<Known> all;           ///< of every subject
  std::vector<Known> upcast;        ///< of those of which upcasts() is true
  std::vector<Known> upcast_whole;  ///< of those of which upcasts_whole() is
};

bool upcasts(std::string_view subject) {
  return subject == "sm90 dsv32" || subject == "sm90 ragged dsv32" || subject == "sm90 runs dsv32";
}
bool upcasts_whole(std::string_view subject) { return subject.starts_with("sm90 latent"); }

bool is_of(const Known& known, std::string_view subject, std::string_view kind) {
  return subject.starts_with(known.subjects) && kind == known.kind;
}

std::string_view reason_in(const std::vector<Known>& table, std::string_view subject,
                           std::string_view kind, int occurrence) {
  for (const Known& known : table) {
    if (!is_of(known, subject, kind)) continue;
    for (const int n : known.occurrences) {
      if (n == occurrence) return known.reason;
    }
  }
  return {};
}

constexpr std::string_view kTurns = "the consumers' turns: they decide the speed, not the data";

// clang-format off
const Tables& tables() {
  static constexpr std::string_view kAllocation =
      "around the allocation: the fences order asynchronous tcgen05 operations, and before it there is none";
  static constexpr std::string_view kFreed =
      "before the deallocation, which is not asynchronous: tcgen05.wait::ld has completed every load, and the barrier orders the rest";
  static constexpr std::string_view kSecondProduct =
      "between two products: the fence before the first covers O and P too";
  static constexpr std::string_view kInitByCopier =
      "the warp that initialises is the one whose copies arrive: they come behind the fence and a bar.warp.sync, and what other warps do with the barriers is the generic proxy's, which bar.sync orders";
  static constexpr std::string_view kSkipped =
      "K or V of a tile that is skipped: nothing here reads it, and its memory is free only when the consumer that does has waited";
  static constexpr std::string_view kFirstUser =
      "the warp that initialises the barriers is the first to arrive at them behind the fence: whoever uses them asynchronously has waited for that";
  static constexpr std::string_view kInitOrdered =
      "the inits are ordered twice: by fence.mbarrier_init, and by the cluster barrier's release";
  static constexpr std::string_view kRoundBefore =
      "the peer's numbers of the round before, which were waited for, came after it had read what is overwritten";
  static constexpr std::string_view kSeenWhole =
      "which rows see all of a tile: one that is not known to be seen whole is masked, which takes longer and comes to the same";
  static constexpr std::string_view kNextGroup =
      "P V of the tile before joins the group of the S behind it, which is waited for with none pending";
  static constexpr std::string_view kNoteTold =
      "the note was written before V of the tile before was published, or Q with the first, and both were waited for; K itself is waited for once more";
  static constexpr std::string_view kNoteWritten = "the stage was waited for when the tile's note was written";
  static constexpr std::string_view kOtherFenced =
      "the other warpgroup has waited and fenced before it made the P that it hands over by a barrier: on the path of causality (8.9.5)";
  static constexpr std::string_view kLanesCopies = "behind the lanes' copies: nothing of one lane is another's next";
  static constexpr std::string_view kFewParts = "no launch of this kernel has five parts: the lanes from there on have none (\"keys\" has more)";
  static constexpr std::string_view kTwoStages =
      "K has two stages: that of a tile was copied when the product of the tile two before was done, and S of it was waited for. What is done reads P no more";
  static constexpr std::string_view kLanded = "K has landed, since S is there: the wait passes at once, and orders";
  static constexpr std::string_view kPublished = "behind the publications, which one lane makes: nothing of it is another lane's next";
  static constexpr std::string_view kReadWithK =
      "K of the work tile's first keys was loaded before: there is one stage, which is given back by commits behind every product that read Q";
  static constexpr std::string_view kNextOfK =
      "the next block is given back later, and of the last one V's first, which is multiplied when all of S is made: the load waits longer, and is right";
  static constexpr std::string_view kNothingBefore =
      "before a tile's copies: nothing of one lane is another's next, and bytes that land before they are expected do not complete a phase whose arrival is pending";
  static constexpr std::string_view kCommits =
      "for commits of both CTAs, which hand on what the tensor cores have read, and nothing of a thread";
  static constexpr std::string_view kStaysBelowP = "above the wait for K, which is memory: it stays below the one for P";
  static constexpr std::string_view kStashed =
      "behind the read of a list that lane 0 stashes: it is stored again behind barriers that the copies of a tile have";
  static constexpr std::string_view kUpcastTogether =
      "the second of two blocks that are upcast together: each warp stores both, fences, and then says so of one and the other";
  static constexpr std::string_view kNextUpcast =
      "the same warps upcast the next block behind this one, or with it: who asks for it waits longer, and is right";
  static constexpr std::string_view kBehindV =
      "S of a tile is made before the product with V of the same tile, and of the tile before: the producer's warps wait for that V, too, before they copy what this hands back";
  static constexpr std::string_view kArrivesAgain =
      "the same warp arrives there once more behind a barrier of the warp, by an arrival that releases";
  static constexpr std::string_view kAskedTwice =
      "whether the next tile can be asked for already: the other half is asked about beside it, and both are waited for; the answer decides the speed, not the data";
  static const Tables made = {
    {
      {"sm90 mla rows", "fence.proxy.async of another state space", {4}, kOtherFenced},
      {"sm90 runs mla rows", "fence.proxy.async of another state space", {4}, kOtherFenced},
      {"sm90 topk", "fence.proxy.async of another state space", {4}, kOtherFenced},
      {"sm90 latent", "arrival made relaxed", {2}, kBehindV},
      {"sm90 latent", "wait removed", {12}, kBehindV},
      {"sm90 latent", "answer taken for yes", {3}, kAskedTwice},
      {"sm90 latent", "parity of a question flipped", {3}, kAskedTwice},
      {"sm90 latent e4m3 lists", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm_100a 512 pages", "wait removed", {4}, kReadWithK},
      {"sm_100a 512 pages", "wait on the next barrier", {3}, kNextOfK},
      {"sm_100a 512 pages", "arrival made relaxed", {4, 5}, kTensorMemory},
      {"sm_100a 512 pages", "wait made relaxed", {9}, kTensorMemory},
      {"sm_100a 512 pages", "barrier of a warp removed", {1, 5}, kNothingBefore},
      {"sm_100a 512 pages", "barrier of a warp removed", {3, 7}, kLanesCopies},
      {"sm_100a 512 cluster", "wait removed", {4}, kReadWithK},
      {"sm_100a 512 cluster", "wait made relaxed", {4}, kReadWithK},
      {"sm_100a 512 cluster", "wait on the next barrier", {3}, kNextOfK},
      {"sm_100a 512 cluster", "arrival made relaxed", {4, 5}, kTensorMemory},
      {"sm_100a 512 cluster", "wait made relaxed", {9}, kTensorMemory},
      {"sm_100a 512 cluster", "barrier of a warp removed", {1, 5}, kNothingBefore},
      {"sm_100a 512 cluster", "barrier of a warp removed", {3, 7}, kLanesCopies},
      {"sm_100a 512 cluster", "wait at CTA scope", {0, 1}, kCommits},
      {"sm_100a 512 rows", "wait removed", {3}, kReadWithK},
      {"sm_100a 512 rows", "arrival made relaxed", {3, 4}, kTensorMemory},
      {"sm_100a latent e4m3 dense", "arrival made relaxed", {5, 6}, kTensorMemory},
      {"sm_100a latent e4m3 dense", "arrival made relaxed", {2}, kUpcastTogether},
      {"sm_100a latent e4m3 dense", "wait removed", {4}, kBehindV},
      {"sm_100a latent e4m3 lists", "arrival made relaxed", {7, 8}, kTensorMemory},
      {"sm_100a latent e4m3 lists", "arrival made relaxed", {4}, kUpcastTogether},
      {"sm_100a latent e4m3 lists", "arrival made relaxed", {2}, kArrivesAgain},
      {"sm_100a latent e4m3 lists", "wait made relaxed", {12}, kTensorMemory},
      {"sm_100a latent e4m3 lists", "wait removed", {7}, kBehindV},
      {"sm_100a latent e4m3 lists", "wait removed", {11, 19}, kTwoStages},
      {"sm_100a latent e4m3 lists", "tcgen05.fence::after_thread_sync dropped", {2}, kTwoStages},
      {"sm_100a latent e4m3 lists", "tcgen05.fence::before_thread_sync dropped", {1}, kTwoStages},
      {"sm_100a latent e4m3 dense", "retry loop removed", {16}, kLanded},
      {"sm_100a dsv32 dense", "tcgen05.fence::after_thread_sync dropped", {2}, kTwoStages},
      {"sm_100a dsv32 dense", "wait removed", {17}, kTwoStages},
      {"sm_100a dsv32 dense", "retry loop removed", {23}, kLanded},
      {"sm_100a dsv32 dense", "arrival made relaxed", {2}, kUpcastTogether},
      {"sm_100a mla 192", "wait made relaxed", {13}, kTensorMemory},
      {"sm_100a mla 192", "retry loop removed", {14}, kLanded},
      {"sm90 latent e4m3 dense", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm90 ragged dsv32", "barrier of a warp removed", {2}, kStashed},
      {"parts", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"keys", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm90 runs heads", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"keys", "wgmma.fence below the product", {2}, kSecondProduct},
      {"keys", "barrier of a warp removed", {6}, kPublished},
      {"pages", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"parts", "step of a shuffle left out", {18, 20}, kFewParts},
      {"sm90 runs heads", "step of a shuffle left out", {18, 20}, kFewParts},
      {"sm90 runs heads", "wait removed", {1}, kSkipped},
      {"sm90 128", "wait removed", {1}, kSkipped},
      {"sm90 kv_dtype 64", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm90 kv_dtype 128 rows", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm90 e4m3 64", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm90 192", "wait removed", {1}, kSkipped},
      {"sm90 e4m3 64 rows", "wait removed", {1}, kSkipped},
      {"sm90 96", "wait removed", {9}, kSkipped},
      {"pages", "wait removed", {1}, kSkipped},
      {"rows", "wait removed", {1}, kSkipped},
      {"parts", "wait removed", {1}, kSkipped},
      {"sm90 listed 64", "wait removed", {6}, kNoteTold},
      {"sm90 listed 64", "first tile of a vote left out", {1}, kSeenWhole},
      {"sm90 listed 64", "wgmma.commit_group removed", {0}, kNextGroup},
      {"sm90 listed 64", "barrier of a warp removed", {5}, kPublished},
      {"sm90 listed rows", "first tile of a vote left out", {2}, kSeenWhole},
      {"sm90 listed rows", "wgmma.commit_group removed", {0}, kNextGroup},
      {"sm90 listed rows", "wait removed", {10, 13}, kNoteWritten},
      {"maps, sm90 64", "barrier of a warp removed", {5, 7}, kPublished},
      {"maps", "any of a warp: the lane's own", {1}, "whether a hidden score was found of a block whose bits are not kept: lanes that say it is seen in part, and lanes that say what they saw, come to the same"},
      {"maps, sm90 128", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm_100a mla 192", "barrier of a warp removed", {1}, "between one lane's expect_tx and the lanes' copies, of which each has waited for the stage itself"},
      {"sm_100a mla 192", "barrier of a warp removed", {3}, kLanesCopies},
      {"sm_100a dsv32 lists", "arrival made relaxed", {8, 9}, kTensorMemory},
      {"sm_100a dsv32 lists", "wait made relaxed", {23, 26}, kTensorMemory},
      {"sm_100a dsv32 lists", "wait removed", {18}, kTwoStages},
      {"sm_100a dsv32 lists", "tcgen05.fence::after_thread_sync dropped", {2}, kTwoStages},
      {"sm_100a dsv32 lists", "retry loop removed", {24}, kLanded},
      {"sm_100a dsv32 dense", "arrival made relaxed", {5, 6}, kTensorMemory},
      {"sm_100a dsv32 dense", "wait made relaxed", {22, 25}, kTensorMemory},
      {"sm_100a mla rows", "arrival made relaxed", {3, 4}, kTensorMemory},
      {"sm_100a runs mla rows", "arrival made relaxed", {3, 4}, kTensorMemory},
      {"sm_100a runs mla rows", "tcgen05.fence::after above the wait", {6}, kStaysBelowP},
      {"sm_100a mla 192", "arrival made relaxed", {5, 6}, kTensorMemory},
      {"sm_100a mla 192", "wait made relaxed", {8}, kTensorMemory},
      {"sm_100a topk", "arrival made relaxed", {5, 6}, kTensorMemory},
      {"sm_100a topk", "wait made relaxed", {9, 14}, kTensorMemory},
      {"sm_100a topk", "retry loop removed", {15}, kLanded},
      {"sm_100a topk", "tcgen05.fence::after above the wait", {6}, kStaysBelowP},
      {"sm_100a mla rows", "tcgen05.fence::after above the wait", {6}, kStaysBelowP},
      {"ragged", "fence.mbarrier_init below the barrier", {0}, kInitByCopier},
      {"sm100 attention", "arrival made relaxed", {0, 2, 5}, kTensorMemory},
      {"sm100 attention", "wait made relaxed", {20}, kTensorMemory},
      {"sm100 attention", "wait removed", {16}, "the first S: its memory is free from the beginning, and the wait for the phase before the first passes"},
      {"sm100 attention", "tcgen05.fence::after above the wait", {1, 5}, "above a wait that is not needed, and below the one that is"},
      {"sm100 attention", "tcgen05.fence::after above the wait", {2}, "S is overwritten after P of the same tile was waited for: the fence behind that wait covers the load of S"},
      {"sm100 attention", "parity of a wait always 0", {15}, "of the first K: its parity is 0"},
      {"sm100 attention", "parity of a wait always 1", {0}, "the commit that frees V's stage covers the product that read K's"},
      {"sm100 attention", "fence.mbarrier_init below the barrier", {0}, kFirstUser},
      {"sm100 gemm", "parity of a wait always 0", {11}, "the accumulator is waited for once: its parity is 0"},
      {"sm100 pair", "parity of a wait always 0", {11}, "the accumulator is waited for once: its parity is 0"},
      {"sm100 gemm", "fence.mbarrier_init below the barrier", {0}, kFirstUser},
      {"sm100 pair", "fence.mbarrier_init below the barrier", {0}, kFirstUser},
      {"sm100 pair", "cluster barrier's arrival made relaxed", {0}, "the barriers' inits are all that it hands on, which fence.mbarrier_init released (9.7.13.4)"},
      {"sm100 pair", "cluster barrier's arrival made relaxed", {1, 2}, "it hands on no data: the peer's tensor memory is there, and is no longer in use; bar.sync covers the CTA"},
      {"pages", "barrier of a warp removed", {2}, kPublished},
      {"rows", "barrier of a warp removed", {0}, kPublished},
      {"ragged", "barrier of a warp removed", {5}, kPublished},
      {"ragged", "wgmma.fence below the product", {2}, kSecondProduct},
      {"sm90 64", "wgmma.fence dropped", {2}, kSecondProduct},
      {"sm90 96", "wgmma.fence below the product", {2}, kSecondProduct},
      {"sm90 64", "barrier.sync removed", {0}, kTurns},
      {"keys", "step of a shuffle left out", {22, 26, 31, 35}, "the CTAs' shares of long and short tiles: they decide the speed, not the data"},
      {"sm100", "tcgen05.fence::after_thread_sync dropped", {0}, kAllocation},
      {"sm100", "tcgen05.fence::before_thread_sync dropped", {0}, kAllocation},
      {"sm100 gemm", "tcgen05.fence::after_thread_sync dropped", {5}, kFreed},
      {"sm100 pair", "tcgen05.fence::after_thread_sync dropped", {5}, kFreed},
      {"sm100 attention", "tcgen05.fence::after_thread_sync dropped", {8}, kFreed},
      {"sm100 gemm", "tcgen05.fence::before_thread_sync dropped", {1}, kFreed},
      {"sm100 pair", "tcgen05.fence::before_thread_sync dropped", {1}, kFreed},
      {"sm100 attention", "tcgen05.fence::before_thread_sync dropped", {4}, kFreed},
      {"sm100 attention", "wait removed", {24}, "the commit that gives S covers the product that read P"},
      {"sm100 attention", "wait removed", {6, 8}, "the commit that frees V's stage covers the product that read K's"},
      {"sm90 exchange", "fence.mbarrier_init dropped", {0}, kInitOrdered},
      {"sm90 exchange", "fence.mbarrier_init below the barrier", {0}, kInitOrdered},
      {"sm90 exchange", "cluster barrier's arrival made relaxed", {0}, kInitOrdered},
      {"sm90 exchange", "wait removed", {0}, kRoundBefore},
      {"sm90 exchange", "arrival made relaxed", {1}, kRoundBefore},
      {"sm90 exchange", "arrival count one less", {3}, kRoundBefore},
      {"sm100 attention", "wait removed", {0, 2}, "the commit that frees V's stage covers the product that read K's"},
      {"sm100 attention", "wait on the next barrier", {0}, "K's other stage: the load waits longer, and the wait for V implies the right one"},
      {"sm100 attention", "tcgen05.fence::before_thread_sync dropped", {1}, "S is overwritten after P of the same tile was waited for: the fence before that arrival covers the load of S"},
      {"sm100 pair", "bar.sync removed", {0, 1}, "the cluster's barrier beside it covers the CTA"},
      {"sm100 pair", "cluster barrier removed", {2}, "every product of the pair was committed and seen before"},
    },
    // NOTE: not of pairs of CTAs, where the other one's blocks come by copies that may end in any order.
    {
      {"", "wait removed", {7, 11, 15, 19}, kUpcastTogether},
      {"", "answer taken for yes", {2, 4, 6, 8}, kUpcastTogether},
      {"", "question of the next barrier", {3, 6}, kNextUpcast},
      {"", "wait on the next barrier", {17}, kNextUpcast},
    },
    {
      {"", "wait removed", {5}, kUpcastTogether},
      {"", "answer taken for yes", {1}, kUpcastTogether},
      {"", "parity of a question flipped", {1}, kUpcastTogether},
      {"", "question of the next barrier", {1}, kUpcastTogether},
    },
  };
  return made;
}
// clang-format on

}  // namespace

std::string_view no_damage_by_number(std::string_view subject, std::string_view kind,
                                     int occurrence) {
  const std::string_view reason = reason_in(tables().all, subject, kind, occurrence);
  if (!reason.empty()) return reason;
  if (is_sm90_mla(subject) && kind == "barrier.sync removed" && occurrence == 0) return kTurns;
  if (upcasts_whole(subject)) return reason_in(tables().upcast_whole, subject, kind, occurrence);
  if (upcasts(subject)) return reason_in(tables().upcast, subject, kind, occurrence);
  return {};
}

std::vector<std::string> numbers_without_place(const std::vector<NumberedPlace>& places) {
  std::vector<std::string> found;
  const auto look_for = [&](const std::vector<Known>& table, const auto& is_subject) {
    for (const Known& known : table) {
      for (const int n : known.occurrences) {
        if (std::none_of(places.begin(), places.end(), [&](const NumberedPlace& place) {
              return place.occurrence == n && is_subject(place.subject) &&
                     is_of(known, place.subject, place.kind);
            })) {
          found.push_back(fmt::format("{}: {} #{}", known.subjects, known.kind, n));
        }
      }
    }
  };
  look_for(tables().all, [](std::string_view) { return true; });
  look_for(tables().upcast, upcasts);
  look_for(tables().upcast_whole, upcasts_whole);
  return found;
}

}  // namespace attnjit::emulator
