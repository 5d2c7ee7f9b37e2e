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
    ({**LLAMA, "num_attention_heads": None}, (), ("-: num_attention_heads", "is null", "line 3")),
    ({**LLAMA, "num_key_value_heads": 5}, (), ("num_key_value_heads", "does not divide 32", "line 4")),
    ({**LLAMA, "head_dim": -1}, (), ("head_dim", "is -1")),
    ({**LLAMA, "head_dim": "128"}, (), ("head_dim", 'the string "128"')),
    ({**LLAMA, "hidden_size": 4097}, (), ("hidden_size", "which 32 heads do not divide", "head_dim")),
    ({"model_type": "bamba"}, (), ("attn_layer_indices: is missing",)),
    ({"model_type": "granitemoehybrid"}, (), ("layer_types: is missing",)),
    ({"model_type": "jamba", "num_hidden_layers": 2}, (), ("no layer with attention",)),
    ({"model_type": "nemotron_h", "hybrid_override_pattern": "MX"}, (), ("holds `X`",)),
    ({"model_type": "nemotron_h", "hybrid_override_pattern": "M-"}, (), ("no layer with attention",)),
    ({**LLAMA, "layer_types": ["full_attention", "spiral"]}, (), ("layer_types", "spiral")),
    ({**LLAMA, "layer_types": []}, (), ("layer_types", "a list of names")),
    ({**LLAMA, "layer_types": ["sliding_attention"]}, (), ("sliding_window", "is missing")),
    ({**LLAMA, "num_hidden_layers": 3, "layer_types": ["full_attention"]}, (),
     ("layer_types", "has 1 layers, and num_hidden_layers is 3")),
    ({**LISTED, "index_topk": 0}, (), ("index_topk", "is 0")),
    ({"model_type": "ministral"}, (), ("head_dim", "is missing")),
    ({"model_type": "hunyuan_v1_moe", "head_dim": 128, "attention_head_dim": 64}, (),
     ("attention_head_dim", "128")),
    ({"model_type": "gemma3_text", "head_dim": None}, (), ("head_dim", "is null")),
    ({"model_type": "qwen2", "num_attention_heads": 28, "hidden_size": 3584}, (),
     ("num_key_value_heads", "is 32, which does not divide 28", "by default")),
    ({**LLAMA, "dtype": "float8_e4m3fn"}, (), ("dtype", "float16")),
    ({**LLAMA, "head_dim": float("inf")}, (), ("head_dim", "is Infinity")),
    ({"model_type": "gemma2", "attn_logit_softcapping": float("nan")}, (),
     ("attn_logit_softcapping", "is NaN")),
    ({**LLAMA, "per_layer_config": {"x": {}}}, (), ("per_layer_config", "numbers of layers")),
    ({**LLAMA, "per_layer_config": {"32": {"head_dim": 64}}}, (),
     ("per_layer_config", "has layer 32")),
    ({"model_type": "laguna", "num_hidden_layers": 3, "num_attention_heads_per_layer": [48, 64]}, (),
     ("num_attention_heads_per_layer", "no heads of layer 2")),
    ({"model_type": "mpt", "attn_config": {"prefix_lm": True}}, (), ("attn_config.prefix_lm",)),
    ({**LLAMA, "model_type": "mistral", "sliding_window": 9, "is_causal": False}, (), ("is_causal",)),
    ({**LLAMA, "model_type": "lfm2", "layer_types": ["full_attention"], "num_hidden_layers": 1,
      "architectures": ["Lfm2BidirectionalModel"], "kv_lora_rank": 4}, (), ("kv_lora_rank",)),
    ({**LISTED, "model_type": "deepseek_v3", "architectures": ["DeepseekV3BidirectionalModel"]}, (),
     ("architectures: says that rows see keys on both sides",)),
    ({"model_type": "nemotron-nas"}, (), ("block_configs", "is missing")),
    ({**LLAMA, "model_type": "nemotron-nas", "block_configs": [{"ffn": {}}]}, (), ("without `attention`",)),
    ({**LLAMA, "model_type": "nemotron-nas", "block_configs": [{"attention": {"n_heads_in_group": 8, "window_length": 9}}]},
     (), ("block_configs.attention.window_length", "no spec has")),
    ({"model_type": "chatglm", "num_attention_heads": 32, "hidden_size": 4096, "multi_query_attention": False}, (),
     ("multi_query_attention", "is false")),
    (LLAMA, ("--tp", "3"), ("tp", "cannot be divided among 3 GPUs")),
    (LLAMA, ("--tp", "1,"), ("tp", "numbers from 1")),
    (LLAMA, ("--page", "0"), ("page",)),
    (LLAMA, ("--kv-dtype", "f32"), ("kv_dtype", "bf16, fp16, e4m3")),
)
# Fields that a Llama has not, or not with these values. Each is refused by its name.
UNKNOWN = (
    ("sliding_window", 4096), ("use_sliding_window", True), ("attention_chunk_size", 8192),
    ("attn_logit_softcapping", 50.0), ("attention_logit_cap", 30), ("alibi", True),
    ("use_alibi", True), ("attention_sink", True), ("num_sink_tokens", 4), ("swa_head_dim", 64),
    ("v_head_dim", 64), ("kv_lora_rank", 512), ("num_key_value_heads_per_layer", [8, 4]),
    ("use_bidirectional_attention", True), ("use_causal_mask", False), ("index_topk", 2048),
    ("attention_multiplier", 0.5), ("query_pre_attn_scalar", 64), ("window_size", 7),
    ("attention_window", 7), ("local_attention_heads", 4), ("relative_attention_num_buckets", 32),
    ("qk_nope_head_dim", 64), ("no_rope_layers", [1, 0]), ("block_sparse_attention", {"size": 64}),
    ("use_mla", True), ("prefix_lm", True), ("hybrid_layer_pattern", [0, 1]),
    ("attention_softmax_scale", 0.5), ("relative_attention_bias", True), ("attention_bias", 2.0),
    ("global_layer_ids", [1]), ("block_size", 32), ("sparse_attention_config", {"topk": 4}),
    ("attn_window_size", [7]), ("global_attn_every_n_layers", 4), ("multi_query", True),
)
# Fields that have to do with attention, and decide no kernel.
HARMLESS = {
    "attention_bias": True, "attention_dropout": 0.1, "pretraining_tp": 1, "rope_scaling": None,
    "attn_implementation": "sdpa", "use_sliding_window": False, "sliding_window": None,
    "pruned_heads": {}, "qk_layernorm": True, "use_qk_norm": True, "add_cross_attention": False,
    "rope_parameters": {"rope_type": "default"}, "initializer_range": 0.02, "mlp_bias": False,
    "num_nextn_predict_layers": 1, "attention_softmax_in_fp32": True, "lm_head_bias": False,
    "decoder_sparse_step": 1, "_attn_implementation_autoset": True, "kv_cache_dtype": "auto",
    "final_logit_softcapping": 30.0, "attn_output_gate": True, "mask_token_id": 5, "eos_token_id": 2, "quantization_config": {"kv_cache": 8},
}
# Architectures and fields of their published configurations, which leave the manifest as it is.
PUBLISHED = (
    ("gemma3_text", {"rope_local_base_freq": 10000, "attn_logit_softcapping": None}),
    ("gemma3n_text", {"rope_local_base_freq": 10000.0, "query_pre_attn_scalar": 256}),
    ("lfm2", {"num_heads": 32}), ("minimax_m2", {"qk_norm_type": "per_layer", "use_qk_norm": True}),
    ("longcat_flash", {"attention_method": "MLA", "mla_scale_q_lora": True, "mla_scale_kv_lora": True}),
    ("deepseek_v2", {"rm_head": False, "use_mla": True}), ("ernie4_5_moe", {"use_mem_eff_attn": True}),
    ("olmoe", {"clip_qkv": 8}), ("falcon_h1", {"attention_in_multiplier": 1.0, "attn_layer_indices": None}),
    ("llama", {"use_flash_attention_2": True, "use_flash_attn": "auto"}),
    ("qwen3_omni_moe_text", {"sliding_window": 4096, "use_sliding_window": False}),
)
# Configuration, flags: (query heads, group, qk depth, mask or number of it, more) of the layers.
RIGHT = (
    (LLAMA, ("--tp", "16"), {(2, 2, 128, "causal")}),
    ({**LLAMA, "sliding_window": 9, "use_sliding_window": True, "model_type": "qwen3"}, (),
     {(32, 4, 128, "causal"), (32, 4, 128, 9)}),
    ({"model_type": "qwen3", "num_hidden_layers": 4, "sliding_window": 9, "max_window_layers": 0,
      "use_sliding_window": True}, (), {(32, 1, 128, 9)}),
    ({**LLAMA, "sliding_window": 9, "use_sliding_window": True, "model_type": "qwen3_moe"}, (),
     {(32, 4, 128, 9)}),
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
     (), {(32, 4, 256, "causal", 50.0), (32, 4, 256, 4096, 50.0)}),
    ({**LLAMA, "model_type": "mimo_v2_flash", "head_dim": 192, "v_head_dim": 128,
      "sliding_window": 128, "add_swa_attention_sink_bias": True}, (),
     {(32, 4, 192, "causal", 128), (32, 2, 192, 128, 128, "sink")}),
    # As it was published: the window counts the keys before the row, and heads are given.
    ({"model_type": "mimo_v2_flash", "hybrid_layer_pattern": [0, 1, 1], "sliding_window": 128,
      "sliding_window_size": 128, "attention_chunk_size": 128, "swa_num_key_value_heads": 8,
      "swa_head_dim": 192, "swa_v_head_dim": 128, "add_swa_attention_sink_bias": True,
      "add_full_attention_sink_bias": False, "num_hidden_layers": 3}, (),
     {(64, 16, 192, "causal", 128), (64, 8, 192, 129, 128, "sink")}),
    ({"model_type": "mimo_v2_flash"}, (),
     {(64, 16, 192, "causal", 128), (64, 8, 192, 129, 128, "sink")}),
    # Fields that are not given have their class's values.
    ({"model_type": "gemma3", "text_config": {"model_type": "gemma3_text", "hidden_size": 3840,
                                              "num_attention_heads": 16, "num_key_value_heads": 8,
                                              "num_hidden_layers": 48, "sliding_window": 1024}},
     (), {(16, 2, 256, "causal"), (16, 2, 256, 1024)}),
    ({"model_type": "gemma3", "text_config": {"hidden_size": 2560, "num_hidden_layers": 34,
                                              "sliding_window": 1024}},
     (), {(8, 2, 256, "causal"), (8, 2, 256, 1024)}),
    ({"model_type": "gemma3"}, (), {(8, 2, 256, "causal"), (8, 2, 256, 4096)}),
    ({"model_type": "gemma3_text", "num_hidden_layers": 5}, (), {(8, 2, 256, 4096)}),
    ({"model_type": "gemma3_text", "sliding_window_pattern": 1}, (), {(8, 2, 256, "causal")}),
    # Layers with overrides, by their numbers, of any architecture.
    ({"model_type": "gemma4", "text_config": {
        "model_type": "gemma4_text", "hidden_size": 2816, "head_dim": 256, "num_attention_heads": 16,
        "num_key_value_heads": 8, "num_hidden_layers": 6, "sliding_window": 1024,
        "per_layer_config": {"05": {"head_dim": 512, "num_key_value_heads": 2}}}}, (),
     {(16, 8, 512, "causal"), (16, 2, 256, 1024)}),
    ({**LLAMA, "num_hidden_layers": 3, "per_layer_config": {"0": {"num_key_value_heads": 4},
                                                            "2": {"skip": ["self_attn"]}}}, (),
     {(32, 8, 128, "causal"), (32, 4, 128, "causal")}),
    ({"model_type": "hunyuan_v1_moe", "attention_head_dim": 64}, (), {(32, 1, 64, "causal")}),
    # Where a class takes the width over the heads, and does not ask that it be whole.
    ({"model_type": "glm4_moe"}, (), {(96, 12, 42, "causal")}),
    # Other names of lists of layers, and layer_types before them.
    ({"model_type": "lfm2", "num_hidden_layers": 3, "full_attn_idxs": [1]}, (), {(32, 4, 80, "causal")}),
    ({"model_type": "bamba", "num_hidden_layers": 3, "attn_layer_indices": [1]}, (), {(32, 4, 128, "causal")}),
    ({**LLAMA, "model_type": "granitemoehybrid", "layer_types": ["mamba"] * 31 + ["attention"],
      "attention_multiplier": 0.0078125}, (), {(32, 4, 128, "causal")}),
    ({"model_type": "jamba", "attn_layer_period": 2, "attn_layer_offset": 1, "num_hidden_layers": 2}, (),
     {(32, 4, 128, "causal")}),
    ({"model_type": "kimi_linear", "num_hidden_layers": 4, "linear_attn_config": {
        "full_attn_layers": [4], "kda_layers": [1, 2, 3], "head_dim": 128}}, (),
     {(32, 1, 192, "causal", 128), (32, 32, 576, "causal", 512)}),
    ({"model_type": "inkling_text", "num_hidden_layers": 2, "local_layer_ids": [0, 1]}, (),
     {(64, 4, 128, 512)}),
    # Both ways, without decodes.
    ({"model_type": "gemma3_text", "head_dim": 256, "hidden_size": 768, "num_attention_heads": 3,
      "num_key_value_heads": 1, "num_hidden_layers": 24, "sliding_window": 512,
      "use_bidirectional_attention": True}, (), {(3, 3, 256, "null"), (3, 3, 256, (257, 256))}),
    ({"model_type": "gemma4_text", "use_bidirectional_attention": "all"}, (),
     {(8, 2, 512, "null"), (8, 2, 256, (257, 256))}),
    ({**LLAMA, "is_causal": False}, (), {(32, 4, 128, "null")}),
    ({**LLAMA, "architectures": ["LlamaBidirectionalModel"]}, (), {(32, 4, 128, "null")}),
    # Other names of fields, and of where they are.
    ({"model_type": "chatglm", "num_attention_heads": 32, "hidden_size": 4096, "multi_query_attention": True,
      "multi_query_group_num": 2, "num_layers": 40, "kv_channels": 128}, (), {(32, 16, 128, "causal")}),
    ({"model_type": "telechat", "n_head": 32, "hidden_size": 4096, "n_layer": 30}, (), {(32, 1, 128, "causal")}),
    ({"model_type": "bloom", "num_attention_heads": 32, "n_embed": 4096, "n_layer": 30, "offset_alibi": 100}, (),
     {(32, 1, 128, "causal", "alibi")}),
    ({"model_type": "dbrx", "attn_config": {"clip_qkv": 8, "kv_n_heads": 8}, "d_model": 6144, "n_heads": 48}, (),
     {(48, 6, 128, "causal")}),
    ({"model_type": "zamba2", "hidden_size": 2048, "num_attention_heads": 32, "num_hidden_layers": 2,
      "layers_block_type": ["mamba", "hybrid"]}, (), {(32, 1, 128, "causal")}),
    ({**LLAMA, "model_type": "nemotron-nas", "num_hidden_layers": 3, "block_configs": [
        {"attention": {"n_heads_in_group": 8, "no_op": False}}, {"attention": {"no_op": True, "n_heads_in_group": None}},
        {"attention": {"n_heads_in_group": 16}}]}, (), {(32, 8, 128, "causal"), (32, 16, 128, "causal")}),
    # MLA without its parts is none.
    ({"model_type": "deepseek_v2", "num_attention_heads": 10, "hidden_size": 1280, "kv_lora_rank": None,
      "num_key_value_heads": 10, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False}, (),
     {(10, 1, 128, "causal")}),
    # A decoder's layers, and to the keys of an encoder.
    ({"model_type": "whisper", "d_model": 1280, "decoder_attention_heads": 20}, (), {(20, 1, 64, "causal"), (20, 1, 64, "null")}),
    ({"model_type": "laguna", "hidden_size": 2048, "num_attention_heads": 48,
      "num_hidden_layers": 4, "num_attention_heads_per_layer": [48, 64, 64, 64], "sliding_window": 512,
      "layer_types": ["full_attention"] + ["sliding_attention"] * 3}, (),
     {(48, 6, 128, "causal"), (64, 8, 128, 512)}),
    ({"model_type": "nemotron_h", "hidden_size": 4480, "head_dim": 128, "num_attention_heads": 40,
      "num_key_value_heads": 8, "hybrid_override_pattern": "M-M*", "sliding_window": None,
      "time_step_limit": [0.0, float("inf")], "lowest": -float("inf"), "none": float("nan")}, (),
     {(40, 5, 128, "causal")}),
    ({"model_type": "falcon", "alibi": True, "hidden_size": 2048, "multi_query": False,
      "new_decoder_architecture": False, "num_attention_heads": 32}, (),
     {(32, 1, 64, "causal", "given slopes")}),
    ({"model_type": "mpt", "n_heads": 32, "d_model": 4096}, ("--tp", "2"),
     {(16, 1, 128, "causal", "given slopes")}),
    # The type that the model was saved with.
    ({**LLAMA, "torch_dtype": "float16"}, (), {(32, 4, 128, "causal", "fp16")}),
    ({"dtype": "float16", "model_type": "llava", "text_config": LLAMA}, (),
     {(32, 4, 128, "causal", "fp16")}),
    ({**LLAMA, "dtype": "bfloat16", "torch_dtype": "float16"}, (), {(32, 4, 128, "causal")}),
    ({**LLAMA, "dtype": "float16"}, ("--kv-dtype", "e4m3"),
     {(32, 4, 128, "causal", "fp16"), (32, 4, 128, "causal", "fp16", "e4m3")}),
    ({**LLAMA, "dtype": "float32"}, (), {(32, 4, 128, "causal")}),
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
        window = mask.get("window") or f"chunk {mask['of'][1]['chunk']}"
        mask = (window, mask["window_right"]) if "window_right" in mask else window
    score = spec.get("score_mod")
    more = [] if score is None else [score if score == "alibi" else score.get("cap", "given slopes")]
    more += [spec["qkv_dtype"]] if "qkv_dtype" in spec else []
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
    for name, value in UNKNOWN if check else ():
        made = run(attnjit, {**LLAMA, name: value})
        if made.returncode != 2 or f"-: {name}: " not in made.stderr or "line 6" not in made.stderr:
            problems.append(f"{name} {value}: {made.returncode} {made.stderr}")
        made = run(attnjit, {**LLAMA, "per_layer_config": {"0": {name: value}}})
        if made.returncode != 2 or name not in made.stderr:
            problems.append(f"{name} {value} of a layer: {made.returncode} {made.stderr}")
    for name, value in HARMLESS.items() if check else ():
        if run(attnjit, {**LLAMA, name: value}).stdout != run(attnjit, LLAMA).stdout:
            problems.append(f"{name} {value} does not leave a Llama as it is")
    for model_type, fields in PUBLISHED if check else ():
        made = run(attnjit, {"model_type": model_type, **fields})
        if not made.stdout or made.stdout != run(attnjit, {"model_type": model_type}).stdout:
            problems.append(f"{model_type} {fields}: {made.stderr or 'another manifest'}")
    print("\n".join(problems), file=sys.stderr)
    sys.exit(1 if problems else 0)


main()
