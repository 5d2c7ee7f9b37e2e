// SPDX-License-Identifier: Apache-2.0
// Weighs PTX instructions.
#include "clock/cost.h"

#include <algorithm>
#include <charconv>

namespace attnjit::clock {
namespace {

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

bool is_wide(std::string_view text) {
  return has(text, ".s64") || has(text, ".u64") || has(text, ".b64");
}

bool is_float(std::string_view text) {
  return has(text, ".f32") || has(text, ".f16") || has(text, ".bf16");
}

/// Wavefronts of 128 bytes of an access by a whole warp, without bank conflicts.
double wavefronts(std::string_view text) {
  double bytes = 4;
  if (is_wide(text) || has(text, ".f64")) bytes = 8;
  if (has(text, ".v2")) bytes *= 2;
  if (has(text, ".v4")) bytes *= 4;
  if (has(text, ".v8")) bytes *= 8;
  if (has(text, "matrix")) bytes = has(text, ".x4") ? 16 : has(text, ".x2") ? 8 : 4;
  return std::max(1.0, bytes / 4);
}

class Weigher {
 public:
  Weigher(std::string_view text, const Parameters& p)
      : text_(text), root_(text.substr(0, text.find('.'))), p_(p) {}

  Cost weigh(bool all_constant) const {
    if (const Cost c = unit(); c.timed) return c;
    if (root_ == "bra" || root_ == "brx" || root_ == "ret" || root_ == "exit" || root_ == "call")
      return {Pipe::kBranch, 1, 1, p_.branch_latency, 0, false, false};
    // ptxas folds what is constant, moves nothing that it can rename, and negates for nothing.
    if (all_constant) return {};
    if (root_ == "neg" || root_ == "abs" || root_ == "cvta" || root_ == "pragma") return {};
    if (root_ == "mov")
      return has(text_, ".f32") && p_.float_copy_slots != 0
                 ? fma(static_cast<unsigned>(p_.float_copy_slots))
                 : Cost{};
    if (root_ == "ld" || root_ == "ldu") return load();
    if (root_ == "st") return store();
    if (root_ == "ldmatrix") return memory(p_.shared_latency, true);
    if (root_ == "stmatrix") return memory(p_.shared_latency, false);
    if (root_ == "shfl") return {Pipe::kLsu, 1, p_.lsu_cycles, p_.shuffle_latency, 0, true, false};
    if (root_ == "ex2" || root_ == "lg2" || root_ == "rcp" || root_ == "rsqrt" || root_ == "sqrt" ||
        root_ == "tanh" || root_ == "sin" || root_ == "cos")
      return transcendental();
    if (root_ == "div" || root_ == "rem") return division();
    if (root_ == "cvt") return conversion();
    if (root_ == "fma" || root_ == "mul" || root_ == "add" || root_ == "sub" || root_ == "mad")
      return arithmetic();
    return alu(is_wide(text_) ? 2 : 1);
  }

 private:
  Cost fma(unsigned slots) const {
    return {Pipe::kFma, slots, p_.fma_cycles, p_.fma_latency, 0, false, false};
  }
  Cost alu(unsigned slots) const {
    return {Pipe::kAlu, slots, p_.alu_cycles, p_.alu_latency, 0, false, false};
  }
  Cost xu(unsigned slots) const {
    return {Pipe::kXu, slots, p_.xu_cycles, p_.xu_latency, 0, false, false};
  }
  Cost memory(double latency, bool loads) const {
    return {Pipe::kLsu, 1, p_.lsu_cycles * wavefronts(text_), latency, 0, loads, false};
  }
  Cost timed(double latency) const { return {Pipe::kUnit, 1, 1, latency, 0, true, true}; }

