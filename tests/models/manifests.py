#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The manifests of cache/ that `attnjit manifest` makes from the configurations of models.json.

    manifests.py ATTNJIT            writes them
    manifests.py ATTNJIT --check    compares them with what is there, and tries wrong configurations
"""
import json
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parent
CACHE = FOLDER.parents[1] / "cache"
LLAMA = {"model_type": "llama", "num_attention_heads": 32, "num_key_value_heads": 8,
         "hidden_size": 4096}
LISTED = {"model_type": "deepseek_v32", "num_attention_heads": 128, "kv_lora_rank": 512,
          "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
# Configuration, flags: what the error names.
WRONG = (
    ({**LLAMA, "model_type": "lama"}, (), ("model_type", "did you mean `llama`?", "qwen3_moe")),
    ({}, (), ("model_type", "is missing")),
    ([], (), ("an object",)),
    ({**LLAMA, "num_attention_heads": None}, (), ("num_attention_heads", "is missing")),
    ({**LLAMA, "num_key_value_heads": 5}, (), ("num_key_value_heads", "does not divide 32", "line 4")),
    ({**LLAMA, "head_dim": -1}, (), ("head_dim", "is -1")),
    ({**LLAMA, "head_dim": "128"}, (), ("head_dim", 'the string "128"')),
    ({**LLAMA, "layer_types": ["full_attention", "spiral"]}, (), ("layer_types", "spiral")),
    ({**LLAMA, "layer_types": []}, (), ("layer_types", "a list of names")),
    (LISTED, (), ("index_topk", "is missing")),
    (LLAMA, ("--tp", "3"), ("tp", "cannot be divided among 3 GPUs")),
    (LLAMA, ("--tp", "1,"), ("tp", "numbers from 1")),
    (LLAMA, ("--page", "0"), ("page",)),
    (LLAMA, ("--kv-dtype", "f32"), ("kv_dtype", "bf16, fp16, e4m3")),
)
# Configuration, flags: (query heads, group, qk depth, mask or number of it, more) of the layers.
RIGHT = (
    (LLAMA, ("--tp", "16"), {(2, 2, 128, "causal")}),
    ({**LLAMA, "sliding_window": 9, "use_sliding_window": True, "model_type": "qwen3"}, (),
     {(32, 4, 128, "causal"), (32, 4, 128, 9)}),
    ({**LLAMA, "sliding_window": 9, "use_sliding_window": False, "model_type": "qwen3"}, (),
     {(32, 4, 128, "causal")}),
    ({**LLAMA, "sliding_window": 9, "model_type": "mistral"}, (), {(32, 4, 128, 9)}),
    ({**LLAMA, "attention_chunk_size": 64, "model_type": "llama4_text"}, (),
     {(32, 4, 128, "causal"), (32, 4, 128, "chunk 64")}),
    ({"model_type": "falcon", "num_attention_heads": 71, "hidden_size": 4544, "multi_query": True,
      "new_decoder_architecture": False, "alibi": False}, (), {(71, 71, 64, "causal")}),
    ({"model_type": "mpt", "n_heads": 32, "d_model": 4096, "attn_config": {"alibi": True}}, (),
     {(32, 1, 128, "causal", "alibi")}),
    ({**LLAMA, "model_type": "gemma2", "attn_logit_softcapping": 50.0, "sliding_window": 4096},
     (), {(32, 4, 128, "causal", 50.0), (32, 4, 128, 4096, 50.0)}),
    ({**LLAMA, "model_type": "mimo_v2_flash", "head_dim": 192, "v_head_dim": 128,
      "sliding_window": 128, "add_swa_attention_sink_bias": True}, (),
     {(32, 4, 192, "causal", 128), (32, 4, 192, 128, 128, "sink")}),
    ({**LISTED, "index_topk": 2048}, ("--tp", "8"),
     {(16, 1, 192, "causal", 128), (16, 16, 576, "causal", 512), (16, 16, 576, "null", 512, 2048),
      (16, 16, 576, "null", 512, 2048, "dsv32")}),
    ({**LISTED, "kv_lora_rank": 256, "index_topk": 512}, ("--kv-dtype", "e4m3"),
     {(128, 1, 192, "causal", 128), (128, 128, 320, "causal", 256, "e4m3"),
      (128, 128, 320, "null", 256, "e4m3", 512)}),
)


def run(attnjit, config, *flags):
    return subprocess.run([attnjit, "manifest", "-", *flags], input=json.dumps(config, indent=1),
                          capture_output=True, text=True, check=False)


def layer(spec):
    """What a spec says of its layer, as RIGHT has it."""
    mask = spec.get("mask", "null")
    if mask not in ("causal", "null"):
        mask = mask.get("window") or f"chunk {mask['of'][1]['chunk']}"
    score = spec.get("score_mod")
    more = [] if score is None else [score if score == "alibi" else score["cap"]]
    more += [spec["ov_depth"]] if "ov_depth" in spec else []
    more += ["sink"] if spec.get("sink") else []
    more += [spec[field] for field in ("kv_dtype", "topk", "cache_format") if field in spec]
    return (spec["num_q_heads"], spec.get("group", 1), spec["qk_depth"], mask, *more)


def main():
    attnjit, check = sys.argv[1], "--check" in sys.argv
    problems = []
    for model in json.loads((FOLDER / "models.json").read_text(encoding="utf-8")):
        flags = ("--name", model["name"], "--source", model["source"], "--tp",
                 ",".join(map(str, model["tp"])))
        made = run(attnjit, model["config"], *flags)
        path = CACHE / (model["manifest"] + ".json")
        if made.returncode:
            problems.append(f"{path.name}: {made.stderr}")
        elif not check:
            path.write_text(made.stdout, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != made.stdout:
            problems.append(f"{path.name} is not what attnjit manifest makes of its configuration; "
                            f"run {sys.argv[0]} {attnjit}")
        if check:  # every spec is planned, or unsupported for a reason
            said = json.loads(run(attnjit, model["config"], *flags, "--json").stdout)
            for arch, counts in said["archs"].items():
                if (counts["served"] + sum(counts["unsupported"].values()) != said["specs"]
                        or "" in counts["unsupported"]):
                    problems.append(f"{path.name}: {arch}: {counts}")
    for config, flags, texts in WRONG if check else ():
        made = run(attnjit, config, *flags)
        if made.returncode != 2 or not all(text in made.stderr for text in texts):
            problems.append(f"{config} {flags}: {made.returncode} {made.stderr}")
    for config, flags, layers in RIGHT if check else ():
        made = run(attnjit, config, *flags)
        found = {layer(spec) for spec in json.loads(made.stdout or '{"specs": []}')["specs"]}
        if found != layers:
            problems.append(f"{config} {flags}: {found} {made.stderr}")
    print("\n".join(problems), file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
