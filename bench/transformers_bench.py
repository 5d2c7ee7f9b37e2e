# SPDX-License-Identifier: Apache-2.0
"""A Llama 3.1 8B of random weights inside transformers: prefill and decode beside sdpa in turns,
continuous batching, and the share of attention in the GPU's time. transformers_bench.py

It needs attnjit, torch and transformers 5.17, and 60 GB of the GPU's memory.
"""
import argparse
import random
import statistics
import time

import torch
import transformers

import attnjit
from attnjit.integrations import transformers as integration

CONFIG = transformers.LlamaConfig(
    vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
    num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072)


def seconds(function):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    function()
    torch.cuda.synchronize()
    return time.perf_counter() - begin


def in_turns(model, kinds, function, rounds, tokens):
    """Prints tokens per second of each kind, and the ratios of the rounds to the first kind's."""
    times = {kind: [] for kind in kinds}
    for one in range(rounds + 1):
        for kind in kinds if one % 2 else reversed(kinds):
            model.set_attn_implementation(kind)
            spent = seconds(function)
            if one:  # the first compiles
                times[kind].append(spent)
    for kind in kinds:
        ratios = [a / b for a, b in zip(times[kinds[0]], times[kind])]
        print(f"  {kind}: {tokens / statistics.median(times[kind]):.0f} tokens/s; "
              f"{statistics.median(ratios):.4f} of {kinds[0]} "
              f"({min(ratios):.4f} to {max(ratios):.4f})", flush=True)


def show_shares(function, count):
    """Prints attnjit's share of the GPU's busy time, and the kernels that took most of it."""
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        function()
        torch.cuda.synchronize()
    spent = {event.key: event.self_device_time_total for event in profile.key_averages()}
    ours = sum(time for name, time in spent.items() if "attnjit" in name)
    print(f"  attnjit's share of the GPU's time: {ours / sum(spent.values()):.3f}")
    for name, time_us in sorted(spent.items(), key=lambda one: -one[1])[:count]:
        print(f"    {time_us / 1e3:9.1f} ms {name[:100]}", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--only", default="prefill,decode,batch")
    options = parser.parse_args()
    only = options.only.split(",")
    transformers.logging.set_verbosity_error()
    integration.register()
    print(f"{torch.cuda.get_device_name()}, transformers {transformers.__version__}, torch "
          f"{torch.__version__}, attnjit {attnjit.__version__}", flush=True)
    torch.manual_seed(0)
    random.seed(0)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(CONFIG, dtype=torch.bfloat16).eval()
    model.generation_config.update(do_sample=False, eos_token_id=None, pad_token_id=0)
    words = torch.randint(3, CONFIG.vocab_size, (8, 8192), device="cuda")

    if "prefill" in only:
        print("prefill of 8 x 8k, without cache:")
        def prefill():
            model(words, use_cache=False, logits_to_keep=1)

        in_turns(model, ["sdpa", "attnjit"], prefill, options.rounds, words.numel())
        for kind in ("sdpa", "attnjit"):
            model.set_attn_implementation(kind)
            print(f"  with {kind}:")
            show_shares(prefill, 12)
    if "decode" in only:
        print("generate of 8 x 64 tokens after 512:")
        in_turns(model, ["sdpa", "attnjit"],
                 lambda: model.generate(words[:, :512], max_new_tokens=64), 2, 8 * 64)
    if "batch" in only:
        prompts = [random.choices(range(3, CONFIG.vocab_size), k=random.randint(200, 4096))
                   for _ in range(64)]
        model.set_attn_implementation(integration.PAGED_NAME)

        def generate(config):
            answers = model.generate_batch(
                inputs=prompts, progress_bar=False, warmup=False, continuous_batching_config=config,
                generation_config=transformers.GenerationConfig(
                    max_new_tokens=64, do_sample=False, eos_token_id=-1, pad_token_id=0))
            assert sum(len(one.generated_tokens) for one in answers.values()) == 64 * 64

        print(f"generate_batch of 64 prompts, {sum(map(len, prompts))} tokens, 64 new ones each:")
        for name, config in (("as transformers has it", lambda: None),
                             ("continuous_batching_config()",
                              integration.continuous_batching_config)):
            spent = [seconds(lambda: generate(config())) for _ in range(3)]
            print(f"  {name}: {', '.join(f'{64 * 64 / one:.0f}' for one in spent)} tokens/s",
                  flush=True)
        show_shares(lambda: generate(None), 8)


if __name__ == "__main__":
    with torch.no_grad():
        main()
