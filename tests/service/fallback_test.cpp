// SPDX-License-Identifier: Apache-2.0
// get_or_fallback: a kernel that is ready and computes the same serves while a spec's own compiles.
#include <algorithm>
#include <functional>

#include "service_fixture.h"

namespace attnjit {
namespace {

AttentionSpec masked(const std::string& code) {
  AttentionSpec spec = test_spec();
  spec.mask.kind = MaskSpec::Kind::kCustom;
  spec.mask.custom.name = "mine";
  spec.mask.custom.code = code;
  return spec;
}

MaskSpec tree(MaskSpec::Kind kind, std::vector<MaskSpec> of) {
  MaskSpec mask;
  mask.kind = kind;
  mask.of = std::move(of);
  return mask;
}

AttentionSpec interpreted(AttentionSpec spec) {
  spec.interpreted = true;
  return spec;
}

const AttentionSpec kAnyMask = interpreted(masked("true"));

class FallbackTest : public ServiceFixture {
 protected:
  /// NOTE: an image has as many kernels as its own plan.
  PreparedSpec prepare(Service& service, const AttentionSpec& spec) {
    PreparedSpec prepared = ServiceFixture::prepare(service, spec);
    cuda_.kernel_names = {"*"};
    return prepared;
  }

  /// A Service whose compiles wait, but for that of the kernel that interprets masks.
  void begin(ServiceOptions service_options) {
    remake(service_options);
    cuda_.primary(0);
    const auto compiled =
        service_->compile(prepare(*service_, kAnyMask), in(seconds(10)), PtxNeed::kSkip);
    ASSERT_TRUE(compiled.ok()) << compiled.error().to_string();
    hold();
  }
  void hold() {
    const std::lock_guard lock(compiler_->mutex);
    compiler_->hold = true;
  }
};

TEST_F(FallbackTest, ServesUntilTheOwnKernelIsThere) {
  begin(options());
  const PreparedSpec spec = prepare(*service_, masked("kv_idx % 7 != q_idx % 5"));
  for (int i = 0; i < 3; ++i) {
    const auto served = service_->get_or_fallback(spec);
    ASSERT_TRUE(served.ok()) << served.error().to_string();
    ASSERT_NE(served->kernel, nullptr);
    EXPECT_TRUE(served->fallback);
    // It launches what the spec's own would.
    EXPECT_TRUE(served->kernel->plan().spec->interpreted);
    EXPECT_EQ(served->kernel->plan().spec->mask.custom.code, "kv_idx % 7 != q_idx % 5");
  }
  EXPECT_EQ(service_->statistics().fallbacks, 3U);
  EXPECT_NE(to_prometheus(service_->statistics()).find("attnjit_fallbacks_total 3\n"),
            std::string::npos);
  EXPECT_EQ(service_->find(spec), nullptr);
  compiler_->await_start(2);
  compiler_->release();
  ASSERT_TRUE(eventually([&] { return service_->find(spec) != nullptr; }));
  const auto served = service_->get_or_fallback(spec);
  ASSERT_TRUE(served.ok());
  EXPECT_EQ(served->kernel, service_->find(spec));
  EXPECT_FALSE(served->fallback);
  EXPECT_EQ(service_->statistics().fallbacks, 3U);
  EXPECT_EQ(compiler_->compiles, 2);
}

TEST_F(FallbackTest, AnotherMaskOfTheShapeLoadsNothing) {
  begin(options());
  for (int i = 2; i < 6; ++i) {
    const PreparedSpec spec = prepare(*service_, masked("kv_idx % " + std::to_string(i) + " == 0"));
    EXPECT_TRUE(service_->get_or_fallback(spec)->fallback);
  }
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
}

TEST_F(FallbackTest, IsNotCompiledOnDemand) {
  compiler_->hold = true;
  remake(options());
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_, masked("kv_idx % 3 == 0"));
  for (int i = 0; i < 5; ++i) {
    const auto served = service_->get_or_fallback(spec);
    ASSERT_TRUE(served.ok());
    EXPECT_EQ(served->kernel, nullptr);
    EXPECT_FALSE(served->fallback);
  }
  compiler_->await_start();
  compiler_->release();
  ASSERT_TRUE(eventually([&] { return service_->find(spec) != nullptr; }));
  EXPECT_EQ(compiler_->compiles, 1) << "the spec's own";
  EXPECT_EQ(service_->statistics().fallbacks, 0U);
}

TEST_F(FallbackTest, IsCompiledBehindTheOwnKernelWhereAskedFor) {
  ServiceOptions asked = options();
  asked.compile_fallbacks = true;
  asked.compile_threads = 1;
  compiler_->hold = true;
  remake(asked);
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_, masked("kv_idx % 3 == 0"));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(service_->get_or_fallback(spec)->kernel, nullptr);
  compiler_->await_start();
  compiler_->release();
  ASSERT_TRUE(eventually([&] { return compiler_->compiles == 2; }));
  ASSERT_TRUE(eventually([&] { return service_->find(spec) != nullptr; }));
  EXPECT_FALSE(service_->get_or_fallback(spec)->fallback);
  // The next mask of the shape waits for nothing.
  ASSERT_TRUE(eventually([&] { return service_->find(prepare(*service_, kAnyMask)) != nullptr; }));
  hold();
  const PreparedSpec next = prepare(*service_, masked("kv_idx % 5 == 0"));
  EXPECT_TRUE(service_->get_or_fallback(next)->fallback);
}

