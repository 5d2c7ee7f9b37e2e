// SPDX-License-Identifier: Apache-2.0
// The race detector's book-keeping against a plain one, on random programs: histories that cells
// share and change in place must find what a list of accesses for each cell finds.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <random>
#include <string>
#include <vector>

#include "emulator/lanes/lane_mask.h"
#include "emulator/machine/warp.h"
#include "emulator/memory/races.h"

namespace attnjit::emulator {
namespace {

using Access = Histories::Access;
using Order = Histories::Order;

/// Each cell has its last write and a list of the reads since.
class PlainHistories {
 public:
  PlainHistories(std::size_t bytes, bool global) : cells_(bytes / 4), global_(global) {}

  /// All conflicts of an access.
  std::vector<Conflict> access(std::size_t offset, std::size_t bytes, bool write,
                               const Accessor& a) {
    std::vector<Conflict> found;
    for (std::size_t i = offset / 4; i * 4 < offset + bytes; ++i) {
      u8 mask = 0;
      for (u32 b = 0; b < 4; ++b) {
        if (i * 4 + b >= offset && i * 4 + b < offset + bytes)
          mask = static_cast<u8>(mask | 1u << b);
      }
      const Histories::Cell cell{i * 4, mask, global_};
      Past& past = cells_[i];
      if (races(past.write, true, cell, a) && !observed(past, cell, a))
        found.push_back(conflict(past.write, true, cell, a));
      for (const Access& r : past.reads) {
        if (write && races(r, false, cell, a)) found.push_back(conflict(r, false, cell, a));
      }
      const Access now{a.agent, a.epoch, a.site, a.proxy, a.atomic, mask, false, a.lanes};
      if (write) {
        past = {now, {}};
      } else {
        read(past, now, a);
      }
    }
    return found;
  }

  /// Whether these words were never written, and the same lane has read them.
  bool repeats(std::size_t offset, std::size_t bytes, const Accessor& a) const {
    return std::all_of(
        cells_.begin() + static_cast<std::ptrdiff_t>(offset / 4),
        cells_.begin() + static_cast<std::ptrdiff_t>((offset + bytes) / 4), [&](const Past& past) {
          return past.write.epoch == 0 &&
                 std::any_of(past.reads.begin(), past.reads.end(), [&](const Access& r) {
                   return r.agent == a.agent && r.epoch == a.epoch && !r.atomic && r.bytes == 0xF &&
                          r.lanes == a.lanes;
                 });
        });
  }

  void forget(std::size_t offset, std::size_t bytes) {
    for (std::size_t i = offset / 4; i * 4 < offset + bytes; ++i) cells_[i] = {};
  }

 private:
  struct Past {
    Access write;
    std::vector<Access> reads;
  };
  static bool races(const Access& e, bool was_write, const Histories::Cell& cell,
                    const Accessor& a) {
    if (e.epoch == 0 || (e.bytes & cell.bytes) == 0 || (e.atomic && a.atomic)) return false;
    if (e.agent == a.agent && e.epoch == a.epoch && e.site == a.site) return false;
    return Histories::order(e, was_write, cell, a) != Order::kOrdered;
  }
  static bool observed(const Past& past, const Histories::Cell& cell, const Accessor& a) {
    const auto bytes = static_cast<u8>(past.write.bytes & cell.bytes);
    return std::any_of(past.reads.begin(), past.reads.end(), [&](const Access& r) {
      return r.proxy == a.proxy && (r.bytes & bytes) == bytes && r.agent != a.agent &&
             Histories::order(r, false, cell, a) == Order::kOrdered;
    });
  }
  static Conflict conflict(const Access& e, bool was_write, const Histories::Cell& cell,
                           const Accessor& a) {
    const Order order = Histories::order(e, was_write, cell, a);
    return {order == Order::kNoProxyFence,
            order == Order::kNoTensorFence,
            e.agent == a.agent,
            was_write,
            e.agent,
            e.site,
            e.proxy};
  }
  /// Remembers a read in place of those that it implies.
  static void read(Past& past, const Access& now, const Accessor& a) {
    for (const Access& r : past.reads) {
      if (r.agent == now.agent && r.epoch == now.epoch && r.proxy == now.proxy &&
          r.atomic == now.atomic && (r.bytes & now.bytes) == now.bytes && r.lanes == now.lanes)
        return;
    }
    std::erase_if(past.reads, [&](const Access& r) {
      return r.bytes == now.bytes && (r.proxy == now.proxy || now.proxy == Proxy::kGeneric) &&
             ((r.agent == now.agent && r.lanes == now.lanes) ||
              at(a.view->generic, r.agent) >= r.epoch);
    });
    past.reads.push_back(now);
  }

