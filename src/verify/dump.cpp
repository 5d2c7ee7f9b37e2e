// SPDX-License-Identifier: Apache-2.0
// Writes spec.json and a .npy file for each tensor.
#include "verify/dump.h"

#include <fmt/format.h>

#include <filesystem>
#include <fstream>

#include "verify/npy.h"
#include "verify/numeric.h"

namespace attnjit::verify {

Status dump(const std::string& folder, const Problem& problem, const PlanOptions& options,
            const Tensor& o, const Tensor* lse) {
  std::error_code failure;
  std::filesystem::create_directories(folder, failure);
  if (!std::filesystem::is_directory(folder, failure)) {
    return make_error(ErrorCode::kIo, "this folder cannot be made", folder);
  }
  const std::string spec_path = folder + "/spec.json";
  std::ofstream spec(spec_path, std::ios::binary | std::ios::trunc);
  spec << spec_to_json(problem.spec, options) << '\n';
  spec.close();
  if (!spec) return make_error(ErrorCode::kIo, "cannot be written", spec_path);

  Tensor scale = make_tensor(Dtype::kF32, {});
  *scale.as<float>() = problem.scale;
  const auto write = [&](const std::string& name, const Tensor& tensor) {
    return write_npy(fmt::format("{}/{}.npy", folder, name), widened(tensor));
  };
  if (Status status = write("scale", scale); !status) return status;
  for (const auto& [name, tensor] : problem.tensors) {
    if (Status status = write(name, tensor); !status) return status;
  }
  if (Status status = write("o", o); !status) return status;
  if (lse != nullptr) return write("lse", *lse);
  return {};
}

}  // namespace attnjit::verify