TEST_F(FallbackTest, ComesFromTheDiskAfterAPrewarmOfAnotherProcess) {
  ServiceOptions on_disk = options();
  on_disk.use_disk_cache = true;
  on_disk.cache_layers = {folder_.path()};
  remake(on_disk);
  const auto warmed = service_->prewarm({SpecDocument{kAnyMask, {}}}, 1);
  ASSERT_TRUE(warmed.front().outcome.has_value());
  hold();
  remake(on_disk);
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_, masked("kv_idx % 3 == 0"));
  const auto served = service_->get_or_fallback(spec);
  ASSERT_TRUE(served.ok()) << served.error().to_string();
  EXPECT_NE(served->kernel, nullptr);
  EXPECT_TRUE(served->fallback);
  EXPECT_EQ(service_->statistics().disk_hits, 1U);
}

// What the driver refuses serves nobody: requests are as those without a fallback, and go on to
// find the own kernel.
TEST_F(FallbackTest, IsGivenUpWhereTheDriverRefusesIt) {
  ServiceOptions on_disk = options();
  on_disk.use_disk_cache = true;
  on_disk.cache_layers = {folder_.path()};
  remake(on_disk);
  ASSERT_TRUE(service_->prewarm({SpecDocument{kAnyMask, {}}}, 1).front().outcome.has_value());
  hold();
  remake(on_disk);
  cuda_.primary(0);
  const PreparedSpec spec = prepare(*service_, masked("kv_idx % 3 == 0"));
  cuda_.fail("cuLibraryLoadData", 1, cuda::kInvalidImage);
  for (int i = 0; i < 3; ++i) {
    const auto served = service_->get_or_fallback(spec);
    ASSERT_TRUE(served.ok()) << served.error().to_string();
    EXPECT_EQ(served->kernel, nullptr);
  }
  EXPECT_EQ(cuda_.count("cuLibraryLoadData"), 1);
  {
    const std::lock_guard lock(log_mutex_);
    EXPECT_EQ(
        std::count_if(log_.begin(), log_.end(),
                      [](const std::string& line) { return line.find("given up") != line.npos; }),
        1);
  }
  compiler_->release();
  ASSERT_TRUE(eventually([&] { return service_->find(spec) != nullptr; }));
  EXPECT_EQ(service_->get_or_fallback(spec)->kernel, service_->find(spec));
  // Who asks for the other kernel itself has it compiled again.
  const int before = compiler_->compiles;
  ASSERT_TRUE(service_->get(prepare(*service_, kAnyMask), in(seconds(10))).ok());
  EXPECT_EQ(compiler_->compiles, before + 1);
}

TEST_F(FallbackTest, GeneralKernelsServeConstants) {
  remake(options());
  cuda_.primary(0);
  const PreparedSpec general = prepare(*service_, window_spec(128));
  ASSERT_TRUE(service_->get(general, in(seconds(10))).ok());
  hold();
  AttentionSpec constant = window_spec(77);
  constant.mask.constant = true;
  const PreparedSpec spec = prepare(*service_, constant);
  EXPECT_NE(spec.key().hex, general.key().hex);
  const auto served = service_->get_or_fallback(spec);
  ASSERT_TRUE(served.ok()) << served.error().to_string();
  ASSERT_NE(served->kernel, nullptr);
  EXPECT_TRUE(served->fallback);
  // The window stays the spec's, whatever a launch says.
  const KernelPlan& plan = served->kernel->plan();
  LaunchShapes shapes;
  shapes.q_len = shapes.kv_len = 512;
  LaunchScalars scalars;
  scalars.values = {33};
  const auto launches = plan_launch(plan, shapes, scalars, {});
  ASSERT_TRUE(launches.ok()) << launches.error().to_string();
  bool found = false;
  for (std::size_t i = 0; i < plan.main().parameters.size(); ++i) {
    if (plan.main().parameters[i].name != "window") continue;
    found = true;
    EXPECT_EQ(std::get<std::int32_t>(launches->launches[0].args[i].value), 77);
  }
  EXPECT_TRUE(found);
}

