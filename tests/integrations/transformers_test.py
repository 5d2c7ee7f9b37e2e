# SPDX-License-Identifier: Apache-2.0
"""attnjit inside transformers gives what eager attention gives, on the CPU with a reference at the
launch: models of random weights in the shapes of real ones, prompts with padding, decodes."""
import sys

import torch
import transformers

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


def main():
    reference.install()
    integration.register()
    for name, config in CONFIGS.items():
        check(name, config)
    layer = torch.nn.Module()
    q = torch.zeros(1, 4, 3, 16)
    for options, field in (({"attention_mask": torch.zeros(1, 1, 3, 3)}, "attention_mask"),
                           ({"attention_mask": None, "dropout": 0.5}, "dropout")):
        try:
            integration.attention_forward(layer, q, q, q, **options)
        except integration.UnsupportedError as error:
            assert error.field == field and error.hint
        else:
            raise AssertionError(f"{field} was taken")
    print(f"transformers {transformers.__version__}, torch {torch.__version__}: all right")


if __name__ == "__main__":
    sys.exit(main())
