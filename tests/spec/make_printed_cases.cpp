// SPDX-License-Identifier: Apache-2.0
// Writes a C++ file of random expressions as print_cuda prints them, for expression_random_test.
#include <cstdio>
#include <fstream>

#include "random_expression.h"
#include "spec/expression.h"
#include "spec/expression_ranges.h"

int main(int argc, char** argv) {
  namespace spec = attnjit::spec;
  if (argc != 2) return 2;
  std::ofstream out(argv[1]);
  out << "#include \"printed_cases.h\"\n#include \"printed_shim.h\"\n"
         "namespace attnjit::spec {\n"
         "namespace shim {\n";
  std::string table;
  int count = 0;
  for (std::uint32_t seed = 100000; count < 400; ++seed) {
    const auto parsed =
        spec::parse_expression(spec::random::Generator(seed).mask()->text(),
                               spec::SnippetKind::kMask, spec::random::Params::declared());
    if (!parsed) continue;
    const std::string name = "visible_" + std::to_string(count++);
    out << "static bool " << name << "(const Coordinates& c, const random::Params& given) {\n"
        << "  const Params p(given);\n  (void)c, (void)p;\n  return " << spec::print_cuda(*parsed)
        << ";\n}\n"
        << "static IntRange ranges_of_" << name
        << "(const TileCoord& t, const random::Params& given) {\n"
        << "  const Params p(given);\n  (void)t, (void)p;\n  return "
        << spec::print_cuda_ranges(*parsed) << ";\n}\n";
    table +=
        "    {" + std::to_string(seed) + ", shim::" + name + ", shim::ranges_of_" + name + "},\n";
  }
  out << "}  // namespace shim\nextern const PrintedCase kPrintedCases[] = {\n"
      << table << "};\nextern const std::size_t kPrintedCaseCount = " << count
      << ";\n}  // namespace attnjit::spec\n";
  return out.flush() ? 0 : 1;
}
