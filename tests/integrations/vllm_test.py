# SPDX-License-Identifier: Apache-2.0
"""attnjit's backend inside the real vLLM package, on the CPU with a reference at the launch: its
registration, its answers, its metadata, and the attention of each layout of vLLM's cache.

With ATTNJIT_TEST_DEVICE=cuda the kernels run, also in a graph that is replayed with other lengths.
"""
import dataclasses
import itertools
import json
import os
import sys
import tempfile
import types
import weakref

import numpy as np
import torch
import vllm.envs as envs
from vllm import _custom_ops, forward_context
from vllm.config import CUDAGraphMode
from vllm.model_executor.layers.attention.chunked_local_attention import (
    create_chunked_local_attention_backend)
from vllm.model_executor.layers.quantization.utils.quant_utils import (kFp8StaticTensorSym,
                                                                       kNvfp4Dynamic)
from vllm.model_executor.models.gemma4_mm import Gemma4ForConditionalGeneration
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.attention.backends.utils import create_fast_prefill_custom_backend
from vllm.v1.attention.ops import dcp, triton_reshape_and_cache_flash
from vllm.utils import jit_monitor, torch_utils
from vllm.v1.kv_cache_interface import FullAttentionSpec, KVQuantMode
from vllm.v1.kv_cache_layout import KVCacheLayout

import attnjit
import reference
from attnjit.integrations import vllm as integration
from attnjit.integrations import _recorded, vllm_backend, vllm_service
from attnjit.integrations.vllm_backend import TOKEN_SCALES, AttnjitBackend, AttnjitImpl

HEADS, KV_HEADS, DEPTH, PAGE, PAGES = 4, 2, 16, 16, 12
E4M3 = torch.float8_e4m3fn
HOPPER = DeviceCapability(9, 0)


def answers():
    integration.register()
    integration.register()
    backend = AttentionBackendEnum["ATTNJIT"].get_class()
    assert issubclass(backend, AttnjitBackend) and backend.get_name() == "ATTNJIT"

    def reasons(capability=HOPPER, **changes):
        asked = dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16,
                     use_mla=False, has_sink=False, use_sparse=False, use_mm_prefix=False,
                     use_per_head_quant_scales=False, device_capability=capability,
                     attn_type="decoder")
        return backend.validate_configuration(**{**asked, **changes})

    assert reasons() == [] and reasons(has_sink=True, has_sliding_window=True) == [], reasons()
    assert reasons(head_size=256, block_size=64, dtype=torch.float16) == []
    assert backend.full_cls_name() == AttnjitBackend.full_cls_name()
    for kind in ("encoder", "encoder_only", "encoder_decoder"):
        assert reasons(attn_type=kind) == [], kind
    for name in ("use_non_causal", "use_dcp", "use_rswa", "use_mm_prefix", "use_batch_invariant",
                 "use_kv_connector", "use_adaptive_verification"):
        assert reasons(**{name: True}) == [], (name, reasons(**{name: True}))
    for changes, text in (({"head_size": 520}, "head_size"), ({"dtype": torch.float32}, "dtype"),
                          ({"kv_cache_dtype": "fp8_e5m2"}, "a cache of fp8_e5m2"),
                          ({"kv_cache_dtype": "int8_per_token_head"}, "int8_per_token_head"),
                          ({"kv_cache_dtype": "fp8_per_token_head", "head_size": 256}, "scales"),
                          ({"kv_cache_dtype": "nvfp4"}, "scales of tensors or of heads"),
                          ({"kv_cache_dtype": "float16"}, "only of the model's type"),
                          ({"kv_cache_dtype": "fp8", "head_size": 512}, "qk_depth"),
                          ({"use_sparse": True}, "sparse"), ({"use_pcp": True}, "PCP"),
                          ({"capability": DeviceCapability(8, 0)}, "compute capability"),
                          ({"block_size": 8}, "block_size")):
        found = reasons(**changes)
        assert any(text in one for one in found), f"{changes}: {found}"
    for capability in (HOPPER, DeviceCapability(10, 0)):
        assert reasons(capability, head_size=256) == []
        assert reasons(capability, kv_cache_dtype="fp8_per_token_head") == []
        for name in ("fp8", "fp8_e4m3"):
            for per_head in (False, True):
                assert reasons(capability, kv_cache_dtype=name,
                               use_per_head_quant_scales=per_head) == []
        # What those questions let through and no kernel serves: the plan's reason.
        assert reasons(capability, head_size=512) == []
        found = backend.supports_combination(264, torch.bfloat16, "auto", 16, False, False, False,
                                             False, capability)
        assert found and found.startswith("attnjit: "), found


def cache_of(layout, eight_bits=False):
    """vLLM's view of a layer's cache, [pages, heads, page, content], as the layout has it in memory
    with two layers: the second one's. Of 8 bits it is of bytes."""
    sizes = {"L": 2, "B": PAGES, "H": KV_HEADS, "N": PAGE, "C": 2 * DEPTH}
    names = layout.name
    memory = torch.randn([sizes[name] for name in names], dtype=reference.DTYPE)
    if eight_bits:
        memory = memory.to(E4M3).view(torch.uint8)
    order = [names.index(name) for name in "LBHNC"]
    return memory.permute(order)[1]


