// SPDX-License-Identifier: Apache-2.0
// Lays out a plan's fields in columns and draws its memory maps.
#include "plan/print/plan_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "attnjit/launch.h"
#include "plan/kernel/sequence.h"
#include "plan/print/memory_map_text.h"
#include "plan/sm100/sm100_plan.h"

namespace attnjit {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kWidth = 96;           // of every line
constexpr std::int64_t kTmem = 512;  // columns
constexpr int kBarWidth = 90;        // of shared memory
constexpr int kTmemWidth = 65;       // a character is 8 columns
constexpr std::int64_t kSmem = DeviceShape{}.max_smem_bytes;
const char* const kIndent = "  ";

std::string shown(const Json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_array()) {
    std::string text;
    for (const Json& item : value) text += (text.empty() ? "" : ", ") + shown(item);
    return text;
  }
  if (value.is_null()) return "-";
  return value.dump();
}

// Breaks text at spaces; further lines are indented deeper.
std::string wrapped(const std::string& text, const std::string& first, const std::string& next) {
  std::string result;
  std::string line = first;
  bool fresh = true;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t space = std::min(text.find(' ', at), text.size());
    const std::string word = text.substr(at, space - at);
    if (!fresh && line.size() + 1 + word.size() > kWidth) {
      result += line + "\n";
      line = next;
      fresh = true;
    }
    line += (fresh ? "" : " ") + word;
    fresh = false;
    at = space + 1;
  }
  return result + line + "\n";
}

std::string heading(const std::string& title) {
  std::string rule;
  for (std::size_t i = title.size() + 1; i < kWidth; ++i) rule += "─";
  return "\n" + title + " " + rule + "\n";
}

// Which row of a tuning table the kernel is by.
std::string tuned_by(const Json& row) {
  if (row.is_null()) return {};
  std::string choices;
  for (const auto& [name, value] : row["choose"].items()) {
    choices += fmt::format("{}{} {}", choices.empty() ? "" : ", ", name, shown(value));
  }
  const Json& model = row["model_version"];
  const std::string who =
      model.is_null()
          ? "of a tuning table"
          : fmt::format("that model {} of the clock made; no GPU has measured it", shown(model));
  return wrapped(fmt::format("tuned: {}, by a row {}", choices, who), "", kIndent);
}

std::string head(const AttentionSpec& spec, const Json& plan) {
  std::string text = fmt::format("{}, {} query heads", to_string(spec.arch), spec.num_q_heads);
  if (spec.group > 1) text += fmt::format(" in groups of {}", spec.group);
  text += fmt::format(", depth {}/{}, {}", spec.qk_depth, spec.ov_depth, to_string(spec.qkv_dtype));
  if (spec.kv_dtype) text += fmt::format(", K and V {}", to_string(*spec.kv_dtype));
  if (spec.page_size > 0) text += fmt::format(", pages of {}", spec.page_size);
  if (spec.ragged) text += ", ragged";
  if (spec.ragged_kv) text += ", ragged keys";
  if (spec.sink) text += ", sink";
  text += "\n";
  text +=
      wrapped(fmt::format("config {}: {}", shown(plan["config"]),
                          plan["supported"].get<bool>() ? "supported"
                                                        : "unsupported: " + shown(plan["reason"])),
              "", kIndent);
  const Json& kernel = plan["kernel"];
  text +=
      wrapped(fmt::format("kernel: {}",
                          kernel["supported"].get<bool>() ? "supported" : shown(kernel["reason"])),
              "", kIndent);
  return text + tuned_by(kernel["tuned_by"]);
}

// Names and values in columns, the kernel's beside the reference's where both have one.
std::string fields(const Json& plan) {
  const Json& kernel = plan["kernel"];
  const Json variant = kernel.contains("variants") ? kernel["variants"].front() : Json::object();
  static const std::map<std::string, std::string> kKernelNames{{"smem_used", "smem_bytes"},
                                                               {"num_threads", "threads"}};
  static const char* const kNames[] = {
      "MMA_M",
      "MMA_K",
      "BM",
      "BM_eff",
      "BN",
      "BK0",
      "BK1",
      "padded_qk_depth",
      "padded_ov_depth",
      "rope_depth",
      "fuse_gqa",
      "use_fused_kv",
      "num_kv_stages",
      "num_qk_stages",
      "num_pv_stages",
      "tmem_used",
      "smem_used",
      "num_mbarriers",
      "num_threads",
      "num_consumers",
      "ctas_per_sm",
      "num_stages",
      "num_q_stages",
      "o_blocks",
      "ping_pong",
      "pair_tiles",
      "pack_gqa",
      "consumer_registers",
      "producer_registers",
  };
  std::string text = heading("Configuration");
  const bool both = !variant.empty();
  text += fmt::format("{}{:<20}{:>12}{}\n", kIndent, "", shown(plan["config"]),
                      both ? fmt::format("{:>12}", "kernel") : "");
  for (const std::string name : kNames) {
    if (!plan.contains(name)) continue;
    const auto renamed = kKernelNames.find(name);
    const std::string other = renamed == kKernelNames.end() ? name : renamed->second;
    const Json& where = variant.contains(other) ? variant : kernel;
    std::string line = fmt::format("{}{:<20}{:>12}", kIndent, name, shown(plan[name]));
    if (both) {
      const std::string actual = where.contains(other) ? shown(where[other]) : "-";
      line += fmt::format("{:>12}", actual);
      if (actual != "-" && actual != shown(plan[name])) line += "  *";
    }
    text += line + "\n";
  }
  return text;
}

