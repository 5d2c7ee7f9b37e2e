# SPDX-License-Identifier: Apache-2.0
"""attnjit's backend inside the real vLLM package, on the CPU with a reference at the launch: its
registration, its answers, its metadata, and the attention of each layout of vLLM's cache.

With ATTNJIT_TEST_DEVICE=cuda the kernels run, also in a graph that is replayed with other lengths.
"""
import itertools
import types

import torch
from vllm.model_executor.layers.quantization.utils.quant_utils import (kFp8StaticTensorSym,
                                                                       kNvfp4Dynamic)
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.utils import jit_monitor
from vllm.v1.kv_cache_layout import KVCacheLayout

import reference
from attnjit.integrations import vllm as integration
from attnjit.integrations import vllm_backend
from attnjit.integrations.vllm_backend import AttnjitBackend, AttnjitImpl

HEADS, KV_HEADS, DEPTH, PAGE, PAGES = 4, 2, 16, 16, 12
E4M3 = torch.float8_e4m3fn
HOPPER = DeviceCapability(9, 0)


def answers():
    integration.register()
    integration.register()
    backend = AttentionBackendEnum["ATTNJIT"].get_class()
    assert backend is AttnjitBackend and backend.get_name() == "ATTNJIT"

    def reasons(capability=HOPPER, **changes):
        asked = dict(head_size=128, dtype=torch.bfloat16, kv_cache_dtype="auto", block_size=16,
                     use_mla=False, has_sink=False, use_sparse=False, use_mm_prefix=False,
                     use_per_head_quant_scales=False, device_capability=capability,
                     attn_type="decoder")
        return backend.validate_configuration(**{**asked, **changes})

    assert reasons() == [] and reasons(has_sink=True, has_sliding_window=True) == [], reasons()
    assert reasons(head_size=256, block_size=64, dtype=torch.float16) == []
    for changes, text in (({"head_size": 520}, "head_size"), ({"dtype": torch.float32}, "dtype"),
                          ({"kv_cache_dtype": "fp8_e5m2"}, "a cache of fp8_e5m2"),
                          ({"kv_cache_dtype": "fp8_per_token_head"}, "fp8_per_token_head"),
                          ({"kv_cache_dtype": "nvfp4"}, "scales of tensors or of heads"),
                          ({"kv_cache_dtype": "float16"}, "only of the model's type"),
                          ({"kv_cache_dtype": "fp8", "head_size": 512}, "qk_depth"),
                          ({"use_mla": True}, "MLA"), ({"use_sparse": True}, "sparse"),
                          ({"use_mm_prefix": True}, "multimodal"),
                          ({"attn_type": "encoder"}, "encoder"), ({"use_dcp": True}, "DCP"),
                          ({"capability": DeviceCapability(8, 0)}, "compute capability"),
                          ({"block_size": 8}, "block_size")):
        found = reasons(**changes)
        assert any(text in one for one in found), f"{changes}: {found}"
    for capability in (HOPPER, DeviceCapability(10, 0)):
        assert reasons(capability, head_size=256) == []
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


def metadata(builder, rows, keys):
    offsets = torch.tensor([0, *rows]).cumsum(0).to(torch.int32)
    table = torch.zeros(len(rows), 5, dtype=torch.int32)
    pages = iter(torch.randperm(PAGES).tolist())
    for request, count in enumerate(keys):
        for i in range(-(-count // PAGE)):
            table[request, i] = next(pages)
    return builder.build(0, CommonAttentionMetadata(
        query_start_loc=offsets, query_start_loc_cpu=offsets,
        seq_lens=torch.tensor(keys, dtype=torch.int32), num_reqs=len(rows),
        num_actual_tokens=sum(rows), max_query_len=max(rows), max_seq_len=max(keys),
        block_table_tensor=table, slot_mapping=torch.zeros(sum(rows), dtype=torch.int64)))


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
                               (5, 7.0, torch.randn(HEADS))):
        impl = AttnjitImpl(HEADS, DEPTH, 0.3, KV_HEADS, None, window, "auto", cap, sinks=sinks)
        builder = builder_of(impl, layer, torch.bfloat16)
        assert reference.ON_GPU or [not one.get("ragged") for one in prewarmed] == [True, False]
        assert not impl.supports_quant_query_input
        for layout in KVCacheLayout:
            cache = cache_of(layout)
            # Prompts, chunks and decodes; decodes alone; a graph's padding: no rows and no keys.
            for rows, keys in (([7, 1, 20], [7, 33, 40]), ([1, 1], [17, 40]),
                               ([3, 1, 0, 0], [20, 9, 0, 0])):
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
                                      == (set(rows) == {1}))
        moved = builder.update_block_table(step, step.block_table + 1, step.slot_mapping)
        assert torch.equal(moved.block_table, step.block_table + 1)
        assert (impl.forward(layer, q, None, None, cache, None, out) == 0).all()
        if reference.ON_GPU:
            graph(builder, impl, layer, cache, window, cap, sinks)
    for options, text in ((dict(alibi_slopes=[1.0] * HEADS), "ALiBi"),
                          (dict(kv_cache_dtype="fp8_e5m2"), "fp8_e5m2"),
                          (dict(attn_type="encoder"), "encoder")):
        try:
            AttnjitImpl(HEADS, DEPTH, 0.3, **options)
        except NotImplementedError as error:
            assert text in str(error)
        else:
            raise AssertionError(f"{options} were taken")


