# SPDX-License-Identifier: Apache-2.0
"""attnjit manifest CONFIG --for vllm|sglang|transformers: each kernel of a model's layers once, and
each is planned.

What the servers' backends launch is compared with the same function in tests/integrations.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

from attnjit.integrations._specs import why_not

LLAMA = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
         "num_hidden_layers": 32, "num_attention_heads": 32, "num_key_value_heads": 8,
         "torch_dtype": "bfloat16"}
GEMMA3 = {"architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "head_dim": 256,
          "hidden_size": 3840, "num_hidden_layers": 6, "num_attention_heads": 16,
          "num_key_value_heads": 8, "sliding_window": 1024, "torch_dtype": "bfloat16",
          "layer_types": ["sliding_attention"] * 5 + ["full_attention"]}
DEEPSEEK = {"architectures": ["DeepseekV3ForCausalLM"], "model_type": "deepseek_v3",
            "num_attention_heads": 128, "num_key_value_heads": 128, "kv_lora_rank": 512,
            "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
            "v_head_dim": 128, "hidden_size": 7168, "num_hidden_layers": 4,
            "torch_dtype": "bfloat16"}

FLOAT8 = {"dynamic": False, "num_bits": 8, "strategy": "tensor", "symmetric": True, "type": "float"}
COMPRESSED = {"quant_method": "compressed-tensors", "kv_cache_scheme": FLOAT8}
MODELOPT = {"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": FLOAT8}
MODELOPT_FP4 = {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}


def run(*arguments):
    return subprocess.run([sys.executable, "-B", "-m", "attnjit", "manifest", *arguments],
                          capture_output=True, text=True, env=os.environ, check=False)


def specs(folder, config, *arguments, arch="sm_90a", server="vllm"):
    path = pathlib.Path(folder, "config.json")
    path.write_text(json.dumps(config))
    done = run(str(path), "--for", server, *arguments)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)["specs"]
    for spec in found:
        reason = why_not(arch=arch, **spec)
        assert reason is None and "arch" not in spec, (reason, spec)
    return found


def checkpoints(folder):
    """What the servers make of a checkpoint where their options say nothing."""
    def caches(quantised, *arguments, server="vllm"):
        config = {**LLAMA, "quantization_config": quantised}
        return {one.get("scales") for one in specs(folder, config, "--arch", "sm_90a", *arguments,
                                                   server=server)}

    old = {"producer": {"name": "modelopt"},
           "quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    for quantised, in_vllm, in_sglang in (
            ({}, None, None), (COMPRESSED, "tensor", None), (MODELOPT, "tensor", "tensor"), (old, "tensor", "tensor"),
            ({**COMPRESSED, "kv_cache_scheme": None}, None, None),
            ({**COMPRESSED, "kv_cache_scheme": {**FLOAT8, "strategy": "attn_head"}}, "head", None),
            ({"quant_method": "fp8", "kv_cache_quant_algo": "FP8"}, None, "tensor"),
            ({"producer": "?", "quantization": "?"}, None, None), ({**COMPRESSED, "kv_cache_scheme": 1}, None, None),
            ({"producer": {"name": "modelopt"}, "quantization": {"kv_cache_scheme": 1}}, None, None)):
        assert caches(quantised) == {in_vllm}, quantised
        assert caches(quantised, server="sglang") == {in_sglang}, quantised
        assert caches(quantised, server="transformers") == {None}, quantised
        assert caches(quantised, "--kv-cache-dtype", "bfloat16") == {None}, quantised
    assert specs(folder, {**LLAMA, "quantization_config": MODELOPT}, server="transformers")
    beside = pathlib.Path(folder, "hf_quant_config.json")
    beside.write_text(json.dumps(old))
    assert caches({}) == {"tensor"}
    beside.write_text("{")
    pathlib.Path(folder, "config.json").write_text(json.dumps(LLAMA))
    done = run(str(pathlib.Path(folder, "config.json")), "--for", "vllm")
    assert done.returncode == 2 and f"{beside}: Expecting" in done.stderr, done
    beside.unlink()
    falcon = {"model_type": "falcon", "alibi": True}  # whose layers vLLM gives no type of a cache
    assert {one.get("scales") for one in specs(folder, falcon, "--kv-cache-dtype", "fp8")} == {None}
    text = {"model_type": "gemma3", "text_config": {**GEMMA3, "quantization_config": COMPRESSED}}
    assert {one["scales"] for one in specs(folder, text, "--arch", "sm_100a", arch="sm_100a")} == {"tensor"}
    latent = {**DEEPSEEK, "quantization_config": COMPRESSED}
    assert "scales" not in specs(folder, latent)[0]
    pathlib.Path(folder, "config.json").write_text(json.dumps({**LLAMA, "quantization_config": COMPRESSED}))
    done = run(str(pathlib.Path(folder, "config.json")), "--for", "vllm")
    assert done.returncode == 2 and "--arch: is missing" in done.stderr, done

    def types(config, *arguments, server="vllm"):
        return {one["qkv_dtype"] for one in specs(folder, config, *arguments, server=server)}

    bert = {"model_type": "bert", "torch_dtype": "float32"}
    assert types(bert) == {"fp16"} and types({**LLAMA, "torch_dtype": "float32"}) == {"bf16"}
    # Of what no part of a configuration says the weights say it; else it is float32.
    unsaid = {**LLAMA, "torch_dtype": None}
    assert types({"model_type": "bert"}) == {"fp16"} and types(unsaid) == {"bf16"}
    assert types(unsaid, server="sglang") == {"fp16"} and types({**GEMMA3, "torch_dtype": None}, server="sglang") == {"bf16"}
    weights = pathlib.Path(folder, "model.safetensors")
    for kinds, dtype in (({"F16"}, "fp16"), ({"BF16", "I32"}, "bf16"), ({"F32"}, "fp16")):
        header = json.dumps({"__metadata__": {}, **{one: {"dtype": one} for one in kinds}}).encode()
        weights.write_bytes(len(header).to_bytes(8, "little") + header)
        assert types({"model_type": "bert"}) == {dtype}, kinds
    weights.unlink()
    # Where parts differ vLLM takes the whole's, and SGLang the language model's.
    parts = {"model_type": "llava", "torch_dtype": "float32", "text_config": {**LLAMA, "torch_dtype": "float16"}}
    assert types(parts) == {"bf16"} and types(parts, server="sglang") == {"fp16"}
    # vLLM makes embeddings with models of such names, or beside which sentence-transformers' files lie.
    for name, dtype in (("LlamaForSequenceClassification", "fp16"), ("LlamaForCausalLM", "bf16"), ("LlamaModel", "bf16")):
        assert types({**LLAMA, "torch_dtype": "float32", "architectures": [name]}) == {dtype}, name
    modules = pathlib.Path(folder, "modules.json")
    modules.write_text(json.dumps([{"type": "sentence_transformers.models.Pooling", "path": "1_Pooling"}]))
    assert types({**LLAMA, "torch_dtype": "float32"}) == {"fp16"}
    modules.unlink()
    assert types(bert, "--dtype", "bf16") == {"bf16"}
    for config, dtype in ((LLAMA, "fp16"), (GEMMA3, "bf16")):
        assert types({**config, "torch_dtype": "float32"}, server="sglang") == {dtype}
    both_ways = {"use_bidirectional_attention": True, "torch_dtype": "float32"}
    assert types({**GEMMA3, **both_ways}) == {"bf16"}
    assert types({**GEMMA3, "torch_dtype": "float16"}) == {"bf16"}
    paligemma = {"model_type": "paligemma", "torch_dtype": "float16", "text_config": {"model_type": "gemma2"}}
    assert types(paligemma) == {"fp16"}


def skipped_layers(folder):
    """Layers whose cache is left in the model's type are those that vLLM's option names."""
    def caches(config, *names):
        found = specs(folder, config, "--arch", "sm_90a", "--kv-cache-dtype", "fp8", "--kv-cache-dtype-skip-layers", *names)
        return sorted({(str(one["mask"])[:8], one.get("scales", "none")) for one in found})

    assert caches(LLAMA, "32") == [("causal", "tensor")]
    assert caches(LLAMA, "0", "31") == [("causal", "none"), ("causal", "tensor")]
    assert caches(LLAMA, *map(str, range(32))) == [("causal", "none")]
    assert caches(GEMMA3, "sliding_window") == [("causal", "tensor"), ("{'kind':", "none")]
    assert caches(GEMMA3, "5", "0") == [("causal", "none"), ("{'kind':", "none"), ("{'kind':", "tensor")]


def images(folder):
    """Where rows of an image see all of it, there are kernels for that."""
    def masks(config, *arguments, server="vllm"):
        return [one["mask"] for one in specs(folder, config, *arguments, server=server)
                if isinstance(one["mask"], dict) and one["mask"].get("name") == "images"]

    gemma4 = {**GEMMA3, "model_type": "gemma4_text", "use_bidirectional_attention": "vision"}
    cut = "p.image[total_row][1] && q_idx - kv_idx < 1024)"
    for config, count in (({"model_type": "gemma3", "text_config": GEMMA3}, 2), ({"model_type": "paligemma"}, 1),
                          ({"model_type": "gemma4", "text_config": gemma4}, 2), (GEMMA3, 0), (LLAMA, 0)):
        found = masks(config)
        assert len(found) == count, (config, found)
        assert any(cut in one["code"] for one in found) == (config["model_type"] == "gemma4"), found
        assert not masks(config, "--images", "none") and not masks(config, server="transformers")
    assert len(masks(GEMMA3, "--images", "free")) == 2
    ocr = {"model_type": "unlimited_ocr", "language_config": {
        "model_type": "deepseek_v2", "num_attention_heads": 10, "hidden_size": 1280, "num_key_value_heads": 10,
        "kv_lora_rank": None, "qk_nope_head_dim": 0, "qk_rope_head_dim": 0, "v_head_dim": 0, "use_mla": False}}
    for more, window in (({}, 128), ({"rswa_window": 64}, 64)):
        assert all(f"q_idx - kv_idx < {window})" in one["mask"]["code"] for one in specs(folder, {**ocr, **more}))


def refusals(folder):
    """What a server refuses at its start has no manifest, and the reason is its backend's; all else
    has a manifest whose specs a kernel serves."""
    gptoss = {"model_type": "gpt_oss"}
    listed = {**DEEPSEEK, "model_type": "deepseek_v32", "index_topk": 2048}
    alibi = {"model_type": "mpt", "n_heads": 32, "d_model": 4096}
    dcp, windows = ("--dcp", "2"), "without windows, sinks and ALiBi"
    for config, server, arguments, text in (
            (GEMMA3, "vllm", (*dcp, "--tp", "16"), windows), (gptoss, "vllm", dcp, windows),
            (alibi, "vllm", dcp, windows),
            (LLAMA, "vllm", ("--kv-cache-dtype", "fp8_ds_mla"), "lists of keys"),
            (DEEPSEEK, "vllm", ("--kv-cache-dtype", "fp8_ds_mla"), "lists of keys"),
            (DEEPSEEK, "vllm", ("--kv-cache-dtype", "fp8_per_token_head"), "beside MLA"),
            (GEMMA3, "vllm", ("--kv-cache-dtype", "fp8_per_token_head", "--arch", "sm_90a"), "scales"),
            (LLAMA, "vllm", ("--page", "8"), "multiples of 16"),
            (LLAMA, "vllm", ("--kv-cache-dtype", "float16"), "a cache of float16 is not served"),
            ({**LLAMA, "quantization_config": MODELOPT_FP4}, "vllm", (), "a cache of nvfp4 is not served"),
            ({"model_type": "mimo_v2_flash"}, "vllm", (), "backend of its own"),
            ({"model_type": "dots3_note_text"}, "vllm", (), "not served beside MLA"),
            ({"model_type": "hy_v4"}, "vllm", (), "not served beside MLA"),
            ({"model_type": "inkling_text"}, "vllm", (), "a learned bias of the distance"),
            ({"model_type": "minimax_m3_vl_text"}, "sglang", (), "blocks of keys"),
            ({"model_type": "deepseek_v4"}, "sglang", (), "compressed rows"),
            ({"model_type": "whisper"}, "sglang", ("--page", "64"), "with --page-size 1"),
            ({"model_type": "whisper"}, "sglang", ("--page", "1"), ""),
            ({"model_type": "llama", "rswa_window": None, "text_config": LLAMA}, "sglang", (), ""),
            ({"model_type": "llava", "rswa_window": 64, "text_config": LLAMA}, "sglang", (), "R-SWA"),
            ({"model_type": "paligemma"}, "sglang", (), "in SGLang, which makes its layers otherwise"),
            ({**LLAMA, "quantization_config": {**COMPRESSED, "kv_cache_scheme": {**FLOAT8, "type": "int"}}}, "vllm",
             (), "a cache of int8 is not served"),
            (LLAMA, "sglang", ("--kv-cache-dtype", "float16"), "a cache of float16 beside a model of bf16"),
            (LLAMA, "sglang", ("--kv-cache-dtype", "bfloat16"), ""),
            (DEEPSEEK, "vllm", ("--kv-cache-dtype", "fp8"), ""),
            ({"model_type": "modernbert"}, "transformers", (), "decoders alone"),
            (alibi, "sglang", (), "ALiBi"),
            (listed, "sglang", ("--arch", "sm_90a", "--tree", "--drafts", "3"), "trees"),
            (listed, "sglang", ("--arch", "sm_90a", "--batch-invariant", "8192,8192"), "deterministic"),
            ({**GEMMA3, "use_bidirectional_attention": True}, "sglang", (), "both ways"),
            ({**LLAMA, "head_dim": 264}, "vllm", (), "qk_depth"),
            ({**LLAMA, "head_dim": 264}, "sglang", (), "qk_depth"),
            (LLAMA, "vllm", (*dcp, "--tp", "16"), ""), (LLAMA, "vllm", (*dcp, "--tp", "8"), "a --tp above 8"),
            (LLAMA, "vllm", ("--dcp", "4", "--tp", "16"), "--dcp is at most 2"),
            ({**LLAMA, "num_key_value_heads": 1}, "vllm", ("--dcp", "3", "--tp", "4"), "no multiple of --dcp 3"),
            ({**LLAMA, "num_attention_heads": 36, "num_key_value_heads": 4, "head_dim": 128}, "vllm",
             (*dcp, "--tp", "12"), "does not divide 9"),
            (DEEPSEEK, "vllm", dcp, "no multiple"), (DEEPSEEK, "vllm", (*dcp, "--tp", "8"), ""),
            (DEEPSEEK, "sglang", (), ""),
            (listed, "vllm", ("--kv-cache-dtype", "fp8_ds_mla"), ""),
            (GEMMA3, "vllm", ("--kv-cache-dtype", "fp8_per_token_head", "--arch", "sm_100a"), "")):
        path = pathlib.Path(folder, "config.json")
        path.write_text(json.dumps(config))
        done = run(str(path), "--for", server, *arguments)
        if not text:
            assert done.returncode == 0 and json.loads(done.stdout)["specs"], done
            continue
        assert done.returncode == 3 and not done.stdout and text in done.stderr, done
        assert done.stderr.startswith("attnjit manifest: ") and done.stderr.count("\n") == 1, done


def main():
    with tempfile.TemporaryDirectory() as folder:
        shared = {"num_q_heads": 32, "group": 4, "qk_depth": 128, "ov_depth": 128,
                  "qkv_dtype": "bf16", "output_dtype": "bf16", "page_size": 16, "mask": "causal"}
        assert specs(folder, LLAMA) == [{**shared, "ragged": True},
                                        {**shared, "num_partitions": 0, "max_q_len": 1}]
        assert {one["num_q_heads"] for one in specs(folder, LLAMA, "--tp", "1,4")} == {32, 8}
        assert {one.get("max_q_len") for one in specs(folder, LLAMA, "--drafts", "3")} == {
            None, 1, 4}
        assert {one["qkv_dtype"] for one in specs(folder, LLAMA, "--dtype=fp16")} == {"fp16"}
        assert {one["page_size"] for one in specs(folder, LLAMA, "--page", "32,64")} == {32, 64}
        for arch, of_q in (("sm_90a", "bf16"), ("sm_100a", "e4m3")):
            for spec in specs(folder, LLAMA, "--kv-cache-dtype", "fp8", "--arch", arch, arch=arch):
                # That of prompts is quantised on both.
                assert (spec["qkv_dtype"], spec["scales"]) == (
                    "e4m3" if "ragged" in spec else of_q, "tensor"), spec
                assert spec["output_dtype"] == "bf16"
        windows = specs(folder, GEMMA3)
        assert [one["mask"] for one in windows] == ["causal"] * 2 + [
            {"kind": "sliding_window", "window": 1024}] * 2
        latent = specs(folder, DEEPSEEK, "--tp", "8")
        assert [(one["mla"], one["num_q_heads"], one["page_size"]) for one in latent] == [
            ("decode", 16, 64)] * 2
        listed = {**DEEPSEEK, "model_type": "deepseek_v32", "index_topk": 2048}
        assert {one["page_size"] for one in specs(folder, listed, "--page", "128")} == {64}
        for arch, cache, fields in (("sm_90a", "auto", {}), ("sm_90a", "fp8_e4m3", {"cache_format": "dsv32"}),
                                    ("sm_100a", "bfloat16", {}),
                                    ("sm_100a", "auto", {"kv_dtype": "e4m3", "scales": "tensor"})):
            dense, lists = specs(folder, listed, "--kv-cache-dtype", cache, "--arch", arch, server="sglang",
                                 arch=arch)
            assert dense["ragged_kv"] and "page_size" not in dense, dense
            assert (lists["topk"], lists["page_size"]) == (2048, 64), lists
            assert {name: lists.get(name) for name in ("cache_format", "kv_dtype", "scales")} == {
                **dict.fromkeys(("cache_format", "kv_dtype", "scales")), **fields}, lists
        ranks = specs(folder, DEEPSEEK, "--tp", "8", "--dcp", "2", "--drafts", "1")
        assert all(one["num_q_heads"] == 32 and one["return_lse"] for one in ranks)
        assert len({json.dumps(one["mask"]) for one in ranks}) == 3  # two ranks', and none

        # One kernel for all batches, whose parts fill half a GiB.
        invariant = ("--batch-invariant", "4096,8192,256")
        assert specs(folder, LLAMA, *invariant) == [
            {**shared, "ragged": True, "partition_keys": 1024}]
        latent = specs(folder, DEEPSEEK, "--tp", "8", "--drafts", "1", *invariant)
        assert [(one["partition_keys"], "max_q_len" in one) for one in latent] == [(384, False)]
        assert specs(folder, LLAMA, "--batch-invariant", "4096,8192", server="sglang") == [
            {**shared, "page_size": 1, "ragged": True, "partition_keys": 1024}]
        for server, numbers in (("vllm", "131072,8192,1"), ("sglang", "131072,8192")):
            numbers = ("--batch-invariant", numbers)
            both = specs(folder, LLAMA, "--tp", "1,8", *numbers, server=server)
            assert both == [spec for tp in ("1", "8") for spec in specs(
                folder, LLAMA, "--tp", tp, *numbers, server=server)], both

        sglang = specs(folder, LLAMA, server="sglang")
        assert sglang == [{**shared, "page_size": 1, "ragged": True},
                          {**shared, "page_size": 1, "num_partitions": 0, "max_q_len": 1}]
        drafts = specs(folder, GEMMA3, "--drafts", "5", "--tree", "--page", "64", server="sglang")
        assert [one["mask"]["params"][0]["name"] for one in drafts
                if one["mask"] != "causal" and "params" in one["mask"]] == ["tree"] * 2
        assert {one.get("max_q_len") for one in drafts} == {None, 1, 8}
        latent = specs(folder, DEEPSEEK, "--tp", "8", "--page", "64", server="sglang")
        assert [one.get("mla") for one in latent] == ["decode", None, "decode"]
        assert (latent[1]["qk_depth"], latent[1]["ov_depth"]) == (192, 128)
        assert {one["num_q_heads"] for one in specs(folder, {"model_type": "modernbert"}, "--tp", "2")} == {12}
        mistral = {**LLAMA, "model_type": "mistral", "sliding_window": 4096}  # SGLang has no windows of it
        assert [[one["mask"] for one in specs(folder, mistral, server=server)]
                for server in ("sglang", "vllm")] == [
                    ["causal"] * 2, [{"kind": "sliding_window", "window": 4096}] * 2]
        # Whose is_causal SGLang does not read.
        assert [[one["mask"] for one in specs(folder, {**LLAMA, "is_causal": False}, server=server)]
                for server in ("sglang", "vllm")] == [["causal"] * 2, ["null"]]
        batching = specs(folder, LLAMA, server="transformers")
        assert [(one.get("page_size"), one.get("ragged"), one.get("ragged_kv"),
                 one.get("max_q_len")) for one in batching] == [
            (None, None, None, None), (None, None, None, None), (None, None, None, 1),
            (None, None, None, 16), (None, True, True, None), (256, True, None, None),
            (256, None, None, 1)]
        assert [one.get("num_partitions") for one in batching] == [None, 0, 0, 0, None, None, 0]
        assert len(specs(folder, GEMMA3, server="transformers")) == 8

        config = str(pathlib.Path(folder, "config.json"))
        for arguments, text in ((("--kv-cache-dtype", "fp8"), "--arch"), (("--page", "x"), "x"),
                                (("--tp", "7"), "7"), (("--tp", "0"), "tp: is '0'"), (("--tp", "x"), "tp: is 'x'")):
            pathlib.Path(config).write_text(json.dumps(LLAMA))
            done = run(config, "--for=vllm", *arguments)
            assert done.returncode == 2 and text in done.stderr, done
        done = run(config, "--for", "sglang", "--dcp", "2")
        assert done.returncode == 2 and "vLLM's" in done.stderr, done
        for server, numbers, text in (("vllm", "4096,8192", "3 numbers"), ("vllm", "0,1,1", "is '0'"),
                                      ("transformers", "1,2", "no such mode")):
            done = run(config, "--for", server, "--batch-invariant", numbers)
            assert done.returncode == 2 and text in done.stderr, done
        for arguments, text in ((("--drafts", "-1"), "--drafts"), (("--dcp", "0"), "--dcp"),
                                (("--page", "0"), "integers from 1 on")):
            done = run(config, "--for", "vllm", *arguments)
            assert done.returncode == 2 and text in done.stderr, done
        done = run(config, "--for", "vllm", "-o", str(pathlib.Path(folder, "none", "m.json")))
        assert done.returncode == 1 and "cannot be written" in done.stderr, done
        written = pathlib.Path(folder, "manifest.json")
        assert run(config, "--for", "vllm", "-o", str(written)).returncode == 0
        assert json.loads(written.read_text())["name"] == "llama"
        done = subprocess.run([sys.executable, "-B", "-m", "attnjit", "manifest", "-", "--for", "vllm"],
                              input=json.dumps(LLAMA), capture_output=True, text=True, check=True)
        assert len(json.loads(done.stdout)["specs"]) == 2, done
        of_folder = run(folder, "--for", "vllm")
        assert json.loads(of_folder.stdout)["specs"] == json.loads(done.stdout)["specs"], of_folder
        pathlib.Path(config).write_text(json.dumps(LLAMA), encoding="utf-8-sig")
        assert run(config, "--for", "vllm").returncode == 0
        refusals(folder)
        checkpoints(folder)
        skipped_layers(folder)
        images(folder)


if __name__ == "__main__":
    main()
