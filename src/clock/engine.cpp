// SPDX-License-Identifier: Apache-2.0
// Runs SMs' clusters event by event.
#include "clock/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <queue>
#include <utility>

#include "clock/engine_state.h"
#include "emulator/lanes/fp_control.h"

namespace attnjit::clock {
namespace {

using emulator::Group;
using emulator::UnitWork;
using emulator::Wait;

constexpr double kNever = 1e300;

class Engine {
 public:
  Engine(Machine& machine, const Parameters& p, const OtherSms& around, Segments& segments,
         u64 first, u64 stride, u64& stolen, const EngineOptions& options)
      : machine_(machine),
        p_(p),
        around_(around),
        options_(options),
        next_(first),
        stride_(stride),
        stolen_(stolen),
        segments_(segments) {
    const auto& shape = machine.cluster_shape;
    ctas_ = shape[0] * shape[1] * shape[2];
    sms_.resize(ctas_);
    // Bytes a cycle and SM: few SMs have memory to themselves.
    const double share = 1000 / around.clock_mhz / std::max(1.0, around.active_sms);
    hbm_bytes_ = std::min(p.tma_bytes, p.hbm_gb_per_s * share);
    l2_bytes_ = std::min(p.tma_bytes, p.l2_gb_per_s * share);
  }

  /// Up to the SM's next tile taken, or to its end.
  Status run() {
    if (!machine_.program.steals || times_.warps.empty()) {
      machine_.deal_clusters(next_, stride_);
      Status status = go_on();
      next_ = machine_.next_cluster();
      return status;
    }
    // Who asks first steals first, and this SM for its part of all. As of counters it runs the
    // first of what the part takes.
    machine_.deal_clusters(stolen_, machine_.takers);
    Status status = go_on();
    times_.clusters_stolen += (machine_.next_cluster() - stolen_) / machine_.takers;
    stolen_ = machine_.next_cluster();
    return status;
  }
  bool ended() const { return ended_; }
  /// When the SM that has not ended takes a tile.
  double takes_at() const { return takes_at_; }
  SmTimes times() { return std::move(times_); }

 private:
  Status go_on() {
    if (times_.warps.empty()) begin();
    for (;;) {
      WarpClock* warp = nullptr;
      double time = kNever;
      choose(&warp, &time);
      if (!events_.empty() && events_.top().time <= time) {
        Event event = events_.top();
        events_.pop();
        now_ = std::max(now_, event.time);
        handle(event);
        continue;
      }
      if (warp == nullptr) {
        if (active_ == 0) {
          finish();
          return {};
        }
        if (unstick()) continue;
        return make_error(ErrorCode::kUnsupported,
                          "the kernel waits for what the clock does not run: other CTAs, or a "
                          "barrier that never completes",
                          "timing");
      }
      if (warp->segment->nodes[warp->queue[warp->at]].cost.takes_tile && takes_at_ < time) {
        takes_at_ = time;
        return {};
      }
      now_ = std::max(now_, time);
      issue(*warp, time);
      if (times_.instructions > options_.most_instructions) {
        return make_error(ErrorCode::kUnsupported,
                          fmt::format("the CTAs of an SM execute more than {} instructions",
                                      options_.most_instructions),
                          "timing");
      }
      if (const auto* const failure = machine_.failure()) {
        return make_error(
            ErrorCode::kInvalid,
            "the kernel has a finding: run it without --timing first: " + failure->text, "timing");
      }
    }
  }

  void begin() {
    times_.warps.resize(machine_.warps_per_cta);
    for (unsigned slot = 0; slot < around_.ctas_per_sm; ++slot) {
      if (!start(slot, 0)) break;
    }
  }

  // ---------------------------------------------------------------------------- clusters

  bool start(unsigned slot, double time) {
    if (started_ >= options_.most_clusters) return false;
    std::array<u32, 3> origin{};
    const u64 index = machine_.next_cluster();
    if (!machine_.take_cluster(&origin)) return false;
    ++started_;
    auto resident = std::make_unique<Resident>();
    resident->number = started_;
    resident->cluster = std::make_unique<Cluster>(machine_, origin, 0);
    resident->stepper = std::make_unique<Stepper>(*resident->cluster);
    resident->index = index;
    resident->given = time;
    resident->begin = time + p_.cta_start;
    resident->slot = slot;
    for (auto& cta : resident->cluster->ctas) {
      for (Warp& warp : cta->warps) {
        WarpClock w;
        w.warp = &warp;
        w.resident = resident.get();
        w.sm = cta->rank;
        w.partition = warp.index % kPartitions;
        w.begin = w.last = w.earliest = resident->begin;
        resident->warps.push_back(std::move(w));
      }
    }
    for (WarpClock& w : resident->warps) fetch(w, resident->begin);
    residents_.push_back(std::move(resident));
    ++active_;
    collect();
    return true;
  }