def metadata(builder, rows, keys, **more):
    """A step of a builder; None: what vLLM gives one."""
    offsets = torch.tensor([0, *rows]).cumsum(0).to(torch.int32)
    table = torch.zeros(len(rows), 5, dtype=torch.int32)
    pages = iter(torch.randperm(PAGES).tolist())
    for request, count in enumerate(keys):
        for i in range(-(-count // PAGE)):
            table[request, i] = next(pages)
    common = CommonAttentionMetadata(
        query_start_loc=offsets, query_start_loc_cpu=offsets.cpu(),
        seq_lens=torch.tensor(keys, dtype=torch.int32), num_reqs=len(rows),
        num_actual_tokens=sum(rows), max_query_len=max(rows), max_seq_len=max(keys),
        block_table_tensor=table, slot_mapping=torch.zeros(sum(rows), dtype=torch.int64),
        seq_lens_cpu_upper_bound=torch.tensor(keys, dtype=torch.int32, device="cpu"), **more)
    return common if builder is None else builder.build(0, common)


def expected(q, cache, step, rows, keys, window, cap, sinks, layer=None):
    """`layer`: of a cache of 8 bits, whose scales it has."""
    out, begin = [], 0
    if layer is not None:
        scales = (layer._k_scale, layer._v_scale)
        halves = cache.view(E4M3).float().split(DEPTH, dim=-1)
        cache = torch.cat([half * scale.view(-1, 1, 1) for half, scale in zip(halves, scales)], -1)
        if q.dtype is E4M3:
            q = q.float() * layer._q_scale.view(-1).expand(KV_HEADS).repeat_interleave(
                HEADS // KV_HEADS)[:, None]
    for request, (count, length) in enumerate(zip(rows, keys)):
        pages = step.block_table[request].long()
        lines = cache[pages].transpose(1, 2).flatten(0, 1)[:length]
        at = torch.arange(count)[:, None] + length - count
        key = torch.arange(length)[None, :]
        visible = (key <= at) & ((key > at - window) if window else torch.tensor(True))
        out.append(reference.attend(q[begin:begin + count], lines[..., :DEPTH], lines[..., DEPTH:],
                                    visible, 0.3, cap, sinks)[0])
        begin += count
    return torch.cat(out)


def layers():
    layer = torch.nn.Module()
    for window, cap, sinks in ((None, None, None), (5, None, None), (None, 7.0, None),
                               (5, 7.0, torch.randn(HEADS, dtype=torch.bfloat16))):
        impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, None, window, "auto", cap, sinks=sinks)
        builder = builder_of(impl, layer, torch.bfloat16, drafts=3)
        assert reference.ON_GPU or [one.get("max_q_len") for one in prewarmed] == [None, 1, 4]
        assert not impl.supports_quant_query_input
        for layout in KVCacheLayout:
            cache = cache_of(layout)
            # Prompts, chunks and decodes; decodes alone; a graph's padding: no rows and no keys.
            for rows, keys in (([7, 1, 20], [7, 33, 40]), ([1, 1], [17, 40]),
                               ([4, 4], [33, 17]), ([3, 1, 0, 0], [20, 9, 0, 0])):
                if sinks is not None:
                    sinks.copy_(torch.randn(HEADS))  # weights that were loaded again
                step = metadata(builder, rows, keys)
                q = torch.randn(sum(rows) + 2, HEADS, DEPTH, dtype=reference.DTYPE)
                out = torch.full((len(q), HEADS * DEPTH), 9.0, dtype=q.dtype)  # vLLM pads tokens
                reference.calls.clear()
                impl.forward(layer, q, None, None, cache, step, out)
                right = expected(q, cache, step, rows, keys, window, cap, sinks)
                got = out[:sum(rows)].view(-1, HEADS, DEPTH)
                error = (got.float() - right).abs().max()
                assert error < reference.TOLERANCE, (layout, rows, error)
                assert (out[sum(rows):] == 9).all(), "wrote past the tokens"
                reference.check_calls(lambda: ("max_q_len" in reference.calls[0])
                                      == (len(set(rows)) == 1))
        moved = builder.update_block_table(step, step.block_table + 1, step.slot_mapping)
        assert torch.equal(moved.block_table, step.block_table + 1)
        assert (impl.forward(layer, q, None, None, cache, None, out) == 0).all()
        if reference.ON_GPU:
            graph(builder, impl, layer, cache, window, cap, sinks)
    for options, text in ((dict(alibi_slopes=[1.0] * HEADS, logits_soft_cap=5.0), "ALiBi"),
                          (dict(kv_cache_dtype="fp8_e5m2"), "fp8_e5m2"),
                          (dict(kv_cache_dtype="int8_per_token_head"), "int8_per_token_head")):
        try:
            AttnjitImpl(HEADS, DEPTH, 0.3, **options)
        except NotImplementedError as error:
            assert text in str(error)
        else:
            raise AssertionError(f"{options} were taken")


def builder_of(impl, layer, cache_dtype, drafts=0, backend=AttnjitBackend, non_causal=False,
               ubatches=False, diffuses=False, combines="ag_rs", **of_model):
    """A builder of a bf16 model with one layer; `prewarmed` has the specs that it asked for."""
    layer.impl = impl
    config = types.SimpleNamespace(
        diffusion_config={} if diffuses else None, compilation_config=types.SimpleNamespace(
            static_forward_context={"layer": layer}, cudagraph_mode=CUDAGraphMode.FULL_AND_PIECEWISE),
        model_config=types.SimpleNamespace(dtype=torch.bfloat16, max_model_len=4096, **of_model),
        scheduler_config=types.SimpleNamespace(max_num_batched_tokens=64, max_num_seqs=8),
        parallel_config=types.SimpleNamespace(cp_kv_cache_interleave_size=1, use_ubatching=ubatches,
                                              dcp_comm_backend=combines),
        speculative_config=(types.SimpleNamespace(num_speculative_tokens=drafts) if drafts
                            else None))
    spec = types.SimpleNamespace(block_size=PAGE, dtype=cache_dtype, non_causal=non_causal)
    prewarmed.clear()
    vllm_service._said.clear()
    return backend.get_builder_cls()(spec, ["layer"], config, torch.get_default_device())


def eight_bits():
    """Caches of e4m3, whose elements vLLM has as bytes, with scales of tensors and of heads. Where
    no kernel takes Q of 16 bits beside them, vLLM quantises it."""
    layer = torch.nn.Module()
    for arch, of_heads in itertools.product(("sm_90a", "sm_100a"), (False, True)):
        vllm_backend._arch = lambda arch=arch: arch
        shape = (KV_HEADS,) if of_heads else ()
        layer._q_scale, layer._k_scale, layer._v_scale = (0.5 + torch.rand(shape) for _ in range(3))
        impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, None, 5, "fp8", 7.0, sinks=torch.randn(HEADS))
        builder = builder_of(impl, layer, torch.uint8)
        for spec in prewarmed:
            kinds = [spec.get(name) for name in ("qkv_dtype", "kv_dtype", "output_dtype", "scales")]
            of_q = impl.supports_quant_query_input or "ragged" in spec
            assert kinds == ["e4m3" if of_q else "bf16", None if of_q else "e4m3", "bf16",
                             "head" if of_heads else "tensor"], spec
        assert reference.ON_GPU or len(prewarmed) == 2, prewarmed
        assert impl.supports_quant_query_input == (arch == "sm_100a")
        quantised_of, quantise = [], impl._quantised
        impl._quantised = lambda *of: quantised_of.append(quantise(*of)) or quantised_of[-1]
        for layout, (rows, keys) in itertools.product(
                KVCacheLayout, (([7, 1, 20], [7, 33, 40]), ([1, 1], [17, 40]), ([3, 1, 0], [20, 9, 0]))):
            cache, step = cache_of(layout, True), metadata(builder, rows, keys)
            q = torch.randn(sum(rows) + 2, HEADS, DEPTH, dtype=reference.DTYPE)
            out = torch.full((len(q), HEADS * DEPTH), 9.0, dtype=q.dtype)
            q = q.to(E4M3) if impl.supports_quant_query_input else q
            impl.forward(layer, q, None, None, cache, step, out)
            assert len(quantised_of) == (arch == "sm_90a" and not step.rows_each), quantised_of
            asked = quantised_of.pop() if quantised_of else q
            right = expected(asked, cache, step, rows, keys, 5, 7.0, impl.sinks, layer)
            got = out[:sum(rows)].view(-1, HEADS, DEPTH).float()
            # NOTE: kernels of e4m3 Q round the probabilities to e4m3, too.
            bound = 0.25 if reference.ON_GPU and asked.dtype is E4M3 else 3 * reference.TOLERANCE
            error = (got - right).abs().max()
            assert error < bound, (arch, layout, rows, error)
            quantised = torch.zeros(out.shape).to(E4M3)
            impl.forward(layer, q, None, None, cache, step, quantised, torch.full((1,), 0.01))
            quantised_of.clear()
            right = (right / 0.01).clamp(-448, 448)
            error = (quantised[:sum(rows)].view(got.shape).float() - right).abs()
            assert (error <= 16 + bound / 0.01).all(), (arch, layout, error.max())
            assert (quantised[sum(rows):].float() == 0).all(), "wrote past the tokens"
        assert impl.fused_output_quant_supported(kFp8StaticTensorSym)
        assert not impl.fused_output_quant_supported(kNvfp4Dynamic)
        try:
            impl.forward(layer, q, None, None, cache, step, quantised, torch.ones(1), torch.ones(1))
        except NotImplementedError as error:
            assert "blocks" in str(error)
        else:
            raise AssertionError("scales of blocks were taken")
        assert (impl.forward(layer, q, None, None, cache, None, quantised).float() == 0).all()
    vllm_backend._arch = lambda: "sm_90a"
    assert not AttnjitImpl(8, 512, 1.0).fused_output_quant_supported(kFp8StaticTensorSym)


def scales_of_tokens():
    """fp8_per_token_head: K, V and a scale of each in one row, in all layouts."""
    for depth, content in ((128, 272), (80, 176), (16, 48)):
        spec = AttnjitBackend.customize_spec(FullAttentionSpec(
            block_size=PAGE, num_kv_heads=KV_HEADS, head_size=depth, dtype=torch.uint8,
            kv_quant_mode=KVQuantMode.FP8_PER_TOKEN_HEAD))
        assert spec.state_content_bytes == content, spec
    if not reference.ON_GPU:
        triton_reshape_and_cache_flash.triton_reshape_and_cache_flash_per_token_head_quant = write
    layer = torch.nn.Module()
    impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, None, 5, TOKEN_SCALES, 7.0,
                       sinks=torch.randn(HEADS))
    builder = builder_of(impl, layer, torch.uint8)
    for spec in prewarmed:
        assert [spec.get(name) for name in ("qkv_dtype", "kv_dtype", "scales")] == [
            "bf16", "e4m3", "token"], spec
    assert not impl.supports_quant_query_input
    for layout, (rows, keys) in itertools.product(
            KVCacheLayout, (([7, 1, 20], [7, 33, 40]), ([1, 1], [17, 40]), ([3, 1, 0], [20, 9, 0]))):
        sizes = {"L": 2, "B": PAGES, "H": KV_HEADS, "N": PAGE, "C": content}
        memory = torch.full([sizes[name] for name in layout.name], 255, dtype=torch.uint8)  # NaN
        cache = memory.permute([layout.name.index(name) for name in "LBHNC"])[1]
        step = metadata(builder, rows, keys)
        slots = torch.cat([(step.block_table[b, :, None].long() * PAGE + torch.arange(PAGE)).flatten()
                           [:length] for b, length in enumerate(keys)])
        key, value = (torch.randn(len(slots), KV_HEADS, DEPTH) * torch.rand(len(slots), KV_HEADS, 1)
                      for _ in "kv")
        impl.do_kv_cache_update(layer, key, value, cache, slots)
        whole = torch.zeros(PAGES * PAGE, KV_HEADS, 2 * DEPTH)
        whole[slots] = torch.cat([rounded * scale[..., None] for rounded, scale in (
            quantised(key), quantised(value))], -1)
        q = torch.randn(sum(rows), HEADS, DEPTH, dtype=reference.DTYPE)
        out = torch.empty(len(q), HEADS * DEPTH, dtype=q.dtype)
        impl.forward(layer, q, None, None, cache, step, out)
        right = expected(q, whole.view(PAGES, PAGE, KV_HEADS, -1).transpose(1, 2), step, rows, keys,
                         5, 7.0, impl.sinks)
        error = (out.view(right.shape).float() - right).abs().max()
        assert error < 3 * reference.TOLERANCE, (layout, rows, error)


