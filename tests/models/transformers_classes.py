#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""`attnjit manifest` beside the configuration classes of transformers, without torch.

    transformers_classes.py ATTNJIT

Of each class that attnjit knows: its defaults give the layers of transformers_defaults.json, which
scripts/attention-of-transformers recorded; and a configuration gives the same specs however it is
written: with the fields that were set alone, as `save_pretrained` writes it, and with all fields.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys

os.environ["TRANSFORMERS_VERBOSITY"] = "error"
import transformers  # noqa: E402
from transformers import CONFIG_MAPPING  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
TABLE = json.loads((ROOT / "tests/models/transformers_defaults.json").read_text(encoding="utf-8"))
DEFAULTS = json.loads((ROOT / "src/models/class_defaults.json").read_text(encoding="utf-8"))
ATTNJIT = sys.argv[1]
PROBLEMS = []
VARIANTS = 3


def manifest(config):
    """The manifest of a configuration, or what is wrong with it."""
    text = config if isinstance(config, str) else json.dumps(config)
    made = subprocess.run([ATTNJIT, "manifest", "-", "--page", "16"], input=text, capture_output=True, text=True,
                          check=False)
    return json.loads(made.stdout) if made.returncode == 0 else f"exit {made.returncode}: {made.stderr.strip()}"


def mask_of(spec):
    mask = spec["mask"]
    if isinstance(mask, str):
        return {"null": "all"}.get(mask, mask)
    if mask["kind"] == "and":
        return f"chunk {mask['of'][1]['chunk']}"
    right = f" right {mask['window_right']}" if "window_right" in mask else ""
    return f"window {mask['window']}{right}"


def scale_of(manifest_, depth):
    """The scale that the notes say, or the usual one."""
    said = re.search(r"launch with the scale ([^;]*)", manifest_["source"])
    if not said:
        return depth ** -0.5
    return eval(said[1].replace("sqrt", "pow_half"), {"pow_half": lambda x: x ** 0.5})  # arithmetic of our own notes


def layers_of(made):
    """The layers of a manifest as the table has them: of prompts without a cache, or of the one with K as V, by the
    kernel that splits no keys."""
    found = []
    for spec in made["specs"]:
        if "page_size" in spec or spec.get("ragged") or "num_partitions" in spec:
            continue
        depth = spec["qk_depth"]
        layer = {"heads": spec["num_q_heads"], "group": spec.get("group", 1), "depth": depth}
        if spec.get("ov_depth", depth) != depth:
            layer["depth of V"] = spec["ov_depth"]
        layer["mask"] = mask_of(spec)
        score = spec.get("score_mod")
        if score is not None:
            layer.update({"softcap": score["cap"]} if "cap" in score else {"alibi": "usual" if score == "alibi" else "given"})
        if spec.get("sink"):
            layer["sink"] = True
        scale = scale_of(made, depth)
        if abs(scale * depth ** 0.5 - 1) > 1e-5:
            layer["scale"] = round(float(scale), 5)
        found.append(layer)
    return found


def rounded(layers):
    return sorted(json.dumps(layer | ({"scale": round(float(layer["scale"]), 5)} if "scale" in layer else {}), sort_keys=True)
                  for layer in layers)


def defaults(name):
    made = manifest({"model_type": name})
    refused = TABLE.get(name, {}).get("refused")
    if refused:
        if not isinstance(made, str) or f": {refused}: is missing" not in made:
            PROBLEMS.append(f"{name} is not refused for want of {refused}: {str(made)[:200]}")
    elif isinstance(made, str):
        PROBLEMS.append(f"{name}: {made}")
    elif name not in TABLE:
        PROBLEMS.append(f"{name} has no row in transformers_defaults.json; run scripts/attention-of-transformers")
    elif rounded(layers_of(made)) != rounded(TABLE[name]["layers"]):
        PROBLEMS.append(f"{name}: {layers_of(made)}\n    and not {TABLE[name]['layers']}")


def fields_of(name):
    return CONFIG_MAPPING[name].__dataclass_fields__


