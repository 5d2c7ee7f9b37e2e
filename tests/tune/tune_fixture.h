// SPDX-License-Identifier: Apache-2.0
// What the tuner's tests share: a small spec, a compiler that makes empty images, and a rig whose
// kernels are as right and as fast as a test says.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "plan/sm90/sm90_plan.h"
#include "tune/tuner.h"
#include "verify/numeric.h"
#include "verify/reference.h"

namespace attnjit::tune {

inline AttentionSpec small_spec() {
  AttentionSpec spec;
  spec.arch = Arch::kSm90a;
  spec.num_q_heads = 2;
  spec.qk_depth = 128;
  spec.return_lse = true;
  return spec;
}

/// Makes images that hold nothing; refuses plans that a test names.
class EmptyCompiler final : public Compiler {
 public:
  Result<std::string> build_id() override { return std::string("test-13.0"); }
  Result<KernelImage> compile(const CompileRequest& request, Deadline) override {
    const std::lock_guard lock(mutex);
    ++compiles;
    if (refuses && refuses(request.source.text)) {
      return make_error(ErrorCode::kCompileFailed, "does not compile");
    }
    KernelImage image;
    image.cubin = {1, 2, 3};
    image.entries = request.source.entries;
    image.nvrtc_version = "13.0.88";
    return image;
  }
  void cancel() override {}

  std::mutex mutex;
  int compiles = 0;
  std::function<bool(const std::string& source)> refuses;
};

/// Kernels by the behaviour that a test gives them.
class FakeRig final : public TuningRig {
 public:
  struct Behaviour {
    std::function<double(const Sm90Plan&, std::int64_t q_len)> ms;
    std::function<bool(const Sm90Plan&, verify::InputKind)> wrong;
    std::function<Status(const Sm90Plan&)> fails;  ///< when it is run
    double drift = 0;                              ///< how much slower each block is than the last
    int model_version = 0;                         ///< 0: it is a GPU
    std::vector<std::string> log;
  };
  explicit FakeRig(Behaviour& behaviour) : behaviour_(behaviour) {}

  RigDevice device() const override {
    return {"Test GPU", "CUDA 13.0", 132, behaviour_.model_version};
  }
  bool times_wrong_kernels() const override { return behaviour_.model_version != 0; }
  Status load(std::size_t variant, const KernelPlan& plan,
              const std::shared_ptr<const KernelImage>&) override {
    EXPECT_TRUE(plans_.emplace(variant, *plan.sm90).second) << "loaded twice";
    return {};
  }
  Result<verify::BackendRun> run(std::size_t variant, const verify::Problem& problem) override {
    const Sm90Plan& plan = plans_.at(variant);
    if (behaviour_.fails) {
      if (Status status = behaviour_.fails(plan); !status) return status.error();
    }
    if (answer_of_ != &problem || answer_rows_ != problem.total_q) {
      answer_ = answer(problem);
      answer_of_ = &problem;
      answer_rows_ = problem.total_q;
      ++problem_;
    }
    verify::BackendRun run = answer_;
    const auto input = verify::kInputKinds[(problem_ - 1) % verify::kInputKinds.size()];
    if (behaviour_.wrong && behaviour_.wrong(plan, input)) {
      // One row of one head: what a tile's end would get wrong.
      for (std::int64_t d = 0; d < 8; ++d) verify::store_float(run.o, d, 3);
    }
    return run;
  }
  Status use(const verify::Problem& problem) override {
    q_len_ = problem.max_q_len;
    return {};
  }
  Result<double> time(std::size_t variant, int launches) override {
    behaviour_.log.push_back(std::to_string(variant));
    EXPECT_GE(launches, 2);
    slowness_ *= 1 + behaviour_.drift;
    return behaviour_.ms(plans_.at(variant), q_len_) * slowness_;
  }

 private:
  static verify::BackendRun answer(const verify::Problem& problem) {
    const verify::Reference reference = verify::compute_reference(problem, 1).value();
    verify::BackendRun run;
    run.o = verify::make_tensor(problem.spec.output_dtype.value_or(problem.spec.qkv_dtype),
                                problem.o_shape());
    for (std::int64_t i = 0; i < run.o.elements(); ++i) {
      verify::store_float(run.o, i, static_cast<float>(reference.o[i]));
    }
    if (problem.spec.return_lse) {
      run.lse = verify::make_tensor(Dtype::kF32, problem.lse_shape());
      for (std::int64_t i = 0; i < run.lse->elements(); ++i) {
        run.lse->as<float>()[i] = static_cast<float>(reference.lse[i]);
      }
    }
    return run;
  }

  Behaviour& behaviour_;
  std::map<std::size_t, Sm90Plan> plans_;
  verify::BackendRun answer_;
  const verify::Problem* answer_of_ = nullptr;
  std::int64_t answer_rows_ = 0;
  int problem_ = 0;
  std::int64_t q_len_ = 0;
  double slowness_ = 1;
};

class TuneFixture : public ::testing::Test {
 protected:
  TuneFixture() : compiler_(std::make_shared<EmptyCompiler>()) {
    request_.spec = small_spec();
    request_.shapes = {{4, 64, 64}, {1, 256, 256}};
    request_.pairs = 5;
    request_.max_variants = 24;  // every single choice, and quick
    behaviour_.ms = [](const Sm90Plan&, std::int64_t q_len) { return 1e-3 * double(q_len); };
  }

  Result<std::unique_ptr<Service>> service(std::shared_ptr<const Tuning> tuning) {
    ServiceOptions options;
    options.use_disk_cache = false;
    options.compiler = compiler_;
    options.compile_threads = 1;
    options.tuning = std::move(tuning);
    options.log = [](LogLevel, std::string_view) {};
    return Service::create(std::move(options));
  }

  Result<TuneResult> run(const Progress& progress = {}) {
    return tune(
        request_, [this](auto tuning) { return service(std::move(tuning)); },
        [this]() -> Result<std::unique_ptr<TuningRig>> {
          return std::unique_ptr<TuningRig>(std::make_unique<FakeRig>(behaviour_));
        },
        progress);
  }

  /// The plan without a table, and two legal tiles that it does not have: tests lean on no choice
  /// that a measurement may change.
  static inline const Sm90Plan kUntuned = *plan(small_spec()).value().sm90;
  static inline const int kFast = kUntuned.BN != 96 ? 96 : 80;
  static inline const int kOther = kUntuned.BN != 112 ? 112 : 64;

  static const Sm90Plan& plan_of(const Measured& measured) { return *measured.variant.plan.sm90; }

  TuneRequest request_;
  FakeRig::Behaviour behaviour_;
  std::shared_ptr<EmptyCompiler> compiler_;
};

}  // namespace attnjit::tune