def quantised(rows):
    """In e4m3's numbers, and the scales: absmax / 448."""
    scale = rows.abs().amax(-1) / 448
    return (rows / scale[..., None]).to(E4M3).float(), scale


def write(key, value, keys, values, k_scale, v_scale, slots, kv_quant_mode):
    """As vLLM's kernel of Triton's does, through the strides that it is given."""
    assert kv_quant_mode == KVQuantMode.FP8_PER_TOKEN_HEAD
    for rows, cache, scales in ((key, keys, k_scale), (value, values, v_scale)):
        assert cache.dtype is E4M3 and scales.dtype is torch.float32
        numbers, factors = quantised(rows)
        cache[slots // PAGE, slots % PAGE] = numbers.to(E4M3)
        scales[slots // PAGE, slots % PAGE] = factors


def check(impl, layer, cache, step, visible, bias=0, sinks=None, k=None, v=None):
    """Runs a step of the layer; `visible` gives [rows, keys] of a request's number, its rows and
    its keys. Without k and v they are the cache's."""
    rows = step.query_start_loc.diff().tolist()
    q = torch.randn(step.num_actual_tokens, HEADS, DEPTH, dtype=reference.DTYPE)
    out = torch.zeros(len(q), HEADS * DEPTH, dtype=q.dtype)
    reference.calls.clear()
    impl.forward(layer, q, k, v, cache, step, out)
    for b, count in enumerate(rows):
        begin, length = int(step.query_start_loc[b]), int(step.seq_lens[b])
        lines = (cache[step.block_table[b].long()].transpose(1, 2).flatten(0, 1)[:length].split(DEPTH, -1)
                 if k is None else (k[begin:begin + count], v[begin:begin + count]))
        at = torch.arange(count)[:, None] + length - count
        key = torch.arange(len(lines[0]))[None, :]
        added = bias(at, key) if callable(bias) else bias
        right = reference.attend(q[begin:begin + count], *lines, visible(b, at, key), 0.3, None,
                                 sinks, added)[0]
        error = (out.view(q.shape)[begin:begin + count].float() - right).abs().max()
        assert error < reference.TOLERANCE, (b, error)
    return reference.calls[0] if reference.calls else None


def kinds():
    """What else than decoders with causal masks and windows vLLM has."""
    layer = torch.nn.Module()
    cache = cache_of(KVCacheLayout["LBNHC"])

    def made(window=None, builder=(), **options):
        impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, options.pop("alibi_slopes", None), window,
                           **options)
        return impl, builder_of(impl, layer, torch.bfloat16, **dict(builder))

    # Encoders: rows see all of their request, without a cache, or a window to both sides.
    for kind, window in itertools.product(("encoder", "encoder_only"), (None, 3)):
        impl, builder = made(window, attn_type=kind)
        assert [one.get("ragged_kv") for one in prewarmed] == [True] or reference.ON_GPU
        k, v = (torch.randn(28, KV_HEADS, DEPTH, dtype=reference.DTYPE) for _ in range(2))
        step = metadata(builder, [7, 1, 20], [7, 1, 20], causal=False)
        check(impl, layer, torch.empty(0), step, lambda b, at, key: torch.tensor(True)
              if window is None else (at - key).abs() < window, k=k, v=v)
        impl.do_kv_cache_update(layer, k, v, torch.empty(0), step.slot_mapping)  # there is none
    # Cross attention: every row sees all keys, which are the encoder's.
    impl, builder = made(attn_type="encoder_decoder")
    for rows, keys in (([7, 1], [20, 33]), ([1, 1], [20, 33])):
        check(impl, layer, cache, metadata(builder, rows, keys, causal=False),
              lambda b, at, key: torch.tensor(True))
    # A decoder that is not causal has its window to both sides.
    impl, builder = made(4)
    check(impl, layer, cache, metadata(builder, [6, 2], [20, 33], causal=False),
          lambda b, at, key: (at - key).abs() < 4)
    # Requests that differ in being causal.
    for window in (None, 5):
        impl, builder = made(window)
        flags = torch.tensor([1, 0], dtype=torch.int32)
        check(impl, layer, cache, metadata(builder, [6, 5], [20, 33], causal=flags),
              lambda b, at, key: ((key <= at) | (b == 1))
              & ((at - key).abs() < window if window else torch.tensor(True)))
    # ALiBi with this shard's slopes.
    slopes = [0.5, 0.25, 0.1, 0.7]
    impl, builder = made(alibi_slopes=slopes)
    for rows in ([6, 5], [1, 1]):
        fields = check(impl, layer, cache, metadata(builder, rows, [20, 33]),
                       lambda b, at, key: key <= at,
                       lambda at, key: -torch.tensor(slopes)[:, None, None] * (at - key).abs())
        assert fields is None or fields["score_mod"] == {"kind": "alibi", "slopes": True}
    # Images: a row of one sees all of it, within the window where the layer says so.
    for window, clamped in ((None, False), (6, False), (6, True)):
        impl, builder = made(window, builder={"is_mm_prefix_lm": True})
        layer.mm_prefix_clamp_sliding_window = clamped
        step = metadata(builder, [12, 1, 9], [20, 33, 9], mm_req_doc_ranges={
            0: [(9, 15)], 1: [], 2: [(0, 3), (5, 7)]})

        def visible(b, at, key):
            near = (at - key < window) if window else torch.tensor(True)
            seen = (key <= at) & near
            for first, last in {0: [(9, 15)], 2: [(0, 3), (5, 7)]}.get(b, ()):
                inside = (at >= first) & (at <= last) & (key >= first) & (key <= last)
                seen = seen | (inside & (near if clamped else torch.tensor(True)))
            return seen

        fields = check(impl, layer, cache, step, visible)
        assert fields is None or fields["mask"]["name"] == "images"
        # Gemma 4 hides them from layers that see its whole context, after the step is built.
        model = types.SimpleNamespace(_full_attn_layer_idxs={0})
        forward_context.get_forward_context = lambda: types.SimpleNamespace(
            attn_metadata={"model.layers.0.self_attn.attn": step})
        Gemma4ForConditionalGeneration._clear_mm_prefix_for_full_attn_layers(model)
        check(impl, layer, cache, step, lambda b, at, key: (key <= at) & (
            (at - key < window) if window else torch.tensor(True)))
        check(impl, layer, cache, metadata(builder, [1, 1], [20, 33]),
              lambda b, at, key: (key <= at) & ((at - key < window) if window
                                                else torch.tensor(True)))
        model = types.SimpleNamespace(is_mm_prefix_lm=True)
        config = types.SimpleNamespace(model_config=model, compilation_config=types.SimpleNamespace(
            static_forward_context={"layer": types.SimpleNamespace(
                sliding_window=window, mm_prefix_clamp_sliding_window=clamped)}))
        support = builder.get_cudagraph_support(config, None)
        assert support.name == ("NEVER" if window and not clamped
                                else "UNIFORM_SINGLE_TOKEN_DECODE"), support
    del layer.mm_prefix_clamp_sliding_window
    # R-SWA: the prompt, and a window.
    impl, builder = made(builder={"rswa_window": 4})
    prompts = torch.tensor([9, 30], dtype=torch.int32)
    for rows in ([6, 5], [1, 1]):
        check(impl, layer, cache, metadata(builder, rows, [20, 33], rswa_prefix_lens=prompts),
              lambda b, at, key: (key <= at) & ((key < prompts[b]) | (at - key < 4)))
    # Chunks: vLLM makes requests of them, whose keys are the chunk's.
    chunked = create_chunked_local_attention_backend(AttnjitBackend, 2 * PAGE)
    impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS)
    builder = builder_of(impl, layer, torch.bfloat16, backend=chunked)
    for rows in ([40, 5], [1, 1]):
        common = metadata(None, rows, [50, 37])
        step = builder.build(0, common)
        q = torch.randn(sum(rows), HEADS, DEPTH, dtype=reference.DTYPE)
        out = torch.zeros(len(q), HEADS * DEPTH, dtype=q.dtype)
        impl.forward(layer, q, None, None, cache, step, out)
        for b, count in enumerate(rows):
            begin, length = int(common.query_start_loc[b]), int(common.seq_lens[b])
            pages = common.block_table_tensor[b].long()
            lines = cache[pages].transpose(1, 2).flatten(0, 1)[:length].split(DEPTH, -1)
            at, key = torch.arange(count)[:, None] + length - count, torch.arange(length)[None]
            seen = (key <= at) & (key // (2 * PAGE) == at // (2 * PAGE))
            right = reference.attend(q[begin:begin + count], *lines, seen, 0.3)[0]
            error = (out.view(q.shape)[begin:begin + count].float() - right).abs().max()
            assert error < reference.TOLERANCE, (rows, error)
    # Drafts: the rows that a request has then are prewarmed, too, but not where they are trimmed.
    made(builder={"drafts": 3})
    assert reference.ON_GPU or {one.get("max_q_len") for one in prewarmed} == {None, 1, 4}
    # Batch-invariant mode: one kernel for all batches, with parts of as many keys.
    vllm_backend.envs = types.SimpleNamespace(VLLM_BATCH_INVARIANT=True)
    impl, builder = made()
    for rows in ([6, 5], [1, 1], [4, 4]):
        fields = check(impl, layer, cache, metadata(builder, rows, [20, 33]),
                       lambda b, at, key: key <= at)
        assert fields is None or (fields["partition_keys"], "max_q_len" in fields) == (384, False)
    assert reference.ON_GPU or [one["partition_keys"] for one in prewarmed] == [384], prewarmed
    assert not answers_of({"use_batch_invariant": True})
    vllm_backend.envs = envs


def steps_between_others():
    """What vLLM does with a step's metadata beside building it: graphs, drafts in a graph, other
    groups' tables, and steps that are built before the last one's have been copied."""
    layer, cache = torch.nn.Module(), cache_of(KVCacheLayout["LBNHC"])
    sinks = torch.randn(HEADS, dtype=torch.bfloat16)
    impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, sinks=sinks)
    builder = builder_of(impl, layer, torch.bfloat16, drafts=3)

    def causal(b, at, key):
        return key <= at

    # A graph of a request of 4 rows alone serves shorter ones where it serves mixed batches.
    graphs = builder.vllm_config.compilation_config
    for mode, rows, right in (("FULL", 4, 0), ("FULL_AND_PIECEWISE", 4, 4), ("FULL", 1, 1)):
        graphs.cudagraph_mode = CUDAGraphMode[mode]
        common = metadata(None, [rows], [20])
        step = builder.build_for_cudagraph_capture(common)
        assert step.rows_each == right, (mode, step.rows_each)
        if right == 0:
            step.query_start_loc[1] = 3
            check(impl, layer, cache, step, causal, sinks=sinks)
    # Drafts in a graph: lengths grow, and weights may be others, without another build.
    assert builder.supports_draft_decode_metadata_update
    step = metadata(builder, [1, 1], [17, 30])
    step.max_seq_len += 2  # as vLLM bounds all of them
    for _ in range(2):
        step.seq_lens += 1
        sinks.copy_(torch.randn(HEADS))
        builder.update_draft_decode_metadata(step)
        check(impl, layer, cache, step, causal, sinks=sinks)
    builder = builder_of(impl, layer, torch.bfloat16, rswa_window=4)
    assert not builder.supports_draft_decode_metadata_update
    # Builders that vLLM makes of this one: what they have added stays when the table is another.
    for backend, added in (
            (create_fast_prefill_custom_backend("Fast", AttnjitBackend), "logits_indices_padded"),
            (create_chunked_local_attention_backend(AttnjitBackend, 2 * PAGE),
             "make_virtual_batches_block_table")):
        builder = builder_of(impl, layer, torch.bfloat16, backend=backend)
        common = metadata(None, [5, 4], [20, 33])
        step = builder.build(0, common)
        moved = builder.update_block_table(step, common.block_table_tensor + 1, step.slot_mapping + 1)
        assert hasattr(moved, added) and moved.slot_mapping[0] == 1 != step.slot_mapping[0]
        assert not torch.equal(moved.block_table, step.block_table)
    # vLLM would move the metadata of another microbatch.
    assert builder.supports_update_block_table
    assert not builder_of(impl, layer, torch.bfloat16, ubatches=True).supports_update_block_table
    # The memory of a cache is free once vLLM has dropped it, as after it has measured graphs.
    for kind, dtype in (("auto", torch.float32), ("fp8", torch.uint8)):
        impl, memory = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, None, None, kind), []
        layer._k_scale, layer._v_scale, layer._q_scale = torch.ones(3)
        builder = builder_of(impl, layer, torch.bfloat16)
        step, q = metadata(builder, [1, 1], [20, 33]), torch.zeros(2, HEADS, DEPTH)
        for last in range(2):
            rows = np.zeros((PAGES, PAGE, KV_HEADS, 2 * DEPTH * dtype.itemsize), np.uint8)
            memory.append(weakref.ref(rows))
            cache = torch.from_numpy(rows).view(dtype).transpose(1, 2)
            impl.forward(layer, q, None, None, cache, step, torch.zeros(2, HEADS * DEPTH))
            del rows
            assert memory[last]() is not None and (last == 0 or memory[0]() is None)
        layer.kv_cache = cache = torch.empty(0)
        assert memory[1]() is None, kind
    # Ranges of images: each step stages its own.
    builder = builder_of(impl, layer, torch.bfloat16, is_mm_prefix_lm=True)
    staged, fill = [], vllm_backend.fill_mm_prefix_query_ranges
    vllm_backend.fill_mm_prefix_query_ranges = lambda out, *of: staged.append(out) or fill(out, *of)
    for _ in range(2):
        metadata(builder, [12, 1], [20, 33], mm_req_doc_ranges={0: [(9, 15)]})
    vllm_backend.fill_mm_prefix_query_ranges = fill
    assert len(staged) == 2 and not np.shares_memory(*staged)


