// SPDX-License-Identifier: Apache-2.0
// P that is handed over whole, in halves and in quarters, of each kernel that hands it over in its
// own way. In the emulator under the isa model. Skipped without NVRTC.
#include <string>
#include <vector>

#include "../kernel_fixture.h"
#include "attnjit/tuning.h"

namespace attnjit::sm100 {
namespace {

using namespace kernel_test;

class Sm100PartsOfP : public KernelTest {
 protected:
  struct Case {
    const char* what;
    AttentionSpec spec;
  };

  static std::vector<Case> cases() {
    const AttentionSpec causal = base_spec(Arch::kSm100a, 2, 1, 128, mask_of(Kind::kCausal));
    AttentionSpec one_query = base_spec(Arch::kSm100a, 4, 4, 64, mask_of(Kind::kCausal));
    AttentionSpec e4m3 = causal, tokens = causal, upcast = causal, capped = causal;
    e4m3.qkv_dtype = tokens.qkv_dtype = Dtype::kE4m3;
    e4m3.scales = Scales::kHead;
    tokens.scales = Scales::kToken;  // tiles of 96 keys, which have no quarters
    upcast.kv_dtype = Dtype::kE4m3;
    capped.score_mod.kind = ScoreModSpec::Kind::kSoftcap;
    capped.score_mod.cap = 20;
    AttentionSpec in_pairs = base_spec(Arch::kSm100a, 2, 1, 256, mask_of(Kind::kCausal));
    AttentionSpec alone = in_pairs;
    alone.page_size = 64;
    return {{"scores in registers with names", causal},
            {"one query tile, whose rows are a group's", one_query},
            {"e4m3", e4m3},
            {"keys with scales", tokens},
            {"K and V are upcast", upcast},
            {"scores are modified", capped},
            {"one O of a pair", in_pairs},
            {"a single accumulator", alone}};
  }

  static void expect_passes(const std::string& choose) {
    const Result<Tuning> tuning = tuning_from_json(R"({"rows": [{"choose": )" + choose + "}]}");
    ASSERT_TRUE(tuning) << tuning.error().to_string();
    for (const Case& one : some_of(cases(), 2)) {
      SCOPED_TRACE(one.what);
      const auto kernel = compiled(one.spec, &*tuning);
      ASSERT_TRUE(kernel);
      const std::vector<Lengths> batches = {{{300}, {500}}, {{20}, {330}}};
      for (std::size_t i = 0; i < batches.size(); ++i) {
        const auto problem = problem_of(one.spec, batches[i], InputKind::kNormal, i);
        ASSERT_TRUE(problem);
        for (std::uint64_t seed = i; seed < i + seeds(); ++seed) {
          const LaunchSequence sequence =
              launches_of(*kernel, *problem, problem->launch_shapes(), 148);
          const auto done = run(*kernel, *problem, sequence, seed);
          ASSERT_TRUE(done);
          expect_right(*problem, *done);
        }
      }
    }
  }
};

TEST_F(Sm100PartsOfP, Whole) { expect_passes(R"({"pv_first_quarters": 4})"); }
TEST_F(Sm100PartsOfP, Halves) { expect_passes(R"({"pv_first_quarters": 2})"); }
TEST_F(Sm100PartsOfP, Quarters) { expect_passes(R"({"pv_first_quarters": 1})"); }

}  // namespace
}  // namespace attnjit::sm100