  void end(Resident& resident) {
    resident.done = true;
    --active_;
    ++times_.clusters;
    times_.cluster_times.push_back({resident.index, resident.given, now_});
    for (WarpClock& w : resident.warps) {
      w.times.lived = w.last - w.begin;
      times_.warps[w.warp->index] += w.times;
    }
    for (Sm& sm : sms_) {
      for (auto it = sm.products.begin(); it != sm.products.end();)
        it = it->first.first == resident.number ? sm.products.erase(it) : std::next(it);
    }
    const unsigned slot = resident.slot;
    resident.warps.clear();
    resident.stepper.reset();
    resident.cluster.reset();
    collect();
    start(slot, now_);
  }

  /// The warps of all residents, as they are looked at.
  void collect() {
    warps_.clear();
    for (auto& r : residents_) {
      if (r->done) continue;
      for (WarpClock& w : r->warps) warps_.push_back(&w);
    }
  }

  // ---------------------------------------------------------------------------- issue

  /// When the warp's next instruction can issue.
  double issue_time(const WarpClock& w) const {
    const Node& node = w.segment->nodes[w.queue[w.at]];
    double time = std::max(w.earliest, w.operands);
    if (node.cost.slots == 0) return time;
    const Sm& sm = sms_[w.sm];
    time = std::max(time, sm.port_free[w.partition]);
    if (node.cost.keeps != 0) time = std::max(time, product_place(sm, w));
    return std::max(time, pipe_free(sm, w, node));
  }
  /// When the warp's next product has a place among those that wait for the tensor cores; never,
  /// while too many do.
  double product_place(const Sm& sm, const WarpClock& w) const {
    if (p_.product_queue == 0) return 0;
    const auto it = sm.products.find({w.resident->number, w.warp->index / 4});
    if (it == sm.products.end() || it->second.issued_by.empty()) return 0;
    const ProductQueue& queue = it->second;
    const u64 waiting = queue.issued_by[w.warp->index % 4] - queue.begun;
    if (static_cast<double>(waiting) >= p_.product_queue) return kNever;
    return queue.last_begin;
  }
  double pipe_free(const Sm& sm, const WarpClock& w, const Node& node) const {
    if (node.cost.pipe == Pipe::kLsu) return sm.lsu_free;
    return sm.pipe_free[w.partition][static_cast<std::size_t>(node.cost.pipe)];
  }

  /// Of warps that can issue at once, the older one does, or the one that issued longest ago.
  bool goes_first(const WarpClock& a, const WarpClock& b) const {
    if (p_.issue_turns != 0 && a.last != b.last) return a.last < b.last;
    return std::pair(a.resident->number, a.warp->index) <
           std::pair(b.resident->number, b.warp->index);
  }

  void choose(WarpClock** best, double* best_time) const {
    for (WarpClock* w : warps_) {
      if (w->state != WarpClock::State::kIssues) continue;
      const double time = issue_time(*w);
      if (time >= kNever) continue;
      const bool as_early = *best != nullptr && time == *best_time;
      if (time < *best_time || (as_early && goes_first(*w, **best))) {
        *best = w;
        *best_time = time;
      }
    }
  }

