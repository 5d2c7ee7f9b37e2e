// SPDX-License-Identifier: Apache-2.0
// Implements the emulator's interface: modules, launches and reports.
#include "attnjit/emulator.h"

#include <fmt/format.h>

#include <chrono>
#include <cstring>
#include <map>

#include "emulator/decode/decoding.h"
#include "emulator/machine/machine.h"
#include "emulator/machine/module_state.h"
#include "emulator/machine/run.h"
#include "emulator/model/tensor_map.h"
#include "emulator/ptx/parser.h"

namespace attnjit {

using emulator::u64;
using emulator::u8;

std::string_view to_string(FindingKind kind) {
  switch (kind) {
    case FindingKind::kDeadlock:
      return "deadlock";
    case FindingKind::kRace:
      return "race";
    case FindingKind::kProxy:
      return "proxy";
    case FindingKind::kUninitialised:
      return "uninitialised";
    case FindingKind::kBounds:
      return "bounds";
    case FindingKind::kAlign:
      return "align";
    case FindingKind::kSpace:
      return "space";
    case FindingKind::kBarrier:
      return "barrier";
    case FindingKind::kTmem:
      return "tmem";
    case FindingKind::kAligned:
      return "aligned";
    case FindingKind::kSetmaxnreg:
      return "setmaxnreg";
    case FindingKind::kDescriptor:
      return "descriptor";
    case FindingKind::kSteps:
      return "steps";
    case FindingKind::kWorkspace:
      return "workspace";
  }
  return "?";
}

Result<PtxModule> PtxModule::load(std::string text) {
  auto parsed = emulator::parse_ptx(std::move(text));
  if (!parsed) return parsed.error();
  auto state = std::make_shared<State>();
  state->module = std::make_shared<const emulator::Module>(std::move(parsed).value());
  for (const emulator::Function& function : state->module->functions) {
    if (!function.has_body) continue;
    emulator::ProgramBuilder builder(state->module);
    auto program = builder.build(function);
    if (!program) {
      Error error = std::move(program).error();
      if (error.line > 0 && error.column == 0) error.column = 1;  // of a whole declaration
      return error;
    }
    if (!function.is_entry) continue;
    state->names.emplace_back(function.name);
    state->programs.emplace(std::string(function.name), std::move(program).value());
  }
  return PtxModule(std::move(state));
}

std::vector<std::string> PtxModule::entries() const { return state_->names; }

namespace {

Error bad(std::string message, std::string field) {
  return make_error(ErrorCode::kInvalid, std::move(message), std::move(field));
}

struct Launch {
  std::vector<u8> parameters;
  std::vector<emulator::GlobalBuffer> buffers;
  std::vector<std::vector<u8>> own;  ///< workspaces and tensor maps in memory
  bool launches_dependents = false;  ///< the launch before may still run
};

Result<void> check_shape(const emulator::Program& program, const LaunchRecipe& recipe) {
  u64 threads = 1, cluster = 1;
  for (int i = 0; i < 3; ++i) {
    if (recipe.block[i] == 0 || recipe.cluster[i] == 0) return bad("extents are positive", "block");
    threads *= recipe.block[i];
    cluster *= recipe.cluster[i];
    if (threads > 1024)
      return bad(fmt::format("a CTA has at most 1024 threads, not {}", threads), "block");
    if (cluster > 16) return bad("a cluster has at most 16 CTAs", "cluster");
    if (recipe.grid[i] % recipe.cluster[i] != 0)
      return bad(fmt::format("the grid's extent {} is no multiple of the cluster's {}",
                             recipe.grid[i], recipe.cluster[i]),
                 "grid");
    if (program.required_cluster[i] != 0 && program.required_cluster[i] != recipe.cluster[i]) {
      return bad(
          fmt::format("the kernel requires a cluster of {}x{}x{}", program.required_cluster[0],
                      program.required_cluster[1], program.required_cluster[2]),
          "cluster");
    }
    if (program.required_threads[0] != 0 && program.required_threads[i] != recipe.block[i]) {
      return bad(fmt::format("the kernel requires a block of {}x{}x{}", program.required_threads[0],
                             program.required_threads[1], program.required_threads[2]),
                 "block");
    }
  }
  if (program.max_threads[0] != 0 && threads > static_cast<u64>(program.max_threads[0]) *
                                                   program.max_threads[1] *
                                                   program.max_threads[2]) {
    return bad(fmt::format("a block of {} threads, the kernel allows {}", threads,
                           static_cast<u64>(program.max_threads[0]) * program.max_threads[1] *
                               program.max_threads[2]),
               "block");
  }
  const u64 smem = static_cast<u64>(program.static_smem_end) + recipe.dynamic_smem;
  if (smem > emulator::kMaxSharedBytes) {
    return bad(fmt::format("{} bytes of shared memory, a CTA has at most {}",
                           smem - emulator::kSharedBegin,
                           emulator::kMaxSharedBytes - emulator::kSharedBegin),
               "dynamic_smem");
  }
  constexpr std::array<u64, 3> kMostGrid = {0x7fffffff, 65535, 65535};
  for (std::size_t i = 0; i < 3; ++i) {
    if (recipe.grid[i] > kMostGrid[i]) {
      return bad(
          fmt::format("the grid's {} is {}, at most {}", "xyz"[i], recipe.grid[i], kMostGrid[i]),
          "grid");
    }
  }
  const u64 ctas = static_cast<u64>(recipe.grid[0]) * recipe.grid[1] * recipe.grid[2];
  if (ctas > (u64{1} << 31)) return bad("the grid is too large", "grid");
  return {};
}

Result<void> place_buffers(const std::vector<Workspace>& workspaces,
                           std::vector<EmulatorBuffer>& buffers, bool checks, Launch* launch) {
  for (EmulatorBuffer& b : buffers) {
    u64 elements = 1;
    for (const u64 extent : b.shape) {
      if (extent != 0 && elements > (u64{1} << 36) / extent)
        return bad(fmt::format("buffer {} is too large", b.name), b.name);
      elements *= extent;
    }
    const u64 bytes = elements * static_cast<u64>(size_of(b.dtype));
    if (bytes != b.data.size())
      return bad(fmt::format("buffer {} has {} bytes of data, its shape needs {}", b.name,
                             b.data.size(), bytes),
                 b.name);
    if (bytes > (u64{1} << 35))
      return bad(fmt::format("buffer {} is larger than 32 GiB", b.name), b.name);
    emulator::GlobalBuffer g;
    g.name = b.name;
    g.data = b.data.data();
    g.bytes = bytes;
    if (checks && b.uninitialised) g.poison.assign(bytes, 1);
    g.left_zero = checks && b.left_zero;
    for (const auto& other : launch->buffers) {
      if (!other.name.empty() && other.name == g.name)
        return bad(fmt::format("buffer {} is given twice", b.name), b.name);
    }
    launch->buffers.push_back(std::move(g));
  }
  for (const Workspace& w : workspaces) {
    bool given = false;
    for (auto& other : launch->buffers) {
      if (other.name != w.name) continue;
      given = true;
      // NOTE: a caller may set words of wait_records, which then stay as they are.
      const bool was_zero =
          std::all_of(other.data, other.data + other.bytes, [](u8 byte) { return byte == 0; });
      other.left_zero = other.left_zero || (checks && w.zeroed && was_zero);
    }
    if (given || w.bytes <= 0) continue;
    if (w.bytes > (std::int64_t{1} << 34))
      return bad("the workspace is larger than 16 GiB", w.name);
    launch->own.emplace_back(static_cast<std::size_t>(w.bytes), w.zeroed ? u8{0} : u8{0xCD});
    emulator::GlobalBuffer g;
    g.name = w.name;
    g.data = launch->own.back().data();
    g.bytes = launch->own.back().size();
    g.workspace = true;
    g.left_zero = checks && w.zeroed;
    if (checks && !w.zeroed) g.poison.assign(g.bytes, 1);
    launch->buffers.push_back(std::move(g));
  }
  return {};
}

int find_buffer(const Launch& launch, const std::string& name) {
  for (std::size_t i = 1; i < launch.buffers.size(); ++i) {
    if (launch.buffers[i].name == name) return static_cast<int>(i);
  }
  return -1;
}

Result<emulator::TensorMapBytes> encode_map(const LaunchRecipe& recipe, const Launch& launch,
                                            const std::string& name) {
  for (const TensorMapDescription& m : recipe.tensor_maps) {
    if (m.name != name) continue;
    const std::string field = "tensor_maps." + name;
    const int b = find_buffer(launch, m.buffer);
    if (b < 0) return bad(fmt::format("there is no buffer {}", m.buffer), field);
    std::string error;
    const auto map =
        emulator::make_tensor_map(m, emulator::buffer_base(static_cast<u64>(b)), &error);
    if (!map) return bad(error, field);
    return emulator::encode_tensor_map(*map);
  }
  return bad(fmt::format("there is no tensor map {}", name), name);
}

/// The bytes of argument i, where `room` bytes of a parameter are left to fill.
Result<std::vector<u8>> argument_bytes(const LaunchRecipe& recipe, std::size_t i, std::size_t room,
                                       Launch* launch) {
  const auto raw = [](const void* from, std::size_t bytes) {
    const auto* data = static_cast<const u8*>(from);
    return std::vector<u8>(data, data + bytes);
  };
  const auto& value = recipe.args[i].value;
  if (const auto* p = std::get_if<KernelArgument::Pointer>(&value)) {
    u64 address = 0;
    if (!p->buffer.empty()) {
      const int b = find_buffer(*launch, p->buffer);
      if (b < 0)
        return bad(fmt::format("argument {}: there is no buffer {}", i, p->buffer), p->buffer);
      address = emulator::buffer_base(static_cast<u64>(b)) + static_cast<u64>(p->offset);
    }
    return raw(&address, 8);
  }
  if (const auto* i32 = std::get_if<std::int32_t>(&value)) {
    // Narrow parameters (u8, u16) take the low bytes.
    return raw(i32, std::min<std::size_t>(room, 4));
  }
  if (const auto* i64 = std::get_if<std::int64_t>(&value)) return raw(i64, 8);
  if (const auto* f32 = std::get_if<float>(&value)) return raw(f32, 4);
  if (const auto* map = std::get_if<KernelArgument::TensorMap>(&value)) {
    auto bytes = encode_map(recipe, *launch, map->name);
    if (!bytes) return bytes.error();
    if (room != 8) return raw(bytes->data(), bytes->size());
    // Passed by address: the map lies in global memory.
    launch->own.emplace_back(sizeof(*bytes) + 128);
    emulator::GlobalBuffer g;
    g.name = "tensor map " + map->name;
    g.data = launch->own.back().data();
    g.bytes = launch->own.back().size();
    launch->buffers.push_back(std::move(g));
    const u64 address = emulator::buffer_base(launch->buffers.size() - 1);
    std::memcpy(launch->own.back().data(), bytes->data(), bytes->size());
    return raw(&address, 8);
  }
  return std::get<KernelArgument::Bytes>(value).data;
}

// A parameter that is a structure takes as many arguments as fill it, each at its alignment.
Result<void> encode_parameters(const emulator::Program& program, const LaunchRecipe& recipe,
                               Launch* launch) {
  const auto& places = program.functions[0].parameters;
  launch->parameters.assign(program.parameter_bytes, 0);
  std::size_t next = 0;
  const auto count = [&] {
    return fmt::format("{} arguments, kernel {} has {} parameters", recipe.args.size(),
                       recipe.entry, places.size());
  };
  for (const auto& place : places) {
    std::size_t filled = 0;
    while (filled < place.bytes) {
      if (next == recipe.args.size()) {
        return bad(fmt::format("{}: {} of the {} bytes of parameter {} are given", count(), filled,
                               place.bytes, place.name),
                   "args");
      }
      auto bytes = argument_bytes(recipe, next, place.bytes - filled, launch);
      if (!bytes) return bytes.error();
      const bool scalar = !std::holds_alternative<KernelArgument::Bytes>(recipe.args[next].value);
      const std::size_t align = scalar ? std::min<std::size_t>(bytes->size(), 64) : 1;
      filled = (filled + align - 1) / align * align;
      if (bytes->empty() || filled + bytes->size() > place.bytes) {
        return bad(fmt::format("{}: argument {} has {} bytes, parameter {} takes {}{}", count(),
                               next, bytes->size(), place.name, place.bytes,
                               filled != 0 ? fmt::format(", {} of them filled", filled) : ""),
                   "args");
      }
      std::memcpy(launch->parameters.data() + place.offset + filled, bytes->data(), bytes->size());
      filled += bytes->size();
      ++next;
    }
  }
  if (next != recipe.args.size()) {
    return bad(fmt::format("{}: {} arguments are left over", count(), recipe.args.size() - next),
               "args");
  }
  return {};
}

void add_stats(EmulatorStats& into, const EmulatorStats& from) {
  for (const auto& [k, v] : from.warp_instructions) into.warp_instructions[k] += v;
  for (const auto& [k, v] : from.thread_instructions) into.thread_instructions[k] += v;
  for (const auto& [k, v] : from.unit_bytes) into.unit_bytes[k] += v;
  for (const auto& [k, v] : from.barrier_wait_steps) into.barrier_wait_steps[k] += v;
  into.warp_steps.resize(std::max(into.warp_steps.size(), from.warp_steps.size()));
  for (std::size_t i = 0; i < from.warp_steps.size(); ++i) into.warp_steps[i] += from.warp_steps[i];
  into.mma_operations += from.mma_operations;
  into.bank_conflicts += from.bank_conflicts;
}

}  // namespace

namespace {

/// The kernels of a sequence, checked. Errors: kInvalid.
Result<std::vector<const emulator::Program*>> find_programs(const PtxModule& module,
                                                            const LaunchSequence& sequence) {
  std::vector<const emulator::Program*> programs;
  for (const LaunchRecipe& recipe : sequence.launches) {
    const auto it = module.state().programs.find(recipe.entry);
    if (it == module.state().programs.end())
      return bad(fmt::format("the module has no kernel {}", recipe.entry), "entry");
    if (auto checked = check_shape(*it->second, recipe); !checked) return checked.error();
    programs.push_back(it->second.get());
  }
  return programs;
}

/// Collects the findings of all runs: those of one kind at one line are one, with a count.
class Findings {
 public:
  Findings(std::uint32_t most, EmulatorReport& report) : most_(most), report_(report) {}