TEST_F(FallbackTest, ServesWhereTheOwnKernelDoesNotCompile) {
  begin(options());
  {
    const std::lock_guard lock(compiler_->mutex);
    compiler_->failure = make_error(ErrorCode::kCompileFailed, "no");
  }
  compiler_->release();
  const PreparedSpec spec = prepare(*service_, masked("kv_idx % 3 == 0"));
  ASSERT_TRUE(eventually([&] { return !service_->try_get(spec).ok(); }));
  EXPECT_TRUE(service_->get_or_fallback(spec)->fallback);
  const PreparedSpec other = prepare(*service_, test_spec(4));
  ASSERT_TRUE(eventually([&] { return !service_->try_get(other).ok(); }));
  EXPECT_EQ(service_->get_or_fallback(other).error().code, ErrorCode::kCompileFailed);
}

TEST_F(FallbackTest, HasNoneForWhatIsNotInterpreted) {
  ServiceOptions both = options();
  both.helper_compiler = compiler_;
  begin(both);
  AttentionSpec mixed = masked("kv_idx % 3 == 0");
  MaskSpec tensor;
  tensor.kind = MaskSpec::Kind::kMaterialized;
  mixed.mask = tree(MaskSpec::Kind::kAnd, {mixed.mask, tensor});
  for (const AttentionSpec& spec : {test_spec(), trusted_spec(), mixed, kAnyMask}) {
    const auto served = service_->get_or_fallback(prepare(*service_, spec));
    ASSERT_TRUE(served.ok()) << served.error().to_string();
    EXPECT_FALSE(served->fallback);
  }
}

TEST_F(FallbackTest, LoadsNothingDuringACapture) {
  begin(options());
  const PreparedSpec spec = prepare(*service_, masked("kv_idx % 3 == 0"));
  const cuda::Stream stream = cuda_.create_stream();
  cuda_.begin_capture(stream);
  const auto captured = service_->get_or_fallback(spec, stream);
  EXPECT_EQ(cuda_.end_capture(stream), 1);
  ASSERT_FALSE(captured.ok());
  EXPECT_EQ(captured.error().code, ErrorCode::kCaptureInProgress);
  EXPECT_TRUE(service_->get_or_fallback(spec, stream)->fallback);
}

// A key hangs on the shape of custom code alone where it is interpreted, and where it is not on
// nothing new.
TEST_F(FallbackTest, KeysAreOfShapes) {
  remake(options());
  const auto key = [&](const AttentionSpec& spec) { return prepare(*service_, spec).key().hex; };
  const std::string any = key(kAnyMask);
  AttentionSpec document = interpreted(masked("p.doc[q_idx] == p.doc[kv_idx] && kv_idx > p.w"));
  document.mask.custom.name = "document";
  document.mask.custom.params = {{"doc", ParamSpec::Type::kI32Array}, {"w", ParamSpec::Type::kI32}};
  EXPECT_EQ(key(document), any);
  AttentionSpec either = document;
  MaskSpec causal;
  causal.kind = MaskSpec::Kind::kCausal;
  either.mask = tree(MaskSpec::Kind::kOr, {document.mask, window_spec(9).mask, causal});
  EXPECT_EQ(key(either), any);
  either.mask.of[1].constant = true;
  EXPECT_EQ(key(either), any);
  EXPECT_EQ(key(interpreted(masked("kv_idx <= q_idx"))), any) << "which is causal elsewhere";
  EXPECT_NE(key(document), key([&] {
              AttentionSpec own = document;
              own.interpreted = false;
              return own;
            }()));
  AttentionSpec scored = document;
  scored.score_mod.kind = ScoreModSpec::Kind::kCustom;
  scored.score_mod.custom.name = "bias";
  scored.score_mod.custom.code = "score * 2.0 + p.bias[h]";
  scored.score_mod.custom.params = {{"bias", ParamSpec::Type::kF32Array}};
  EXPECT_NE(key(scored), any);
  AttentionSpec other = scored;
  other.score_mod.custom.code = "score - 1";
  other.score_mod.custom.params = {};
  other.mask = masked("b == 0").mask;
  EXPECT_EQ(key(other), key(scored));
  EXPECT_EQ(key(interpreted(test_spec())), key(test_spec())) << "without custom code";
}

}  // namespace
}  // namespace attnjit
