# SPDX-License-Identifier: Apache-2.0
"""attnjit's backend inside the real SGLang package, on the CPU with a reference at the launch: its
registration, its refusals, its page tables, graphs' padding, and the attention of each kind of layer
over SGLang's own pools.

With ATTNJIT_TEST_DEVICE=cuda the kernels run, SGLang's kernel of page tables too, and a decode is
captured and replayed. SGLang is imported as on the CPU: its own CUDA library is not needed.
"""
import argparse
import importlib.metadata
import itertools
import os
import pathlib
import sys
import tempfile
import types

import torch

import reference

# NOTE: before SGLang is imported.
if not reference.ON_GPU:
    os.environ["TRITON_INTERPRET"] = "1"
have_gpu, torch.cuda.is_available = torch.cuda.is_available, lambda: False

from sglang.srt.arg_groups.choices import ATTENTION_BACKEND_CHOICES  # noqa: E402
from sglang.srt.layers.attention import attention_registry  # noqa: E402
from sglang.srt.layers.radix_attention import AttentionType, RadixAttention  # noqa: E402
from sglang.srt.mem_cache.memory_pool import MHATokenToKVPool, ReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import ForwardMode  # noqa: E402
from sglang.srt.plugins import load_plugins  # noqa: E402
from sglang.srt.server_args import ServerArgs  # noqa: E402

torch.cuda.is_available = have_gpu
from attnjit.integrations import sglang as integration  # noqa: E402
from attnjit.integrations import sglang_backend  # noqa: E402

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
    config = types.SimpleNamespace(head_dim=DEPTH, v_head_dim=DEPTH, is_encoder_decoder=False)
    runner = types.SimpleNamespace(
        model=model, model_config=config, use_mla_backend=False, page_size=page_size,
        spec_algorithm=types.SimpleNamespace(is_speculative=lambda: False), device=DEVICE,
        dtype=torch.bfloat16, kv_cache_dtype=torch.bfloat16, token_to_kv_pool=pool,
        req_to_token_pool=ReqToTokenPool(8, LONGEST, DEVICE, False), attention_chunk_size=8)
    for name, value in changes.items():
        setattr(runner, name, value)
    return runner


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
    backend = attention_registry.ATTENTION_BACKENDS["attnjit"](runner_of(16, [layer_of()]))
    assert isinstance(backend, sglang_backend.AttnjitAttnBackend)


def refusals():
    layer = [layer_of()]
    encoder = types.SimpleNamespace(head_dim=DEPTH, v_head_dim=DEPTH, is_encoder_decoder=True)
    deep = types.SimpleNamespace(head_dim=520, v_head_dim=520, is_encoder_decoder=False)
    drafts = types.SimpleNamespace(is_speculative=lambda: True)
    for changes, text in ((dict(use_mla_backend=True), "MLA"), (dict(model_config=encoder), "cross"),
                          (dict(spec_algorithm=drafts), "speculative"),
                          (dict(dtype=torch.float32), "torch.float32"),
                          (dict(kv_cache_dtype=torch.float8_e5m2), "float8_e5m2"),
                          (dict(kv_cache_dtype=E4M3, kv_cache_dtype_str="mxfp8"), "mxfp8"),
                          (dict(model_config=deep), "depth"),
                          (dict(kv_index_translator=types.SimpleNamespace(is_translating=True)),
                           "unified")):
        try:
            integration.create(runner_of(16, layer, **changes))
        except ValueError as error:
            assert text in str(error) and "attnjit" in str(error), error
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
    for options, text in ((dict(is_cross_attention=True), "cross attention"),
                          (dict(attn_type=AttentionType.DECODER_BIDIRECTIONAL), "image"),
                          (dict(pos_encoding_mode="ALIBI"), "ALIBI"),
                          (dict(logit_cap=5.0, logit_capping_method="clip"), "clip")):
        try:
            sglang_backend.layer_options(layer_of(**options), None)
        except NotImplementedError as error:
            assert text in str(error), error
        else:
            raise AssertionError(f"{options} was taken")


    # Pages of e4m3 have any number of rows.
    integration.create(runner_of(4, layer, kv_cache_dtype=E4M3))


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


def expected(q, k, v, runner, batch, rows, keys, layer, earlier, sinks):
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
        if layer.attn_type == AttentionType.ENCODER_ONLY:
            visible = torch.ones_like(visible)
        elif layer.use_irope:
            visible &= at // 8 == key // 8
        elif window:
            visible &= key > at - window
        out.append(reference.attend(q[begin:begin + count], all_k, all_v, visible, 0.3,
                                    layer.logit_cap or None, sinks)[0])
        begin += count
    return torch.cat(out)


