# SPDX-License-Identifier: Apache-2.0
"""attnjit's backend inside the real SGLang package, on the CPU with a reference at the launch: its
registration, its refusals, its page tables, graphs' padding, drafts, and the attention of each kind
of layer over SGLang's own pools.

With ATTNJIT_TEST_DEVICE=cuda the kernels run, SGLang's kernel of page tables too, and a decode is
captured and replayed. SGLang is imported as on the CPU: its own CUDA library is not needed.
"""
import argparse
import contextlib
import importlib.metadata
import itertools
import json
import os
import pathlib
import sys
import tempfile
import types
import unittest.mock

import msgspec
import torch

import attnjit
import mla_reference
import reference

# NOTE: before SGLang is imported.
if not reference.ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
have_gpu, torch.cuda.is_available = torch.cuda.is_available, lambda: False

from sglang.srt.layers.attention import attention_registry  # noqa: E402
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention  # noqa: E402
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import ForwardMode  # noqa: E402
from sglang.srt.plugins import load_plugins  # noqa: E402
from sglang.srt.plugins.hook_registry import HookRegistry  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402

torch.cuda.is_available = have_gpu
from attnjit import _mla  # noqa: E402
from attnjit.integrations import sglang as integration  # noqa: E402
from attnjit.integrations import _layers, _recorded, sglang_backend, sglang_drafts, sglang_service  # noqa: E402
from attnjit.integrations import sglang_tables  # noqa: E402

ATTENTION_BACKEND_CHOICES = integration._module_of_lists().ATTENTION_BACKEND_CHOICES

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "python/backend"))
import attnjit_build  # noqa: E402

HEADS, KV_HEADS, DEPTH, SLOTS, LONGEST = 4, 2, 16, 512, 96
DEVICE = "cuda" if reference.ON_GPU else "cpu"
E4M3 = torch.float8_e4m3fn


def layer_of(number=0, **options):
    return RadixAttention(HEADS, DEPTH, 0.3, KV_HEADS, number, **options)