  void issue(WarpClock& w, double time) {
    const Node& node = w.segment->nodes[w.queue[w.at]];
    const Cost& cost = node.cost;
    ++times_.instructions;
    account(w, node, time);
    Sm& sm = sms_[w.sm];
    double end = time;
    if (cost.slots != 0) {
      end = time + cost.slots;
      sm.port_free[w.partition] = end;
      sm.port_used[w.partition] += cost.slots;
      double busy = cost.cycles * cost.slots;
      const auto pipe = static_cast<std::size_t>(cost.pipe);
      if (sm.running && cost.pipe == Pipe::kXu) busy *= 1 + p_.product_slows_xu;
      if (sm.running && cost.pipe == Pipe::kAlu) busy *= 1 + p_.product_slows_alu;
      if (cost.pipe == Pipe::kLsu) {
        sm.lsu_free = time + busy;
      } else {
        sm.pipe_free[w.partition][pipe] = time + busy;
      }
      times_.pipe_busy[pipe] += busy;
      times_.issue_slots[w.partition] += cost.slots;
      w.times.issued += cost.slots;
      w.last = end;
      w.earliest = std::max(end, time + cost.keeps);
      w.earliest_cause = Cause::kSlot;
    }
    if (cost.timed) {
      execute_timed(w, node, end);
      return;
    }
    double latency = cost.pipe == Pipe::kLsu ? cost.latency + cost.cycles : cost.latency;
    if (cost.pipe == Pipe::kXu && sm.running) latency += p_.product_delays_xu;
    if (!w.traffic.empty()) latency += move(sm, w.traffic[w.queue[w.at]], time);
    // A zero-cost copy hands on its source's time.
    const double ready = cost.slots == 0 ? std::max(time, w.operands) : time + latency;
    for (const Ref r : node.writes)
      w.ready(r) = {ready, cost.slots == 0 ? w.operand_cause == Cause::kLoad : cost.loads};
    if (cost.pipe == Pipe::kBranch) {
      w.earliest = time + cost.latency;
      w.earliest_cause = Cause::kBranch;
    }
    ++w.at;
    advance(w, end);
  }

  /// What a warp loads or stores takes its share of L2; returns for how long.
  ///
  /// NOTE: it goes ahead of copies: a copy engine asks for a box bit by bit.
  double move(Sm& sm, const Machine::Traffic& traffic, double time) {
    if (traffic.sectors == 0) return 0;
    const double bytes = 32.0 * traffic.sectors;
    const bool own = machine_.buffers[traffic.buffer - 1].workspace;
    const double missed = traffic.store || own ? 0 : bytes * (1 - around_.hit_fraction);
    const double busy = std::max(bytes / l2_bytes_, missed / hbm_bytes_);
    const double written = traffic.store && !own ? bytes / hbm_bytes_ : 0;
    sm.thread_free = std::max(sm.thread_free, time) + busy;
    sm.copy_free = std::max(sm.copy_free, time) + std::max(busy, written);
    times_.copy_busy += std::max(busy, written);
    if (traffic.store) {
      stored_ = std::max(stored_, sm.thread_free + p_.store_latency);
    } else if (!own) {
      times_.loaded_bytes += bytes;
      times_.loaded_by_buffer[traffic.buffer] += bytes;
    }
    return sm.thread_free - time;
  }

  /// The time since the warp's last instruction, by what kept it.
  void account(WarpClock& w, const Node& node, double time) {
    if (node.cost.slots == 0 || time <= w.last) return;
    const double stall = time - w.last;
    Cause cause = Cause::kSlot;
    const Sm& sm = sms_[w.sm];
    if (time <= w.operands) {
      cause = w.operand_cause;
    } else if (time <= w.earliest) {
      cause = w.earliest_cause;
    } else if (node.cost.keeps != 0 && time <= product_place(sm, w)) {
      cause = Cause::kProduct;
    } else if (time <= pipe_free(sm, w, node)) {
      cause = Cause::kPipe;
      w.times.pipe_stalls[static_cast<std::size_t>(node.cost.pipe)] += stall;
    }
    w.times.stalls[static_cast<std::size_t>(cause)] += stall;
  }

  /// The next instruction of the warp: of this segment, or of the next one.
  void advance(WarpClock& w, double time) {
    if (w.at < w.queue.size()) {
      look_up(w);
      return;
    }
    fetch(w, time);
  }

  void look_up(WarpClock& w) {
    const Node& node = w.segment->nodes[w.queue[w.at]];
    w.operands = 0;
    w.operand_cause = Cause::kOperand;
    for (const Ref r : node.reads) {
      const auto& ready = w.ready(r);
      if (ready.time > w.operands) {
        w.operands = ready.time;
        w.operand_cause = ready.load ? Cause::kLoad : Cause::kOperand;
      }
    }
  }

