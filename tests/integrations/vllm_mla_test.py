# SPDX-License-Identifier: Apache-2.0
"""attnjit's backends of MLA inside the real vLLM package, on the CPU with a reference at the
launch: vLLM's own layer, configuration and metadata, decodes and drafts, 8-bit caches, context
parallelism, lists of keys. Run it with no_gpu/ on PYTHONPATH (vllm_server_test.py says why)."""
import json
import pathlib
import sys
import tempfile
import types

import torch
from vllm.config import set_current_vllm_config
from vllm.engine.arg_utils import EngineArgs
from vllm.model_executor.layers.attention import mla_attention, sparse_mla_attention
from vllm.model_executor.layers.attention.mla_attention import MLAAttention
from vllm.utils import torch_utils
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention import selector
from vllm.v1.attention.selector import get_attn_backend

import attnjit
import reference
from attnjit import _mla
from attnjit.integrations import vllm as integration
from attnjit.integrations import vllm_mla, vllm_service
from attnjit.integrations.vllm_backend import AttnjitImpl
from mla_reference import dequantised, find, specs
from vllm_server_test import MODEL

HEADS, LATENT, ROPE, PAGE, PAGES = 4, 512, 64, 64, 12
DEPTH = LATENT + ROPE
E4M3 = torch.float8_e4m3fn
CONFIG = {**MODEL, "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2",
          "kv_lora_rank": LATENT, "q_lora_rank": None, "qk_nope_head_dim": 128,
          "qk_rope_head_dim": ROPE, "v_head_dim": 128, "n_routed_experts": 2, "num_experts_per_tok": 1, "n_shared_experts": 1,
          "num_key_value_heads": 4, "moe_intermediate_size": 256, "first_k_dense_replace": 1}
asked = []  # the specs that layers ask for at start


class Projection(torch.nn.Module):
    """As much of a linear layer as MLA asks of its up-projection."""

    def __init__(self):
        super().__init__()
        weight = torch.randn(HEADS * 256, LATENT) / LATENT ** 0.5
        self.weight = torch.nn.Parameter(weight, requires_grad=False)
        self.quant_method, self.params_dtype = None, torch.bfloat16


def layer_of(config, kind, name, **more):
    config.compilation_config.static_forward_context.clear()
    config.cache_config.cache_dtype = kind
    torch.set_default_dtype(torch.bfloat16)
    layer = MLAAttention(num_heads=HEADS, scale=0.1, qk_nope_head_dim=128, qk_rope_head_dim=ROPE,
                         v_head_dim=128, q_lora_rank=None, kv_lora_rank=LATENT,
                         kv_b_proj=Projection(), cache_config=config.cache_config, prefix=name,
                         **more)
    torch.set_default_dtype(torch.float32)  # exact numbers stand for bf16's
    layer.kv_b_proj.weight.data = layer.kv_b_proj.weight.data.float()
    layer.process_weights_after_loading(torch.float32)
    return layer


def cache_of(kind):
    lines = torch.randn(PAGES, PAGE, DEPTH)
    return (lines.to(E4M3).view(torch.uint8) if kind.startswith("fp8") else lines)