  std::vector<Past> cells_;
  bool global_;
};

/// Warps, and asynchronous operations that they issue, access a little memory and signal each
/// other at random.
class RandomProgram {
 public:
  static constexpr u32 kWarps = 3;
  static constexpr std::size_t kBytes = 2 * 4096;

  RandomProgram(u32 seed, bool global) : random_(seed), plain_(kBytes, global), agents_(kWarps) {
    shadow_.resize(kBytes, global);
    for (u32 w = 0; w < kWarps; ++w) {
      warps_[w].agent = w;
      warps_[w].live = ~u32{0};
    }
  }

  /// Takes a step; returns how many conflicts it had.
  std::size_t step() {
    Warp& warp = warps_[below(kWarps)];
    switch (below(14)) {
      case 0:
        warp.release_into(published_, lanes());
        return 0;
      case 1:
        warp.clocks.view.acquire(published_);
        return 0;
      case 2:
        warp.synchronise_lanes(one_in(3) ? lanes() : ~u32{0});
        return 0;
      case 3:
        warp.fence_proxy(kAllSpaces, one_in(2) ? lanes() : ~u32{0});
        return 0;
      case 4:
        if (!one_in(3)) return 0;
        plain_.forget(kMiddle, 16);
        histories_.forget(shadow_, kMiddle, 16);
        return 0;
      case 5:
      case 6:  // all wait for each other
        for (Warp& w : warps_) w.release_into(published_, ~u32{0});
        for (Warp& w : warps_) w.clocks.view.acquire(published_);
        return 0;
      case 7:
        return asynchronous(warp);
      default:
        return of_warp(warp);
    }
  }

  std::size_t repeated_reads() const { return repeated_; }
  std::size_t histories_after_all_is_forgotten() {
    histories_.forget(shadow_, 0, kBytes);
    return histories_.size();
  }

 private:
  /// Accesses lie on both sides of the boundary of two pages.
  static constexpr std::size_t kMiddle = 4096;

  u32 below(u32 n) { return static_cast<u32>(random_() % n); }
  bool one_in(u32 n) { return below(n) == 0; }
  u32 lanes() {
    const std::array<u32, 3> choice = {u32{1} << below(4), ~u32{0},
                                       static_cast<u32>(random_()) | 1};
    return choice[below(3)];
  }
  std::size_t offset(std::size_t align) { return kMiddle - 16 + below(32) / align * align; }

  std::size_t of_warp(Warp& warp) {
    Op op;
    op.site = 1 + below(6);
    const bool write = one_in(4), atomic = one_in(6);
    const std::size_t width = one_in(4) ? std::size_t{1} << below(5) : 4;
    const std::size_t begin = offset(width);
    switch (below(3)) {
      case 0:  // one lane, or several of one word
        return access(begin, width, write, warp.accessor(op, {lanes()}, atomic));
      case 1:  // consecutive lanes
      {
        const u32 count = 2 + below(7), first = below(4);
        const AccessLanes of{((u32{1} << count) - 1) << first, static_cast<u32>(width), begin};
        return access(begin, width * count, write, warp.accessor(op, of, atomic));
      }
      default:  // one lane after the other
      {
        std::size_t found = 0;
        for (u32 lane = 0; lane < 4; ++lane)
          found += access(begin + lane * 4 + below(2) * 4, 4, write,
                          warp.accessor(op, {u32{1} << lane}, atomic));
        return found;
      }
    }
  }