def runner_of(page_size, layers, windows=(), **changes):
    """What a model runner has for a backend: SGLang's own pools, on the CPU."""
    common = dict(page_size=page_size, dtype=changes.get("kv_cache_dtype", torch.bfloat16),
                  head_num=KV_HEADS, head_dim=DEPTH, device=DEVICE, enable_memory_saver=False)
    if windows:
        pool = SWAKVPool(SLOTS, SLOTS, swa_attention_layer_ids=list(windows),
                         full_attention_layer_ids=[one.layer_id for one in layers
                                                   if one.layer_id not in windows], **common)
        pool.full_to_swa_index_mapping = torch.cat(
            [torch.randperm(SLOTS // page_size).repeat_interleave(page_size) * page_size
             + torch.arange(SLOTS) % page_size, torch.tensor([-1])])
    else:
        pool = MHATokenToKVPool(SLOTS, layer_num=len(layers), **common)
    model = torch.nn.Module()
    model.block = torch.nn.Module()
    for i, layer in enumerate(layers):
        setattr(model.block, f"attn{i}", layer)
    config = types.SimpleNamespace(is_encoder_decoder=False, context_len=LONGEST,
                                   hf_config=types.SimpleNamespace())
    runner = types.SimpleNamespace(
        model=model, model_config=config, use_mla_backend=False, page_size=page_size,
        spec_algorithm=algorithm(), device=DEVICE, server_args=types.SimpleNamespace(),
        dtype=torch.bfloat16, kv_cache_dtype=torch.bfloat16, token_to_kv_pool=pool,
        req_to_token_pool=ReqToTokenPool(8, LONGEST, DEVICE, False), attention_chunk_size=8)
    for name, value in changes.items():
        setattr(runner, name, value)
    return runner


SPEC = types.SimpleNamespace(speculative_num_draft_tokens=None, speculative_eagle_topk=None)
SCHEDULE = types.SimpleNamespace(chunked_prefill_size=8192, max_prefill_tokens=16384)
EXEC = types.SimpleNamespace(
    deterministic=types.SimpleNamespace(enable_deterministic_inference=False))


def algorithm(name=None):
    return types.SimpleNamespace(is_none=lambda: name is None, is_ngram=lambda: name == "ngram")


def registration():
    """As SGLang finds the plug-in in an installed wheel, and as its command line then takes it."""
    with tempfile.TemporaryDirectory() as folder:
        info = pathlib.Path(folder, "attnjit-0.dist-info")
        info.mkdir()
        info.joinpath("METADATA").write_text("Metadata-Version: 2.1\nName: attnjit\nVersion: 0\n")
        info.joinpath("entry_points.txt").write_text(attnjit_build.entry_points())
        sys.path.insert(0, folder)
        load_plugins()
        sys.path.remove(folder)
    assert ATTENTION_BACKEND_CHOICES.count("attnjit") == 1, ATTENTION_BACKEND_CHOICES
    integration.register()
    assert ATTENTION_BACKEND_CHOICES.count("attnjit") == 1
    parser = argparse.ArgumentParser()
    ServerArgs.add_cli_args(parser)
    arguments = parser.parse_args(["--model-path", "x", "--attention-backend", "attnjit"])
    assert arguments.attention_backend == "attnjit"
    for name, architecture, lent in (
            ("attention_backend", "GptOssForCausalLM", "triton"),
            ("attention_backend", "Lfm2ForCausalLM", "attnjit"),
            ("decode_attention_backend", "Llama4ForCausalLM", "triton")):
        made = arguments_of(ServerArgs)
        force(made, name, "attnjit")
        seen = []
        with unittest.mock.patch.object(integration, "_architecture", lambda given: architecture):
            integration.as_one_of_its_own(lambda given: seen.append(getattr(given, name)), made)
            assert seen == [lent] and getattr(made, name) == "attnjit", (seen, name)
            force(made, "_resolved_overrides", [("a model's", {name: "dsv4"})])
            try:
                integration.as_one_of_its_own(lambda given: None, made)
            except ValueError as error:
                assert "takes dsv4" in str(error) and "\n" not in str(error), error
            else:
                raise AssertionError("another backend was taken")
        assert getattr(made, name) == "attnjit", name
    force(made, "model_path", "instance://a")  # which SGLang reads later
    assert integration._architecture(made) == ""
    hybrids()
    backend = attention_registry.ATTENTION_BACKENDS["attnjit"](runner_of(16, [layer_of()]))
    assert isinstance(backend, sglang_backend.AttnjitAttnBackend)


def hybrids():
    """SGLang's own wrapper of hybrid models takes this backend on Blackwell, where it has a list."""
    HookRegistry.apply_hooks()
    arguments = arguments_of(ServerArgs)
    force(arguments, "attention_backend", "attnjit")
    runner = types.SimpleNamespace(
        server_args=arguments, use_mla_backend=False, prefill_attention_backend_str="attnjit",
        decode_attention_backend_str="attnjit", model_config=types.SimpleNamespace(
            hf_config=types.SimpleNamespace(architectures=[]), hf_text_config=None))
    class Taken(Exception):
        pass

    def taken(runner):
        raise Taken

    with contextlib.ExitStack() as patches:
        def patch(name, **names):
            where = importlib.import_module(f"sglang.srt.{name}")
            for each, value in names.items():
                patches.enter_context(unittest.mock.patch.object(where, each, value, create=True))

        patch("utils", is_blackwell=lambda: True, is_sm120_supported=lambda: False)
        patch("layers.attention.attention_registry", mambaish_config=lambda config: config,
              hybrid_gdn_config=lambda config: config)
        patch("layers.attention.linear.utils", resolve_linear_attn_backends=lambda **given: None,
              initialize_linear_attn_config=lambda *given, **more: None)
        patch("layers.attention.linear.gdn_backend", GDNAttnBackend=taken,
              flashinfer_gdn_prefill_default=lambda runner: None)
        try:
            attention_registry.attn_backend_wrapper(runner, None)
        except Taken:
            pass
        else:
            raise AssertionError("a hybrid model has no other backend")
    assert runner.prefill_attention_backend_str == arguments.attention_backend == "attnjit"


def arguments_of(kind):
    """Arguments that nothing has looked at."""
    return kind(model_path="x") if issubclass(kind, msgspec.Struct) else object.__new__(kind)


def force(made, name, value):
    base = msgspec.Struct if isinstance(made, msgspec.Struct) else object
    base.__setattr__(made, name, value)


def refusals():
    layer = [layer_of()]
    encoder = types.SimpleNamespace(is_encoder_decoder=True, hf_config=None)
    lists = types.SimpleNamespace(is_encoder_decoder=False, index_topk=2048, hf_config=None)
    deep = layer_of()
    deep.qk_head_dim = deep.v_head_dim = 520
    ahead = layer_of(attn_type=AttentionType.DECODER_BIDIRECTIONAL)
    minicpm3 = types.SimpleNamespace(is_encoder_decoder=False, hf_config=None, kv_lora_rank=256,
                                     qk_rope_head_dim=32)
    for layers_of_it, changes, text in (
            (layer, dict(model_config=encoder), "--page-size 1"),
            (layer, dict(model_config=minicpm3, use_mla_backend=True), "rope"),
            (layer, dict(model_config=lists), "but those of DSA"),
            (layer, dict(dtype=torch.float32), "torch.float32"),
            (layer, dict(kv_cache_dtype=torch.float8_e5m2), "float8_e5m2"),
            (layer, dict(kv_cache_dtype=E4M3, kv_cache_dtype_str="mxfp8"), "mxfp8"),
            (layer, dict(kv_index_translator=types.SimpleNamespace(is_translating=True)),
             "unified"),
            (layer, dict(server_args=types.SimpleNamespace(dcp_size=2)), "context parallelism"),
            (layer, dict(server_args=types.SimpleNamespace(attn_cp_size=2)), "context parallelism"),
            (layer, dict(server_args=types.SimpleNamespace(dllm_algorithm="x")), "diffuse"),
            ([deep], {}, "depth"), ([ahead], {}, "ahead"),
            ([layer_of(pos_encoding_mode="ALIBI")], {}, "ALIBI"),
            ([layer_of(logit_cap=5.0, logit_capping_method="clip")], {}, "clip")):
        try:
            integration.create(runner_of(16, layers_of_it, **changes))
        except ValueError as error:
            assert text in str(error) and "attnjit" in str(error), error
            assert "\n" not in str(error), error
        else:
            raise AssertionError(f"{changes} was taken")
    sglang_backend._arch = lambda runner: None
    try:
        integration.create(runner_of(16, layer))
    except ValueError as error:
        assert "sm_90" in str(error)
    else:
        raise AssertionError("an unknown GPU was taken")
    sglang_backend._arch = lambda runner: "sm_90a"
    # Pages of e4m3 have any number of rows.
    integration.create(runner_of(4, layer, kv_cache_dtype=E4M3))


def hybrid_layers():
    """SGLang's own backend of hybrid models has this one for their layers of attention."""
    from sglang.srt.layers.attention.hybrid_linear_attn_backend import HybridLinearAttnBackend
    from sglang.srt.mem_cache.memory_pool import HybridLinearKVPool

    layer = layer_of(3)
    for dtype in (torch.bfloat16, E4M3):
        pool = HybridLinearKVPool(SLOTS, dtype, 16, KV_HEADS, DEPTH, [layer.layer_id], DEVICE, None)
        runner = runner_of(16, [layer], token_to_kv_pool=pool, kv_cache_dtype=dtype)
        backend = integration.create(runner)
        others = types.SimpleNamespace(needs_cpu_seq_lens=False, init_forward_metadata=id,
                                       supports_prefill_graph_extend=lambda: False)
        hybrid = HybridLinearAttnBackend(backend, others, [layer.layer_id])
        for mode, rows, keys in ((ForwardMode.EXTEND, [7, 20], [7, 90]),
                                 (ForwardMode.DECODE, [1, 1], [17, 64])):
            batch = batch_of(runner, mode, rows, keys)
            hybrid.init_forward_metadata(batch)
            check(runner, hybrid.full_attn_backend, layer, batch, rows, keys)


def sinks_at_start():
    """Kernels of layers with sinks (gpt-oss, MiMo) are asked for with them."""
    for name in ("sinks", "attention_sink_bias"):
        runner = runner_of(16, [layer_of()])
        setattr(runner.model.block, name, torch.nn.Parameter(torch.zeros(HEADS)))
        prewarmed.clear()
        integration.create(runner)
        assert prewarmed and all(spec.get("sink") for spec in prewarmed), (name, prewarmed)


def batch_of(runner, mode, rows, keys):
    """A batch whose request b has keys[b] keys, of which the last rows[b] are this step's."""
    page, requests = runner.page_size, []
    tokens = runner.req_to_token_pool.req_to_token
    free = iter((torch.randperm(SLOTS // page - 1) + 1).tolist())
    for b, count in enumerate(keys):
        row = b + 1 if rows[b] or count else 0  # what pads a graph is request 0
        requests.append(row)
        for at in range(0, count if row else 0, page):
            end = min(at + page, tokens.shape[1])
            tokens[row, at:end] = (next(free) * page + torch.arange(page))[:end - at]
    loc = [tokens[row, count - new:count] for row, new, count in zip(requests, rows, keys) if row]
    return types.SimpleNamespace(
        forward_mode=mode, batch_size=len(rows), req_pool_indices=torch.tensor(requests),
        seq_lens=torch.tensor(keys), extend_seq_lens=torch.tensor(rows), extend_seq_lens_cpu=rows,
        out_cache_loc=torch.cat(loc).long(), out_cache_loc_is_physical=True)


def expected(q, k, v, runner, batch, rows, keys, layer, earlier, sinks, seen=None):
    """[rows, heads, depth] from what the cache's pages hold, with this step's rows written."""
    out, begin = [], 0
    window = layer.sliding_window_size + 1 if layer.sliding_window_size >= 0 else None
    for b, (count, length) in enumerate(zip(rows, keys)):
        if not count:
            continue
        slots = runner.req_to_token_pool.req_to_token[int(batch.req_pool_indices[b]), :length]
        all_k, all_v = (torch.cat([old[slots[:length - count].long()], new[begin:begin + count]])
                        for old, new in zip(earlier, (k, v)))
        at, key = torch.arange(count)[:, None] + length - count, torch.arange(length)[None, :]
        visible = key <= at
        if seen is not None:
            visible = seen(b, at, key)
        elif layer.attn_type == AttentionType.ENCODER_ONLY:
            visible = torch.ones_like(visible)
        elif layer.use_irope:
            visible &= at // 8 == key // 8
        elif window:
            visible &= key > at - window
        out.append(reference.attend(q[begin:begin + count], all_k, all_v, visible, 0.3,
                                    layer.logit_cap or None, sinks)[0])
        begin += count
    return torch.cat(out)


def check(runner, backend, layer, batch, rows, keys, sinks=None, visible=None):
    """A layer over a batch whose metadata is made: what was in the cache stays, the rest is right."""
    pool, total = runner.token_to_kv_pool, sum(rows)
    windowed = isinstance(pool, SWAKVPool) and pool.layers_mapping[layer.layer_id][1]
    eight = pool.dtype is E4M3
    scales = [1.0 if one is None or not eight else float(one)
              for one in (layer.k_scale, layer.v_scale)]
    for one in pool.get_kv_buffer(layer.layer_id):
        one.copy_(torch.randn(one.shape))
    earlier = [one.float() * scale
               for one, scale in zip(pool.get_kv_buffer(layer.layer_id), scales)]
    if windowed:  # by the slots of the whole pool, as a request's table has them
        earlier = [one[pool.full_to_swa_index_mapping[:SLOTS]] for one in earlier]
    q, k, v = (torch.randn(total, heads, DEPTH, dtype=torch.bfloat16)
               for heads in (HEADS, KV_HEADS, KV_HEADS))
    k_given, v_given = k.clone(), v.clone()  # SGLang divides them in place
    padded = torch.cat([q, q.new_zeros(rows.count(0), HEADS, DEPTH)])  # a graph's padding
    ragged = backend.forward_metadata.q_offsets is not None
    call = backend.forward_decode if batch.forward_mode.is_decode() else backend.forward_extend
    got = call(padded.flatten(1), k, v, layer, batch, **({} if sinks is None else
                                                         {"sinks": sinks}))
    rounds_q = eight and any(kind.rounds_q for key, kind in backend._kinds.items()
                             if key[0] == layer.layer_id and key[2] == ragged)
    if eight:  # what was written is rounded
        k, v = ((x / scale).to(E4M3).float() * scale for x, scale in zip((k_given, v_given), scales))
        if rounds_q:
            q = q.to(E4M3)
    right = expected(q, k.float(), v.float(), runner, batch, rows, keys, layer, earlier, sinks,
                     visible)
    error = (got[:total].view(-1, HEADS, DEPTH).float() - right).abs().max()
    # NOTE: kernels of e4m3 Q round the probabilities to e4m3, too.
    bound = 2e-2 if not eight else 0.25 if reference.ON_GPU and rounds_q else 4e-2
    assert error < bound, (layer.layer_id, rows, keys, error)


def layers():
    kinds = [layer_of(0), layer_of(1, sliding_window_size=4), layer_of(2, logit_cap=7.0),
             layer_of(3, use_irope=True), layer_of(4, attn_type=AttentionType.ENCODER_ONLY)]
    for page_size in (1, 16, 64):
        for windows in ((), (1,)):
            prewarmed.clear()
            runner = runner_of(page_size, kinds, windows)
            backend = integration.create(runner)
            for rows, keys in (([7, 1, 20], [7, 33, 90]), ([1, 40], [96, 40])):
                batch = batch_of(runner, ForwardMode.EXTEND, rows, keys)
                backend.init_forward_metadata(batch)
                for layer in kinds:
                    reference.calls.clear()
                    check(runner, backend, layer, batch, rows, keys)
                    reference.check_calls(lambda: "max_q_len" not in reference.calls[0])
            rows, keys = [1, 1, 1], [17, 64, 1]
            batch = batch_of(runner, ForwardMode.DECODE, rows, keys)
            backend.init_forward_metadata(batch)
            reference.calls.clear()
            check(runner, backend, kinds[0], batch, rows, keys, torch.randn(HEADS))
            check(runner, backend, kinds[1], batch, rows, keys)
            reference.check_calls(lambda: reference.calls[0]["max_q_len"] == 1)
            graphs(runner, backend, kinds)
            if reference.ON_GPU:
                replayed(runner, backend, kinds)
    try:
        backend.forward_decode(torch.zeros(1, HEADS * DEPTH), None, None, kinds[0], batch,
                               rel_bias=torch.zeros(1))
    except NotImplementedError as error:
        assert "rel_bias" in str(error)
    else:
        raise AssertionError("rel_bias was taken")
    backend.init_forward_metadata(types.SimpleNamespace(
        forward_mode=ForwardMode.IDLE, batch_size=0, seq_lens=torch.zeros(0),
        req_pool_indices=torch.zeros(0), out_cache_loc=None))


def images():
    """Rows of images see all of theirs: the mask that SGLang's Gemma 3 writes, where it takes this
    backend; beside a window, behind a prefix, and in the same batch as text."""
    from sglang.srt.models import gemma3_mm

    kinds = [layer_of(0), layer_of(1, sliding_window_size=9)]
    for kind, cache in itertools.product(((), (1,)), (torch.bfloat16, E4M3)):
        prewarmed.clear()
        runner = runner_of(16, kinds, kind, kv_cache_dtype=cache)
        runner.model.prepare_attn_masks = None  # as a model has it that masks images
        backend = integration.create(runner)
        asked = [spec["mask"]["name"] for spec in prewarmed if isinstance(spec["mask"], dict)
                 and spec["mask"]["kind"] == "custom"]
        assert asked == ["images"] * 2, prewarmed
        rows, keys, spans = [30, 9, 1], [41, 9, 20], [[(12, 26), (30, 33), (3, 5)], [], []]
        batch = batch_of(runner, ForwardMode.EXTEND, rows, keys)
        batch.extend_prefix_lens = batch.seq_lens - batch.extend_seq_lens
        batch.mm_inputs = [types.SimpleNamespace(mm_items=[
            types.SimpleNamespace(is_image=lambda: True, offsets=one)]) for one in spans]
        backend.init_forward_metadata(batch)
        gemma3_mm.get_attn_backend = lambda: backend
        gemma3_mm.Gemma3ForConditionalGeneration.prepare_attn_masks(
            None, batch, torch.zeros(sum(rows), device=DEVICE), torch.bool)

        def seen(b, at, key, window):
            visible = key <= at
            for begin, end in spans[b]:
                if begin >= keys[b] - rows[b]:
                    visible = visible | ((at >= begin) & (at <= end) & (key >= begin) & (key <= end))
            return visible & (key >= at - window) if window >= 0 else visible

        for layer in kinds:
            check(runner, backend, layer, batch, rows, keys, visible=lambda b, at, key, layer=layer:
                  seen(b, at, key, layer.sliding_window_size))
        backend.init_forward_metadata(batch)  # a step without images is causal again
        check(runner, backend, kinds[0], batch, rows, keys)


def compiled():
    """--enable-torch-compile leaves a layer as it is."""
    kind = layer_of(0)
    runner = runner_of(16, [kind])
    backend = integration.create(runner)
    for mode, rows, call in ((ForwardMode.DECODE, [1, 1], backend.forward_decode),
                             (ForwardMode.EXTEND, [3, 8], backend.forward_extend)):
        batch = batch_of(runner, mode, rows, [17, 8])
        backend.init_forward_metadata(batch)
        q = torch.randn(sum(rows), HEADS * DEPTH, dtype=torch.bfloat16, device=DEVICE)
        k, v = torch.randn(2, sum(rows), KV_HEADS, DEPTH, dtype=torch.bfloat16, device=DEVICE)

        def step(q, call=call, k=k, v=v, batch=batch):
            return call(q * 2, k, v, kind, batch) + 1

        assert torch.equal(torch.compile(step, backend="eager", dynamic=True)(q), step(q))


def eight_bits():
    """Pools of e4m3, of layers with scales, with plain numbers for them, with one for V alone, and
    with none. Q keeps its type where a kernel takes that."""
    kinds = [layer_of(0), layer_of(1, sliding_window_size=4), layer_of(2, logit_cap=7.0),
             layer_of(3, logit_cap=9.0)]
    kinds[0].k_scale, kinds[0].v_scale = (torch.nn.Parameter(torch.tensor(one), requires_grad=False)
                                          for one in (0.6, 1.7))
    kinds[1].k_scale, kinds[1].v_scale = 1.4, 0.8
    kinds[3].v_scale = 1.3
    for arch, (page_size, windows) in itertools.product(("sm_90a", "sm_100a"),
                                                        ((16, ()), (64, (1,)))):
        sglang_backend._arch = lambda runner, arch=arch: arch
        prewarmed.clear()
        runner = runner_of(page_size, kinds, windows, kv_cache_dtype=E4M3)
        backend = integration.create(runner)
        assert prewarmed
        for spec in prewarmed:
            kinds_of = [spec.get(name) for name in ("qkv_dtype", "kv_dtype", "scales")]
            rounds = arch == "sm_100a" or "ragged" in spec
            assert kinds_of == (["e4m3", None, "tensor"] if rounds
                                else ["bf16", "e4m3", "tensor"]), spec
            assert spec["output_dtype"] == "bf16"
        for mode, rows, keys in ((ForwardMode.EXTEND, [7, 1, 20], [7, 33, 90]),
                                 (ForwardMode.DECODE, [1, 1, 1], [17, 64, 1])):
            batch = batch_of(runner, mode, rows, keys)
            backend.init_forward_metadata(batch)
            for layer in kinds:
                check(runner, backend, layer, batch, rows, keys)
        graphs(runner, backend, kinds)
    sglang_backend._arch = lambda runner: "sm_90a"


def graphs(runner, backend, kinds):
    """Captured decodes read one memory, whose content each replay makes again."""
    backend.init_cuda_graph_state(6, 6)
    seen = set()
    for count, keys, in_capture in ((4, [1, 1, 1, 1], True), (2, [1, 1], True),
                                    (4, [17, 96, 30, 5], False), (2, [90, 1], False)):
        rows = [1] * count
        batch = batch_of(runner, ForwardMode.DECODE, rows, keys)
        backend.init_forward_metadata_out_graph(batch, in_capture=in_capture)
        backend.init_forward_metadata_in_graph(batch)
        step = backend.forward_metadata
        seen.add((step.page_table.data_ptr(), step.kv_lens.data_ptr()))
        check(runner, backend, kinds[0], batch, rows, keys)
        check(runner, backend, kinds[1], batch, rows, keys)
    assert len(seen) == 1, "a replay would read another memory than the capture"
    # Requests that pad a graph: row 0 of the requests, one key.
    keys = [17, 96, 1, 1]
    batch = batch_of(runner, ForwardMode.DECODE, [1, 1, 0, 0], [17, 96, 0, 0])
    batch.seq_lens = torch.tensor(keys)
    backend.init_forward_metadata_out_graph(batch)
    backend.init_forward_metadata_in_graph(batch)
    check(runner, backend, kinds[0], batch, [1, 1, 0, 0], [17, 96, 0, 0])


def replayed(runner, backend, kinds):
    """A decode that the GPU replays makes lengths and tables again, and reads what they say."""
    backend.init_cuda_graph_state(2, 2)
    batch = batch_of(runner, ForwardMode.DECODE, [1, 1], [40, 3])
    q = torch.randn(2, HEADS * DEPTH, dtype=torch.bfloat16)

    def step():
        backend.init_forward_metadata_in_graph(batch)
        return [backend.forward_decode(q, None, None, layer, batch) for layer in kinds[:2]]

    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    step()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        outs = step()
    for keys in ([96, 17], [1, 64]):
        other = batch_of(runner, ForwardMode.DECODE, [1, 1], keys)
        batch.seq_lens.copy_(other.seq_lens)
        batch.req_pool_indices.copy_(other.req_pool_indices)
        captured.replay()
        for layer, out in zip(kinds, outs):
            pool = runner.token_to_kv_pool
            cache = pool.get_kv_buffer(layer.layer_id)
            if isinstance(pool, SWAKVPool) and pool.layers_mapping[layer.layer_id][1]:
                cache = [one[pool.full_to_swa_index_mapping[:SLOTS]] for one in cache]
            for b, length in enumerate(keys):
                row = runner.req_to_token_pool.req_to_token[int(batch.req_pool_indices[b])]
                k, v = (one[row[:length].long()] for one in cache)
                key = torch.arange(length)[None, :]
                seen = key > length - 2 - (layer.sliding_window_size if layer.layer_id else length)
                right = reference.attend(q[b].view(1, HEADS, DEPTH), k, v, seen, 0.3)[0]
                assert (out[b].view(1, HEADS, DEPTH) - right).abs().max() < 3e-2, (keys, b)


def verified():
    """Drafts that are verified: chains, and trees by a mask of drafts alone and of all keys; eagerly
    and by a graph's memory."""
    kinds = [layer_of(0), layer_of(1, sliding_window_size=12)]
    for name, topk, rows in (("eagle", 1, 4), ("eagle", 3, 6), ("ngram", None, 11),
                             ("ngram", None, 37)):
        SPEC.speculative_num_draft_tokens, SPEC.speculative_eagle_topk = rows, topk
        for windows in ((), (1,)):
            runner = runner_of(16, kinds, windows, spec_algorithm=algorithm(name))
            backend = integration.create(runner)
            backend.init_cuda_graph_state(4, 4 * rows)
            assert backend.verify_mask.is_read == backend.tree == (topk != 1)
            before = [30, 3, 17]
            keys = [count + rows for count in before]
            batch = batch_of(runner, ForwardMode.TARGET_VERIFY, [rows] * 3, keys)
            batch.seq_lens = torch.tensor(before)
            for graph, whole in ((False, False), (True, False), (False, True), (True, True)):
                parents = [[-1] + [int(torch.randint(0, i, ())) if topk != 1 else i - 1
                                   for i in range(1, rows)] for _ in before]
                seen = torch.zeros(3, rows, rows, dtype=torch.bool)
                depth = torch.zeros(3, rows, dtype=torch.int64)
                for b, one in enumerate(parents):
                    for i, parent in enumerate(one):
                        if parent >= 0:
                            seen[b, i], depth[b, i] = seen[b, parent], depth[b, parent] + 1
                        seen[b, i, i] = True
                mask = seen.flatten()
                if whole:
                    mask = torch.cat([torch.cat([torch.ones(rows, count, dtype=torch.bool), one], 1)
                                      .flatten() for count, one in zip(before, seen)])
                elif graph:
                    backend.verify_mask.buffer[:mask.numel()] = mask
                    mask = backend.verify_mask.buffer
                batch.spec_info = types.SimpleNamespace(custom_mask=mask)
                batch.positions = (torch.tensor(before)[:, None] + depth).flatten()
                if graph:
                    backend.init_forward_metadata_out_graph(batch)
                    backend.init_forward_metadata_in_graph(batch)
                else:
                    backend.init_forward_metadata(batch)
                for layer in kinds:
                    check(runner, backend, layer, batch, [rows] * 3, keys,
                          visible=lambda b, at, key, layer=layer: tree(
                              seen[b], before[b], depth[b], key,
                              layer.sliding_window_size if topk != 1 else -1, at, layer))
    SPEC.speculative_num_draft_tokens = SPEC.speculative_eagle_topk = None


def tree(seen, before, depth, key, window, at, layer):
    """[rows, keys] that rows of a tree see."""
    if window < 0 and layer.sliding_window_size < 0:
        past = torch.ones(len(depth), before, dtype=torch.bool)
    elif window < 0:  # a chain: by places, which are positions
        return (key <= at) & (key >= at - layer.sliding_window_size)
    else:
        past = before + depth[:, None] - key[:, :before] <= window
    return torch.cat([past, seen], 1)


def drafted():
    """The steps of a draft model: of one branch, and of several."""
    kinds = [layer_of(0), layer_of(1, sliding_window_size=9)]
    steps, before = 4, [20, 3]
    for topk, (page_size, windows), graph in itertools.product((1, 3), ((16, ()), (1, (1,))),
                                                               (False, True)):
        runner = runner_of(page_size, kinds, windows, spec_algorithm=algorithm("eagle"),
                           is_draft_worker=True)
        backend = sglang_drafts.AttnjitMultiStepDraftBackend(integration.create, runner, topk,
                                                             steps)
        assert len(backend.attn_backends) == steps - 1
        batch = batch_of(runner, ForwardMode.DECODE, [1, 1], [count + steps for count in before])
        batch.seq_lens = torch.tensor(before)
        slots = runner.req_to_token_pool.req_to_token
        free = set(range(1, SLOTS)) - set(slots.flatten().tolist())
        own = [slots[b + 1, count:count + steps].long() for b, count in enumerate(before)]
        branches = torch.stack([
            own[b] if topk == 1 else torch.tensor([free.pop() for _ in range(steps)])
            for b in range(2) for _ in range(topk)])
        batch.out_cache_loc = branches.flatten()
        if graph:
            backend.init_cuda_graph_state(3, 3 * topk)
            backend.init_forward_metadata_out_graph(batch, in_capture=True)
            backend.init_forward_metadata_in_graph(batch)
        else:
            backend.init_forward_metadata(batch)
        pool = runner.token_to_kv_pool
        for step, one in enumerate(backend.attn_backends):
            inner = types.SimpleNamespace(forward_mode=ForwardMode.DECODE,
                                          out_cache_loc=branches[:, step].clone(),
                                          out_cache_loc_is_physical=True)
            for layer in kinds:
                q, k, v = (torch.randn(2 * topk, heads, DEPTH, dtype=torch.bfloat16)
                           for heads in (HEADS, KV_HEADS, KV_HEADS))
                if topk > 1 and page_size > 1 and step > 0 and layer.layer_id:
                    continue
                got = one.forward_decode(q.flatten(1), k, v, layer, inner)
                cache = pool.get_kv_buffer(layer.layer_id)
                if windows and layer.layer_id in windows:
                    cache = [x[pool.full_to_swa_index_mapping[:SLOTS]] for x in cache]
                for row in range(2 * topk):
                    b = row // topk
                    at = torch.cat([slots[b + 1, :before[b]].long(), branches[row, :step + 1]])
                    assert torch.equal(cache[0][at[-1]], k[row]), (topk, step, row)
                    keys, values = (x[at] for x in cache)
                    seen = torch.arange(len(at))[None, :] > len(at) - 2 - (
                        layer.sliding_window_size if layer.layer_id else len(at))
                    right = reference.attend(q[row:row + 1], keys, values, seen, 0.3)[0]
                    error = (got[row].view(1, HEADS, DEPTH) - right).abs().max()
                    assert error < 2e-2, (topk, step, row, error)


def draft_prompts():
    """The step in which a draft model reads what was verified, eagerly and by a graph's memory."""
    kind = layer_of(0)
    SPEC.speculative_num_draft_tokens, SPEC.speculative_eagle_topk = 4, 1
    runner = runner_of(16, [kind], spec_algorithm=algorithm("eagle"), is_draft_worker=True)
    backend = integration.create(runner)
    rows, keys = [4, 4], [33, 9]
    batch = batch_of(runner, ForwardMode.DRAFT_EXTEND_V2, rows, keys)
    backend.init_forward_metadata(batch)
    check(runner, backend, kind, batch, rows, keys)
    batch.extend_seq_lens_cpu = None  # where SGLang knows no more than the bound
    backend.init_forward_metadata(batch)
    check(runner, backend, kind, batch, rows, keys)
    # What SGLang asks of a backend before it captures graphs of this step.
    from sglang.srt.layers.attention.triton_backend import TritonAttnBackend
    assert isinstance(backend, TritonAttnBackend)
    backend.init_cuda_graph_state(3, 12)
    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    backend.init_forward_metadata_in_graph(batch)
    check(runner, backend, kind, batch, rows, keys)
    # A request that pads a graph has more rows than keys.
    padded = batch_of(runner, ForwardMode.DRAFT_EXTEND_V2, [4, 4, 0], [33, 9, 0])
    padded.seq_lens[2], padded.extend_seq_lens[2] = 1, 4
    backend.init_forward_metadata_out_graph(padded)
    backend.init_forward_metadata_in_graph(padded)
    q, k, v = (torch.randn(12, heads, DEPTH, dtype=torch.bfloat16, device=DEVICE)
               for heads in (HEADS, KV_HEADS, KV_HEADS))
    padded.out_cache_loc = torch.nn.functional.pad(padded.out_cache_loc, (0, 4))
    out = backend.forward_extend(q.flatten(1), k, v, kind, padded)
    assert out.shape == (12, HEADS * DEPTH) and torch.isfinite(out[:8]).all()
    # Several layers of MTP have rows in front of the drafts, of which the step says how many.
    rows = [6, 6]
    batch = batch_of(runner, ForwardMode.DRAFT_EXTEND_V2, rows, keys)
    batch.extend_seq_lens_cpu = None
    batch.spec_info = types.SimpleNamespace(num_tokens_per_req=6, custom_mask=None)
    backend.init_forward_metadata(batch)
    check(runner, backend, kind, batch, rows, keys)
    backend.init_forward_metadata_out_graph(batch, in_capture=True)
    backend.init_forward_metadata_in_graph(batch)
    assert backend.forward_metadata.max_q_len == 6
    check(runner, backend, kind, batch, rows, keys)
    # And a draft model may verify fewer rows than the model does.
    batch = batch_of(runner, ForwardMode.TARGET_VERIFY, [3, 3], keys)
    batch.seq_lens = batch.seq_lens - 3
    batch.spec_info = types.SimpleNamespace(num_tokens_per_req=3, custom_mask=None)
    backend.init_forward_metadata(batch)
    check(runner, backend, kind, batch, [3, 3], keys)
    SPEC.speculative_num_draft_tokens = SPEC.speculative_eagle_topk = None


def deterministic():
    """A row's bits do not depend on its batch: one kernel, whose parts have as many keys."""
    EXEC.deterministic.enable_deterministic_inference = True
    kind = layer_of(0)
    runner = runner_of(16, [kind])
    prewarmed.clear()
    backend = integration.create(runner)
    assert [spec["partition_keys"] for spec in prewarmed] == [384], prewarmed
    batch = batch_of(runner, ForwardMode.DECODE, [1, 1], [40, 3])
    backend.init_forward_metadata(batch)
    reference.calls.clear()
    check(runner, backend, kind, batch, [1, 1], [40, 3])
    reference.check_calls(lambda: reference.calls[0]["partition_keys"] == 384)
    # Parts are longer where prompts are whole: the memory for their results is of as many rows.
    runner.model_config.context_len = 1 << 20
    SCHEDULE.chunked_prefill_size = -1
    assert sglang_backend.partition_keys(runner) == _layers.invariant_keys(
        HEADS * DEPTH, 1 << 20, 1 << 20) > 384
    SCHEDULE.chunked_prefill_size = 16384  # as SGLang chooses it by the GPU
    assert sglang_backend.partition_keys(runner) == _layers.invariant_keys(
        HEADS * DEPTH, 16384, 1 << 20) > 384
    EXEC.deterministic.enable_deterministic_inference = False


def crosses():
    """A decoder with an encoder: their keys share a request's row of slots."""
    kinds = [layer_of(0), layer_of(1, is_cross_attention=True)]
    config = types.SimpleNamespace(is_encoder_decoder=True, context_len=LONGEST, hf_config=None)
    runner = runner_of(1, kinds, model_config=config)
    backend = integration.create(runner)
    encoder, keys = [11, 4], [5, 30]
    batch = batch_of(runner, ForwardMode.DECODE, [1, 1], [e + k for e, k in zip(encoder, keys)])
    batch.seq_lens, batch.encoder_lens = torch.tensor(keys), torch.tensor(encoder)
    backend.init_forward_metadata(batch)
    pool, slots = runner.token_to_kv_pool, runner.req_to_token_pool.req_to_token
    for layer in kinds:
        for one in pool.get_kv_buffer(layer.layer_id):
            one.copy_(torch.randn(one.shape))
        q = torch.randn(2, HEADS, DEPTH, dtype=torch.bfloat16)
        got = backend.forward_decode(q.flatten(1), None, None, layer, batch).view(q.shape)
        for b in range(2):
            row = slots[b + 1].long()
            at = row[:encoder[b]] if layer.layer_id else row[encoder[b]:encoder[b] + keys[b]]
            k, v = (one[at] for one in pool.get_kv_buffer(layer.layer_id))
            right = reference.attend(q[b:b + 1], k, v, torch.ones(1, len(at), dtype=torch.bool),
                                     0.3)[0]
            assert (got[b] - right[0]).abs().max() < 2e-2, (layer.layer_id, b)


def keys_of(found):
    """The keys of specs' kernels."""
    with attnjit.Service(no_disk_cache=1) as service:
        return {service.prepare(spec).key for spec in found}


def latent():
    """Models of MLA: prompts by keys and values of each head, a chunk of a prefix with its sums, and
    decodes, drafts and prompts behind a prefix over the cache's rows."""
    from sglang.srt.mem_cache import memory_pool

    memory_pool.get_parallel = lambda: types.SimpleNamespace(dcp_enabled=False)
    heads, rank, rope, page, size = 4, 512, 64, 16, 512
    mqa = RadixAttention(heads, rank + rope, 0.07, 1, 0, v_head_dim=rank)
    mha = RadixAttention(heads, 192, 0.07, heads, 0, v_head_dim=128)
    for dtype, scale in ((torch.bfloat16, None), (E4M3, None), (E4M3, torch.tensor([1.6]))):
        mqa.k_scale = scale
        for name, topk, drafts in ((None, None, None), ("eagle", 1, 3), ("ngram", None, 5)):
            SPEC.speculative_num_draft_tokens, SPEC.speculative_eagle_topk = drafts, topk
            config = types.SimpleNamespace(
                is_encoder_decoder=False, context_len=LONGEST, hf_config=None, kv_lora_rank=rank,
                qk_rope_head_dim=rope, qk_nope_head_dim=128, v_head_dim=128)
            pool = memory_pool.MLATokenToKVPool(size, page, dtype, rank, rope, 1, DEVICE, False)
            runner = runner_of(page, [mqa, mha], token_to_kv_pool=pool, model_config=config,
                               use_mla_backend=True, kv_cache_dtype=dtype,
                               spec_algorithm=algorithm(name))
            prewarmed.clear()
            backend = integration.create(runner)
            at_start = keys_of(prewarmed)
            cases = [(ForwardMode.DECODE, [1, 1], [17, 40]), (ForwardMode.EXTEND, [5, 12], [33, 12])]
            if drafts:
                cases = [(ForwardMode.TARGET_VERIFY, [drafts] * 2, [20 + drafts, 3 + drafts])]
            for mode, rows, keys in cases:
                batch = batch_of(runner, mode, rows, keys)
                batch.attn_attend_prefix_cache, batch.mha_return_lse = None, False
                seen = None
                if drafts:
                    batch.seq_lens = torch.tensor([20, 3])
                    seen = torch.tril(torch.ones(2, drafts, drafts, dtype=torch.bool))
                    if topk != 1:  # all drafts follow the first
                        seen[:, :, 1:] = torch.eye(drafts, dtype=torch.bool)[:, 1:]
                    batch.spec_info = types.SimpleNamespace(custom_mask=seen.flatten())
                    batch.positions = torch.zeros(2 * drafts, dtype=torch.int64)
                for one in pool.kv_buffer:
                    one.copy_(torch.randn(one.shape).to(dtype).view(one.dtype))
                backend.init_forward_metadata(batch)
                q = torch.randn(sum(rows), heads * (rank + rope)).bfloat16()
                k = torch.randn(sum(rows), 1, rank + rope).bfloat16()
                call = (backend.forward_decode if mode.is_decode() else backend.forward_extend)
                got = call(q, k, k[..., :rank], mqa, batch).view(-1, heads, rank)
                lines = pool.get_key_buffer(0)[:, 0].float()  # whatever a checkpoint's scale
                begin = 0
                for b, (count, length) in enumerate(zip(rows, keys)):
                    at = runner.req_to_token_pool.req_to_token[b + 1, :length].long()
                    written = k[begin:begin + count, 0].float()
                    assert (lines[at[-count:]] - written).abs().max() < (
                        1e-6 if dtype is torch.bfloat16 else 0.3)
                    past = torch.ones(count, length - count, dtype=torch.bool)
                    own = (torch.tril(torch.ones(count, count, dtype=torch.bool)) if seen is None
                           else seen[b])
                    right = reference.attend(
                        q[begin:begin + count].view(count, heads, -1), lines[at][:, None],
                        lines[at][:, None, :rank], torch.cat([past, own], 1), 0.07)[0]
                    error = (got[begin:begin + count] - right).abs().max()
                    assert error < 2e-2, (mode, b, dtype, scale, error, right.abs().max())
                    begin += count
                assert keys_of(mla_reference.specs[-1:]) <= at_start, mla_reference.specs[-1]
    # Prompts, and what they see of a prefix.
    SPEC.speculative_num_draft_tokens = SPEC.speculative_eagle_topk = None
    rows, batch = [5, 12], batch_of(runner, ForwardMode.EXTEND, [5, 12], [33, 12])
    runner.spec_algorithm = algorithm()
    backend = integration.create(runner)
    backend.init_forward_metadata(batch)
    q, k = (torch.randn(17, heads * 192).bfloat16() for _ in range(2))
    v = torch.randn(17, heads, 128).bfloat16()
    chunk = torch.tensor([0, 17, 17], dtype=torch.int32)
    for prefix in (False, True):
        batch.attn_attend_prefix_cache, batch.mha_return_lse = prefix, True
        batch.prefix_chunk_idx, batch.prefix_chunk_cu_seq_lens = 0, chunk[None]
        batch.prefix_chunk_max_seq_lens = [17]
        out, sums = backend.forward_extend(q, k.view(17, heads, 192), v, mha, batch,
                                           save_kv_cache=False)
        whole = slice(0, 17) if prefix else slice(0, 5)
        seen = torch.ones(5, 17 if prefix else 5, dtype=torch.bool)
        right, lse = reference.attend(q[:5].view(5, heads, 192), k[whole].view(-1, heads, 192),
                                      v[whole], seen if prefix else torch.tril(seen), 0.07)
        assert (out[:5] - right).abs().max() < 2e-2 and (sums[:5] - lse.T).abs().max() < 1e-2
    mqa.k_scale = None


def page_tables():
    """What makes the tables on a GPU, and what makes them elsewhere, agree."""
    kernel = sglang_tables._make_kernel()
    for page_size, window, begin in itertools.product((1, 16, 48), (False, True), (False, True)):
        tokens = (torch.randperm(SLOTS // page_size - 1) + 1).repeat_interleave(page_size)
        tokens = (tokens * page_size + torch.arange(len(tokens)) % page_size).int()
        longest = len(tokens) // 3
        tokens = tokens[:3 * longest].view(3, longest)
        to_window = torch.randperm(SLOTS // page_size).repeat_interleave(page_size) * page_size
        to_window = torch.nn.functional.pad(to_window, (0, SLOTS - len(to_window)))
        requests, lens = torch.tensor([2, 0]), torch.tensor([longest - 4, 33])
        starts = torch.tensor([0, page_size]) if begin else None
        if begin:
            lens = lens - page_size
        width = -(-longest // page_size)
        ours, theirs = (torch.zeros(2, 2, width, dtype=torch.int32) for _ in range(2))
        found = [torch.zeros(2, dtype=torch.int32) for _ in range(2)]
        sglang_tables.fill_page_tables(tokens, requests, lens, 2, page_size, found[0], ours[0],
                                       ours[1] if window else None, to_window, starts)
        kernel[(2, 1)](tokens, tokens.stride(0), requests, lens, 2, starts, found[1], theirs[0],
                       theirs[1] if window else None, theirs[0].stride(0), to_window,
                       PAGE=page_size, HAS_STARTS=begin, HAS_WINDOW=window, COLUMNS=1024)
        assert torch.equal(*found) and found[0].tolist() == (lens + 2).tolist()
        for b, length in enumerate(found[0].tolist()):
            pages = -(-length // page_size)
            assert torch.equal(ours[:, b, :pages], theirs[:, b, :pages]), (page_size, window)


def recorded():
    """ATTNJIT_RECORD_KEYS: a file has each kernel that was asked for, by its key and its spec."""
    spec = {"arch": "sm_90a", "num_q_heads": 4, "qk_depth": 64, "mask": "causal"}
    with tempfile.TemporaryDirectory() as folder:
        os.environ[_recorded.RECORD] = os.path.join(folder, "keys")
        sglang_service._services.clear()
        key = sglang_service.service().prepare(spec).key
        del os.environ[_recorded.RECORD]
        with open(os.path.join(folder, "keys"), encoding="utf-8") as file:
            (found,) = map(json.loads, file)
        assert (found["event"], found["key"], found["spec"]) == ("prepare", key, spec)
        sglang_service._services.clear()


prewarmed = []
reference.install()
sglang_service.ask = prewarmed.extend
sglang_backend.get_spec, sglang_backend.get_exec = lambda: SPEC, lambda: EXEC
sglang_backend.get_schedule = lambda: SCHEDULE
sglang_backend._arch = lambda runner: "sm_90a"
torch.manual_seed(0)
registration()
refusals()
sinks_at_start()
hybrid_layers()
layers()
images()
compiled()
eight_bits()
verified()
drafted()
draft_prompts()
deterministic()
crosses()
recorded()
if not reference.ON_GPU:
    _mla._find = mla_reference.find
    latent()
    page_tables()
print(f"on {DEVICE}: sglang {importlib.metadata.version('sglang')}: all right")