def rows_that_are_as_many():
    """Of each request; those that pad a graph have none, and its tokens are padded."""
    for starts, tokens, most, right in (
            ([0, 2, 4], 4, 2, 2), ([0, 2, 4, 4], 6, 2, 2), ([0, 2, 3, 3], 6, 2, 0),
            ([0, 1, 4], 4, 3, 0), ([0, 1, 3], 4, 2, 0), ([0, 1, 2], 2, 2, 0), ([0, 1, 1], 2, 1, 1),
            ([0, 9, 18], 18, 9, 0), ([0, 0, 0], 2, 1, 1)):
        batch = types.SimpleNamespace(query_start_loc_cpu=torch.tensor(starts, device="cpu"),
                                      num_reqs=len(starts) - 1, num_actual_tokens=tokens,
                                      max_query_len=most)
        found = vllm_backend.rows_of_each(batch, range(1, 9))
        assert found == right, (starts, tokens, most, found)
    server = vllm_backend.Server("sm_90a", "bf16", 16)
    assert vllm_backend.decode_rows(server) == {1}
    assert vllm_backend.decode_rows(dataclasses.replace(server, drafts=3)) == {1, 3, 4}


def keys_that_are_asked_for():
    """The kernels that a layer asks for at start are those that its steps launch, by their keys."""
    launched = []

    def record(tensors, params, numbers, fields, number, stream, q_len, kv_len, scale, layout,
               fallback):
        named = reference._launch.Tensors(*tensors).rows_first(layout)
        reference._launch.check(named, fields, q_len, kv_len)
        launched.append(reference._launch.spec_of(named, fields, vllm_backend._arch()))

    dense, reference._torch.launch = reference._torch.launch, record
    images = {"mm_req_doc_ranges": {0: [(9, 15)]}}
    sinks = {"sinks": torch.zeros(HEADS, dtype=torch.bfloat16)}
    cases = [({}, {}, {}, {}), ({"sliding_window": 5}, {}, {}, {}),
             ({"sliding_window": 700, **sinks}, {}, {}, {}), ({"logits_soft_cap": 7.0}, {}, {}, {}),
             ({"alibi_slopes": [0.5] * HEADS}, {}, {}, {}), ({}, {"drafts": 3}, {}, {}),
             ({"kv_cache_dtype": "fp8"}, {}, {}, {}),
             ({"kv_cache_dtype": TOKEN_SCALES}, {}, {}, {}),
             ({"kv_cache_dtype": "fp8", **sinks}, {"drafts": 1}, {}, {}),
             ({"attn_type": "encoder_only"}, {}, {"causal": False}, {}),
             ({"attn_type": "encoder_only", "sliding_window": 6}, {}, {"causal": False}, {}),
             ({"attn_type": "encoder_decoder"}, {}, {"causal": False}, {}),
             ({}, {"is_mm_prefix_lm": True}, images, {}),
             ({"sliding_window": 6}, {"is_mm_prefix_lm": True}, images,
              {"mm_prefix_clamp_sliding_window": True}),
             ({}, {"rswa_window": 4}, {"rswa_prefix_lens": torch.tensor([9, 30, 1]).int()}, {}),
             ({}, {"is_invariant": True}, {}, {}),
             ({"sliding_window": 5}, {"non_causal": True, "drafts": 3}, {"causal": False}, {}),
             ({"sliding_window": 5}, {"diffuses": True}, {"causal": torch.ones(3).int()}, {}),
             ({"kv_cache_dtype": "fp8"}, {"non_causal": True}, {"causal": False}, {})]
    with attnjit.Service(no_disk_cache=1) as service:
        for arch, (options, model, step_has, layer_has), of_heads in itertools.product(
                ("sm_90a", "sm_100a"), cases, (False, True)):
            if of_heads and options.get("kv_cache_dtype") != "fp8":
                continue
            vllm_backend._arch = lambda arch=arch: arch
            invariant = "is_invariant" in model
            vllm_backend.envs = types.SimpleNamespace(VLLM_BATCH_INVARIANT=invariant)
            layer = torch.nn.Module()
            for name, value in layer_has.items():
                setattr(layer, name, value)
            layer._q_scale, layer._k_scale, layer._v_scale = (
                torch.ones((KV_HEADS,) if of_heads else ()) for _ in range(3))
            impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, **options)
            builder = builder_of(impl, layer, torch.bfloat16, **model)
            asked = {service.prepare(spec).key for spec in prewarmed}
            assert asked
            eight = "kv_cache_dtype" in options
            content = 48 if options.get("kv_cache_dtype") == TOKEN_SCALES else 2 * DEPTH
            cache = torch.zeros(PAGES, KV_HEADS, PAGE, content,
                                dtype=torch.uint8 if eight else torch.bfloat16)
            launched.clear()
            drafts = model.get("drafts", 0)
            # Prompts of two tokens each are no decodes of two rows.
            for rows in ([20, 7, 1], [1, 1, 1], [1 + drafts] * 3, [2, 2, 2]):
                images_alone = "mm_req_doc_ranges" in step_has and max(rows) < 20
                more = {} if images_alone else step_has
                step = metadata(builder, rows, [20, 33, 9], **more)
                q = torch.zeros(sum(rows), HEADS, DEPTH, dtype=torch.bfloat16)
                k, v = (torch.zeros(sum(rows), KV_HEADS, DEPTH, dtype=torch.bfloat16) for _ in "kv")
                out = torch.zeros(sum(rows), HEADS * DEPTH, dtype=torch.bfloat16)
                q = q.to(E4M3) if impl.supports_quant_query_input else q
                impl.forward(layer, q, k, v, cache, step, out)
            used = {service.prepare(spec).key for spec in launched}
            assert used <= asked, (options, model, launched, prewarmed)
            # Images are asked for beside a step without any, and causal rows beside others.
            beside = {"is_mm_prefix_lm": 1, "non_causal": len(asked) // 2, "diffuses": len(asked) - 1}
            assert len(asked - used) <= max(beside.get(name, 0) for name in (*model, None)), (
                options, model)
    reference._torch.launch, vllm_backend.envs = dense, envs
    vllm_backend._arch = lambda: "sm_90a"


def answers_of(changes):
    asked = dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16,
                 use_mla=False, has_sink=False, use_sparse=False, use_mm_prefix=False,
                 use_per_head_quant_scales=False, device_capability=HOPPER, attn_type="decoder")
    return AttnjitBackend.validate_configuration(**{**asked, **changes})