def check(runner, backend, layer, batch, rows, keys, sinks=None):
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
    call = backend.forward_decode if batch.forward_mode.is_decode() else backend.forward_extend
    got = call(padded.flatten(1), k, v, layer, batch, **({} if sinks is None else
                                                         {"sinks": sinks}))
    if eight:  # what was written is rounded
        k, v = ((x / scale).to(E4M3).float() * scale for x, scale in zip((k_given, v_given), scales))
        if backend._rounds_q:
            q = q.to(E4M3)
    right = expected(q, k.float(), v.float(), runner, batch, rows, keys, layer, earlier, sinks)
    error = (got[:total].view(-1, HEADS, DEPTH).float() - right).abs().max()
    # NOTE: kernels of e4m3 Q round the probabilities to e4m3, too.
    bound = 2e-2 if not eight else 0.25 if reference.ON_GPU and backend._rounds_q else 4e-2
    assert error < bound, (layer.layer_id, rows, keys, error)


def layers():
    kinds = [layer_of(0), layer_of(1, sliding_window_size=4), layer_of(2, logit_cap=7.0),
             layer_of(3, use_irope=True), layer_of(4, attn_type=AttentionType.ENCODER_ONLY)]
    for page_size in (1, 16, 64):
        for windows in ((), (1,)):
            prewarmed.clear()
            runner = runner_of(page_size, kinds, windows)
            backend = integration.create(runner)
            assert reference.ON_GPU or len(prewarmed) == 2 * len(kinds), prewarmed
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
        assert backend._rounds_q == (arch == "sm_100a")
        assert reference.ON_GPU or len(prewarmed) == 2 * len(kinds), prewarmed
        for spec in prewarmed:
            kinds_of = [spec.get(name) for name in ("qkv_dtype", "kv_dtype", "scales")]
            assert kinds_of == (["e4m3", None, "tensor"] if backend._rounds_q
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
    """Captured decodes read one memory, whose content each replay makes anew."""
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
    try:
        batch.forward_mode = ForwardMode.TARGET_VERIFY
        backend.init_forward_metadata_out_graph(batch)
    except NotImplementedError as error:
        assert "TARGET_VERIFY" in str(error)
    else:
        raise AssertionError("a graph of drafts was taken")


def replayed(runner, backend, kinds):
    """A decode that the GPU replays makes lengths and tables anew, and reads what they say."""
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


def page_tables():
    """SGLang's kernel, which makes the tables on a GPU, and what makes them elsewhere agree."""
    from sglang.kernels.ops.attention.trtllm_mha_page_table import build_trtllm_mha_page_table

    for page_size in (1, 16, 64):
        tokens = (torch.randperm(SLOTS // page_size - 1) + 1).repeat_interleave(page_size)
        tokens = (tokens * page_size + torch.arange(len(tokens)) % page_size).int()[:3 * LONGEST]
        tokens = tokens.view(3, LONGEST)
        to_window = torch.randperm(SLOTS // page_size).repeat_interleave(page_size) * page_size
        requests, lens = torch.tensor([2, 0]), torch.tensor([90, 33], dtype=torch.int32)
        width = -(-LONGEST // page_size)
        ours, theirs = (torch.zeros(2, 2, width, dtype=torch.int32) for _ in range(2))
        sglang_backend.fill_page_tables(tokens, requests, lens, page_size, ours[0], ours[1],
                                        to_window)
        build_trtllm_mha_page_table(tokens, requests, lens, theirs[0], page_size, theirs[1],
                                    to_window)
        for b, length in enumerate(lens.tolist()):
            pages = -(-length // page_size)
            assert torch.equal(ours[:, b, :pages], theirs[:, b, :pages]), page_size


def ready(tensors, fields, number, stream, q_len, kv_len, fallback):
    """Stands for the queue of compiles."""
    reference._launch.check(tensors, fields, q_len, kv_len)
    prewarmed.append(reference._launch.spec_of(tensors, fields, "sm_90a"))
    return False


prewarmed = []
reference.install()
if not reference.ON_GPU:
    reference._launch.prepare = ready
sglang_backend._arch = lambda runner: "sm_90a"
torch.manual_seed(0)
registration()
refusals()
layers()
eight_bits()
page_tables()
print(f"on {DEVICE}: sglang {importlib.metadata.version('sglang')}: all right")
