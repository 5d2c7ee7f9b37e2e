// SPDX-License-Identifier: Apache-2.0
// Embeds attnjit: plans an attention and asks the Service for its kernel, with every error shown.
//
// Works on a machine with neither NVRTC nor a GPU: it then says what is missing and exits with 4.
#include <chrono>
#include <cstdio>

#include "attnjit/service.h"
#include "attnjit/spec.h"

int main() {
  const auto document = attnjit::spec_from_json(R"({
    "arch": "sm_90a", "num_q_heads": 32, "group": 4, "qk_depth": 128, "return_lse": true,
    "mask": "causal"})");
  if (!document) {
    std::fprintf(stderr, "%s\n", document.error().to_string().c_str());
    return attnjit::exit_code(document.error().code);
  }
  auto service = attnjit::Service::create();
  if (!service) {
    std::fprintf(stderr, "%s\n", service.error().to_string().c_str());
    return attnjit::exit_code(service.error().code);
  }
  // Prepared once per model: planned, rendered, hashed. The hot path never sees the spec again.
  const auto prepared = (*service)->prepare(document->spec, document->options);
  if (!prepared) {
    std::fprintf(stderr, "%s\n", prepared.error().to_string().c_str());
    return attnjit::exit_code(prepared.error().code);
  }
  std::printf("key %s\n", prepared->key().hex.c_str());
  const auto kernel =
      (*service)->compile(*prepared, std::chrono::steady_clock::now() + std::chrono::seconds(60));
  if (!kernel) {
    std::fprintf(stderr, "%s\n", kernel.error().to_string().c_str());
    return attnjit::exit_code(kernel.error().code);
  }
  std::printf("%zu bytes of cubin, %d registers\n", kernel->image->cubin.size(),
              kernel->image->usage.registers);
  return 0;
}
