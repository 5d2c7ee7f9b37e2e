// SPDX-License-Identifier: Apache-2.0
// attnjit reference: computes a spec's attention over given tensors in float64 on the CPU.
#include "verify/reference.h"

#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "cli/json.h"
#include "cli/report.h"
#include "cli/spec_source.h"
#include "verify/given_inputs.h"
#include "verify/npy.h"

namespace attnjit::cli {
namespace {

Status write_doubles(const std::string& path, const std::vector<double>& values,
                     std::vector<std::int64_t> shape) {
  verify::Tensor tensor = verify::make_tensor(Dtype::kF64, std::move(shape));
  std::memcpy(tensor.bytes.data(), values.data(), tensor.bytes.size());
  return verify::write_npy(path, tensor);
}

Status write_results(const std::string& folder, const verify::Problem& problem,
                     const verify::Reference& reference) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (failure) return make_error(ErrorCode::kIo, failure.message(), folder);
  if (Status s = write_doubles(folder + "/o.npy", reference.o, problem.o_shape()); !s) return s;
  return write_doubles(folder + "/lse.npy", reference.lse, problem.lse_shape());
}

}  // namespace

Result<Report> run_reference(const ReferenceArguments& arguments) {
  Result<ResolvedSpec> spec = read_spec(arguments.spec, "sm_100a");  // of which nothing depends
  if (!spec) return std::move(spec).error();
  Result<verify::ProblemRequest> request = read_problem(arguments.problem, *spec);
  if (!request) return std::move(request).error();
  request->all_scalars = true;  // the tensors are the user's: so are the numbers
  Result<verify::NamedTensors> tensors = verify::read_inputs(arguments.inputs);
  if (!tensors) return std::move(tensors).error();
  const Result<verify::Problem> problem =
      verify::given_problem(*spec, std::move(*tensors), *request);
  if (!problem) return problem.error();
  const auto begin = std::chrono::steady_clock::now();
  const Result<verify::Reference> reference = verify::compute_reference(*problem);
  if (!reference) return reference.error();
  const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - begin;
  if (!arguments.output.empty()) {
    if (Status s = write_results(arguments.output, *problem, *reference); !s) {
      return std::move(s).error();
    }
  }
  Json json;
  json["o_shape"] = problem->o_shape();
  json["lse_shape"] = problem->lse_shape();
  json["q_len"] = problem->q_lens;
  json["kv_len"] = problem->kv_lens;
  json["reference_ms"] = took.count();
  Report report;
  report.json = to_text(json);
  report.text =
      fmt::format("{} sequences, {} rows of q, {:.0f} ms{}\n", problem->batch, problem->total_q,
                  took.count(), arguments.output.empty() ? "" : ", in " + arguments.output);
  return report;
}

}  // namespace attnjit::cli
