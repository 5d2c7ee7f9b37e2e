# SPDX-License-Identifier: Apache-2.0
"""attnjit manifest CONFIG --for vllm|sglang|transformers: the specs that it will ask for.

The command reads the configuration; the specs are made by what the backend calls itself.
"""
from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from typing import Any, Callable, Dict, List, Optional

from .. import AttnjitError, UnsupportedError
from .._abi import command_path
from ._checkpoints import (UNDIVIDED, Cache, cache_of, dtype_of, quantization_of, reference_window,
                           said_of_text)
from ._layers import (DSV32, EIGHT_BITS, INVARIANT_LIST, SIXTEEN_BITS, TOKEN_SCALES, Layer, Server,
                      invariant_keys, non_causal_specs, vllm_layer, vllm_specs, why_vllm_refuses,
                      why_vllm_shares_not)
from ._sglang_layers import (OTHERWISE, cache_of_lists, sglang_layer, sglang_specs,
                             why_sglang_refuses)
from ._specs import why_not
from ._transformers_layers import transformers_specs

_PAGES = {"vllm": 16, "sglang": 1, "transformers": 256}  #: rows of a page, by default
_ARCHS = ("sm_90a", "sm_100a", "sm_103a")


def _number(least: int) -> Callable[[str], int]:
    """An integer from `least` on."""
    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            number = least - 1
        if number < least:
            raise argparse.ArgumentTypeError(f"is {text!r}; allowed: integers from {least} on")
        return number

    return read


def _numbers(text: str) -> List[int]:
    """N[,N..]: numbers from 1 on."""
    return [_number(1)(one) for one in text.split(",")]


def add_options(made: argparse.ArgumentParser) -> None:
    """The options of a server on which its kernels hang."""
    made.add_argument("--arch", choices=_ARCHS, help="of the GPU, on which the types of a cache of "
                      "fp8 depend; it is needed for those alone")
    made.add_argument("--tp", default="1", metavar="N[,N..]", help="--tensor-parallel-size")
    made.add_argument("--page", type=_numbers, metavar="N[,N..]",
                      help="--block-size or --page-size; default: the server's")
    made.add_argument("--dtype", choices=["bf16", "fp16"], help="default: the model's")
    made.add_argument("--kv-cache-dtype", default="auto", choices=[
        "auto", *SIXTEEN_BITS, *EIGHT_BITS, TOKEN_SCALES, DSV32],
                      help="default: as the checkpoint has it")
    made.add_argument("--kv-cache-dtype-skip-layers", nargs="+", default=[], metavar="N",
                      help="numbers of layers, and sliding_window, whose cache has the model's type")
    made.add_argument("--head-scales", action="store_true",
                      help="the checkpoint has scales of heads beside a cache of fp8")
    made.add_argument("--drafts", type=_number(0), default=0, metavar="N", help="tokens of a draft")
    made.add_argument("--tree", action="store_true",
                      help="drafts are trees (SGLang: n-grams, --speculative-eagle-topk above 1)")
    made.add_argument("--dcp", type=_number(1), default=1, metavar="N",
                      help="--decode-context-parallel-size")
    made.add_argument("--images", choices=["free", "window", "none"],
                      help="rows of an image see all of it, or what their window has of it, or there "
                      "are none (--limit-mm-per-prompt); default: as the model has it")
    made.add_argument("--batch-invariant", type=_numbers, metavar="LEN,ROWS[,SEQS]",
                      help="VLLM_BATCH_INVARIANT=1 of --max-model-len, --max-num-batched-tokens and "
                      "--max-num-seqs, or --enable-deterministic-inference of --context-length and "
                      "--chunked-prefill-size")


def parsed(made: argparse.ArgumentParser, arguments: List[str]) -> argparse.Namespace:
    """Arguments with these options; exits where the server has not what they ask for."""
    given = made.parse_args(arguments)
    if given.config is not None and os.path.isdir(given.config):
        given.config = os.path.join(given.config, "config.json")
    if given.server != "vllm" and (given.dcp > 1 or given.images or given.head_scales
                                   or given.kv_cache_dtype_skip_layers
                                   or given.kv_cache_dtype in (DSV32, TOKEN_SCALES)):
        made.error(f"--for {given.server}: --dcp, --images, --head-scales, {TOKEN_SCALES}, {DSV32} "
                   "and --kv-cache-dtype-skip-layers are vLLM's")
    numbers = {"vllm": 3, "sglang": 2}.get(given.server, 0)
    if given.batch_invariant and len(given.batch_invariant) != numbers:
        made.error(f"--batch-invariant: {numbers} numbers are needed for {given.server}"
                   if numbers else f"--batch-invariant: {given.server} has no such mode")
    return given


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="attnjit manifest", description=__doc__.splitlines()[0])
    made.add_argument("config", help="config.json of the model, or its folder; -: standard input")
    made.add_argument("--for", dest="server", required=True,
                      choices=list(_PAGES))
    add_options(made)
    made.add_argument("--name", help="the model's name; default: its architecture")
    made.add_argument("-o", dest="output", metavar="FILE", help="default: standard output")
    return made


