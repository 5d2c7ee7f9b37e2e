# SPDX-License-Identifier: Apache-2.0
"""attnjit's backend inside the real vLLM package, on the CPU with a reference at the launch: its
registration, its answers, its metadata, and the attention of each layout of vLLM's cache."""
import types

import torch
from vllm.platforms.interface import DeviceCapability
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.registry import AttentionBackendEnum
from vllm.v1.kv_cache_layout import KVCacheLayout

import reference
from attnjit.integrations import vllm as integration
from attnjit.integrations.vllm_backend import AttnjitBackend, AttnjitImpl

HEADS, KV_HEADS, DEPTH, PAGE, PAGES = 4, 2, 16, 16, 12
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
    for changes, text in (({"head_size": 512}, "head_size"), ({"dtype": torch.float32}, "dtype"),
                          ({"kv_cache_dtype": "fp8"}, "kv_cache_dtype"),
                          ({"use_mla": True}, "MLA"), ({"use_sparse": True}, "sparse"),
                          ({"use_mm_prefix": True}, "multimodal"),
                          ({"attn_type": "encoder"}, "encoder"), ({"use_dcp": True}, "DCP"),
                          ({"capability": DeviceCapability(8, 0)}, "compute capability"),
                          ({"block_size": 8}, "block_size"),
                          ({"capability": DeviceCapability(10, 0), "head_size": 256}, "attnjit: ")):
        found = reasons(**changes)
        assert any(text in one for one in found), f"{changes}: {found}"


def cache_of(layout):
    """vLLM's view of a layer's cache, [pages, heads, page, content], as the layout has it in memory
    with two layers: the second one's."""
    sizes = {"L": 2, "B": PAGES, "H": KV_HEADS, "N": PAGE, "C": 2 * DEPTH}
    names = layout.name
    memory = torch.randn([sizes[name] for name in names])
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


def expected(q, cache, step, rows, keys, window, cap, sinks):
    out, begin = [], 0
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
        context = {"layer": types.SimpleNamespace(impl=impl)}
        config = types.SimpleNamespace(
            compilation_config=types.SimpleNamespace(static_forward_context=context))
        spec = types.SimpleNamespace(block_size=PAGE, dtype=torch.bfloat16)
        prewarmed.clear()
        builder = AttnjitBackend.get_builder_cls()(spec, ["layer"], config, torch.device("cpu"))
        assert [decode for decode in prewarmed] == [True, False], prewarmed
        for layout in KVCacheLayout:
            cache = cache_of(layout)
            # Prompts, chunks and decodes; decodes alone; a graph's padding: no rows and no keys.
            for rows, keys in (([7, 1, 20], [7, 33, 40]), ([1, 1], [17, 40]),
                               ([3, 1, 0, 0], [20, 9, 0, 0])):
                step = metadata(builder, rows, keys)
                q = torch.randn(sum(rows) + 2, HEADS, DEPTH)  # vLLM pads the tokens, too
                out = torch.full((sum(rows) + 2, HEADS * DEPTH), 9.0)
                reference.calls.clear()
                impl.forward(layer, q, None, None, cache, step, out)
                right = expected(q, cache, step, rows, keys, window, cap, sinks)
                got = out[:sum(rows)].view(-1, HEADS, DEPTH)
                assert torch.allclose(got, right, atol=1e-5), (layout, rows, (got - right).abs().max())
                assert (out[sum(rows):] == 9).all(), "wrote past the tokens"
                assert ("max_q_len" in reference.calls[0]) == (set(rows) == {1}), reference.calls
        moved = builder.update_block_table(step, step.block_table + 1, step.slot_mapping)
        assert torch.equal(moved.block_table, step.block_table + 1)
        assert (impl.forward(layer, q, None, None, cache, None, out) == 0).all()
    for options, text in ((dict(alibi_slopes=[1.0] * HEADS), "ALiBi"),
                          (dict(attn_type="encoder"), "encoder")):
        try:
            AttnjitImpl(HEADS, DEPTH, 0.3, **options)
        except NotImplementedError as error:
            assert text in str(error)
        else:
            raise AssertionError(f"{options} were taken")


def ready(tensors, fields, number, stream, q_len, kv_len):
    """Stands for the queue of compiles."""
    reference._launch.check(tensors, q_len, kv_len)
    prewarmed.append(tensors.q_offsets is None)
    return False


prewarmed = []
reference.install()
reference._launch.prepare = ready
torch.manual_seed(0)
answers()
layers()
import vllm  # noqa: E402
print(f"vllm {vllm.__version__}: all right")