// A line for each of a list's entries, where it has some.
template <class Line>
std::string entries(const char* title, const Json& list, const Line& line) {
  if (list.empty()) return {};
  std::string text = heading(title);
  for (const Json& entry : list) text += wrapped(line(entry), kIndent, "      ");
  return text;
}

std::string deviations(const Json& kernel) {
  return entries("* Deviations from the reference", kernel["deviations"], [](const Json& entry) {
    return fmt::format("{}: {} instead of {}: {}", shown(entry["name"]), shown(entry["actual"]),
                       shown(entry["reference"]), shown(entry["reason"]));
  });
}

std::string waivers(const Json& kernel) {
  return entries("Orders that the PTX ISA does not promise", kernel["waivers"],
                 [](const Json& entry) {
                   return fmt::format("{}: {}", shown(entry["name"]), shown(entry["reason"]));
                 });
}

std::string launch(const Json& plan) {
  std::string text;
  for (const char* name :
       {"q_tile_rows", "can_switch_to_1q", "launch_smem_used", "switch_1q_smem_used",
        "switch_1q_num_kv_stages", "switch_1q_use_fused_kv", "prefer_1q"}) {
    if (plan.contains(name)) {
      text += fmt::format("{}{:<24}{:>12}\n", kIndent, name, shown(plan[name]));
    }
  }
  return text.empty() ? text : heading("Launch") + text;
}

// One cell per stage, so that the ring is seen.
void add_cells(std::vector<MapCell>& cells, const PlacedRegion& region, std::int64_t parts,
               const std::string& label) {
  if (parts < 1 || region.size % parts != 0) parts = 1;
  for (std::int64_t i = 0; i < parts; ++i) {
    cells.push_back({parts == 1 ? label : fmt::format("{}{}", label, i),
                     region.begin + region.size / parts * i, region.size / parts});
  }
}

std::vector<MapCell> smem_cells(const Sm100Variant& variant) {
  using enum Region;
  const std::map<Region, std::pair<std::int64_t, const char*>> staged{
      {kQ, {variant.num_qo, "Q"}},
      {kKv, {variant.num_kv_stages, "KV"}},
      {kK, {variant.num_kv_stages, "K"}},
      {kV, {variant.num_kv_stages, "V"}},
      {kKRope, {variant.num_rope_buffers, "Kr"}}};
  std::vector<MapCell> cells;
  for (const PlacedRegion& region : variant.smem) {
    const auto found = staged.find(region.region);
    if (found == staged.end()) {
      add_cells(cells, region, 1, region.name);
    } else {
      add_cells(cells, region, found->second.first, found->second.second);
    }
  }
  return cells;
}

std::vector<MapCell> cells_of(const Json& ranges) {
  std::vector<MapCell> cells;
  for (const Json& range : ranges) {
    cells.push_back({range["name"], range["begin"], range["size"]});
  }
  return cells;
}

std::string region_table(const Json& regions) {
  std::string text;
  for (const Json& region : regions) {
    text += fmt::format("{}{:<20}{:>8} .. {:>6}{:>10} bytes\n", kIndent, shown(region["name"]),
                        region["begin"].get<std::int64_t>(),
                        region["begin"].get<std::int64_t>() + region["size"].get<std::int64_t>(),
                        region["size"].get<std::int64_t>());
  }
  return text;
}

// Barriers by name without their index, with how many there are.
std::string barrier_table(const Json& barriers) {
  std::vector<std::pair<std::string, int>> groups;
  for (const Json& barrier : barriers) {
    std::string name = barrier["name"];
    name = name.substr(0, name.find('['));
    name += fmt::format(" ({})", barrier["arrivals"].get<int>());
    if (groups.empty() || groups.back().first != name) {
      groups.emplace_back(name, 1);
    } else {
      ++groups.back().second;
    }
  }
  std::string list;
  for (const auto& [name, count] : groups) {
    list += (list.empty() ? "" : ", ") + name + (count > 1 ? fmt::format(" x{}", count) : "");
  }
  return wrapped(
      fmt::format("{} barriers, in memory order, with (arrivals): {}", barriers.size(), list),
      kIndent, "      ");
}