  /// The next segment of a warp that has none: executes it, unless others see its effect.
  void fetch(WarpClock& w, double time) {
    Resident& resident = *w.resident;
    Stepper& stepper = *resident.stepper;
    for (;;) {
      if (w.warp->live == 0) {
        w.state = WarpClock::State::kExited;
        w.last = std::max(w.last, time);
        after_exit(resident);
        return;
      }
      Group* group = stepper.ready_group(*w.warp);
      if (group == nullptr) {
        block(w, Cause::kOther, 0, 0);
        return;
      }
      w.row_base = group->row_base;
      w.predicate_base = group->predicate_base;
      if (w.held != nullptr && group->pc != w.held_until) {
        w.segment = std::exchange(w.held, nullptr);
        w.queue.swap(w.held_queue);
        w.at = 0;
        w.state = WarpClock::State::kIssues;
        look_up(w);
        return;
      }
      const auto& function = *group->function;
      const Segment& segment = segments_.at(function, group->pc);
      w.segment = &segment;
      w.at = 0;
      w.state = WarpClock::State::kIssues;
      if (segment.timed) {
        w.traffic.clear();
        if (segment.later != nullptr && w.wait != &segment) {
          w.wait = &segment;
          w.later = w.segment = segment.later;
          w.queue = segment.ahead;
        } else {
          w.queue.assign(1, 0);
        }
        look_up(w);
        return;
      }
      u32 executed = segment.begin;
      std::size_t node = 0;
      w.traffic.clear();
      while (executed < segment.end) {
        machine_.traffic = {};
        const Stepper::Outcome outcome = stepper.execute(*w.warp, *group);
        while (segment.nodes[node].last < executed) ++node;
        if (machine_.traffic.sectors != 0) {
          w.traffic.resize(segment.nodes.size());
          w.traffic[node] = machine_.traffic;
        }
        if (outcome == Stepper::Outcome::kParked || outcome == Stepper::Outcome::kWaits) break;
        ++executed;
        if (outcome != Stepper::Outcome::kNext) break;
      }
      w.queue.clear();
      for (const u32 i : segment.order) {
        if (segment.nodes[i].last < executed) w.queue.push_back(i);
      }
      if (w.later == &segment) {
        for (const u32 i : w.wait->ahead) std::erase(w.queue, i);
        w.wait = w.later = nullptr;
      }
      if (w.queue.empty()) continue;
      if (segment.after_wait && executed == segment.end) {
        w.held = &segment;
        w.held_queue.swap(w.queue);
        w.held_until = segment.end;
        continue;
      }
      look_up(w);
      return;
    }
  }

  void block(WarpClock& w, Cause cause, u32 barrier, u32 site) {
    w.state = WarpClock::State::kWaits;
    w.wait_cause = cause;
    w.wait_barrier = barrier;
    w.wait_site = site;
  }

  // ---------------------------------------------------------------------------- what others see

  void execute_timed(WarpClock& w, const Node& node, double time) {
    Resident& resident = *w.resident;
    Cluster& cluster = *resident.cluster;
    Stepper& stepper = *resident.stepper;
    Group* group = nullptr;
    for (Group& g : w.warp->groups) {
      if (g.mask != 0 && g.state == Group::State::kReady && g.pc >= node.first && g.pc <= node.last)
        group = &g;
    }
    if (group == nullptr) {
      fetch(w, time);
      return;
    }
    const std::size_t pending = cluster.pending.size();
    machine_.cycles = static_cast<u64>(time);
    Stepper::Outcome outcome = Stepper::Outcome::kNext;
    while (outcome == Stepper::Outcome::kNext && group->pc <= node.last) {
      const u32 pc = group->pc;
      outcome = stepper.execute(*w.warp, *group);
      if (outcome != Stepper::Outcome::kNext || pc == node.last) break;
    }
    for (std::size_t i = pending; i < cluster.pending.size(); ++i)
      begin_unit(w, *cluster.pending[i], time + node.cost.latency);
    if (outcome == Stepper::Outcome::kWaits && group->state == Group::State::kBlocked) {
      const Wait& wait = group->wait;
      block(w, cause_of(wait.kind), wait.address, node.site);
      settle(time);
      return;
    }
    const double ready = time + node.cost.latency;
    for (const Ref r : node.writes) w.ready(r) = {ready, true};
    if (blocks_the_warp(node)) {
      w.earliest = std::max(w.earliest, ready);
      w.earliest_cause = Cause::kOther;
    }
    settle(time);
    if (w.state == WarpClock::State::kIssues) fetch(w, time);
  }

  /// A fence is over before the next instruction begins.
  static bool blocks_the_warp(const Node& node) {
    return node.writes.empty() && node.cost.latency > 0;
  }

