// SPDX-License-Identifier: Apache-2.0
// e4m3 upcast to fp16 and bf16 by templates/common/eight_bits.cuh: each of the 256 bytes at each
// of a word's four places, on every architecture. Skipped without NVRTC.
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit::sm90 {
namespace {

using namespace kernel_test;

constexpr std::uint32_t kWords = 256;

class Upcasting : public KernelTest {
 protected:
  static std::string upcasting_ptx(Arch arch, Dtype to) {
    CompileRequest request;
    request.source = generate(*plan(base_spec(arch, 1, 1, 64, mask_of(Kind::kNull)))).value();
    request.source.headers = HeaderSet(TemplateSet::embedded().files());
    request.source.entries = {"upcast"};
    request.source.text =
        std::string(
            "#include \"common/eight_bits.cuh\"\n"
            "extern \"C\" __global__ void upcast(const unsigned* words, unsigned* pairs) {\n"
            "  unsigned* const pair = pairs + 2 * threadIdx.x;\n"
            "  attnjit::upcast_e4m3<") +
        (to == Dtype::kBf16 ? "true" : "false") + ">(words[threadIdx.x], pair[0], pair[1]);\n}\n";
    request.want_ptx = true;
    request.ptx_only = true;
    const Result<KernelImage> image = make_in_process_compiler()->compile(
        request, std::chrono::steady_clock::now() + std::chrono::minutes(5));
    EXPECT_TRUE(image.ok()) << image.error().to_string();
    return image.ok() ? image->ptx : std::string();
  }

  static void expect_upcasts(Arch arch, Dtype to) {
    SCOPED_TRACE(std::string(to_string(arch)) + ", " + std::string(to_string(to)));
    const Result<PtxModule> module = PtxModule::load(upcasting_ptx(arch, to));
    ASSERT_TRUE(module.ok()) << module.error().to_string();
    LaunchRecipe recipe;
    recipe.entry = "upcast";
    recipe.block = {kWords, 1, 1};
    recipe.args = {{KernelArgument::Pointer{"words", 0, {}}},
                   {KernelArgument::Pointer{"pairs", 0, {}}}};
    std::vector<std::uint8_t> bytes;
    for (std::uint32_t word = 0; word < kWords; ++word) {
      for (const std::uint32_t more : {0U, 1U, 85U, 128U}) {
        bytes.push_back(static_cast<std::uint8_t>(word + more));
      }
    }
    std::vector<EmulatorBuffer> buffers(2);
    buffers[0] = {"words", Dtype::kU32, {kWords}, bytes, false};
    buffers[1] = {"pairs", Dtype::kU32, {2 * kWords}, {}, true};
    buffers[1].data.resize(2 * 4 * std::size_t{kWords});
    const Result<EmulatorReport> report = emulate(*module, recipe, buffers);
    ASSERT_TRUE(report.ok()) << report.error().to_string();
    ASSERT_TRUE(report->passed);
    verify::Tensor wide = verify::make_tensor(to, {static_cast<std::int64_t>(bytes.size())});
    ASSERT_EQ(wide.bytes.size(), buffers[1].data.size());
    wide.bytes.assign(buffers[1].data.begin(), buffers[1].data.end());
    for (std::size_t i = 0; i < bytes.size(); ++i) {
      const float want = verify::float_from_e4m3(bytes[i]);
      const float got = verify::load_float(wide, static_cast<std::int64_t>(i));
      EXPECT_EQ(std::isnan(got), std::isnan(want)) << int{bytes[i]};
      if (std::isnan(want)) continue;
      EXPECT_EQ(got, want) << int{bytes[i]};
      EXPECT_EQ(std::signbit(got), std::signbit(want)) << int{bytes[i]};
    }
  }
};

TEST_F(Upcasting, EveryByteAtEveryPlace) {
  for (const Arch arch : {Arch::kSm90a, Arch::kSm100a}) {
    for (const Dtype to : {Dtype::kFp16, Dtype::kBf16}) expect_upcasts(arch, to);
  }
}

}  // namespace
}  // namespace attnjit::sm90