  /// Whether one of them fails the run.
  bool add(std::vector<Finding>& findings) {
    bool failed = false;
    for (Finding& finding : findings) {
      failed = failed || !finding.warning;
      bool known = false;
      for (Finding& other : report_.findings) {
        if (other.kind == finding.kind && other.ptx_line == finding.ptx_line &&
            other.warning == finding.warning) {
          other.count += finding.count;
          known = true;
          break;
        }
      }
      std::uint32_t& told = finding.warning ? warnings_told_ : findings_told_;
      if (known || told >= most_) continue;
      ++told;
      report_.findings.push_back(std::move(finding));
    }
    return failed;
  }

 private:
  std::uint32_t most_;
  EmulatorReport& report_;
  std::uint32_t findings_told_ = 0, warnings_told_ = 0;
};

/// What the launches of a run were to leave zero and did not: the next launch over the same
/// workspace finds it so.
std::vector<Finding> left_behind(const Launch& memory, u64 seed) {
  std::vector<Finding> findings;
  for (const emulator::GlobalBuffer& buffer : memory.buffers) {
    if (!buffer.left_zero) continue;
    const u8* const begin = buffer.data;
    const u8* const end = begin + buffer.bytes;
    const u8* const found = std::find_if(begin, end, [](u8 byte) { return byte != 0; });
    if (found == end) continue;
    Finding finding;
    finding.kind = FindingKind::kWorkspace;
    finding.seed = seed;
    finding.text =
        fmt::format("byte {} of {} is {:#04x} after the launch, which is to leave it zero",
                    found - begin, buffer.name, *found);
    findings.push_back(std::move(finding));
  }
  return findings;
}

/// Runs one launch over `memory`, which carries what is initialised from launch to launch.
/// Returns whether it passed.
Result<bool> run_launch(const emulator::Program& program, const LaunchRecipe& recipe,
                        const EmulatorOptions& options, u64 seed, Launch* memory,
                        const emulator::RunMachine& run, Findings* findings,
                        EmulatorReport* report) {
  const std::size_t own = memory->own.size();
  const std::size_t placed = memory->buffers.size();
  memory->own.push_back(program.global_image);
  memory->buffers[0].data = memory->own.back().data();
  memory->buffers[0].bytes = memory->own.back().size();
  if (auto encoded = encode_parameters(program, recipe, memory); !encoded) return encoded.error();
  emulator::Machine machine(program, recipe, options, seed);
  machine.parameters = std::move(memory->parameters);
  machine.buffers = std::move(memory->buffers);
  for (emulator::GlobalBuffer& buffer : machine.buffers) {
    // Those before that one, too: it may have begun, and let this one begin, before they end.
    if (!memory->launches_dependents) buffer.before = {};
    buffer.before.read |= memory->launches_dependents && buffer.uses.read;
    buffer.before.written |= memory->launches_dependents && buffer.uses.written;
    buffer.uses = {};
  }
  const auto begin = std::chrono::steady_clock::now();
  if (Status ran = run(machine); !ran) return ran.error();
  report->seconds +=
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  report->steps += machine.total_steps;
  report->thread_steps += machine.total_thread_steps;
  add_stats(report->stats, machine.stats);
  if (!options.trace_file.empty()) {
    if (Status written = emulator::write_trace(options.trace_file, machine.trace, program);
        !written)
      return written.error();
  }
  memory->launches_dependents = machine.launches_dependents;
  memory->buffers = std::move(machine.buffers);
  memory->buffers.resize(placed);
  memory->own.resize(own);
  return !findings->add(machine.findings);
}

}  // namespace

Result<EmulatorReport> emulator::emulate_by(const PtxModule& module, const LaunchSequence& sequence,
                                            std::vector<EmulatorBuffer>& buffers,
                                            const EmulatorOptions& options,
                                            const RunMachine& run_machine) {
  const auto programs = find_programs(module, sequence);
  if (!programs) return programs.error();
  EmulatorReport report;
  report.passed = true;
  Findings findings(options.max_findings, report);
  std::vector<std::vector<u8>> initial;
  if (options.seeds > 1) {
    for (const EmulatorBuffer& b : buffers) initial.push_back(b.data);
  }
  for (std::uint32_t run = 0; run < std::max<std::uint32_t>(options.seeds, 1) && report.passed;
       ++run) {
    if (run != 0) {
      for (std::size_t i = 0; i < buffers.size(); ++i)
        std::memcpy(buffers[i].data.data(), initial[i].data(), initial[i].size());
    }
    Launch memory;
    memory.buffers.emplace_back();  // [0] is the module's variables
    if (auto placed = place_buffers(sequence.workspaces, buffers, options.checks, &memory); !placed)
      return placed.error();
    for (std::size_t i = 0; i < programs->size() && report.passed; ++i) {
      const auto passed = run_launch(*(*programs)[i], sequence.launches[i], options,
                                     options.seed + run, &memory, run_machine, &findings, &report);
      if (!passed) return passed.error();
      report.passed = *passed;
    }
    if (!report.passed) continue;
    std::vector<Finding> left = left_behind(memory, options.seed + run);
    report.passed = !findings.add(left);
  }
  return report;
}

Result<EmulatorReport> emulate(const PtxModule& module, const LaunchSequence& sequence,
                               std::vector<EmulatorBuffer>& buffers,
                               const EmulatorOptions& options) {
  return emulator::emulate_by(module, sequence, buffers, options, [](emulator::Machine& machine) {
    machine.run();
    return Status{};
  });
}

Result<EmulatorReport> emulate(const PtxModule& module, const LaunchRecipe& recipe,
                               std::vector<EmulatorBuffer>& buffers,
                               const EmulatorOptions& options) {
  return emulate(module, LaunchSequence{{recipe}, {}}, buffers, options);
}

}  // namespace attnjit