  static Cause cause_of(Wait::Kind kind) {
    switch (kind) {
      case Wait::Kind::kMbarrier:
        return Cause::kMbarrier;
      case Wait::Kind::kNamedBarrier:
      case Wait::Kind::kClusterBarrier:
        return Cause::kNamedBarrier;
      case Wait::Kind::kWgmma:
      case Wait::Kind::kTmemLoad:
      case Wait::Kind::kTmemStore:
        return Cause::kProduct;
      case Wait::Kind::kAsyncGroup:
      case Wait::Kind::kBulkGroup:
        return Cause::kStore;
      default:
        return Cause::kOther;
    }
  }

  double wake_latency(Cause cause) const {
    switch (cause) {
      case Cause::kMbarrier:
        return p_.mbarrier_wake_latency;
      case Cause::kNamedBarrier:
        return 0;  // it meets again, and takes its latency then
      case Cause::kProduct:
        return p_.tensor_end_latency;
      default:
        return p_.barrier_latency;
    }
  }

  /// Wakes the warps whose wait is over.
  void settle(double time) {
    for (auto& resident : residents_) {
      if (resident->done || resident->cluster->progress == resident->seen_progress) continue;
      resident->seen_progress = resident->cluster->progress;
      for (WarpClock& w : resident->warps) {
        if (w.state != WarpClock::State::kWaits) continue;
        if (w.warp->live != 0 && resident->stepper->ready_group(*w.warp) == nullptr) continue;
        wake(w, time);
      }
      begin_ready_commits(*resident, time);
    }
  }

  void wake(WarpClock& w, double time) {
    const double resume = std::max(time + wake_latency(w.wait_cause), w.earliest);
    const double waited = resume - w.last;
    w.times.stalls[static_cast<std::size_t>(w.wait_cause)] += std::max(0.0, waited);
    if (w.wait_cause == Cause::kMbarrier || w.wait_cause == Cause::kNamedBarrier) {
      times_.barrier_waits[{static_cast<unsigned>(w.warp->index / 4), w.wait_cause,
                            w.wait_barrier}] += std::max(0.0, waited);
    }
    if (options_.trace && waited > 0) {
      span({w.last, resume, w.resident->cluster->linear_index(*w.warp->cta),
            static_cast<int>(w.warp->index), nullptr, w.wait_cause, w.wait_site, w.wait_barrier});
    }
    w.last = w.earliest = resume;
    w.earliest_cause = w.wait_cause;
    w.state = WarpClock::State::kIssues;
    fetch(w, time);
  }

  void after_exit(Resident& resident) {
    const bool all =
        std::all_of(resident.warps.begin(), resident.warps.end(),
                    [](const WarpClock& w) { return w.state == WarpClock::State::kExited; });
    // NOTE: by an event, since its warps are being walked.
    if (all && resident.cluster->pending.empty())
      events_.push({now_, sequence_++, Event::Kind::kEnd, &resident, {}, 0});
  }

  bool unstick() {
    for (auto& resident : residents_) {
      if (resident->done || !resident->stepper->unstick()) continue;
      ++resident->cluster->progress;
      settle(now_);
      return true;
    }
    return false;
  }

  // ---------------------------------------------------------------------------- units

  void complete_at(Resident& resident, std::vector<const AsyncOp*> ops, double time) {
    events_.push({time, sequence_++, Event::Kind::kComplete, &resident, std::move(ops), 0});
  }

