// SPDX-License-Identifier: Apache-2.0
// Prints the specs that scripts/same-kernels compares, one JSON object a line: {"name", "spec"}.
//
//     attnjit_kernel_specs [RANDOM [SEED]]
//
// They are the grids of both families, the manifests of cache/, the named cases of sm_100a's proof,
// and RANDOM random ones for each architecture (default: 300).
#include <fmt/format.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "../kernel_grid.h"
#include "../sm100/proof_cases.h"

namespace attnjit::kernel_test {
namespace {

constexpr Arch kArchs[] = {Arch::kSm90a, Arch::kSm100a, Arch::kSm103a};

void print(const NamedSpec& one) {
  nlohmann::ordered_json line;
  line["name"] = one.name;
  line["spec"] = nlohmann::ordered_json::parse(spec_to_json(one.spec, one.options));
  line["spec"]["arch"] = to_string(one.spec.arch);  // also where it is the default
  std::puts(line.dump().c_str());
}

int run(std::uint64_t random, std::uint64_t seed) {
  for (const NamedSpec& one : manifest_specs({std::begin(kArchs), std::end(kArchs)})) print(one);
  for (const NamedSpec& one : sm90_grid()) print(one);
  for (const NamedSpec& one : sm100_grid()) print(one);
  for (const sm100::ProofCase& one : sm100::named_cases()) {
    print({one.name, one.spec, one.options});
  }
  for (std::uint64_t i = 0; i < random; ++i) {
    sm100::ProofCase one = sm100::random_case(seed, i);
    for (const Arch arch : kArchs) {
      one.spec.arch = arch;
      print({fmt::format("{}, {}", one.name, to_string(arch)), one.spec, {}});
    }
  }
  return 0;
}

}  // namespace
}  // namespace attnjit::kernel_test

int main(int argc, char** argv) {
  const auto number = [&](int i, std::uint64_t otherwise) {
    return argc > i ? std::strtoull(argv[i], nullptr, 10) : otherwise;
  };
  return attnjit::kernel_test::run(number(1, 300), number(2, 1));
}
