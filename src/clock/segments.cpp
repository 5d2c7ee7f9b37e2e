// SPDX-License-Identifier: Apache-2.0
// Cuts code into segments and schedules each as a list.
#include "clock/segments.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <queue>

namespace attnjit::clock {

using emulator::FunctionCode;
using emulator::kNoRef;
using emulator::Op;
using emulator::Ref;
using emulator::u32;
using emulator::u8;

namespace {

constexpr std::size_t kMostNodes = 4096;

/// A register without what a use of it adds: the negation of a predicate.
Ref plain(Ref r) {
  return emulator::is_predicate(r) ? emulator::kPredicate | emulator::index_of(r) : r;
}

void add(std::vector<Ref>& to, Ref r, const std::vector<Ref>* but = nullptr) {
  if (r == kNoRef || emulator::is_constant(r)) return;
  r = plain(r);
  if (but != nullptr && std::find(but->begin(), but->end(), r) != but->end()) return;
  if (std::find(to.begin(), to.end(), r) == to.end()) to.push_back(r);
}

}  // namespace

Node Segments::node_at(const FunctionCode& function, u32 pc) const {
  Node node;
  node.first = pc;
  node.site = function.ops[pc].site;
  bool all_constant = true, reads_clock = false;
  for (node.last = pc;; ++node.last) {
    const Op& op = function.ops[node.last];
    reads_clock = reads_clock || op.has(emulator::kOpClock);
    const auto read = [&](Ref r) {
      if (r != kNoRef && !emulator::is_constant(r)) all_constant = false;
      add(node.reads, r, &node.writes);
    };
    read(op.guard);
    for (const Ref r : op.s) read(r);
    for (u32 i = 0; i < op.list_count; ++i) read(program_.lists[op.list + i]);
    for (const Ref d : {op.d, op.d2}) {
      if (d == kNoRef) continue;
      add(node.writes, d);
      // A register of 64 bits is two rows: either may be read alone.
      if (emulator::is_row(d)) {
        for (u32 row = 1; row < op.d_rows; ++row) add(node.writes, d + row);
      }
    }
    const u32 next = node.last + 1;
    if (next >= function.ops.size() || function.ops[next].site != node.site ||
        function.ops[next].has(emulator::kOpFirst))
      break;
  }
  node.cost = cost_of(program_.sites[node.site].text, all_constant, parameters_);
  if (reads_clock) node.cost = clock_reading_cost();
  // A vector's destinations are in the list, which names sources elsewhere: both count.
  const std::string_view text = program_.sites[node.site].text;
  if (text.substr(0, 2) == "ld" || text.substr(0, 3) == "mov" || text.substr(0, 10) == "tcgen05.ld")
    for (u32 i = node.first; i <= node.last; ++i) {
      const Op& op = function.ops[i];
      for (u32 j = 0; j < op.list_count; ++j) add(node.writes, program_.lists[op.list + j]);
    }
  return node;
}

bool Segments::waits_for_products(const Node& node) const {
  return program_.sites[node.site].text.substr(0, 16) == "wgmma.wait_group";
}

Segment Segments::build(const FunctionCode& function, u32 pc) const {
  Segment segment;
  segment.begin = segment.end = pc;
  bool moves = true;  // what is here can be behind a wait of products
  while (segment.end < function.ops.size() && segment.nodes.size() < kMostNodes) {
    const Op& first = function.ops[segment.end];
    if (segment.end != pc && first.has(emulator::kOpReconverges)) break;
    Node node = node_at(function, segment.end);
    if (node.cost.timed && segment.end != pc) {
      segment.after_wait = moves && waits_for_products(node);
      break;
    }
    segment.timed = node.cost.timed;
    moves = moves && node.cost.pipe != Pipe::kLsu;
    bool leaves = segment.timed;
    for (u32 i = node.first; i <= node.last; ++i) {
      leaves = leaves || function.ops[i].has(emulator::kOpBranches) ||
               function.ops[i].has(emulator::kOpEnds) || function.ops[i].has(emulator::kOpTable);
    }
    leaves = leaves || program_.sites[node.site].text.substr(0, 4) == "call";
    segment.end = node.last + 1;
    segment.nodes.push_back(std::move(node));
    if (leaves) break;
  }
  return segment;
}

void Segments::schedule(Segment& segment) const {
  const std::size_t n = segment.nodes.size();
  segment.order.resize(n);
  for (std::size_t i = 0; i < n; ++i) segment.order[i] = static_cast<u32>(i);
  if (n < 3) return;
  // Who waits for whom.
  struct Edge {
    u32 to;
    double latency;
  };
  std::vector<std::vector<Edge>> after(n);
  std::vector<u32> before(n, 0);
  std::unordered_map<Ref, u32> writer;
  std::unordered_map<Ref, std::vector<u32>> readers;
  const auto edge = [&](u32 from, u32 to, double latency) {
    if (from == to) return;
    after[from].push_back({to, latency});
    ++before[to];
  };
  u32 memory = ~0u;
  for (u32 i = 0; i < n; ++i) {
    const Node& node = segment.nodes[i];
    for (const Ref r : node.reads) {
      const auto it = writer.find(r);
      if (it != writer.end()) edge(it->second, i, segment.nodes[it->second].cost.latency);
      readers[r].push_back(i);
    }
    for (const Ref r : node.writes) {
      for (const u32 reader : readers[r]) edge(reader, i, 0);
      readers[r].clear();
      const auto it = writer.find(r);
      if (it != writer.end()) edge(it->second, i, 0);
      writer[r] = i;
    }
    // Accesses to memory, and what lanes do together, stay in their order; the branch is the last.
    if (node.cost.pipe == Pipe::kLsu) {
      if (memory != ~0u) edge(memory, i, 0);
      memory = i;
    }
    if (node.cost.pipe == Pipe::kBranch) {
      for (u32 j = 0; j < i; ++j) edge(j, i, 0);
    }
  }
  std::vector<double> path(n, 0);
  for (std::size_t i = n; i-- > 0;) {
    path[i] = segment.nodes[i].cost.latency;
    for (const Edge& e : after[i]) path[i] = std::max(path[i], e.latency + path[e.to]);
  }
  // The longest path first, of what can issue; the earliest in program order where they are equal.
  std::vector<double> ready(n, 0);
  std::vector<u32> open;
  for (u32 i = 0; i < n; ++i) {
    if (before[i] == 0) open.push_back(i);
  }
  std::array<double, kPipes> pipe_free{};
  double now = 0;
  for (std::size_t at = 0; at < n; ++at) {
    std::size_t best = 0;
    double best_time = 1e30, best_path = -1;
    const u32 first = *std::min_element(open.begin(), open.end());
    for (std::size_t c = 0; c < open.size(); ++c) {
      const Node& node = segment.nodes[open[c]];
      if (parameters_.schedule_window != 0 && open[c] > first + parameters_.schedule_window)
        continue;
      const double time = std::max(
          {now, ready[open[c]],
           node.cost.slots == 0 ? 0 : pipe_free[static_cast<std::size_t>(node.cost.pipe)]});
      if (time < best_time ||
          (time == best_time &&
           (path[open[c]] > best_path || (path[open[c]] == best_path && open[c] < open[best])))) {
        best = c;
        best_time = time;
        best_path = path[open[c]];
      }
    }
    const u32 chosen = open[best];
    open.erase(open.begin() + static_cast<std::ptrdiff_t>(best));
    const Node& node = segment.nodes[chosen];
    segment.order[at] = chosen;
    now = best_time + node.cost.slots;
    if (node.cost.slots != 0)
      pipe_free[static_cast<std::size_t>(node.cost.pipe)] =
          best_time + node.cost.cycles * node.cost.slots;
    for (const Edge& e : after[chosen]) {
      ready[e.to] = std::max(ready[e.to], best_time + e.latency);
      if (--before[e.to] == 0) open.push_back(e.to);
    }
  }
}

/// The columns of the product that a wait waits for, where it follows another wait and nothing is
/// computed between the two; else 0.
unsigned Segments::columns_waited_for(const FunctionCode& function, u32 wait) const {
  bool waited = false;
  for (u32 pc = wait; pc-- > 0;) {
    const std::string_view text = program_.sites[function.ops[pc].site].text;
    const auto is = [&](std::string_view root) { return text.substr(0, root.size()) == root; };
    if (is("wgmma.wait_group")) {
      waited = true;
    } else if (is("wgmma.mma_async")) {
      unsigned columns = 0;
      const std::size_t n = text.find(".m64n");
      if (waited && n != std::string_view::npos)
        std::from_chars(text.data() + n + 5, text.data() + text.size(), columns);
      return columns;
    } else if (is("ex2") || is("max") || is("vote") || is("ret")) {
      return 0;
    }
  }
  return 0;
}

/// ptxas takes a product of n columns to need n cycles, and fills as many, ahead of the wait for
/// it, with exponentials that do not depend on it (docs/clock.md has how many SASS shows). What
/// packs them is behind the wait, in registers of the product's operand.
void Segments::look_ahead(const FunctionCode& function, Segment& wait) {
  const unsigned columns = columns_waited_for(function, wait.begin);
  if (columns == 0 || parameters_.product_issue_columns == 0) return;
  // Past what a barrier is handed back with, which ptxas predicates.
  constexpr int kMostSegments = 8;
  const Segment* later = nullptr;
  u32 pc = wait.end;
  for (int i = 0; i < kMostSegments && pc < function.ops.size(); ++i) {
    const Segment& next = at(function, pc);
    if (next.timed && text_of(next.nodes[0]).substr(0, 15) != "mbarrier.arrive") return;
    const auto is_exponential = [](const Node& node) { return node.cost.pipe == Pipe::kXu; };
    if (std::any_of(next.nodes.begin(), next.nodes.end(), is_exponential)) {
      later = &next;
      break;
    }
    pc = next.end;
    const Op& last = function.ops[next.end - 1];
    if (last.has(emulator::kOpBranches) && last.guard == kNoRef) pc = last.target;
  }
  if (later == nullptr) return;
  // The exponentials, and what they read.
  const std::vector<Node>& nodes = later->nodes;
  std::unordered_map<Ref, u32> writer;
  std::vector<std::vector<u32>> reads(nodes.size());
  for (u32 i = 0; i < nodes.size(); ++i) {
    for (const Ref r : nodes[i].reads) {
      if (const auto it = writer.find(r); it != writer.end()) reads[i].push_back(it->second);
    }
    for (const Ref r : nodes[i].writes) writer[r] = i;
  }
  std::vector<bool> chosen(nodes.size(), false);
  double left = columns;
  for (const u32 i : later->order) {
    if (nodes[i].cost.pipe != Pipe::kXu) continue;
    left -= nodes[i].cost.cycles * nodes[i].cost.slots;
    if (left < 0) break;
    std::vector<u32> open{i};
    while (!open.empty()) {
      const u32 node = open.back();
      open.pop_back();
      if (chosen[node]) continue;
      chosen[node] = true;
      open.insert(open.end(), reads[node].begin(), reads[node].end());
    }
  }
  wait.later = later;
  for (const u32 i : later->order) {
    if (chosen[i]) wait.ahead.push_back(i);
  }
}

const Segment& Segments::at(const FunctionCode& function, u32 pc) {
  std::unique_ptr<Segment>& known = known_[&function.ops[pc]];
  if (known == nullptr) {
    known = std::make_unique<Segment>(build(function, pc));
    schedule(*known);
    if (known->timed && waits_for_products(known->nodes[0])) look_ahead(function, *known);
  }
  return *known;
}

}  // namespace attnjit::clock
