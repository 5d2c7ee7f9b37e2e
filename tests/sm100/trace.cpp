// SPDX-License-Identifier: Apache-2.0
// One long work tile of the sm_100a kernel, traced in the emulator: two query tiles of 128 rows,
// depth 128, sixteen KV tiles. Says who waited for whom in the steady state, and writes what the
// drawing of it needs (scripts/sm100-trace).
//
//     attnjit_sm100_trace --out FILE.json [--order N]
//
// A role's step is its turn in the loop over KV tiles. Exit code 1 where in some step of the steady
// state a role waits for a step of another that itself waits for that step: neither could be ahead
// of the other. 77: there is no NVRTC.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "../one_launch.h"
#include "plan/sm100/sm100_plan.h"
#include "run_case.h"

namespace attnjit::sm100 {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kTiles = 16;

struct Event {
  enum class Kind { kRun, kWait, kArrival } kind = Kind::kRun;
  std::string role;
  std::string barrier;  // the plan's name
  long long begin = 0, length = 0, phase = 0, issued = 0;
};

// The role of a row of the trace: a warp's, or a unit's.
std::string role_of(const KernelPlan& plan, int row, const std::string& name) {
  for (const Sm100Role& role : plan.sm100->roles) {
    if (row >= role.first_warp && row < role.first_warp + role.num_warps)
      return std::string(to_string(role.id));
  }
  return name;
}

std::vector<Event> read_events(const Json& trace, const KernelPlan& plan,
                               const Sm100Variant& body) {
  std::map<int, std::string> rows;
  long long least = -1;
  for (const Json& json : trace.at("traceEvents")) {
    if (json.at("ph") == "M") rows[json.at("tid")] = json.at("args").at("name");
    if (json.contains("cat")) {
      const long long address = json.at("args").at("barrier");
      least = least < 0 ? address : std::min(least, address);
    }
  }
  std::vector<Event> events;
  for (const Json& json : trace.at("traceEvents")) {
    if (json.at("ph") == "M") continue;
    Event event;
    const int row = json.at("tid");
    event.role = role_of(plan, row, rows[row]);
    event.begin = json.at("ts");
    event.length = json.value("dur", 0LL);
    if (json.contains("cat")) {
      event.kind = json.at("cat") == "wait" ? Event::Kind::kWait : Event::Kind::kArrival;
      event.phase = json.at("args").at("phase");
      event.issued = json.at("args").at("issued");
      // The first barrier of the plan is among those that are used.
      const auto index =
          static_cast<std::size_t>((json.at("args").at("barrier").get<long long>() - least) / 8);
      event.barrier = index < body.barriers.all().size() ? body.barriers.all()[index].name : "?";
    }
    events.push_back(std::move(event));
  }
  return events;
}

// The step of a role that waits for a phase of a barrier, or arrives in it; -1: none of the loop's.
// The MMA warp's step n is O += P V of tile n - 1, then S of tile n.
int step_of(const std::string& role, bool waits, const std::string& barrier, long long phase,
            const Sm100Variant& body) {
  const auto n = static_cast<int>(phase);
  const bool mma = role == "mma";
  if (n < 0) return -1;
  // S full and P full of tile n. A softmax waits for the P before (an arrival of correction's that
  // says that the correction slot is free).
  if (barrier.starts_with("S")) {
    const bool before = mma || barrier.find("_cons") != std::string::npos;
    return waits && before ? n + 1 : n;
  }
  // The factor of tile n is the phase n - 1: the first tile has none.
  if (barrier.starts_with("C")) return n + 1;
  if (barrier.starts_with("K") || barrier.starts_with("V_")) {
    const std::size_t at = barrier.find('[');
    const int index = at == std::string::npos ? 0 : std::atoi(barrier.c_str() + at + 1);
    const auto stages = static_cast<int>(body.num_kv_stages);
    const bool fused = barrier.starts_with("KV_");
    const bool k = barrier.starts_with("K_");
    const int chunks = k ? static_cast<int>(body.num_qk_stages) : 1;
    int slot = n * stages + index / chunks;
    // The load warp waits for what was in the stage that it fills.
    if (role == "load" && waits) slot += stages;
    const int tile = fused ? slot / 2 : slot;
    const bool of_v = fused ? slot % 2 == 1 : !k;
    return tile + (mma && of_v ? 1 : 0);
  }
  return -1;
}

}  // namespace

