# SPDX-License-Identifier: Apache-2.0
"""attnjit inside transformers gives what eager attention gives, on the CPU with a reference at the
launch: models of random weights in the shapes of real ones, prompts with padding, decodes, and
continuous batching."""
import sys

import torch
import transformers
from transformers.generation.continuous_batching.model_runner import ModelRunner

import reference
from attnjit.integrations import transformers as integration

SMALL = dict(vocab_size=128, hidden_size=64, intermediate_size=64, num_hidden_layers=2,
             num_attention_heads=4, num_key_value_heads=2, head_dim=16,
             max_position_embeddings=256, pad_token_id=0, bos_token_id=1, eos_token_id=2)
CONFIGS = {
    "llama": transformers.LlamaConfig(**SMALL),
    "qwen3": transformers.Qwen3Config(**SMALL),
    "mistral": transformers.MistralConfig(**SMALL, sliding_window=5),
    "gemma2": transformers.Gemma2Config(**SMALL, sliding_window=5, attn_logit_softcapping=8.0,
                                        query_pre_attn_scalar=16),
    "gemma3": transformers.Gemma3TextConfig(**SMALL, sliding_window=5, query_pre_attn_scalar=16),
    "gpt_oss": transformers.GptOssConfig(**SMALL, sliding_window=5, num_local_experts=2,
                                         num_experts_per_tok=1),
}


def check(name, config):
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    tokens = torch.randint(3, 128, (2, 9))
    padded = torch.ones_like(tokens)
    padded[0, :4] = 0  # on the left, as generate() pads
    results = {}
    for kind in ("eager", "attnjit"):
        model.set_attn_implementation(kind)
        reference.calls.clear()
        with torch.no_grad():
            logits = [model(tokens).logits,
                      model(tokens, attention_mask=padded).logits[padded.bool()]]
            generated = model.generate(tokens, attention_mask=padded, max_new_tokens=6,
                                       do_sample=False)
        results[kind] = (logits, generated)
    assert reference.calls, f"{name}: attnjit was not called"
    for eager, ours in zip(results["eager"][0], results["attnjit"][0]):
        error = (eager - ours).norm() / eager.norm()
        assert error < 1e-5, f"{name}: the logits differ by {error:.2e}"
    assert torch.equal(results["eager"][1], results["attnjit"][1]), f"{name}: the tokens differ"
    kernels = {str((one["mask"], one["score_mod"])) for one in reference.calls}
    print(f"{name}: logits and tokens as eager's; {len(kernels)} kinds of kernels")
    return kernels


def check_own_masks(name, config):
    """4-D masks of the caller's own, of bools and of numbers, are read as they are."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    tokens = torch.randint(3, 128, (2, 9))
    seen = torch.rand(2, 1, 9, 9) < 0.5
    seen |= torch.eye(9, dtype=torch.bool)
    numbers = torch.zeros(2, 1, 9, 9).masked_fill(~seen, torch.finfo(torch.float32).min)
    results = {}
    for kind, masks in (("eager", (numbers,)), ("attnjit", (numbers, seen))):
        model.set_attn_implementation(kind)
        reference.calls.clear()
        with torch.no_grad():
            results[kind] = [model(tokens, attention_mask=mask).logits for mask in masks]
    reference.check_calls(lambda: all("materialized" in str(one["mask"])
                                      for one in reference.calls))
    for ours in results["attnjit"]:
        error = (results["eager"][0] - ours).norm() / ours.norm()
        assert error < 1e-5, f"{name}: the logits differ by {error:.2e}"
    print(f"{name}: masks of the caller's own as eager's")


def check_continuous_batching(name, config, padded=False):
    """Requests that are batched give what each gives alone; prompts are cut into chunks, requests
    come and go, and layers have windows. `padded`: with rows and keys that stand for nobody, as in
    steps that are captured."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval().float()
    prompts = [torch.randint(3, 128, (rows,)).tolist() for rows in (3, 30, 9, 1, 17)]
    options = transformers.GenerationConfig(max_new_tokens=7, do_sample=False, eos_token_id=-1,
                                            pad_token_id=0)
    batching = transformers.ContinuousBatchingConfig(block_size=8, num_blocks=40,
                                                     max_batch_tokens=20)
    alone = []
    model.set_attn_implementation("eager")
    for prompt in prompts:
        made = model.generate(torch.tensor([prompt]), max_new_tokens=7, do_sample=False,
                              eos_token_id=-1, pad_token_id=0)
        alone.append(made[0, len(prompt):].tolist())
    model.set_attn_implementation(integration.PAGED_NAME)
    reference.calls.clear()
    ModelRunner.pad_inputs = property(lambda self: padded, lambda self, value: None)
    try:
        made = model.generate_batch(inputs=prompts, generation_config=options,
                                    continuous_batching_config=batching, progress_bar=False,
                                    warmup=False)
    except ValueError as error:
        assert "not supported for continuous batching" in str(error), error
        return print(f"{name}: this version takes no other implementations than its own")
    assert len(made) == len(prompts), f"{name}: {len(made)} answers"
    together = {tuple(one.prompt_ids): one.generated_tokens for one in made.values()}
    for prompt, tokens in zip(prompts, alone):
        assert together[tuple(prompt)] == tokens, f"{name}: {tokens}, {together[tuple(prompt)]}"
    decodes = sum("max_q_len" in one for one in reference.calls)
    print(f"{name}: {len(prompts)} requests together as alone; {len(reference.calls)} launches, "
          f"{decodes} of them of decodes alone")
    if not padded and name not in ("mistral", "gemma3"):  # whose layers all have windows here
        assert decodes, f"{name}: no decode read the cache in place"


def main():
    transformers.logging.set_verbosity_error()
    reference.install()
    integration.register()
    for name, config in CONFIGS.items():
        check(name, config)
        check_continuous_batching(name, config)
        check_continuous_batching(name, config, padded=True)
    check_own_masks("llama", CONFIGS["llama"])
    config = integration.continuous_batching_config(block_size=64, use_async_batching=False)
    assert (config.use_cuda_graph, config.use_async_batching, config.block_size) == (True, False, 64)
    layer = torch.nn.Module()
    q = torch.zeros(1, 4, 3, 16)
    forward, paged_forward = integration.attention_forward, integration.paged_attention_forward
    for function, options, field in (
            (forward, {"attention_mask": torch.zeros(3, 3)}, "attention_mask"),
            (forward, {"attention_mask": None, "dropout": 0.5}, "dropout"),
            (paged_forward, {"attention_mask": None}, "cache")):
        try:
            function(layer, q, q, q, **options)
        except integration.UnsupportedError as error:
            assert error.field == field and error.hint
        else:
            raise AssertionError(f"{field} was taken")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: all right")


if __name__ == "__main__":
    sys.exit(main())
