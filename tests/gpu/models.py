# SPDX-License-Identifier: Apache-2.0
"""Models of real sizes inside transformers, on the GPU at hand: models.py [NAME...].

Each model has random weights. attnjit's logits, in bf16 and in fp16, may be no further from those
of attention in f32 than eager's are. In fp16, where ties are rare, greedy tokens may differ from
eager's, and those of 64 mixed requests in continuous batching from each request's own, only where
the two are a tie by that deviation. It needs attnjit, torch and transformers 5.17. Exit code 1 if
one is wrong.
"""
import gc
import math
import random
import sys
import time

import torch
import transformers
from transformers import AttentionInterface, AttentionMaskInterface, masking_utils

from attnjit.integrations import transformers as integration

NEW_TOKENS = 12
TIE = 6.0  # deviations of a logit by which two of them may be apart and still change places


def configs():
    """The configurations, from their models' files; gpt-oss with a quarter of its layers."""
    gemma = dict(head_dim=256, query_pre_attn_scalar=256, max_position_embeddings=8192)
    return {
        "llama-3.1-8b": transformers.LlamaConfig(
            vocab_size=128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
            num_attention_heads=32, num_key_value_heads=8, max_position_embeddings=131072),
        "qwen3-8b": transformers.Qwen3Config(
            vocab_size=151936, hidden_size=4096, intermediate_size=12288, num_hidden_layers=36,
            num_attention_heads=32, num_key_value_heads=8, head_dim=128,
            max_position_embeddings=40960),
        "mistral-7b": transformers.MistralConfig(
            vocab_size=32000, hidden_size=4096, intermediate_size=14336, num_hidden_layers=32,
            num_attention_heads=32, num_key_value_heads=8, sliding_window=4096,
            max_position_embeddings=32768),
        "gemma-2-9b": transformers.Gemma2Config(
            vocab_size=256000, hidden_size=3584, intermediate_size=14336, num_hidden_layers=42,
            num_attention_heads=16, num_key_value_heads=8, sliding_window=4096,
            attn_logit_softcapping=50.0, final_logit_softcapping=30.0, **gemma),
        "gemma-3-4b": transformers.Gemma3TextConfig(
            vocab_size=262208, hidden_size=2560, intermediate_size=10240, num_hidden_layers=34,
            num_attention_heads=8, num_key_value_heads=4, sliding_window=1024, **gemma),
        "gpt-oss-20b": transformers.GptOssConfig(num_hidden_layers=6),
    }


def f32_attention(module, query, key, value, attention_mask, scaling=None, softcap=None,
                  s_aux=None, **_):
    """Attention in f32 over what the layer has in bf16: one head of K at a time."""
    group = query.shape[1] // key.shape[1]
    out = torch.empty_like(query)
    for head in range(key.shape[1]):
        heads = slice(head * group, (head + 1) * group)
        scores = query[:, heads].float() @ key[:, head:head + 1].float().transpose(2, 3)
        scores *= query.shape[-1] ** -0.5 if scaling is None else scaling
        if softcap:
            scores = torch.tanh(scores / softcap) * softcap
        if attention_mask is not None:
            scores = scores + attention_mask[..., :key.shape[2]].float()
        if s_aux is not None:
            sink = s_aux[heads].float().view(1, -1, 1, 1).expand(*scores.shape[:3], 1)
            scores = torch.cat((scores, sink), -1)
        weights = scores.softmax(-1)[..., :key.shape[2]]
        out[:, heads] = (weights @ value[:, head:head + 1].float()).to(out.dtype)
    return out.transpose(1, 2).contiguous(), None


def deviations(model, tokens, seen):
    """The root mean square by which each implementation's logits leave those of f32 attention."""
    def logits_of(kind):
        model.set_attn_implementation(kind)
        logits = model(tokens, attention_mask=seen, use_cache=False).logits
        return logits[seen.bool()].float()

    exact = logits_of("f32")
    assert exact.isfinite().all()
    return {kind: float((logits_of(kind) - exact).square().mean().sqrt())
            for kind in ("eager", "attnjit")}