int run(const std::string& out, std::uint64_t order) {
  ProofCase one;
  one.spec.num_q_heads = 1;
  one.spec.qk_depth = 128;
  one.shape = {1, 256, 128 * kTiles, 1};
  const Result<ProofKernel> kernel = make_kernel(one);
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().to_string().c_str());
    return kernel.error().code == ErrorCode::kEnvironment ? 77 : 1;
  }
  const KernelPlan& plan = kernel->generated.plan;
  const Sm100Variant& body = plan.sm100->variants.front();
  const Result<verify::Problem> problem = problem_of(one, verify::InputKind::kNormal, 1);
  if (!problem) return 1;
  DeviceShape device;
  device.sm_count = 1;
  const Result<LaunchRecipe> recipe = one_launch(
      plan, problem->launch_shapes(), problem->launch_scalars(), problem->param_values(), device);
  if (!recipe) return 1;
  EmulatorOptions options = proof_options(plan, order);
  options.trace_file = out;
  const auto result = emulator::run_kernel(kernel->module, *recipe, *problem, options);
  if (!result || !result->report.passed) {
    std::fprintf(stderr, "the kernel fails\n");
    return 1;
  }
  std::ifstream in(options.trace_file);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const std::vector<Event> events = read_events(Json::parse(text), plan, body);

  // Who is behind an arrival: of a unit, who issued its operation.
  const auto owner = [](const Event& event) -> std::string {
    if (event.role.find("commit") != std::string::npos) return "mma";
    return event.role.find("TMA") != std::string::npos ? "load" : event.role;
  };
  using Step = std::pair<std::string, int>;
  std::map<std::pair<std::string, long long>, std::set<Step>> arrivals;
  for (const Event& event : events) {
    if (event.kind != Event::Kind::kArrival) continue;
    const std::string role = owner(event);
    arrivals[{event.barrier, event.phase}].insert(
        {role, step_of(role, false, event.barrier, event.phase, body)});
  }
  std::map<std::pair<Step, Step>, std::string> edges;  // who waits, for whom: at which barrier
  for (const Event& event : events) {
    if (event.kind != Event::Kind::kWait || event.phase < 0) continue;
    const int step = step_of(event.role, true, event.barrier, event.phase, body);
    if (step < 0) continue;
    for (const Step& of : arrivals[{event.barrier, event.phase}]) {
      edges[{{event.role, step}, of}] = event.barrier;
    }
  }
  std::map<std::string, std::map<int, int>> summary;  // "a waits for b at x" -> distance -> often
  std::map<std::string, int> mutual;
  for (const auto& [edge, barrier] : edges) {
    const auto& [waiter, of] = edge;
    const bool steady = waiter.second >= 3 && waiter.second < kTiles - 3;
    if (!steady || waiter.first == of.first) continue;
    const std::string name = barrier.substr(0, barrier.find('['));
    ++summary[fmt::format("{} waits for {} at {}", waiter.first, of.first, name)]
             [of.second - waiter.second];
    const auto back = edges.find({of, waiter});
    if (back != edges.end()) {
      ++mutual[fmt::format("{} at {}, {} at {}", waiter.first, name, of.first,
                           back->second.substr(0, back->second.find('[')))];
    }
  }
  for (const auto& [what, distances] : summary) {
    std::string list;
    for (const auto& [distance, often] : distances) {
      list += fmt::format("{}{:+d} ({})", list.empty() ? "" : ", ", distance, often);
    }
    std::printf("%s, steps from its own: %s\n", what.c_str(), list.c_str());
  }
  for (const auto& [what, often] : mutual) {
    std::printf("each waits for the other's same step: %s (%d)\n", what.c_str(), often);
  }
  if (summary.size() < 8) {
    std::printf("the trace shows too few waits\n");
    return 1;
  }
  return mutual.empty() ? 0 : 1;
}

}  // namespace attnjit::sm100

int main(int argc, char** argv) {
  std::string out;
  std::uint64_t order = 0;
  for (int i = 1; i + 1 < argc; i += 2) {
    if (std::strcmp(argv[i], "--out") == 0) out = argv[i + 1];
    if (std::strcmp(argv[i], "--order") == 0) order = std::strtoull(argv[i + 1], nullptr, 10);
  }
  if (out.empty()) {
    std::fprintf(stderr, "usage: attnjit_sm100_trace --out FILE.json [--order N]\n");
    return 2;
  }
  return attnjit::sm100::run(out, order);
}