  void begin_unit(WarpClock& w, const AsyncOp& op, double time) {
    const UnitWork work = op.work();
    Resident& resident = *w.resident;
    Sm& sm = sms_[w.sm];
    using Kind = UnitWork::Kind;
    switch (work.kind) {
      case Kind::kWgmma: {
        ProductQueue& queue = sm.products[{resident.number, w.warp->index / 4}];
        if (queue.issued_by.empty()) queue.issued_by.resize(4, 0);
        const u64 index = queue.issued_by[w.warp->index % 4]++ - queue.begun;
        if (queue.products.size() <= index) {
          Product product;
          product.resident = &resident;
          product.needed = 4;
          const double flop = 2.0 * 64 * work.n * work.k_bits / 16;
          // NOTE: K is in bits, so that 8-bit operands count as half as many: they are twice as
          // fast.
          product.cycles = flop / p_.tensor_flop_per_cycle;
          product.shared_bytes =
              work.n * work.k_bits / 8 + (work.a_in_registers ? 0 : 64 * work.k_bits / 8);
          product.cycles =
              std::max(product.cycles, product.shared_bytes / p_.operand_bytes_per_cycle);
          if (p_.product_port_columns != 0) product.port_slots = work.n / p_.product_port_columns;
          product.site = op.site;
          queue.products.push_back(std::move(product));
        }
        Product& product = queue.products[index];
        product.ops.push_back(&op);
        product.issued = std::max(product.issued, time + p_.tensor_start_latency);
        if (product.ops.size() == product.needed) look_at_tensor(w.sm, product.issued);
        return;
      }
      case Kind::kTensorProduct: {
        ProductQueue& queue = sm.products[{0, 0}];
        Product product;
        product.resident = &resident;
        product.ops = {&op};
        product.issued = time + p_.tensor_start_latency;
        product.sms = work.ctas;
        const double flop = 2.0 * work.m * work.n * work.k_bits / 16 / work.ctas;
        // M of 64 keeps half of the tensor core's rows idle.
        const double rows = work.m / work.ctas < 128 ? 2 : 1;
        product.shared_bytes = work.n * work.k_bits / 8 / work.ctas +
                               (work.a_in_registers ? 0 : work.m / work.ctas * work.k_bits / 8);
        product.cycles = std::max(rows * flop / p_.tensor_flop_per_cycle,
                                  product.shared_bytes / p_.operand_bytes_per_cycle);
        product.site = op.site;
        queue.products.push_back(std::move(product));
        look_at_tensor(w.sm, queue.products.back().issued);
        return;
      }
      case Kind::kLoad: {
        const double begin = std::max(time + p_.tma_issue, sm.copy_free);
        const double bytes = static_cast<double>(work.bytes);
        const double missed = bytes * (1 - around_.hit_fraction);
        const double busy = std::max({p_.tma_issue, bytes / l2_bytes_, missed / hbm_bytes_});
        sm.copy_free = begin + busy;
        times_.copy_busy += busy;
        times_.loaded_bytes += bytes;
        times_.shared_bytes += bytes * static_cast<double>(work.targets);
        times_.loaded_by_buffer[static_cast<unsigned>(work.address >> emulator::kBufferShift)] +=
            bytes;
        const double end =
            begin + busy + p_.tma_latency + (1 - around_.hit_fraction) * p_.hbm_extra_latency;
        // A multicast comes to each SM over its own port.
        for (Sm& target : sms_) {
          if (work.targets > 1 && &target != &sm)
            target.copy_free = std::max(target.copy_free, begin) + bytes / p_.tma_bytes;
        }
        trace_unit(w, "copies", begin, end, op.site);
        complete_at(resident, {&op}, end);
        return;
      }
      case Kind::kStore: {
        // Lanes that store the same bytes to the same place do so once: ptxas issues a copy whose
        // operands are the warp's as one, of a uniform datapath.
        if (bulk_store_.warp == w.warp && bulk_store_.site == op.site && bulk_store_.time == time &&
            bulk_store_.address == work.address && bulk_store_.bytes == work.bytes) {
          complete_at(resident, {&op}, bulk_store_.end);
          return;
        }
        const double begin = std::max(time + p_.tma_issue, sm.copy_free);
        const double bytes = static_cast<double>(work.bytes);
        // What is written leaves L2 some time: it has its share of HBM.
        const double busy = std::max(p_.tma_issue, bytes / hbm_bytes_);
        sm.copy_free = begin + busy;
        times_.copy_busy += busy;
        times_.shared_bytes += bytes;
        trace_unit(w, "copies", begin, begin + busy + p_.store_latency, op.site);
        bulk_store_ = {w.warp,       op.site,    time,
                       work.address, work.bytes, begin + busy + p_.store_latency};
        complete_at(resident, {&op}, bulk_store_.end);
        return;
      }
      case Kind::kThreadCopy: {
        const double bytes = static_cast<double>(work.bytes);
        const double begin = std::max(time, sm.copy_free);
        const double missed = bytes * (1 - around_.hit_fraction);
        const double busy = std::max(bytes / l2_bytes_, missed / hbm_bytes_);
        sm.copy_free = begin + busy;
        times_.copy_busy += busy;
        times_.loaded_bytes += bytes;
        times_.shared_bytes += bytes;
        if (work.bytes != 0)
          times_.loaded_by_buffer[static_cast<unsigned>(work.address >> emulator::kBufferShift)] +=
              bytes;
        complete_at(
            resident, {&op},
            begin + busy + p_.l2_hit_latency + (1 - around_.hit_fraction) * p_.hbm_extra_latency);
        return;
      }
      case Kind::kTensorRead:
      case Kind::kTensorWrite: {
        double& free = sm.tensor_memory_free[w.partition];
        const double begin = std::max(time, free);
        const double busy = static_cast<double>(work.bytes) / p_.tensor_memory_bytes;
        free = begin + busy;
        times_.tensor_memory_busy += busy;
        complete_at(resident, {&op}, free + p_.tensor_memory_latency);
        return;
      }
      case Kind::kTensorCopy:
        complete_at(resident, {&op},
                    time + p_.tensor_start_latency +
                        static_cast<double>(work.bytes) / p_.operand_bytes_per_cycle);
        return;
      case Kind::kPeerStore:
        complete_at(resident, {&op}, time + p_.peer_latency);
        return;
      case Kind::kTensorCommit:
      case Kind::kOther:
        break;
    }
    if (work.done_when_asked) {
      begin_ready_commits(resident, time);
      return;
    }
    complete_at(resident, {&op}, time + p_.store_latency);
  }