def _invariant_keys(layer: Layer, widest: int, given: argparse.Namespace) -> int:
    """The keys of a part, as the server's backend has them; 0: they are not fixed. `widest`: the
    most elements that a row of O has in the server's layers."""
    if not given.batch_invariant:
        return 0
    context, rows = given.batch_invariant[:2]
    if given.server == "sglang":  # all layers have the same
        return invariant_keys(widest, rows, context)
    if layer.topk:
        return INVARIANT_LIST
    if layer.latent:
        return invariant_keys(layer.q_heads * given.dcp * layer.latent,
                              given.batch_invariant[2] * (1 + given.drafts), context)
    return invariant_keys(layer.q_heads * layer.qk_depth, rows, context)


def _refuse_unserved(layer: Layer, server: Server, given: argparse.Namespace,
                     specs: List[Dict[str, Any]], sharing: Optional[str],
                     architecture: str) -> None:
    """Raises where the server would not start with such a layer of an architecture, as its backend
    does, or because of `sharing`."""
    reason = (why_vllm_refuses(layer, server) or sharing if given.server == "vllm" else
              why_sglang_refuses(layer, server, architecture) if given.server == "sglang" else
              "transformers generates with decoders alone" if layer.both_ways else None)
    archs = [given.arch] if given.arch else _ARCHS
    for spec in specs:
        found = [why_not(**{**spec, "arch": arch}) for arch in archs] if reason is None else []
        if None not in found:
            reason = reason or found[0]
    if reason is not None:
        depth = layer.latent + layer.rope if layer.latent else layer.qk_depth
        raise UnsupportedError(f"{given.server} would refuse layers of {layer.q_heads}/"
                               f"{layer.kv_heads} heads of {depth}: {reason}", code="unsupported")


def _layer(said: Dict[str, Any], images: str = "") -> Layer:
    """A layer as `attnjit manifest --json` describes it."""
    return Layer(images=images, **{name: said[name] for name in (
        "q_heads", "kv_heads", "qk_depth", "ov_depth", "window", "softcap", "sink", "alibi",
        "both_ways", "cross", "latent", "rope", "topk", "chunk")})


def _vllm_specs(layer: Layer, server: Server, rank: int, architecture: str) -> List[Dict[str, Any]]:
    """What a layer of an architecture asks for in vLLM."""
    diffuses = architecture == "diffusion_gemma_text"
    return vllm_specs(layer, server, rank) + (non_causal_specs(layer, server, True) if diffuses else [])


def _caches(one: Dict[str, Any], layer: Layer, cache: Cache, skipped: List[str]) -> List[Cache]:
    """The caches of layers of a kind, of which those that are named have the model's type."""
    by_kind = layer.window > 0 and not layer.latent and "sliding_window" in skipped
    skips = {by_kind or str(number) in skipped for number in one["numbers"]}
    return [Cache("auto") if skip else cache for skip in sorted(skips)]


def _cache_named(layer: Layer, cache: Cache, given: argparse.Namespace) -> str:
    """The name of a layer's cache; exits where kernels depend on an architecture that is not given."""
    cached = not layer.both_ways or given.server == "sglang"  # keys are read in the cache
    lists_in_sglang = layer.topk > 0 and given.server == "sglang"
    if given.arch is None and (cache.name not in SIXTEEN_BITS if lists_in_sglang else
                               cache.name in EIGHT_BITS and cached and not layer.latent):
        parser().error(f"--arch: is missing, on which a cache of {cache.name} depends; allowed: "
                       f"{', '.join(_ARCHS)}")
    return cache_of_lists(cache.name, given.arch or _ARCHS[0]) if lists_in_sglang else cache.name


