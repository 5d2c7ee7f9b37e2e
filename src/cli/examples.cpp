// SPDX-License-Identifier: Apache-2.0
// The examples, a row each.
#include "cli/examples.h"

#include <fmt/format.h>

#include <array>

namespace attnjit::cli {
namespace {

struct Row {
  std::string_view path, first, second;
};
constexpr std::array kExamples{
    Row{"plan", "plan --arch sm_90a --num-q-heads 32 --group 4 --qk-depth 128 --mask causal",
        "plan spec.json --draw-mask --tile 1x1 --q-len 16 --kv-len 16 -o mask.svg"},
    Row{"generate", "generate spec.json -o kernel",
        "generate spec.json -o kernel --launch --q-len 64 --kv-len 128"},
    Row{"compile", "compile spec.json", "compile spec.json -o kernel.cubin --ptx kernel.ptx"},
    Row{"prewarm", "prewarm model.json --arch sm_90a,sm_100a",
        "prewarm model.json --from kernels.bundle --jobs 4"},
    Row{"verify", "verify spec.json --backend emulator --q-len 64 --kv-len 128",
        "verify spec.json --input rising --seed 7 --dump run"},
    Row{"reference", "reference run/spec.json --inputs run -o expected",
        "reference --num-q-heads 8 --group 2 --qk-depth 64 --mask causal --inputs run"},
    Row{"emulate", "emulate kernel.ptx --launch kernel/LAUNCH.json --seeds 4",
        "emulate kernel.ptx --launch kernel/LAUNCH.json --timing sm_90a --report"},
    Row{"bench", "bench spec.json --batch 16 --q-len 1024 --kv-len 1024",
        "bench model.json#3 --q-len 1 --kv-len 8192 --repeats 50"},
    Row{"tune", "tune spec.json -o table.json",
        "tune spec.json --model sm_90a --shape 1:4096:4096 -o table.json"},
    Row{"manifest", "manifest config.json --tp 1,2,4,8 -o model.json",
        "manifest config.json --page 16 --kv-dtype e4m3"},
    Row{"doctor", "doctor", "doctor --collect"},
    Row{"cache", "cache list --long", "cache gc --max-bytes 5G"},
    Row{"cache path", "cache path", "cache path --json"},
    Row{"cache list", "cache list --long", "cache list --long --manifest model.json"},
    Row{"cache show", "cache show 3f2a", "cache show 3f2a --manifest model.json --json"},
    Row{"cache stats", "cache stats", "cache stats --json"},
    Row{"cache verify", "cache verify", "cache verify kernels.bundle --trust ring"},
    Row{"cache gc", "cache gc --max-bytes 5G", "cache gc --max-bytes 500M --dry-run"},
    Row{"cache clear", "cache clear", "cache clear --json"},
    Row{"cache export", "cache export kernels.bundle", "cache export --oci image"},
    Row{"cache import", "cache import kernels.bundle", "cache import kernels.bundle --json"},
    Row{"cache keygen", "cache keygen fleet.key", "cache keygen fleet.key --json"},
    Row{"cache sign", "cache sign --key fleet.key", "cache sign kernels.bundle --key fleet.key"},
    Row{"completion", "completion bash", "completion zsh"},
};

}  // namespace

std::string examples_of(std::string_view path) {
  for (const Row& row : kExamples) {
    if (row.path != path) continue;
    return fmt::format("Examples:\n  attnjit {}\n  attnjit {}\n", row.first, row.second);
  }
  return {};
}

}  // namespace attnjit::cli
