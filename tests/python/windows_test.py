# SPDX-License-Identifier: Apache-2.0
"""Manifests and the integrations say a layer's window alike: windows_test.py ATTNJIT.

A kernel that a manifest prewarmed serves a backend's layer only if both name the same key. The
libraries that the integrations import are empty ones here, of which no more is asked than names.
"""
import abc
import importlib
import importlib.abc
import importlib.machinery
import json
import subprocess
import sys
import types

from attnjit.integrations import _specs

LIBRARIES = ("torch", "transformers", "vllm", "sglang")


class Names(type):
    """Of classes, each member of which is its own name."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return name

    def __getitem__(cls, _):
        return cls


class Empty(types.ModuleType):
    """A module that has a class of every name."""

    __path__ = ()

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(self, name, Names(name, (), {}))
        return getattr(self, name)


class Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] not in LIBRARIES:
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec):
        return Empty(spec.name)

    def exec_module(self, module):
        pass


def of_manifest(attnjit, window):
    """The masks of the specs of a model whose layers all have a window."""
    config = {"model_type": "mistral", "num_attention_heads": 8, "num_key_value_heads": 8,
              "head_dim": 64, "sliding_window": window}
    made = subprocess.run([attnjit, "manifest", "-"], input=json.dumps(config), text=True,
                          capture_output=True, check=True)
    masks = {json.dumps(spec["mask"], sort_keys=True) for spec in json.loads(made.stdout)["specs"]}
    assert len(masks) == 1, masks
    return json.loads(masks.pop())


def of_vllm(window):
    from attnjit.integrations._layers import Layer, Server, vllm_specs

    masks = [spec["mask"] for spec in vllm_specs(Layer(8, 8, 64, 64, window),
                                                 Server("sm_90a", "bf16", 16))]
    assert masks[1:] == masks[:-1], masks
    return masks[0]


def of_sglang(window):
    import torch

    torch.compiler = types.SimpleNamespace(disable=lambda call: call)
    triton_backend = importlib.import_module("sglang.srt.layers.attention.triton_backend")
    triton_backend.TritonAttnBackend = abc.ABCMeta("TritonAttnBackend", (), {})
    from attnjit.integrations import sglang_backend

    layer = types.SimpleNamespace(
        tp_q_head_num=8, tp_k_head_num=8, qk_head_dim=64, v_head_dim=64, logit_cap=0,
        attn_type="DECODER", is_cross_attention=False, use_irope=False,
        sliding_window_size=window - 1)
    runner = types.SimpleNamespace(use_mla_backend=False, model=None,
                                   model_config=types.SimpleNamespace(hf_config=None))
    return sglang_backend.sglang_mask(sglang_backend.layer_of(layer, runner, sinks=False))


def of_transformers(window):
    from attnjit.integrations import transformers

    asked = []
    transformers.attention = lambda *_, mask, **__: asked.append(mask) or types.SimpleNamespace(
        unsqueeze=lambda _: None)
    query = types.SimpleNamespace(transpose=lambda *_: None)
    cache = types.SimpleNamespace(sliding_windows=[window], layer_index_to_group_indices=[(0, 0)],
                                  update=lambda **_: (None, None))
    transformers.paged_attention_forward(types.SimpleNamespace(layer_idx=0), [query], None, None,
                                         None, cache=cache)
    return asked[0]


def main():
    sys.meta_path.insert(0, Finder())
    for window in (2, 127, 128, _specs.SMALL_WINDOW, _specs.SMALL_WINDOW + 1, 4096):
        right = of_manifest(sys.argv[1], window)
        assert right.get("constant", False) == (window <= _specs.SMALL_WINDOW), right
        for of in (of_vllm, of_sglang, of_transformers):
            assert of(window) == right, f"{of.__name__}: {of(window)}; a manifest has {right}"


main()
