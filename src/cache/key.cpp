// SPDX-License-Identifier: Apache-2.0
// request_key: what decides an image, as length-prefixed fields, and its SHA-256.
#include <vector>

#include "attnjit/cache.h"
#include "base/sha256.h"
#include "cache/bytes.h"
#include "cache/entry_format.h"

namespace attnjit {
namespace {

// Each list is preceded by its length and each string by its own, so that no two different inputs
// give the same bytes. A field that is added, dropped or moved needs a new kFormatVersion.
std::string plan_material(const KernelPlan& plan) {
  cache::ByteWriter out;
  out.u64(plan.kernels.size());
  for (const PlannedKernel& kernel : plan.kernels) {
    out.string(kernel.entry);
    out.string(kernel.kernel_header);
    out.i64(kernel.threads);
    out.i64(kernel.cluster);
    out.i64(kernel.smem_bytes);
    out.i64(kernel.launch_registers);
    out.u64(kernel.constants.size());
    for (const ConfigConstant& constant : kernel.constants) {
      out.string(constant.type);
      out.string(constant.name);
      out.string(constant.value);
    }
    out.u64(kernel.parameters.size());
    for (const KernelParameter& parameter : kernel.parameters) {
      out.string(parameter.name);
      out.u32(static_cast<std::uint32_t>(parameter.kind));
      out.string(parameter.cuda_type);
    }
  }
  return std::move(out).bytes();
}

void strings(cache::ByteWriter& out, const std::vector<std::string>& list) {
  out.u64(list.size());
  for (const std::string& text : list) out.string(text);
}

}  // namespace

RequestKey request_key(const KernelPlan& plan, const KernelSource& source) {
  cache::ByteWriter out;
  out.raw("attnjit request key\n");
  out.u32(cache::kFormatVersion);
  out.string(source.trusted ? "trusted" : "expression");
  out.string(to_string(source.arch));
  out.string(plan_material(plan));
  out.string(source.name);
  out.string(source.template_digest);
  // By digest: they are long, and the material is stored in every entry.
  out.string(source.headers.digest());
  out.string(source.text);
  out.string(source.user_code);
  strings(out, source.options);
  strings(out, source.entries);

  RequestKey key;
  key.material = std::move(out).bytes();
  key.hex = to_hex(sha256(key.material));
  key.arch = source.arch;
  return key;
}

}  // namespace attnjit
