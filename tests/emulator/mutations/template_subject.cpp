// SPDX-License-Identifier: Apache-2.0
// Makes the subjects that are generated sm_100a kernels.
#include "template_subject.h"

#include <fmt/format.h>

#include <algorithm>

#include "../../gpu/verify_cases.h"
#include "../../one_launch.h"
#include "../attention/generated_kernel.h"
#include "plan/sm100/sm100_plan.h"
#include "verify/compare.h"

namespace attnjit::emulator {
namespace {

// A problem with its launch.
struct Body {
  verify::Problem problem;
  verify::Reference reference;
  LaunchRecipe recipe;
};

class TemplateSubject final : public Subject {
 public:
  TemplateSubject(std::string name, GeneratedKernel kernel, std::vector<Body> bodies)
      : in_order_issue_(!kernel.plan.waivers.empty()), bodies_(std::move(bodies)) {
    name_ = std::move(name);
    ptx_ = std::move(kernel.ptx);
    recipe_ = bodies_.front().recipe;
  }

  // `recipe` is the first body's, perhaps with damaged tensor maps.
  Outcome run(const PtxModule& module, const LaunchRecipe& recipe, std::uint64_t seed,
              std::uint64_t max_steps) const override {
    Outcome outcome;
    for (const Body& body : bodies_) {
      LaunchRecipe launch = body.recipe;
      for (std::size_t i = 0; i < launch.tensor_maps.size(); ++i) {
        launch.tensor_maps[i].swizzle = recipe.tensor_maps[i].swizzle;
      }
      EmulatorOptions options;
      options.model = EmulatorModel::kIsa;
      options.in_order_issue = in_order_issue_;
      options.seed = seed;
      options.max_steps = max_steps;
      options.threads = 1;
      const Result<KernelRun> run = run_kernel(module, launch, body.problem, options);
      if (!run) return {true, "refused", run.error().to_string(), outcome.steps};
      outcome.steps += run->report.steps;
      const auto found = std::find_if(run->report.findings.begin(), run->report.findings.end(),
                                      [](const Finding& finding) { return !finding.warning; });
      if (found != run->report.findings.end()) {
        outcome.caught = true;
        outcome.by = to_string(found->kind);
        outcome.evidence = fmt::format("line {}: {}", found->ptx_line, found->text);
        return outcome;
      }
      const verify::Comparison comparison =
          verify::compare(body.problem, body.reference, run->o, run->lse ? &*run->lse : nullptr,
                          verify::tolerance_of(body.problem.spec));
      if (!comparison.passed) {
        outcome.caught = true;
        outcome.by = "numbers";
        outcome.evidence = comparison.reason;
        return outcome;
      }
    }
    return outcome;
  }

 private:
  bool in_order_issue_;
  std::vector<Body> bodies_;
};

// One of a subject's problems. `raised`: O is rescaled, and what it was before shows.
struct Call {
  int q_len, kv_len, sm_count;
  bool raised;
};

Result<Body> body_of(const KernelPlan& plan, const Call& call) {
  verify::ProblemRequest request;
  request.q_lens = {call.q_len};
  request.kv_lens = {call.kv_len};
  request.seed = 11;
  // NOTE: normal inputs: every key has a share in every row, so that no tile can be wrong unseen.
  request.input = verify::InputKind::kNormal;
  Result<verify::Problem> problem = verify::make_problem(plan.spec, request);
  if (!problem) return std::move(problem).error();
  if (call.raised) {
    verify::raise_keys(*problem, static_cast<int>(plan.sm100->variants.front().BN));
  }
  Result<verify::Reference> reference = verify::compute_reference(*problem);
  if (!reference) return std::move(reference).error();
  DeviceShape device;
  device.sm_count = call.sm_count;
  Result<LaunchRecipe> recipe = one_launch(
      plan, problem->launch_shapes(), problem->launch_scalars(), problem->param_values(), device);
  if (!recipe) return std::move(recipe).error();
  // One CTA: it has a second tile of work, and every buffer is handed over. A section a head: tiles
  // with keys come after some without.
  recipe->grid = {1, 1, 1};
  for (std::size_t i = 0; i < recipe->args.size(); ++i) {
    if (plan.main().parameters[i].name == "section_heads") recipe->args[i].value = std::int32_t{1};
  }
  return Body{std::move(*problem), std::move(*reference), std::move(*recipe)};
}

struct Description {
  const char* name;
  int qk_depth, ov_depth, heads, group;
  MaskSpec::Kind mask;
  bool sink;
  std::vector<Call> calls;
};

Result<std::unique_ptr<Subject>> make(const Description& of) {
  AttentionSpec spec;
  spec.num_q_heads = of.heads;
  spec.group = of.group;
  spec.qk_depth = of.qk_depth;
  spec.ov_depth = of.ov_depth;
  spec.mask.kind = of.mask;
  spec.sink = of.sink;
  spec.return_lse = true;
  Result<GeneratedKernel> kernel = generate_kernel(spec);
  if (!kernel) return std::move(kernel).error();
  std::vector<Body> bodies;
  for (const Call& call : of.calls) {
    Result<Body> body = body_of(kernel->plan, call);
    if (!body) return std::move(body).error();
    bodies.push_back(std::move(*body));
  }
  return std::unique_ptr<Subject>(
      std::make_unique<TemplateSubject>(of.name, std::move(*kernel), std::move(bodies)));
}

}  // namespace

Result<std::vector<std::unique_ptr<Subject>>> make_template_subjects() {
  using Kind = MaskSpec::Kind;
  std::vector<std::unique_ptr<Subject>> subjects;
  // More than 128 rows: two query tiles a CTA, on one SM; fewer rows, or many SMs: one. Counts of
  // KV tiles that the stages divide and do not, odd and even; with a causal mask and few keys, work
  // tiles that see nothing among others.
  const std::vector<Description> list = {{"sm_100a 128 causal",
                                          128,
                                          128,
                                          2,
                                          1,
                                          Kind::kCausal,
                                          true,
                                          {{150, 440, 1, false},
                                           {150, 440, 1, true},
                                           {60, 330, 1, false},
                                           {60, 440, 1, true},
                                           {300, 30, 1, false},
                                           {300, 30, 148, false}}},
                                         {"sm_100a 64 group",
                                          64,
                                          64,
                                          8,
                                          4,
                                          Kind::kCausal,
                                          false,
                                          {{40, 1030, 1, false},
                                           {40, 500, 1, true},
                                           {20, 1100, 1, false},
                                           {20, 500, 1, true},
                                           {150, 30, 1, false},
                                           {150, 30, 148, false}}},
                                         {"sm_100a 192/128",
                                          192,
                                          128,
                                          2,
                                          1,
                                          Kind::kCausal,
                                          false,
                                          {{150, 430, 1, false},
                                           {150, 430, 1, true},
                                           {60, 330, 1, false},
                                           {60, 430, 1, true},
                                           {300, 30, 1, false},
                                           {300, 30, 148, false}}}};
  for (const Description& of : list) {
    Result<std::unique_ptr<Subject>> subject = make(of);
    if (!subject) return std::move(subject).error();
    subjects.push_back(std::move(*subject));
  }
  return subjects;
}

}  // namespace attnjit::emulator