def batch_of(rows, keys, causal=True):
    offsets = torch.tensor([0, *rows]).cumsum(0).to(torch.int32)
    table = torch.zeros(len(rows), 5, dtype=torch.int32)
    pages = iter(torch.randperm(PAGES).tolist())
    for request, count in enumerate(keys):
        for i in range(-(-count // PAGE)):
            table[request, i] = next(pages)
    lens = torch.tensor(keys, dtype=torch.int32)
    return CommonAttentionMetadata(
        query_start_loc=offsets, query_start_loc_cpu=offsets, seq_lens=lens,
        seq_lens_cpu_upper_bound=lens, num_reqs=len(rows), num_actual_tokens=sum(rows),
        max_query_len=max(rows), max_seq_len=max(keys), block_table_tensor=table, causal=causal,
        slot_mapping=torch.zeros(sum(rows), dtype=torch.int64), dcp_local_seq_lens=lens)


def expected(layer, q, cache, common, scale, causal=True):
    """The layer's result by its unabsorbed products, in f32: [rows, heads, 128]. `causal`: may be
    the keys that rows see, of each request [rows, keys]."""
    lines, out = dequantised(cache, scale), []
    up = layer.kv_b_proj.weight.float().view(HEADS, 256, LATENT)
    for b, keys in enumerate(common.seq_lens.tolist()):
        begin, end = common.query_start_loc[b:b + 2].tolist()
        rows = (common.block_table_tensor[b, :-(-keys // PAGE), None].long() * PAGE
                + torch.arange(PAGE)).flatten()[:keys]
        latent, rope = lines[rows].split([LATENT, ROPE], -1)
        both = torch.einsum("kl,hdl->khd", latent, up)
        k = torch.cat([both[..., :128], rope[:, None].expand(-1, HEADS, -1)], -1)
        at = torch.arange(end - begin)[:, None] + keys - (end - begin)
        visible = (causal[b] if isinstance(causal, list) else
                   torch.arange(keys)[None] <= at if causal else torch.tensor(True))
        out.append(reference.attend(q[begin:end], k, both[..., 128:], visible, layer.scale)[0])
    return torch.cat(out)


def keys_of(found):
    with attnjit.Service(no_disk_cache=1) as service:
        return {service.prepare(spec).key for spec in found}


def builder_of(config, layer, drafts=0):
    config.speculative_config = types.SimpleNamespace(
        num_speculative_tokens=drafts, parallel_drafting=False, method="ngram") if drafts else None
    config.compilation_config.static_forward_context["layer"] = layer
    backend = layer.get_attn_backend()
    builder = backend.get_builder_cls()(layer.get_kv_cache_spec(config), ["layer"], config,
                                        torch.device("cpu"))
    config.speculative_config = None
    return builder


def dense(config):
    for kind in ("auto", "fp8"):
        layer = layer_of(config, kind, "layer", non_causal_multi_token_decode=True)
        assert type(layer.impl).__name__ == "AttnjitMLAImpl"
        layer._k_scale.fill_(0.5 if kind == "fp8" else 1.0)
        asked.clear()
        builder = builder_of(config, layer, 3)
        at_start = keys_of(asked)
        assert builder.reorder_batch_threshold == 4
        assert {one.get("max_q_len", 0) for one in asked} == {0, 1, 4}, asked
        cache = cache_of(kind)
        for rows, keys, causal, each in (([1, 1, 1], [70, 130, 3], True, 1),
                                         ([4, 4], [133, 20], True, 4), ([2, 4], [90, 7], True, 0),
                                         ([3, 3], [30, 7], False, 3), ([1, 0], [9, 0], True, 0),
                                         # Ends of prompts; of two rows each no kernel of decodes
                                         # is asked for.
                                         ([2, 2], [2, 40], True, 0), ([3], [3], True, 3)):
            common = batch_of(rows, keys, causal)
            builder.non_causal_multi_token_decode = not causal
            step = builder.build(0, common)
            assert step.decode.rows_each == each and step.num_prefills == 0, step
            q = torch.randn(sum(rows), HEADS, 192)
            out = torch.empty(sum(rows), HEADS * 128)
            pe = torch.zeros(sum(rows), ROPE)
            layer.forward_impl(q, torch.zeros(sum(rows), LATENT), pe, cache, step, out)
            right = expected(layer, q, cache.view(E4M3) if kind == "fp8" else cache, common,
                             layer._k_scale if kind == "fp8" else None, causal)
            error = (out.view(right.shape) - right).abs().max()
            assert error < 2e-3, (kind, rows, error)
            assert specs[-1].get("kv_dtype") == ("e4m3" if kind == "fp8" else None), specs[-1]
            assert keys_of(specs[-1:]) <= at_start, (specs[-1], asked)
            # Drafts in a graph: lengths grow without another build.
            assert builder.supports_draft_decode_metadata_update
            builder.update_draft_decode_metadata(step)
            common.seq_lens -= 1
            assert torch.equal(step.decode.seq_lens, common.seq_lens)
    for changes in (dict(sliding_window=8),):
        try:
            layer_of(config, "auto", "layer", **changes)
        except NotImplementedError as error:
            assert "window" in str(error), error
        else:
            raise AssertionError(f"{changes} were taken")


def beside_prompts(config):
    """Prompts are vLLM's, and say nothing of the decodes beside them."""
    layer = layer_of(config, "auto", "layer")
    for drafts, rows, each in ((0, [1, 1, 60], 1), (3, [4, 4, 51], 4), (3, [1, 4, 5], 0)):
        builder = builder_of(config, layer, drafts)
        step = builder.build(0, batch_of(rows, [90, 130, 70]))
        assert (step.num_decodes, step.num_prefills) == (2, 1), step
        assert (step.decode.rows_each, step.decode.max_query_len) == (each, rows[1]), step.decode


def context_parallel(config):
    """Two ranks with every second key, or every second pair of keys, in turns."""
    for every in (1, 2):
        config.parallel_config.cp_kv_cache_interleave_size = every
        layer = layer_of(config, "auto", "layer")
        impl = layer.impl
        builder = builder_of(config, layer, 3)
        cache = cache_of("auto")
        for rows, keys in (([1, 1], [70, 130]), ([3, 2], [131, 7])):
            whole = batch_of(rows, keys)
            q = torch.randn(sum(rows), HEADS, DEPTH)
            builder.build(0, whole)
            full = attend_all(q, cache, whole)
            parts = []
            for rank in range(2):
                impl.dcp_world_size, impl.dcp_rank = 2, rank
                impl.need_to_return_lse_for_decode = True
                impl.configure(config, 4)
                mine, part = share_of(cache, whole, rank, every)
                builder.dcp_world_size = 2
                step = builder.build(0, part)
                step.decode.dcp_tot_seq_lens = whole.seq_lens
                parts.append(impl.forward_mqa(q, mine, step, layer))
                builder.dcp_world_size = impl.dcp_world_size = 1
            sums = torch.stack([one[1] for one in parts])
            weights = torch.softmax(sums, 0)[..., None]
            out = sum(w * one[0] for w, one in zip(weights, parts))
            assert (out - full).abs().max() < 1e-4, (every, rows)
    config.parallel_config.cp_kv_cache_interleave_size = 1


def attend_all(q, cache, common):
    lines, out = cache.reshape(-1, DEPTH), []
    for b, keys in enumerate(common.seq_lens.tolist()):
        begin, end = common.query_start_loc[b:b + 2].tolist()
        rows = (common.block_table_tensor[b, :-(-keys // PAGE), None].long() * PAGE
                + torch.arange(PAGE)).flatten()[:keys]
        at = torch.arange(end - begin)[:, None] + keys - (end - begin)
        k = lines[rows][:, None]
        out.append(reference.attend(q[begin:end], k, k[..., :LATENT],
                                    torch.arange(keys)[None] <= at, 0.1)[0])
    return torch.cat(out)


def share_of(cache, common, rank, every):
    """A rank's cache, and its part of the batch."""
    lines, mine, lens = cache.reshape(-1, DEPTH), torch.zeros_like(cache), []
    for b, keys in enumerate(common.seq_lens.tolist()):
        rows = (common.block_table_tensor[b, :-(-keys // PAGE), None].long() * PAGE
                + torch.arange(PAGE)).flatten()[:keys]
        owned = rows[(torch.arange(keys) // every) % 2 == rank]
        lens.append(len(owned))
        for i, row in enumerate(owned):
            mine[common.block_table_tensor[b, i // PAGE], i % PAGE] = lines[row]
    local = torch.tensor(lens, dtype=torch.int32)
    return mine, common.replace(dcp_local_seq_lens=local)


def lists(config):
    """Rows that see the keys that their lists name, over each kind of cache."""
    for kind in ("auto", "fp8", "fp8_ds_mla"):
        layer = layer_of(config, kind, "layer", use_sparse=True, topk_indices_buffer=torch.zeros(
            8, 64, dtype=torch.int32))
        impl = layer.impl
        assert type(impl).__name__ == "AttnjitSparseMLAImpl"
        layer._k_scale.fill_(0.5 if kind == "fp8" else 1.0)
        asked.clear()
        builder = builder_of(config, layer)
        assert [one["topk"] for one in asked] == [64], asked
        at_start = keys_of(asked)
        # NOTE: each row's request is found by a kernel of Triton's.
        step = builder.build(0, batch_of([1, 1], [70, 3]).replace(
            _token_to_req_indices_cache=torch.arange(2, dtype=torch.int32)))
        assert (step.num_decodes, step.block_size) == (2, PAGE)
        for wants_lse, spacing in ((False, 1), (True, 3)):
            impl.need_to_return_lse_for_decode = wants_lse
            cache = cache_of(kind)
            if kind == "fp8_ds_mla":
                latent = torch.randn(PAGES * spacing, PAGE, LATENT).to(E4M3).view(torch.uint8)
                factors = torch.rand(PAGES * spacing, PAGE, 4).view(torch.uint8)
                rope = torch.randn(PAGES * spacing, PAGE, ROPE).to(torch.bfloat16)
                cache = torch.cat([latent, factors, rope.view(torch.uint8)], -1)
            elif spacing > 1:  # blocks of other layers lie between
                cache = torch.cat([cache_of(kind) for _ in range(spacing)])
            memory, cache = cache, cache[::spacing]
            if kind == "fp8":
                memory, cache = memory.view(E4M3), cache.view(E4M3)
            q = torch.randn(3, HEADS, DEPTH).to(
                torch.bfloat16 if kind == "fp8_ds_mla" else torch.float32)
            named = torch.stack([torch.randperm(PAGES * PAGE)[:64] for _ in range(3)])
            named = named // PAGE * spacing * PAGE + named % PAGE
            named[1, 5:20] = -1
            named = named.to(torch.int32)
            out, sums = impl._forward_mqa_kernel(q, cache, named, None, layer=layer,
                                                 block_size=PAGE, is_decode=True)
            lines = dequantised(memory, layer._k_scale if kind == "fp8" else None)
            for row, one in enumerate(named.tolist()):
                k = lines[[i for i in one if i >= 0]][:, None]
                right, lse = reference.attend(q[row:row + 1], k, k[..., :LATENT],
                                              torch.tensor(True), 0.1)
                error = (out[row] - right[0]).abs().max()
                assert error < (0.02 if kind == "fp8_ds_mla" else 1e-4), (kind, error)
                assert not wants_lse or (sums[row] - lse[:, 0]).abs().max() < 1e-4
            spec = specs[-1]
            if not wants_lse:
                assert keys_of([spec]) == at_start, (spec, asked)
            assert spec["topk"] == 64 and spec["mask"] == "null", spec
            assert (spec.get("cache_format"), spec.get("kv_dtype")) == {
                "auto": (None, None), "fp8": (None, "e4m3"), "fp8_ds_mla": ("dsv32", None)}[kind]


def layers_of_lists(config):
    """A whole layer, whose lists an indexer has left in their buffer as keys of their requests:
    decodes, drafts, and prompts of more keys than a list has."""
    buffer = torch.zeros(200, 64, dtype=torch.int32)
    layer = layer_of(config, "auto", "layer", use_sparse=True, topk_indices_buffer=buffer)
    for drafts, rows, keys in ((0, [1, 1], [130, 9]), (3, [4, 4], [133, 20]),
                               (0, [1, 100], [70, 100]), (3, [4, 90], [70, 200])):
        asked.clear()
        builder, common = builder_of(config, layer, drafts), batch_of(rows, keys)
        of_rows = torch.arange(2, dtype=torch.int32).repeat_interleave(torch.tensor(rows))
        step = builder.build(0, common.replace(_token_to_req_indices_cache=of_rows))
        if rows == [1, 1]:  # drafts in a graph, whose rows may be of other requests
            assert builder.supports_draft_decode_metadata_update
            step.req_id_per_token = torch.tensor([7, 7], dtype=torch.int32)
            builder.update_draft_decode_metadata(step)
            assert step.req_id_per_token.tolist() == [0, 1]
        cache, q = cache_of("auto"), torch.randn(sum(rows), HEADS, 192)
        buffer.fill_(-1)
        visible, begin = [], 0
        for count, all_keys in zip(rows, keys):
            visible.append(torch.zeros(count, all_keys, dtype=torch.bool))
            for row in range(count):
                listed = torch.randperm(all_keys - count + row + 1)[:64]
                buffer[begin + row, :len(listed)] = listed
                visible[-1][row, listed] = True
            begin += count
        layer.impl._convert_logical_to_physical_topk = convert  # a kernel of Triton's
        out = torch.empty(sum(rows), HEADS * 128)
        layer.forward_impl(q, torch.zeros(sum(rows), LATENT), torch.zeros(sum(rows), ROPE), cache,
                           step, out)
        right = expected(layer, q, cache, common, None, visible)
        assert (out.view(right.shape) - right).abs().max() < 2e-3, (rows, keys)
        assert keys_of(specs[-1:]) <= keys_of(asked), (specs[-1], asked)


def requests_of_rows(starts, out, _rows, _all_rows):
    """vLLM's kernel of Triton."""
    rows = starts.diff()
    out.copy_(torch.arange(len(rows)).repeat_interleave(rows))


def convert(lists, step, *, block_stride_rows, return_valid_counts):
    """Keys of requests made rows of the cache."""
    pages = step.block_table[step.req_id_per_token[:len(lists)].long()]
    found = pages.gather(1, lists.clamp(min=0).long() // step.block_size)
    found = torch.where(lists < 0, -1, found * block_stride_rows + lists % step.block_size)
    return found.int(), (lists >= 0).sum(1).int()


def answers(config):
    wanted = dict(head_size=576, dtype=torch.bfloat16, kv_cache_dtype="auto", use_mla=True)
    for changes, name in ((dict(), "AttnjitMLABackend"),
                          (dict(kv_cache_dtype="fp8"), "AttnjitMLABackend"),
                          (dict(use_sparse=True), "AttnjitSparseMLABackend"),
                          (dict(use_sparse=True, kv_cache_dtype="fp8_ds_mla"),
                           "AttnjitSparseMLABackend"),
                          (dict(use_mla=False, head_size=128), "AttnjitBackend")):
        found = get_attn_backend(**{**wanted, **changes})
        assert found.__name__ == name and found.get_name() == "ATTNJIT", (changes, found)
        assert found.full_cls_name()[1] == name
    for changes, text in ((dict(kv_cache_dtype="fp8_e5m2"), "kv_cache_dtype"),
                          (dict(kv_cache_dtype="fp8_ds_mla"), "kv_cache_dtype"),
                          (dict(dtype=torch.float16, kv_cache_dtype="fp8_ds_mla", use_sparse=True),
                           "fp8_ds_mla beside"),
                          (dict(has_sink=True), "sinks"), (dict(head_size=2048), "qk_depth"),
                          (dict(use_sparse=True, hisparse=True), "HiSparse"),
                          (dict(pcp=2), "PCP"), (dict(use_sparse=True, pcp=2), "PCP")):
        hisparse = changes.pop("hisparse", None)
        config.parallel_config.prefill_context_parallel_size = changes.pop("pcp", 1)
        config.attention_config.hisparse_config = hisparse and types.SimpleNamespace()
        selector._cached_get_attn_backend.cache_clear()
        try:
            get_attn_backend(**{**wanted, **changes})
        except ValueError as error:
            assert text in str(error) and "\n" not in str(error), error
        else:
            raise AssertionError(f"{changes} were taken")
    config.attention_config.hisparse_config = None
    config.parallel_config.prefill_context_parallel_size = 1
    for ahead in (True, False):  # layers of drafts that are made at once
        config.attention_config.use_non_causal = ahead
        assert AttnjitImpl(8, 64, 0.1, 4).sees_ahead is ahead


def main():
    integration.register()
    reference.install()
    _mla._find, vllm_service.ask = find, asked.extend
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "config.json").write_text(json.dumps(CONFIG))
        config = EngineArgs(model=folder, skip_tokenizer_init=True, attention_backend="ATTNJIT",
                            load_format="dummy", max_model_len=256, dtype="bfloat16",
                            block_size=PAGE, enforce_eager=True).create_engine_config()
    with set_current_vllm_config(config):
        answers(config)
        mla_attention.PIN_MEMORY = torch_utils.PIN_MEMORY = False
        dense(config)
        beside_prompts(config)
        context_parallel(config)
        config.model_config.hf_text_config.index_topk = 64
        sparse_mla_attention.get_tensor_model_parallel_world_size = lambda: 1
        sparse_mla_attention.PIN_MEMORY = False
        vllm_mla.compute_token_to_req_indices = requests_of_rows
        lists(config)
        layers_of_lists(config)
    import vllm
    print(f"vllm {vllm.__version__}, MLA: all right")


if __name__ == "__main__":
    sys.exit(main())
