// SPDX-License-Identifier: Apache-2.0
// Steps of servers' traffic, drawn by seed, in the emulator: prompts, chunks, drafts and decodes of
// lengths with a heavy tail, in the shapes of models, a twentieth as long as servers have them.
// Skipped without NVRTC.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "../kernel_fixture.h"

namespace attnjit {
namespace {

using namespace kernel_test;

std::uint64_t number_of(const char* variable, std::uint64_t otherwise) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? otherwise : std::strtoull(text, nullptr, 10);
}

struct Step {
  AttentionSpec spec;
  Lengths lengths;
  int sm_count = 2;
  bool replayed = false;  ///< twice over one workspace
};

class Draw {
 public:
  explicit Draw(std::uint64_t seed) : random_(seed) {}

  /// From `low` on, to `high` at most.
  int number(int low, int high) {
    return low + static_cast<int>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(int percent) { return number(1, 100) <= percent; }
  template <class T>
  T one_of(const std::vector<T>& choices) {
    return choices[static_cast<std::size_t>(number(0, static_cast<int>(choices.size()) - 1))];
  }
  int log_uniform(int low, int high) {
    const double share = number(0, 1000) / 1000.0;
    return static_cast<int>(low * std::pow(static_cast<double>(high) / low, share));
  }

 private:
  std::mt19937_64 random_;
};

void add(Lengths& lengths, int rows, int keys) {
  lengths.q.push_back(rows);
  lengths.kv.push_back(std::max(rows, keys));
}

void add_decodes(Draw& draw, int count, int low, int high, Lengths& lengths) {
  for (; count > 0; --count) add(lengths, 1, draw.log_uniform(low, high));
}

// A chunk of a prompt: its rows, and the keys up to its end.
void add_chunk(Draw& draw, const std::vector<int>& sizes, int high, Lengths& lengths) {
  const int rows = draw.one_of(sizes), before = draw.log_uniform(8, high);
  add(lengths, rows, rows + before / rows * rows);
}

// What each request of a step has.
Lengths requests(Draw& draw, const std::string& scenario) {
  Lengths lengths;
  if (scenario == "chat") {
    add_decodes(draw, draw.log_uniform(2, 12), 8, 400, lengths);
    if (draw.chance(30)) {
      const int rows = draw.number(8, 200);
      add(lengths, rows, rows);
    }
  } else if (scenario == "rag") {
    add_decodes(draw, draw.number(2, 4), 200, 5000, lengths);
    if (draw.chance(50)) add_chunk(draw, {100, 200, 300}, 2500, lengths);
  } else if (scenario == "agent") {
    add_decodes(draw, draw.number(1, 2), 3000, 8000, lengths);
    add_decodes(draw, draw.number(2, 8), 8, 200, lengths);
    if (draw.chance(40)) add_chunk(draw, {25, 100}, 4000, lengths);
  } else if (scenario == "chunked") {
    for (int count = draw.number(1, 2); count > 0; --count) {
      add_chunk(draw, {64, 100, 256}, 3500, lengths);
    }
    add_decodes(draw, draw.number(3, 10), 8, 300, lengths);
  } else if (scenario == "drafts") {
    const int most = draw.one_of<int>({2, 4, 8});
    for (int count = draw.log_uniform(2, 8); count > 0; --count) {
      add(lengths, draw.number(1, most), draw.log_uniform(8, draw.chance(30) ? 5000 : 400));
    }
  } else {
    add_decodes(draw, draw.log_uniform(1, 5), 8, 4500, lengths);
    if (draw.chance(30)) add_chunk(draw, {30, 130}, 1500, lengths);
  }
  // Servers have sequences of no rows, too, and each order.
  if (draw.chance(15)) add(lengths, 0, draw.number(0, 100));
  const int turned = draw.number(0, static_cast<int>(lengths.q.size()) - 1);
  std::rotate(lengths.q.begin(), lengths.q.begin() + turned, lengths.q.end());
  std::rotate(lengths.kv.begin(), lengths.kv.begin() + turned, lengths.kv.end());
  if (lengths.q.size() == 1) add(lengths, 1, 5);
  return lengths;
}

Step mla_step(Draw& draw, Arch arch) {
  Step step;
  step.spec = absorbed_spec(arch, draw.one_of<int>({16, 32, 64, 128}), 576, 64);
  step.spec.num_partitions = 0;
  const int rows = draw.one_of<int>({1, 1, 2, 3});
  for (int count = draw.log_uniform(2, 5); count > 0; --count) {
    step.lengths.kv.push_back(std::max(rows, draw.log_uniform(5, 1500)));
  }
  step.lengths.q = {rows};
  step.sm_count = draw.one_of<int>({2, 7, 16});
  return step;
}

Step drawn(Arch arch, std::uint64_t seed) {
  Draw draw(seed);
  const auto scenario = draw.one_of<std::string>(
      {"chat", "rag", "agent", "chunked", "chunked", "drafts", "drafts", "d256", "mla"});
  if (scenario == "mla") return mla_step(draw, arch);
  Step step;
  const int depth = scenario == "d256" ? 256 : draw.one_of<int>({64, 64, 128, 128, 128, 128, 256});
  const int group =
      depth == 256 ? draw.one_of<int>({2, 4, 8}) : draw.one_of<int>({1, 4, 5, 6, 7, 8, 12, 16});
  step.spec = base_spec(arch, group * draw.number(1, 2), group, depth);
  step.spec.ragged = true;
  step.spec.page_size = draw.one_of<int>({1, 16, 16, 16, 16, 16, 64, 64, 64});
  const bool gpt_oss = depth == 64 && draw.chance(60);
  step.spec.sink = gpt_oss;
  if (gpt_oss ? draw.chance(50) : draw.chance(20)) {
    step.spec.mask = window_of(draw.one_of<int>({20, 128, 512, 4000}));
  }
  if (draw.chance(15)) step.spec.qkv_dtype = Dtype::kFp16;
  if (draw.chance(15)) step.spec.kv_dtype = Dtype::kE4m3;
  if (draw.chance(10)) {
    step.spec.page_size = 0;
    step.spec.ragged_kv = true;
  }
  step.lengths = requests(draw, scenario);
  // Decodes alone, which servers call without offsets.
  const auto [least, most] = std::ranges::minmax(step.lengths.q);
  if (least == most && most <= 8 && step.spec.page_size > 0) {
    step.spec.ragged = false;
    step.spec.max_q_len = static_cast<int>(most);
    step.spec.num_partitions = 0;
    step.lengths.q = {most};
  }
  step.sm_count = draw.one_of<int>({2, 3, 5, 8, 13, 21});
  step.replayed = draw.chance(20);
  return step;
}

class TrafficSteps : public KernelTest {
 protected:
  static void expect_steps(Arch arch) {
    const std::uint64_t first = number_of("ATTNJIT_TRAFFIC_SEED", 1);
    const std::uint64_t steps = number_of("ATTNJIT_TRAFFIC_STEPS", 3);
    std::uint64_t merged = 0;
    for (std::uint64_t seed = first; seed < first + steps; ++seed) {
      const Step step = drawn(arch, seed);
      SCOPED_TRACE(testing::Message() << "step " << seed << ", " << step.sm_count << " SMs, "
                                      << spec_to_json(step.spec));
      const auto kernel = compiled(step.spec);
      ASSERT_TRUE(kernel);
      const auto problem =
          problem_of(step.spec, step.lengths, static_cast<InputKind>(seed % 4), seed);
      ASSERT_TRUE(problem);
      LaunchSequence sequence =
          launches_of(*kernel, *problem, problem->launch_shapes(), step.sm_count);
      merged += sequence.launches.size() > 1 ? 1 : 0;
      if (step.replayed) {
        const auto launches = sequence.launches;
        sequence.launches.insert(sequence.launches.end(), launches.begin(), launches.end());
      }
      const auto done = run(*kernel, *problem, sequence, seed);
      ASSERT_TRUE(done);
      expect_right(*problem, *done);
    }
    RecordProperty("merged", std::to_string(merged));
  }
};

TEST_F(TrafficSteps, Sm90a) { expect_steps(Arch::kSm90a); }
TEST_F(TrafficSteps, Sm100a) { expect_steps(Arch::kSm100a); }

}  // namespace
}  // namespace attnjit