class Group:
    """The ranks of a cache that is shared, one after the other in this process."""

    def all_gather(self, q, dim):
        return torch.cat([q, q], dim)


def context_parallel():
    """Two ranks with half of the context each: what they see together is what one sees of it."""
    from vllm.distributed import parallel_state
    from vllm.v1.attention.backends.utils import get_dcp_local_seq_lens

    # NOTE: vLLM shares what ranks with the same key-value head have.
    layer, cache = torch.nn.Module(), cache_of(KVCacheLayout["LBNHC"])[:, :1].contiguous()
    lines = cache.transpose(1, 2).flatten(0, 1)  # [rows, heads, both]
    rows, keys = [6, 1], [20, 33]
    seen, parts = {}, []

    def merge(out, context, sums, new, new_sums):
        weights = torch.softmax(torch.stack([sums, new_sums]), 0).transpose(1, 2)[..., None]
        out.copy_((weights[0] * context.float() + weights[1] * new.float()).to(out.dtype))

    def combine(context, sums, group, return_lse):
        parts.append((context[:, :HEADS].float(), sums[:, :HEADS]))  # [rows, heads]
        if len(parts) % 2:  # the first rank's turn only records its part
            raise StopIteration
        both = torch.stack([one[1] for one in parts[-2:]])
        weights = torch.softmax(both, 0).nan_to_num(0)[..., None]
        return (sum(w * one[0] for w, one in zip(weights, parts[-2:])),
                torch.logsumexp(both, 0))

    parallel_state.get_dcp_group = Group
    q = torch.randn(7, HEADS, DEPTH, dtype=reference.DTYPE)
    k, v = (torch.randn(7, 1, DEPTH, dtype=reference.DTYPE) for _ in range(2))
    modules = sys.modules["vllm.v1.attention.ops.merge_attn_states"] = types.ModuleType("merge")
    modules.merge_attn_states = merge
    impl = AttnjitImpl(HEADS, DEPTH, 0.3, 1)
    for combines, right in (("ag_rs", dcp.cp_lse_ag_out_rs), ("a2a", dcp.dcp_a2a_lse_reduce)):
        builder_of(impl, layer, torch.bfloat16, combines=combines)
        assert impl._combine() is right, combines
    AttnjitImpl._combine = lambda _: combine
    out = torch.zeros(7, HEADS * DEPTH, dtype=q.dtype)
    for rank in range(2):
        impl = AttnjitImpl(HEADS, DEPTH, 0.3, 1)
        impl.dcp_world_size, impl.dcp_rank = 2, rank
        vllm_backend._context_parallel = lambda spec, rank=rank: (2, rank)
        builder = builder_of(impl, layer, torch.bfloat16)
        torch.manual_seed(7)
        step = metadata(builder, rows, keys)
        assert step.context_lens.tolist() == get_dcp_local_seq_lens(
            torch.tensor([14, 32]), 2, rank).tolist()
        mine = torch.zeros_like(cache)
        for b in range(2):
            context = keys[b] - rows[b]
            whole = lines[(step.block_table[b, :, None] * PAGE
                           + torch.arange(PAGE)).flatten()[:context].long()]
            seen[b] = whole
            for i, line in enumerate(whole[rank::2]):
                mine[step.block_table[b, i // PAGE], :, i % PAGE] = line
        try:
            impl.forward(layer, q, k, v, mine, step, out)
        except StopIteration:
            assert rank == 0
    begin = 0
    for b, count in enumerate(rows):
        mine_k, mine_v = (torch.cat([part, new[begin:begin + count].float()]) for part, new in
                          zip(seen[b].float().split(DEPTH, -1), (k, v)))
        at = torch.arange(count)[:, None] + keys[b] - count
        right = reference.attend(q[begin:begin + count], mine_k, mine_v,
                                 torch.arange(keys[b])[None] <= at, 0.3)[0]
        error = (out.view(q.shape)[begin:begin + count].float() - right).abs().max()
        assert error < reference.TOLERANCE, error
        begin += count
    for options in (dict(sliding_window=4), dict(sinks=torch.zeros(HEADS))):
        AttnjitImpl.dcp_world_size = property(lambda self: 2, lambda self, value: None)
        try:
            AttnjitImpl(HEADS, DEPTH, 0.3, 1, **options)
        except NotImplementedError as error:
            assert "context parallelism" in str(error)
        else:
            raise AssertionError(f"{options} were taken")
        finally:
            del AttnjitImpl.dcp_world_size


def graph(builder, impl, layer, cache, window, cap, sinks):
    """A captured step of decodes, replayed with other lengths, tables and queries."""
    rows, q = [1] * 4, torch.randn(4, HEADS, DEPTH, dtype=reference.DTYPE)
    step, out = metadata(builder, rows, [20, 20, 20, 20]), torch.zeros(4, HEADS * DEPTH).to(q.dtype)
    step.max_seq_len = 40
    for _ in range(2):  # the kernel is there before anything is captured
        impl.forward(layer, q, None, None, cache, step, out)
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        impl.forward(layer, q, None, None, cache, step, out)
    for keys in ([33, 1, 40, 16], [1, 2, 3, 33]):
        other = metadata(builder, rows, keys)
        step.seq_lens.copy_(other.seq_lens)
        step.block_table.copy_(other.block_table)
        q.copy_(torch.randn(q.shape))
        captured.replay()
        error = (out.view(q.shape) - expected(q, cache, step, rows, keys, window, cap,
                                              sinks)).abs().max()
        assert error < reference.TOLERANCE, (keys, error)


def monitor():
    """vLLM's JIT monitor hears of compiles once it is active, and may make one an error."""
    event = {"key": "ab" * 32, "arch": "sm_90a", "compile_ms": 500.0}
    impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, None, None, "auto", None)

    def step():
        impl.forward(None, None, None, None, None, None, torch.zeros(1))

    vllm_service._tell_monitor(event)  # it is not active
    step()
    jit_monitor._active, jit_monitor._mode = True, "error"
    vllm_service._tell_monitor(event)
    try:
        step()
    except RuntimeError as error:
        assert "attnjit" in str(error) and "abab" in str(error), error
    else:
        raise AssertionError("a compile during inference was taken")
    step()
    jit_monitor._active, jit_monitor._mode = False, "warn"


def recorded():
    """ATTNJIT_RECORD_KEYS: a file has each kernel that was asked for, by its key and its spec."""
    spec = {"arch": "sm_90a", "num_q_heads": 4, "qk_depth": 64, "mask": "causal"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_recorded.RECORD] = os.path.join(folder, "keys")
        vllm_service._services.clear()
        prepared = vllm_service.service().prepare(spec)
        del os.environ[_recorded.RECORD]
        with open(os.path.join(folder, "keys"), encoding="utf-8") as file:
            lines = list(map(json.loads, file))
        assert len(lines) == 1, lines
        found = lines[0]
        assert (found["event"], found["key"], found["spec"]) == ("prepare", prepared.key, spec)
        vllm_service._services.clear()
        vllm_service.service().prepare(spec)
        assert os.path.getsize(os.path.join(folder, "keys")) == len(json.dumps(found)) + 1


prewarmed = []
reference.install()
if not reference.ON_GPU:
    torch_utils.PIN_MEMORY = False
    # vLLM's operator is compiled for GPUs.
    _custom_ops.scaled_fp8_quant = lambda x, scale: (
        (x.float() / scale).clamp(-448, 448).to(E4M3), scale)
vllm_service.ask = prewarmed.extend
torch.manual_seed(0)
answers()
layers()
eight_bits()
scales_of_tokens()
kinds()
monitor()
recorded()
steps_between_others()
rows_that_are_as_many()
if not reference.ON_GPU:
    keys_that_are_asked_for()
if not reference.ON_GPU:
    context_parallel()
import vllm  # noqa: E402
print(f"vllm {vllm.__version__} on {torch.get_default_device()}: all right")