def ties(model, prompts, ours, theirs, deviation):
    """How many of the rows of tokens are not the same; raises if one is no tie in f32."""
    different = 0
    for prompt, one, other in zip(prompts, ours, theirs):
        at = next((i for i, pair in enumerate(zip(one, other)) if pair[0] != pair[1]), None)
        if at is None:
            assert len(one) == len(other), f"{len(one)} tokens for {len(other)}"
            continue
        different += 1
        model.set_attn_implementation("f32")
        logits = model(torch.tensor([prompt + one[:at]], device="cuda"), use_cache=False,
                       logits_to_keep=1).logits[0, -1].float()
        assert logits.isfinite().all()
        apart = float((logits[one[at]] - logits[other[at]]).abs())
        below = float(logits.max() - torch.minimum(logits[one[at]], logits[other[at]]))
        assert max(apart, below) < TIE * deviation, (
            f"token {at} after {len(prompt)}: {one[at]} and {other[at]} are {apart:.4f} apart, "
            f"{below:.4f} below the best; a logit deviates by {deviation:.4f}")
    return different


def check(name, config):
    begin = time.time()
    torch.manual_seed(0)
    random.seed(0)
    with torch.device("cuda"):
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16).eval()
    if name == "gpt-oss-20b":
        for layer in model.model.layers:  # sinks of random weights would be all but zero
            layer.self_attn.sinks.data.normal_()
    model.generation_config.update(do_sample=False, eos_token_id=None, pad_token_id=0)
    words = range(3, config.vocab_size)

    # One prompt is longer than each model's window, one is padded on the left, as generate() pads.
    rows, padding = 4600, 1700
    tokens = torch.tensor(random.choices(words, k=2 * rows), device="cuda").view(2, rows)
    seen = torch.ones_like(tokens)
    seen[1, :padding] = 0
    for dtype in (torch.bfloat16, torch.float16):
        model.to(dtype)
        deviation = deviations(model, tokens, seen)
        print(f"{name}: {dtype}, logits' deviation from f32 attention's: "
              + ", ".join(f"{kind} {one:.5f}" for kind, one in deviation.items()), flush=True)
        assert deviation["attnjit"] < 1.1 * deviation["eager"], "attnjit is further off than eager"

    prompts = [tokens[0].tolist(), tokens[1, padding:].tolist()]
    made = {}
    for kind in ("eager", "attnjit"):
        model.set_attn_implementation(kind)
        answer = model.generate(tokens, attention_mask=seen, max_new_tokens=NEW_TOKENS)
        made[kind] = answer[:, rows:].tolist()
    different = ties(model, prompts, made["attnjit"], made["eager"], deviation["eager"])
    print(f"{name}: greedy tokens as eager's, {different} of 2 prompts up to a tie", flush=True)

    lengths = [round(math.exp(random.uniform(0, math.log(1500)))) for _ in range(60)] + [5000] * 4
    random.shuffle(lengths)
    prompts = [random.choices(words, k=length) for length in lengths]
    model.set_attn_implementation("attnjit")
    alone = []
    for prompt in prompts:
        answer = model.generate(torch.tensor([prompt], device="cuda"), max_new_tokens=NEW_TOKENS)
        alone.append(answer[0, len(prompt):].tolist())
    model.set_attn_implementation(integration.PAGED_NAME)
    graphs = {"use_cuda_graph": False} if name == "gpt-oss-20b" else {}
    start = time.time()
    answers = model.generate_batch(
        inputs=prompts, progress_bar=False, warmup=False,
        generation_config=transformers.GenerationConfig(
            max_new_tokens=NEW_TOKENS, do_sample=False, eos_token_id=-1, pad_token_id=0),
        continuous_batching_config=integration.continuous_batching_config(**graphs))
    seconds = time.time() - start
    together = {tuple(one.prompt_ids): one.generated_tokens for one in answers.values()}
    together = [together[tuple(prompt)] for prompt in prompts]
    different = ties(model, prompts, together, alone, deviation["eager"])
    print(f"{name}: 64 mixed requests as each alone, {different} of them up to a tie; "
          f"{seconds:.1f} s; {time.time() - begin:.0f} s in all", flush=True)


def main():
    transformers.logging.set_verbosity_error()
    integration.register()
    AttentionInterface.register("f32", f32_attention)
    AttentionMaskInterface.register("f32", masking_utils.eager_mask)
    wrong = []
    names = sys.argv[1:] or list(configs())
    for name in names:
        try:
            with torch.no_grad():
                check(name, configs()[name])
        except Exception as error:  # the others run on
            wrong.append(name)
            print(f"{name}: {type(error).__name__}: {error}", flush=True)
        gc.collect()
        torch.cuda.empty_cache()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, "
          f"{torch.cuda.get_device_name()}: {len(names)} models, wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