  /// Operations that only wait for others.
  void begin_ready_commits(Resident& resident, double time) {
    for (const auto& op : resident.cluster->pending) {
      if (!op->work().done_when_asked || !op->ready(*resident.cluster)) continue;
      if (std::find(committed_.begin(), committed_.end(), op.get()) != committed_.end()) continue;
      committed_.push_back(op.get());
      complete_at(resident, {op.get()}, time);
    }
  }

  void look_at_tensor(u32 sm, double time) {
    events_.push({time, sequence_++, Event::Kind::kTensor, nullptr, {}, sm});
  }

  /// The tensor cores, where they are free, take the product that was issued first.
  void next_product(u32 index) {
    Sm& sm = sms_[index];
    if (sm.running) return;
    const auto can = [&](const ProductQueue& q) {
      return !q.products.empty() && q.products.front().ops.size() >= q.products.front().needed &&
             q.products.front().issued <= now_;
    };
    auto chosen = sm.products.end();
    for (auto it = sm.products.begin(); it != sm.products.end(); ++it) {
      if (!can(it->second)) continue;
      if (chosen == sm.products.end() ||
          it->second.products.front().issued < chosen->second.products.front().issued)
        chosen = it;
    }
    if (chosen == sm.products.end()) return;
    Product& product = sm.running.emplace(std::move(chosen->second.products.front()));
    chosen->second.products.pop_front();
    ++chosen->second.begun;
    chosen->second.last_begin = now_;
    product.begin = now_;
    // What is owed is made good while no product runs.
    for (u32 p = 0; p < kPartitions; ++p) {
      const double free = now_ - sm.product_end - (sm.port_used[p] - sm.port_used_then[p]);
      sm.port_owed[p] = std::max(0.0, sm.port_owed[p] - free);
    }
    product.port_used = sm.port_used;
    times_.tensor_busy += product.cycles * product.sms;
    times_.shared_bytes += static_cast<double>(product.shared_bytes) * product.sms;
    events_.push({now_ + product.cycles, sequence_++, Event::Kind::kProduct, nullptr, {}, index});
  }

  /// The product that runs is complete, or waits for issue slots that its accumulators need.
  void end_product(u32 index) {
    Sm& sm = sms_[index];
    Product& product = *sm.running;
    // What it lacks may come later, while little is owed: a burst of others does not hold it up.
    double missing = 0;
    std::array<double, kPartitions> owed{};
    for (u32 p = 0; p < kPartitions; ++p) {
      const double free = now_ - product.begin - (sm.port_used[p] - product.port_used[p]);
      owed[p] = std::max(0.0, sm.port_owed[p] + product.port_slots - free);
      missing = std::max(missing, owed[p] - p_.product_port_slack);
    }
    if (missing > 0) {
      events_.push(
          {now_ + std::ceil(missing), sequence_++, Event::Kind::kProduct, nullptr, {}, index});
      return;
    }
    sm.port_owed = owed;
    sm.port_used_then = sm.port_used;
    sm.product_end = now_;
    if (options_.trace)
      span({product.begin, now_,
            product.resident->cluster->linear_index(*product.ops[0]->issuer->cta), -1,
            "tensor core", Cause::kOther, product.site, 0});
    complete_at(*product.resident, std::move(product.ops), now_);
    sm.running.reset();
    next_product(index);
  }

