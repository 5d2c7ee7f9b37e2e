// SPDX-License-Identifier: Apache-2.0
// Cluster launch control: a running cluster steals the work of one that has not started.
//
// Source: PTX ISA 9.1, section 9.7.13.18. The 16-byte response is opaque on hardware; here it holds
// the taken cluster's first CTA and a word that says whether there was one.
#include <fmt/format.h>

#include <cstring>

#include "emulator/decode/decoding.h"
#include "emulator/decode/instruction_table.h"
#include "emulator/instructions/async_copies.h"
#include "emulator/instructions/executors.h"

namespace attnjit::emulator {
namespace {

constexpr u32 kTaken = 0x7C1C0001;
constexpr u32 kNothingLeft = 0x7C1C0000;

class TryCancel : public AsyncOp {
 public:
  std::vector<SharedAddress> responses, barriers;
  const char* unit() const override { return "launch control"; }
  bool step(Cluster& cluster) override {
    if (!asked_) {
      std::array<u32, 3> origin{};
      const bool taken = cluster.machine.take_cluster(&origin);
      answer_ = {origin[0], origin[1], origin[2], taken ? kTaken : kNothingLeft};
      asked_ = true;
      return false;
    }
    for (std::size_t i = 0; i < responses.size(); ++i) {
      Place place;
      if (cluster.resolve_async(*this, responses[i], 16, &place)) {
        cluster.record(*this, place, 16, true);
        std::memcpy(place.data, answer_.data(), 16);
        if (place.poison != nullptr) std::memset(place.poison, 0, 16);
      }
      cluster.mbarrier_complete(barriers[i], 16, all_done(), site, issuer);
    }
    return true;
  }

