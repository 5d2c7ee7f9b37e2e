// SPDX-License-Identifier: Apache-2.0
// attnjit compile: compiles a spec's kernel, or finds it in the cache, and reports what it uses.
#include <fmt/format.h>

#include "cli/files.h"
#include "cli/json.h"
#include "cli/report.h"
#include "cli/session.h"
#include "cli/spec_source.h"

namespace attnjit::cli {

Result<Report> run_compile(const CompileArguments& arguments) {
  Result<ResolvedSpec> spec = read_spec(arguments.spec);
  if (!spec) return std::move(spec).error();
  Result<Session> session = open_session(arguments.spec, *spec);
  if (!session) return std::move(session).error();
  const PreparedSpec& prepared = session->prepared;
  Result<CompiledKernel> compiled =
      session->service->compile(prepared, compile_deadline(),
                                arguments.ptx.empty() ? PtxNeed::kIfStored : PtxNeed::kRequired);
  if (!compiled) return std::move(compiled).error();

  const KernelImage& image = *compiled->image;
  const KernelPlan& plan = prepared.plan();
  if (!arguments.cubin.empty()) {
    const std::string_view bytes(reinterpret_cast<const char*>(image.cubin.data()),
                                 image.cubin.size());
    if (Status s = write_file(arguments.cubin, bytes); !s) return std::move(s).error();
  }
  if (!arguments.ptx.empty()) {
    if (Status s = write_file(arguments.ptx, image.ptx); !s) return std::move(s).error();
  }

  const std::int64_t smem = image.usage.static_smem_bytes + plan.main().smem_bytes;
  Json json;
  json["key"] = prepared.key().hex;
  json["arch"] = std::string(to_string(plan.spec->arch));
  json["entry"] = plan.main().entry;
  json["outcome"] = std::string(to_string(compiled->outcome));
  json["compile_ms"] = compiled->compile_ms;
  json["total_ms"] = compiled->total_ms;
  if (compiled->outcome == Outcome::kCompiled) {
    json["frontend_ms"] = image.times.frontend_ms;
    json["optimizer_ms"] = image.times.optimizer_ms;
    json["ptxas_ms"] = image.times.ptxas_ms;
  }
  json["registers"] = image.usage.registers;
  json["spill_bytes"] = image.usage.spill_bytes;
  json["stack_bytes"] = image.usage.stack_bytes;
  json["smem_bytes"] = smem;
  json["cubin_bytes"] = image.cubin.size();
  json["nvrtc_version"] = image.nvrtc_version;
  json["kernels"] = Json::array();
  for (std::size_t i = 0; i < plan.kernels.size() && i < image.entry_usage.size(); ++i) {
    const ResourceUsage& usage = image.entry_usage[i];
    json["kernels"].push_back(
        {{"entry", plan.kernels[i].entry},
         {"registers", usage.registers},
         {"spill_bytes", usage.spill_bytes},
         {"stack_bytes", usage.stack_bytes},
         {"smem_bytes", usage.static_smem_bytes + plan.kernels[i].smem_bytes}});
  }

  Report report;
  report.json = to_text(json);
  report.text = fmt::format(
      "key      {}\narch     {}\nentry    {}\noutcome  {} in {:.1f} ms ({:.1f} ms in all)\n"
      "kernel   {} registers, {} bytes spilled, {} bytes of stack, {} bytes of shared memory\n"
      "cubin    {} bytes, NVRTC {}\n",
      prepared.key().hex, to_string(plan.spec->arch), plan.main().entry,
      to_string(compiled->outcome), compiled->compile_ms, compiled->total_ms, image.usage.registers,
      image.usage.spill_bytes, image.usage.stack_bytes, smem, image.cubin.size(),
      image.nvrtc_version);
  return report;
}

}  // namespace attnjit::cli