def variant(name, dice):
    """Fields of a class, other than by default."""
    fields, usual = fields_of(name), DEFAULTS["classes"][name]["fields"]
    heads = dice.choice([8, 16, 32])
    wanted = {"num_attention_heads": heads, "n_heads": heads, "num_hidden_layers": dice.choice([6, 12, 24]),
              "num_key_value_heads": dice.choice([1, 2, 4]), "head_dim": dice.choice([64, 128]),
              "hidden_size": heads * dice.choice([64, 128]), "d_model": heads * 64,
              "sliding_window": dice.choice([64, 1024]), "use_sliding_window": dice.choice([True, False]),
              "max_window_layers": dice.choice([0, 3]), "attention_chunk_size": 512, "sliding_window_pattern": 3}
    config = {key: value for key, value in wanted.items() if key in fields and dice.random() < 0.6}
    if "refused" in TABLE[name]:
        missing = TABLE[name]["refused"]
        config[missing] = {"attn_layer_indices": [0], "layer_types": ["mamba", "attention"]}.get(missing, 128)
        if missing == "layer_types":
            config["num_hidden_layers"] = 2
    # What classes check of one another.
    if {"num_attention_heads", "hidden_size", "num_key_value_heads"} & set(config):
        config |= {key: wanted[key] for key in ("num_attention_heads", "hidden_size") if key in fields}
    if usual.get("kv_lora_rank") or name == "deepseek_v4":
        for key in ("num_key_value_heads", "head_dim"):
            config.pop(key, None)
    if "num_key_value_heads" in fields and "num_key_value_heads" in usual and name != "deepseek_v4":
        config["num_key_value_heads"] = heads if usual.get("kv_lora_rank") else wanted["num_key_value_heads"]
    return config


def forms(name, config):
    """The ways in which a configuration is written, as attnjit and as transformers do."""
    made = CONFIG_MAPPING[name](**config)
    return {"given": {"model_type": name, **config}, "saved": made.to_json_string(use_diff=True),
            "whole": made.to_json_string(use_diff=False)}


def same_in_all_forms(name, config):
    try:
        written = forms(name, config)
    except Exception as error:  # a class that refuses this variant, in its own way
        return type(error).__name__
    found = {form: manifest(text) for form, text in written.items()}
    for form, made in found.items():
        if isinstance(made, str):
            PROBLEMS.append(f"{name} {config}, {form}: {made}")
            return None
    # Saved configurations may say the types of notes that were left out.
    specs = {form: made["specs"] for form, made in found.items()}
    for form in ("saved", "whole"):
        if specs[form] != specs["given"]:
            PROBLEMS.append(f"{name} {config}: {form} gives {specs[form][:2]}, and not {specs['given'][:2]}")
            return None
    return None


def whole_models():
    """Models of several parts: their defaults are those of their language model's class."""
    for name, part in DEFAULTS["parts"].items():
        made, of_part = manifest({"model_type": name}), manifest({"model_type": part})
        if isinstance(made, str) or made["specs"] != of_part["specs"]:
            PROBLEMS.append(f"{name} is not {part}: {str(made)[:200]}")


def main():
    text = (ROOT / "src/models/architectures.cpp").read_text(encoding="utf-8")
    known = re.findall(r'^    \{"([\w-]+)"', text, re.MULTILINE)
    checked = subprocess.run([sys.executable, ROOT / "scripts/config-defaults", "--check"], check=False)
    if checked.returncode:
        PROBLEMS.append("the defaults of classes have changed")
    tried = refused = 0
    for name in known:
        if name not in CONFIG_MAPPING:
            continue
        defaults(name)
        if "refused" not in TABLE.get(name, {}):
            same_in_all_forms(name, {})
        dice = random.Random(name)
        for _ in range(VARIANTS):
            tried += 1
            refused += same_in_all_forms(name, variant(name, dice)) is not None
    whole_models()
    if refused * 3 > tried:
        PROBLEMS.append(f"transformers refuses {refused} of {tried} variants: they try too little")
    print(f"transformers {transformers.__version__}: {len(known)} architectures, {tried - refused} variants")
    print("\n".join(PROBLEMS), file=sys.stderr)
    sys.exit(1 if PROBLEMS else 0)


main()