 private:
  bool asked_ = false;
  std::array<u32, 4> answer_{};
};

struct Request {
  bool multicast = false;
  bool response_wide = false, barrier_wide = false;  ///< addresses of 64 bits
};

// s = {response, mbarrier}
Step execute_try_cancel(Warp& warp, const Op& op, const Request& what, u32 mask) {
  Cluster& cluster = *warp.cluster;
  warp.require_defined(op.s[0], mask, op, "the response's address");
  warp.require_defined(op.s[1], mask, op, "the mbarrier's address");
  for (const u32 lane : lanes_of(mask)) {
    if (cluster.launch_control_failed) {
      cluster.report(FindingKind::kBarrier, &warp, static_cast<int>(lane), op.site,
                     "try_cancel after a response that said there is nothing left");
      continue;
    }
    auto request = std::make_unique<TryCancel>();
    SharedAddress response, barrier;
    if (!shared_operand(warp, op, lane, warp.value(op.s[0], lane, what.response_wide), false,
                        &response))
      continue;
    if (!shared_operand(warp, op, lane, warp.value(op.s[1], lane, what.barrier_wide), false,
                        &barrier))
      continue;
    if (response.offset() % 16 != 0) {
      cluster.report(FindingKind::kAlign, &warp, static_cast<int>(lane), op.site,
                     fmt::format("the response at 0x{:x} is not aligned to 16", response.offset()));
      continue;
    }
    if (what.multicast) {
      for (u32 rank = 0; rank < cluster.ctas.size(); ++rank) {
        request->responses.push_back(response.in(rank));
        request->barriers.push_back(barrier.in(rank));
      }
    } else {
      request->responses.push_back(response);
      request->barriers.push_back(barrier);
    }
    cluster.start(std::move(request), warp, op, u32{1} << lane);
  }
  return Step::kNext;
}

u32 word(const Warp& warp, Ref r, u32 lane, u32 i) {
  const auto* row = static_cast<const Row*>(warp.source(r));
  const u64 half = reinterpret_cast<const u64*>(row + (i / 2) * 2)[lane];
  return static_cast<u32>(half >> (32 * (i % 2)));
}

Step execute_is_canceled(Warp& warp, const Op& op, u32 mask) {
  u32 result = 0;
  for (const u32 lane : lanes_of(mask)) {
    const u32 flag = word(warp, op.s[0], lane, 3);
    if (flag == kTaken) {
      result |= u32{1} << lane;
    } else if (flag == kNothingLeft) {
      warp.cluster->launch_control_failed = true;
    } else if (warp.poison_of(op.s[0]) == 0) {
      warp.cluster->report(FindingKind::kBarrier, &warp, static_cast<int>(lane), op.site,
                           "the operand is not a response of try_cancel");
    }
  }
  warp.set_predicate(op.d, result, mask);
  if (warp.machine->checks)
    warp.set_poison(op.d, warp.poison_of(op.s[0]), mask, warp.site_of(op.s[0]));
  return Step::kNext;
}

/// Components of the taken cluster's first CTA, to the registers in Op::list.
struct FirstCta {
  u32 component = 0;  ///< of the first register
};

Step execute_first_ctaid(Warp& warp, const Op& op, const FirstCta& first, u32 mask) {
  const Ref* list = warp.machine->program.lists.data() + op.list;
  for (u32 i = 0; i < op.list_count; ++i) {
    if (list[i] == kNoRef) continue;
    u32 result[32] = {};
    u32 poison = warp.machine->checks ? warp.poison_of(op.s[0]) : 0;
    for (const u32 lane : lanes_of(mask)) {
      const u32 component = first.component + i;
      result[lane] = component < 3 ? word(warp, op.s[0], lane, component) : 0;
      // Of a response without a cluster the value is undefined.
      if (word(warp, op.s[0], lane, 3) != kTaken) poison |= u32{1} << lane;
    }
    warp.blend(list[i], result, 1, mask);
    if (warp.machine->checks) warp.set_poison(list[i], poison, mask, op.site);
  }
  return Step::kNext;
}

bool decode_launch_control(Decoding& d) {
  if (d.take("try_cancel")) {
    d.take("async");
    d.take("shared::cta");
    if (!d.take("mbarrier::complete_tx::bytes"))
      return d.invalid(".mbarrier::complete_tx::bytes is needed");
    const bool multicast = d.take("multicast::cluster::all");
    d.take("b128");
    if (!d.expect(2, 2) || !d.done()) return false;
    bool response_wide = false, barrier_wide = false;
    const Ref response = d.address_value(d.in.operands[0], &response_wide);
    const Ref barrier = d.address_value(d.in.operands[1], &barrier_wide);
    if (d.failed()) return false;
    Op& op = d.emit<execute_try_cancel>({multicast, response_wide, barrier_wide});
    op.s[0] = response;
    op.s[1] = barrier;
    // Which cluster is taken must depend on the seed alone.
    d.f.builder.program->communicates = true;
    d.f.builder.program->steals = true;
    return true;
  }
  if (!d.take("query_cancel")) return d.unsupported("this operation is not modelled");
  if (d.take("is_canceled")) {
    d.take("pred");
    d.take("b128");
    if (!d.expect(2, 2) || !d.done()) return false;
    Ref to = d.destination(0, 1);
    if (to == kNoRef) to = d.f.scratch_predicate();
    const Ref q = d.source(1, 128);
    if (d.failed()) return false;
    Op& op = d.emit<execute_is_canceled>();
    op.d = to;
    op.d_rows = 0;
    op.s[0] = q;
    return true;
  }
  const int component = d.take_any(
      {"get_first_ctaid::x", "get_first_ctaid::y", "get_first_ctaid::z", "get_first_ctaid"});
  if (component < 0) return d.unsupported("this query is not modelled");
  d.take("v4");
  d.take("b32");
  d.take("b128");
  if (!d.expect(2, 2) || !d.done()) return false;
  std::vector<Ref> refs;
  if (component == 3) {
    if (!d.is(0, Operand::Kind::kVector) || d.in.operands[0].parts.size() != 4)
      return d.invalid("four registers are needed");
    for (const Operand& part : d.in.operands[0].parts) refs.push_back(d.destination(part, 32));
  } else {
    refs.push_back(d.destination(0, 32));
  }
  const Ref q = d.source(1, 128);
  if (d.failed()) return false;
  const u32 list = d.list(refs);
  Op& op = d.emit<execute_first_ctaid>({component == 3 ? 0 : static_cast<u32>(component)});
  op.list = list;
  op.list_count = static_cast<u32>(refs.size());
  op.s[0] = q;
  return true;
}

}  // namespace

void add_launch_control(InstructionTable& t) {
  t.add({"clusterlaunchcontrol", "", "launch control",
         "try_cancel (multicast::cluster::all); query_cancel.is_canceled .get_first_ctaid{::x,y,z}",
         "9.7.13.18", decode_launch_control});
}

}  // namespace attnjit::emulator