def specs_of(model: Dict[str, Any], given: argparse.Namespace) -> List[Dict[str, Any]]:
    """The specs of a model as model_of() describes it, each once; UnsupportedError
    says which layers the server would refuse."""
    found: List[Dict[str, Any]] = []
    for_vllm = given.server == "vllm"
    if given.server == "sglang" and OTHERWISE & {model["name"], model["config"].get("model_type")}:
        raise UnsupportedError(f"no manifest has the kernels of {model['name']} in SGLang, which makes its "
                               "layers otherwise: they are compiled at its start", code="unsupported")
    if given.server != "vllm" and reference_window(model["config"]):
        raise UnsupportedError(f"{given.server}: prompts that rows see whole beside a window (R-SWA) "
                               "have manifests for vLLM alone", code="unsupported")
    if model["beyond_specs"] and given.server != "transformers":
        raise UnsupportedError(f"no manifest has the kernels of {model['name']}: {model['notes'][0]}",
                               code="unsupported")
    of_model = model["images"] if given.server in ("vllm", "sglang") else ""
    images = {None: of_model, "none": ""}.get(given.images, given.images)
    dtype = given.dtype or dtype_of(given.server, model)
    widest: Dict[int, int] = {}  # by the number of GPUs
    for one in model["layers"]:
        elements = one["q_heads"] * (one["latent"] or one["ov_depth"])
        widest[one["gpus"]] = max(elements, widest.get(one["gpus"], 0))
    wholes = [vllm_layer(_layer(one), model["name"]) for one in model["wholes"]]
    for i, one in enumerate(model["layers"]):
        undivided = for_vllm and model["name"] in UNDIVIDED
        said = model["wholes"][i % len(wholes)] if undivided else one
        layer = _layer(said, "" if one["both_ways"] or one["latent"] else images)
        if for_vllm:
            layer = replace(vllm_layer(layer, model["name"]), prefix_window=reference_window(model["config"]))
        elif given.server == "sglang":
            unread = not model["encoder"] and said_of_text(model["config"], "is_causal") is False
            layer = sglang_layer(layer, model["name"], unread)
        sharing = why_vllm_shares_not(wholes[i % len(wholes)], one["gpus"], given.dcp)
        asked = cache_of(given.server, model, given.kv_cache_dtype, layer.latent > 0)
        pages = given.page or [64 if layer.latent and for_vllm else _PAGES[given.server]]
        # NOTE: an indexer's pages, into which vLLM splits longer ones.
        if layer.topk and given.server != "transformers":
            pages = [64]
        for cache, page, rank in itertools.product(
                _caches(one, layer, asked, given.kv_cache_dtype_skip_layers), pages, range(given.dcp)):
            server = Server(given.arch or _ARCHS[0], dtype, page, _cache_named(layer, cache, given),
                            given.drafts, head_scales=given.head_scales or cache.head_scales,
                            partition_keys=_invariant_keys(layer, widest[one["gpus"]], given),
                            sharing=given.dcp, tree=given.tree)
            made = (_vllm_specs(layer, server, rank, model["name"]) if for_vllm else
                    sglang_specs(layer, server) if given.server == "sglang" else
                    transformers_specs(layer, server))
            _refuse_unserved(layer, server, given, made, sharing, model["name"])
            for spec in made:
                del spec["arch"]  # a prewarm says it
                if spec not in found:
                    found.append(spec)
    return found


def model_of(given: argparse.Namespace) -> Dict[str, Any]:
    """The model of a configuration, as the command reads it; exits as that does."""
    text = sys.stdin.read() if given.config == "-" else None
    done = subprocess.run([command_path(), "manifest", given.config, "--json", "--tp", given.tp],
                          input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.stderr.write(done.stderr)
        sys.exit(done.returncode)
    if text is None:
        with open(given.config, encoding="utf-8") as file:
            text = file.read()
    model, config = json.loads(done.stdout), json.loads(text.lstrip("\ufeff"))
    return {**model, "config": config, "folder": os.path.dirname(given.config),
            "quantization": quantization_of(given.config, config)}


def main(arguments: List[str]) -> None:
    """Writes a manifest; exits as the command does."""
    given = parsed(parser(), arguments)
    model = model_of(given)
    head = {"name": given.name or model["name"],
            "source": "; ".join([given.config, *model["notes"]])}
    try:
        lines = ",\n    ".join(map(json.dumps, specs_of(model, given)))
    except AttnjitError as error:
        sys.stderr.write(f"attnjit manifest: {error}\n")
        sys.exit(3)
    text = "".join(f"  {json.dumps(name)}: {json.dumps(value)},\n" for name, value in head.items())
    text = f'{{\n{text}  "specs": [\n    {lines}\n  ]\n}}\n'
    if given.output is None:
        sys.stdout.write(text)
        return
    try:
        with open(given.output, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        sys.stderr.write(f"attnjit manifest: {given.output}: cannot be written: {error.strerror}\n")
        sys.exit(1)