  std::size_t asynchronous(Warp& warp) {
    View view;
    warp.publish(view, lanes());
    const auto lease = agents_.borrow(warp.clocks.view.generic, warp.clocks.tensor_known);
    agents_.give_back(lease);
    ++warp.clocks.epoch;
    const bool write = one_in(2);
    const Clock fenced = warp.clocks.view.async;
    Accessor a;
    a.agent = lease.agent;
    a.epoch = write ? lease.write_epoch : lease.read_epoch;
    a.site = 7 + below(3);
    a.proxy = one_in(4) ? Proxy::kTensor : Proxy::kAsync;
    a.view = &view;
    a.fenced = !write && one_in(4) ? &fenced : nullptr;
    a.issuer = warp.agent;
    const std::size_t begin = offset(4);
    const std::size_t found = access(begin, 4 + below(16) * 4, write, a);
    if (one_in(2)) published_.set(a.agent, a.epoch);
    return found;
  }

  std::size_t access(std::size_t offset, std::size_t bytes, bool write, const Accessor& a) {
    if (bytes % 4 == 0 && a.lanes.bytes_each == 0 && count_lanes(a.lanes.mask) == 1) {
      std::array<u64, kLanesOfAgent> offsets{};
      offsets[lowest_lane(a.lanes.mask)] = offset;
      const u32 repeated = histories_.repeated_reads(shadow_, offsets.data(), a.lanes.mask,
                                                     static_cast<u32>(bytes), a.agent, a.epoch);
      // Of several words it need not see it.
      const bool repeats = plain_.repeats(offset, bytes, a);
      EXPECT_TRUE(repeated != 0 ? repeats : !repeats || bytes > 4);
      repeated_ += repeated != 0 ? 1 : 0;
    }
    const std::vector<Conflict> expected = plain_.access(offset, bytes, write, a);
    Conflict got;
    const bool found = histories_.access(shadow_, offset, bytes, write, a, &got);
    EXPECT_EQ(found, !expected.empty());
    if (found) {
      EXPECT_TRUE(std::any_of(expected.begin(), expected.end(),
                              [&](const Conflict& c) {
                                return c.proxy_only == got.proxy_only &&
                                       c.fence_only == got.fence_only &&
                                       c.lanes_only == got.lanes_only &&
                                       c.earlier_is_write == got.earlier_is_write &&
                                       c.agent == got.agent && c.site == got.site &&
                                       c.proxy == got.proxy;
                              }))
          << "agent " << got.agent << ", site " << got.site;
    }
    return expected.size();
  }

  std::size_t repeated_ = 0;
  std::mt19937 random_;
  PlainHistories plain_;
  Histories histories_;
  AccessShadow shadow_;
  AsyncAgents agents_;
  std::array<Warp, kWarps> warps_;
  View published_;
};

TEST(Races, SharedHistoriesFindWhatPlainOnesFind) {
  std::size_t conflicts = 0, repeated = 0, steps = 0;
  for (u32 seed = 0; seed < 1000; ++seed) {
    RandomProgram program(seed, seed % 2 != 0);
    for (u32 i = 0; i < 300; ++i, ++steps) conflicts += program.step() != 0 ? 1 : 0;
    repeated += program.repeated_reads();
    EXPECT_EQ(program.histories_after_all_is_forgotten(), 0u);
    ASSERT_FALSE(testing::Test::HasFailure()) << "seed " << seed;
  }
  // Both happen often: a program in which all accesses race, or none, shows little.
  EXPECT_GT(conflicts, steps / 20);
  EXPECT_LT(conflicts, steps / 2);
  EXPECT_GT(repeated, steps / 1000);
}

}  // namespace
}  // namespace attnjit::emulator