  void handle(Event& event) {
    switch (event.kind) {
      case Event::Kind::kTensor:
        next_product(event.sm);
        return;
      case Event::Kind::kProduct:
        end_product(event.sm);
        return;
      case Event::Kind::kEnd:
        if (!event.resident->done) end(*event.resident);
        return;
      case Event::Kind::kComplete:
        break;
    }
    Resident& resident = *event.resident;
    for (const AsyncOp* op : event.ops) {
      std::erase(committed_, op);
      resident.stepper->complete(*op);
    }
    settle(event.time);
    if (resident.cluster->live_threads() == 0) after_exit(resident);
  }

  // ---------------------------------------------------------------------------- report

  void span(const Span& s) {
    constexpr std::size_t kMostSpans = 400'000;
    if (times_.spans.size() < kMostSpans) times_.spans.push_back(s);
  }
  void trace_unit(const WarpClock& w, const char* unit, double begin, double end, u32 site) {
    if (options_.trace)
      span({begin, end, w.resident->cluster->linear_index(*w.warp->cta), -1, unit, Cause::kOther,
            site, 0});
  }

  void finish() {
    ended_ = true;
    times_.cycles = std::max(now_, stored_);
    times_.sms = ctas_;
    if (machine_.program.steals) return;
    const u64 all = machine_.clusters();
    const u64 next = machine_.next_cluster();
    times_.clusters_left = next < all ? (all - next + stride_ - 1) / stride_ : 0;
  }

  Machine& machine_;
  const Parameters& p_;
  const OtherSms& around_;
  const EngineOptions& options_;
  u64 next_, stride_;
  u64& stolen_;  ///< of all SMs: the first cluster that nobody has
  Segments& segments_;
  u32 ctas_ = 1;
  double hbm_bytes_ = 1, l2_bytes_ = 1;
  std::vector<Sm> sms_;
  std::vector<std::unique_ptr<Resident>> residents_;
  std::vector<WarpClock*> warps_;
  std::vector<const AsyncOp*> committed_;
  struct {
    const Warp* warp = nullptr;
    u32 site = 0;
    double time = 0;
    u64 address = 0, bytes = 0;
    double end = 0;
  } bulk_store_;  ///< the bulk store that was issued last
  std::priority_queue<Event, std::vector<Event>, Later> events_;
  u64 sequence_ = 0, started_ = 0;
  std::size_t active_ = 0;
  double now_ = 0;
  double stored_ = 0;  ///< when the last store of a thread was there
  bool ended_ = false;
  double takes_at_ = -1;
  SmTimes times_;
};

}  // namespace

WarpTimes& WarpTimes::operator+=(const WarpTimes& other) {
  lived += other.lived;
  issued += other.issued;
  for (std::size_t i = 0; i < kCauses; ++i) stalls[i] += other.stalls[i];
  for (std::size_t i = 0; i < kPipes; ++i) pipe_stalls[i] += other.pipe_stalls[i];
  return *this;
}

Result<std::vector<SmTimes>> time_sms(Machine& machine, const Parameters& parameters,
                                      const OtherSms& others,
                                      const std::vector<std::uint64_t>& firsts,
                                      std::uint64_t stride, std::uint64_t takers,
                                      const EngineOptions& options) {
  emulator::set_fp_mode(emulator::kDefaultFpMode);
  Segments segments(machine.program, parameters);
  std::vector<std::unique_ptr<Engine>> engines;  // none: the SM has ended
  std::vector<SmTimes> times(firsts.size());
  const u64 count = firsts.size();
  u64 stolen = stride * others.ctas_per_sm;
  const auto run = [&](u64 i) -> Status {
    machine.takers = (i + 1) * takers / count - i * takers / count;
    if (Status s = engines[i]->run(); !s) return s;
    if (engines[i]->ended()) {
      times[i] = engines[i]->times();
      engines[i].reset();
    }
    return {};
  };
  for (u64 i = 0; i < count; ++i) {
    engines.push_back(std::make_unique<Engine>(machine, parameters, others, segments, firsts[i],
                                               stride, stolen, options));
    if (Status s = run(i); !s) return s.error();
  }
  for (;;) {
    u64 next = count;
    for (u64 i = 0; i < count; ++i) {
      if (engines[i] == nullptr) continue;
      if (next == count || engines[i]->takes_at() < engines[next]->takes_at()) next = i;
    }
    if (next == count) return times;
    if (Status s = run(next); !s) return s.error();
  }
}

}  // namespace attnjit::clock