  /// What others see, or what waits for others.
  Cost unit() const {
    if (root_ == "mbarrier") return mbarrier();
    if (root_ == "wgmma") return product();
    if (root_ == "bar" && has(text_, "warp")) return {};
    if (root_ == "barrier" && has(text_, ".cluster"))
      return timed(has(text_, ".wait") ? p_.peer_latency : 0);
    if (root_ == "bar" || root_ == "barrier")
      return timed(has(text_, ".arrive") ? 0 : p_.barrier_latency);
    if (root_ == "fence" || root_ == "membar")
      return timed(has(text_, ".gpu") || has(text_, ".gl") || has(text_, ".sys")
                       ? p_.gpu_fence_latency
                       : p_.fence_latency);
    if (root_ == "clusterlaunchcontrol") {
      Cost c = timed(0);
      c.takes_tile = has(text_, ".try_cancel");
      return c;
    }
    if (root_ == "tcgen05" || root_ == "setmaxnreg" || root_ == "griddepcontrol" ||
        root_ == "nanosleep" || root_ == "red")
      return timed(0);
    if (root_ == "atom") {
      Cost c = timed(p_.l2_hit_latency);
      c.takes_tile = has(text_, ".add");
      return c;
    }
    if (root_ == "cp" || (root_ == "st" && has(text_, ".async"))) return timed(0);
    return {};
  }
  Cost mbarrier() const {
    if (has(text_, "wait")) return timed(p_.mbarrier_latency);
    // NOTE: ptxas has it wait until the whole GPU sees what was written before.
    const bool releases =
        has(text_, ".arrive") && has(text_, ".cluster.shared::cluster") && !has(text_, ".relaxed");
    return timed(releases ? p_.gpu_fence_latency : 0);
  }
  /// What a wgmma keeps of the issue port; its fences and waits take a slot.
  Cost product() const {
    Cost c = timed(has(text_, ".fence")  ? p_.product_fence_latency
                   : has(text_, ".wait") ? p_.product_wait_latency
                                         : 0);
    const std::size_t n = text_.find(".m64n");
    unsigned columns = 0;
    if (n == std::string_view::npos || p_.product_issue_columns == 0) return c;
    std::from_chars(text_.data() + n + 5, text_.data() + text_.size(), columns);
    c.keeps = p_.product_issue_cycles + columns / p_.product_issue_columns;
    return c;
  }
  Cost load() const {
    if (has(text_, ".param") || has(text_, ".const")) return {};
    if (has(text_, ".shared::cluster")) return memory(p_.peer_latency, true);
    if (has(text_, ".shared")) return memory(p_.shared_latency, true);
    Cost c = memory(p_.l2_hit_latency, true);
    // NOTE: what another CTA writes is polled: executed at its time.
    c.timed = has(text_, ".acquire") || has(text_, ".relaxed") || has(text_, ".volatile");
    return c;
  }
  Cost store() const { return memory(0, false); }
  Cost transcendental() const {
    // Without .ftz small numbers are scaled before and after.
    const bool scales = !has(text_, ".ftz") && !has(text_, ".f16") && root_ != "tanh";
    Cost c = xu(1);
    if (scales && (root_ == "ex2" || root_ == "lg2")) c.slots = 3, c.cycles = p_.xu_cycles / 3;
    return c;
  }
  Cost division() const {
    if (is_float(text_))
      return has(text_, ".rn")
                 ? fma(10)
                 : Cost{Pipe::kXu, 2,    p_.xu_cycles / 2, p_.xu_latency + p_.fma_latency, 0,
                        false,     false};
    // Reciprocal, estimate, and two corrections.
    return {Pipe::kAlu, 18, p_.alu_cycles, 80, 0, false, false};
  }
  Cost conversion() const {
    // NOTE: f16 is a part of bf16's name, too.
    if (has(text_, "f16x2.f32") || has(text_, "f16.f32") || has(text_, "f32.f16") ||
        has(text_, "f32.bf16") || has(text_, "e4m3x2") || has(text_, "e5m2x2"))
      return alu(1);
    // Of integers, to or from floats.
    if (is_float(text_)) return alu(1);
    return has(text_, ".s64.s32") ? alu(1) : Cost{};
  }
  Cost arithmetic() const {
    if (is_float(text_)) {
      Cost c = fma(1);
      if (has(text_, ".f32x2")) c.cycles *= 2;
      return c;
    }
    if (has(text_, ".f64"))
      return {Pipe::kFma, 1, 2 * p_.fma_cycles, 2 * p_.fma_latency, 0, false, false};
    if (root_ == "mul" || root_ == "mad" || root_ == "fma") {
      Cost c = fma(is_wide(text_) && !has(text_, ".wide") ? 3 : 1);
      c.cycles = 2 * p_.fma_cycles;
      return c;
    }
    // Additions are as fast as on the FMA pipe; comparisons and logic are not.
    return fma(is_wide(text_) ? 2 : 1);
  }

  std::string_view text_, root_;
  const Parameters& p_;
};

}  // namespace

std::string_view to_string(Pipe pipe) {
  constexpr std::array<std::string_view, kPipes> kNames{"none",   "fma", "alu", "xu",
                                                        "branch", "lsu", "unit"};
  return kNames[static_cast<std::size_t>(pipe)];
}

std::string_view to_string(Cause cause) {
  constexpr std::array<std::string_view, kCauses> kNames{
      "slot",     "pipe",          "operand", "load",  "branch",
      "mbarrier", "named_barrier", "product", "store", "other"};
  return kNames[static_cast<std::size_t>(cause)];
}

Cost clock_reading_cost() { return {Pipe::kUnit, 1, 1, 0, 0, true, true}; }

Cost cost_of(std::string_view text, bool all_constant, const Parameters& parameters) {
  return Weigher(text, parameters).weigh(all_constant);
}

}  // namespace attnjit::clock
