// SPDX-License-Identifier: Apache-2.0
// A custom expression is parsed once on the way from a spec to its kernel, and its source rendered
// once: counted where the linker puts these calls.
#include <optional>
#include <span>
#include <string_view>

#include "attnjit/source.h"
#include "plan/print/plan_document.h"
#include "service_fixture.h"
#include "spec/expression.h"

// NOTE: the linker's --wrap (tests/service/CMakeLists.txt) sends every call of NAME here and leaves
// the function itself as __real_NAME. A name that no longer fits would leave the counts at zero,
// which the tests would tell.
#define ATTNJIT_PARSE                                                                 \
  "_ZN7attnjit4spec16parse_expressionESt17basic_string_viewIcSt11char_traitsIcEENS0_" \
  "11SnippetKindESt4spanIKNS_9ParamSpecELm18446744073709551615EE"
#define ATTNJIT_GENERATE "_ZN7attnjit8generateERKNS_10KernelPlanERKNS_11TemplateSetE"

namespace attnjit {
namespace {

std::atomic<int> parses{0};
std::atomic<int> renderings{0};

}  // namespace

Result<spec::Expression> real_parse(
    std::string_view code, spec::SnippetKind kind,
    std::span<const ParamSpec> params) __asm__("__real_" ATTNJIT_PARSE);
Result<spec::Expression> counted_parse(
    std::string_view code, spec::SnippetKind kind,
    std::span<const ParamSpec> params) __asm__("__wrap_" ATTNJIT_PARSE);
Result<spec::Expression> counted_parse(std::string_view code, spec::SnippetKind kind,
                                       std::span<const ParamSpec> params) {
  ++parses;
  return real_parse(code, kind, params);
}

Result<KernelSource> real_generate(const KernelPlan& plan, const TemplateSet& templates) __asm__(
    "__real_" ATTNJIT_GENERATE);
Result<KernelSource> counted_generate(const KernelPlan& plan, const TemplateSet& templates) __asm__(
    "__wrap_" ATTNJIT_GENERATE);
Result<KernelSource> counted_generate(const KernelPlan& plan, const TemplateSet& templates) {
  ++renderings;
  return real_generate(plan, templates);
}

namespace {

class ParseCountTest : public ServiceFixture {
 protected:
  void SetUp() override {
    remake(options());
    cuda_.primary(0);
    parses = renderings = 0;
  }

  /// Three expressions.
  static AttentionSpec custom_spec() {
    AttentionSpec spec = test_spec();
    MaskSpec mask;
    mask.kind = MaskSpec::Kind::kCustom;
    mask.custom = {"near", "q_idx - kv_idx < p.reach", false, {{"reach", ParamSpec::Type::kI32}}};
    MaskSpec other = mask;
    other.custom = {"even", "kv_idx % 2 == 0", false, {}};
    spec.mask.kind = MaskSpec::Kind::kAnd;
    spec.mask.of = {mask, other};
    spec.score_mod.kind = ScoreModSpec::Kind::kCustom;
    spec.score_mod.custom = {"half", "score * 0.5", false, {}};
    return spec;
  }

  void compile(const Result<PreparedSpec>& spec) {
    ASSERT_TRUE(spec.ok()) << spec.error().to_string();
    cuda_.kernel_names = {spec->plan().main().entry};
    const auto kernel = service_->get(*spec, seconds(20));
    ASSERT_TRUE(kernel.ok()) << kernel.error().to_string();
    EXPECT_EQ(compiler_->compiles, 1);
  }
};

TEST_F(ParseCountTest, FromASpecToItsKernel) {
  compile(service_->prepare(custom_spec()));
  EXPECT_EQ(parses, 3);
  EXPECT_EQ(renderings, 1);
  // Again: known by its text.
  EXPECT_TRUE(service_->prepare(custom_spec()).ok());
  EXPECT_EQ(parses, 3);
  EXPECT_EQ(renderings, 1);
}

TEST_F(ParseCountTest, FromJsonToItsKernel) {
  compile(service_->prepare(spec_to_json(custom_spec())));
  EXPECT_EQ(parses, 3);
  EXPECT_EQ(renderings, 1);
}

TEST_F(ParseCountTest, FromADocumentOrAResolvedSpecToItsKernel) {
  const auto resolved = ResolvedSpec::make(custom_spec());
  ASSERT_TRUE(resolved.ok());
  compile(service_->prepare(*resolved));
  EXPECT_EQ(parses, 3);
  const auto again = service_->prepare(SpecDocument{custom_spec(), {}});
  ASSERT_TRUE(again.ok());
  EXPECT_NE(service_->find(*again), nullptr);
  EXPECT_EQ(parses, 3);
  EXPECT_EQ(renderings, 1);
}

TEST_F(ParseCountTest, APlanIsShownWithoutParsing) {
  const auto resolved = ResolvedSpec::make(custom_spec());
  ASSERT_TRUE(resolved.ok());
  EXPECT_EQ(parses, 3);
  const auto document = plan_document(*resolved);
  ASSERT_TRUE(document.ok());
  EXPECT_FALSE(plan_to_json(*document).empty());
  EXPECT_FALSE(plan_to_text(*document).empty());
  EXPECT_EQ(parses, 3);
}

// The source is kept until the first flight ends, and not longer.
TEST_F(ParseCountTest, ALaterCompileRendersAnewAndParsesNothing) {
  const auto spec = service_->prepare(custom_spec());
  ASSERT_TRUE(spec.ok());
  compiler_->failure = make_error(ErrorCode::kEnvironment, "not yet");
  EXPECT_FALSE(service_->compile(*spec, in(seconds(20))).ok());
  EXPECT_EQ(renderings, 1);
  compiler_->failure.reset();
  EXPECT_TRUE(service_->compile(*spec, in(seconds(20))).ok());
  EXPECT_EQ(renderings, 2);
  EXPECT_EQ(parses, 3);
}

TEST_F(ParseCountTest, DurationsThatNoClockHoldsAreDeadlinesWithoutEnd) {
  const auto spec = service_->prepare(custom_spec());
  ASSERT_TRUE(spec.ok());
  cuda_.kernel_names = {spec->plan().main().entry};
  EXPECT_TRUE(service_->get(*spec, std::chrono::nanoseconds::max()).ok());
  const auto other = service_->prepare(window_spec(3));
  ASSERT_TRUE(other.ok());
  {
    const std::lock_guard lock(compiler_->mutex);
    compiler_->hold = true;
  }
  const auto late = service_->get(*other, milliseconds(1));
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.error().code, ErrorCode::kTimeout);
}

}  // namespace
}  // namespace attnjit