/// The maps of a body, or of a kernel that has one, whose ranges of shared memory are `smem`.
std::string memory_maps(const std::string& title, const Json& of,
                        const std::vector<MapCell>& smem) {
  const auto overlays = [&](const char* name) { return of.value(name, Json::array()); };
  std::string text = heading(title);
  if (!of["tmem_map"].empty()) {
    text += fmt::format("{}Tensor memory: {} of {} columns, one character is {} columns\n", kIndent,
                        of["tmem_used"].get<std::int64_t>(), kTmem, kTmem / (kTmemWidth - 1));
    text += draw_memory_map(cells_of(of["tmem_map"]), cells_of(overlays("tmem_overlays")), kTmem,
                            kTmemWidth, kIndent) +
            "\n";
  }
  text += fmt::format("{}Shared memory: {} of {} bytes, one character is {:.1f} KiB\n", kIndent,
                      of["smem_bytes"].get<std::int64_t>(), kSmem,
                      static_cast<double>(kSmem) / (kBarWidth - 1) / 1024);
  text += draw_memory_map(smem, cells_of(overlays("smem_overlays")), kSmem, kBarWidth, kIndent);
  for (const Json& overlay : overlays("smem_overlays")) {
    text += wrapped(fmt::format("{} ({} bytes): once {}", shown(overlay["name"]),
                                shown(overlay["size"]), shown(overlay["when"])),
                    kIndent, "      ");
  }
  return text + region_table(of["smem_map"]) + barrier_table(of["barriers"]);
}

std::string roles(const Json& kernel) {
  if (!kernel.contains("roles")) return {};
  std::string text = heading("Warps");
  for (const Json& role : kernel["roles"]) {
    const int first = role["first_warp"];
    const int last = first + role["num_warps"].get<int>() - 1;
    text +=
        fmt::format("{}{:<8}{:<16}{:>4} registers per thread\n", kIndent,
                    first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last),
                    shown(role["name"]), role["registers"].get<int>());
  }
  if (!kernel.contains("tensor_maps")) return text;
  text += heading("Tensor maps");
  for (const Json& map : kernel["tensor_maps"]) {
    std::string box;
    for (std::size_t i = 0; i < map["box"].size(); ++i) {
      box +=
          fmt::format("{}{} {}", i == 0 ? "" : ", ", shown(map["axes"][i]), shown(map["box"][i]));
    }
    text += fmt::format("{}{:<11}{:<6}swizzle {:<4}{} box{} per tile of ({})\n", kIndent,
                        shown(map["name"]), shown(map["dtype"]), shown(map["swizzle"]),
                        shown(map["copies"]), map["copies"] == 1 ? "" : "es", box);
  }
  return text;
}

// What the plan launches after its main kernel.
std::string next_kernels(const KernelPlan& plan) {
  if (plan.kernels.size() == 1) return {};
  std::string text = heading("Then");
  for (std::size_t i = 1; i < plan.kernels.size(); ++i) {
    text += fmt::format("{}{:<20}{:>4} threads per CTA, {} parameters\n", kIndent,
                        plan.kernels[i].entry, plan.kernels[i].threads,
                        plan.kernels[i].parameters.size());
  }
  std::string names;
  for (const WorkspaceId workspace : plan.workspaces) {
    names += fmt::format("{}{}", names.empty() ? "" : ", ", name_of(workspace));
  }
  return text + fmt::format("{}workspaces: {}\n", kIndent, names);
}

}  // namespace

std::string plan_to_text(const PlanDocument& document) {
  const Json& plan = document.json;
  const Json& kernel = plan["kernel"];
  std::string text = head(document.plan.spec, plan) + fields(plan) + deviations(kernel) +
                     waivers(kernel) + launch(plan);
  if (document.plan.sm100 != nullptr) {
    const std::vector<Sm100Variant>& bodies = document.plan.sm100->variants;
    for (std::size_t i = 0; i < bodies.size(); ++i) {
      const std::int64_t queries = bodies[i].num_qo;
      text += memory_maps(
          fmt::format("Memory of the body with {} query tile{}", queries, queries > 1 ? "s" : ""),
          kernel["variants"][i], smem_cells(bodies[i]));
    }
  } else if (!kernel["smem_map"].empty()) {
    text += memory_maps("Memory", kernel, cells_of(kernel["smem_map"]));
  }
  return text + roles(kernel) + next_kernels(document.plan);
}

}  // namespace attnjit