def builder_of(impl, layer, cache_dtype):
    """A builder of a bf16 model with one layer; `prewarmed` has the specs that it asked for."""
    layer.impl = impl
    config = types.SimpleNamespace(
        compilation_config=types.SimpleNamespace(static_forward_context={"layer": layer}),
        model_config=types.SimpleNamespace(dtype=torch.bfloat16))
    spec = types.SimpleNamespace(block_size=PAGE, dtype=cache_dtype)
    prewarmed.clear()
    return AttnjitBackend.get_builder_cls()(spec, ["layer"], config, torch.get_default_device())


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
            assert kinds == ["e4m3" if impl.supports_quant_query_input else "bf16",
                             None if impl.supports_quant_query_input else "e4m3", "bf16",
                             "head" if of_heads else "tensor"], spec
        assert reference.ON_GPU or len(prewarmed) == 2, prewarmed
        assert impl.supports_quant_query_input == (arch == "sm_100a")
        for layout, (rows, keys) in itertools.product(
                KVCacheLayout, (([7, 1, 20], [7, 33, 40]), ([1, 1], [17, 40]), ([3, 1, 0], [20, 9, 0]))):
            cache, step = cache_of(layout, True), metadata(builder, rows, keys)
            q = torch.randn(sum(rows) + 2, HEADS, DEPTH, dtype=reference.DTYPE)
            out = torch.full((len(q), HEADS * DEPTH), 9.0, dtype=q.dtype)
            q = q.to(E4M3) if impl.supports_quant_query_input else q
            impl.forward(layer, q, None, None, cache, step, out)
            right = expected(q, cache, step, rows, keys, 5, 7.0, impl.sinks, layer)
            got = out[:sum(rows)].view(-1, HEADS, DEPTH).float()
            # NOTE: kernels of e4m3 Q round the probabilities to e4m3, too.
            bound = 0.25 if reference.ON_GPU and q.dtype is E4M3 else 3 * reference.TOLERANCE
            error = (got - right).abs().max()
            assert error < bound, (arch, layout, rows, error)
            quantised = torch.zeros(out.shape).to(E4M3)
            impl.forward(layer, q, None, None, cache, step, quantised, torch.full((1,), 0.01))
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

    vllm_backend._tell_monitor(event)  # it is not active
    step()
    jit_monitor._active, jit_monitor._mode = True, "error"
    vllm_backend._tell_monitor(event)
    try:
        step()
    except RuntimeError as error:
        assert "attnjit" in str(error) and "abab" in str(error), error
    else:
        raise AssertionError("a compile during inference was taken")
    step()
    jit_monitor._active, jit_monitor._mode = False, "warn"


def ready(tensors, fields, number, stream, q_len, kv_len, fallback):
    """Stands for the queue of compiles."""
    reference._launch.check(tensors, fields, q_len, kv_len)
    prewarmed.append(reference._launch.spec_of(tensors, fields, "sm_90a"))
    return False


prewarmed = []
reference.install()
if not reference.ON_GPU:
    reference._launch.prepare = ready
torch.manual_seed(0)
answers()
layers()
eight_bits()
monitor()
import vllm  # noqa: E402
print(f"vllm {vllm.__version__} on {torch.get_default_device()}: all right")
