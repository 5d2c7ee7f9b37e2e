# SPDX-License-Identifier: Apache-2.0
"""The operator attnjit::launch, eagerly and under torch.compile: torch_test.py FAKE_LIBCUDA.

Skipped where torch is not installed. The GPU is a fake one: tensors lie on the CPU, and launches
are recorded. With --time it prints what a call costs.
"""
import os
import sys
import tempfile
import threading
import time
import types

try:
    import torch
except ImportError:
    print("skipped: torch is not installed")
    sys.exit(77)

os.environ["ATTNJIT_FAKE_KERNEL"] = "*"

import attnjit  # noqa: E402
from attnjit import _launch, _torch  # noqa: E402
from fake_gpu import Gpu, fails, have_nvrtc  # noqa: E402

_launch.gpu_of = lambda tensor: 0
_torch.stream = lambda q, given: given or 0


def workspace(self, q):
    """Launcher._workspace, aligned as a GPU's memory is."""
    memory = torch.zeros(self._needed + 256, dtype=torch.uint8)
    begin = -memory.data_ptr() % 256
    self.args.workspace, self.args.workspace_bytes = memory.data_ptr() + begin, self._needed
    return memory


kept_workspace, _launch.Launcher._workspace = _launch.Launcher._workspace, workspace


def tensors(*shape, dtype=torch.bfloat16):
    return torch.zeros(shape, dtype=dtype)


def eager(gpu):
    q, k = tensors(2, 8, 300, 64), tensors(2, 4, 500, 64)
    before = len(gpu.report()[0])
    out, lse = attnjit.attention(q, k, k, mask="causal", layout="bhsd", lse=True, service=service)
    assert out.shape == q.shape and out.dtype == q.dtype and out.transpose(1, 2).is_contiguous()
    assert lse.shape == (2, 8, 300) and lse.dtype == torch.float32
    assert len(gpu.report()[0]) == before + 1

    doc = torch.arange(500) // 100  # i64: converted once
    mask = attnjit.mask(lambda b, h, q_idx, kv_idx: doc[q_idx] == doc[kv_idx])
    assert mask.params["doc"].dtype == torch.int32
    listed = [0.5, 0.25] * 4
    alibi = attnjit.score_mod(lambda score, b, h, q, kv: score - listed[h] * (q - kv))
    rows = [q.transpose(1, 2), k.transpose(1, 2), k.transpose(1, 2)]
    attnjit.attention(*rows, mask=mask, score_mod=alibi, service=service)

    offsets = torch.tensor([0, 3, 30], dtype=torch.int32)
    flat, kv = tensors(30, 8, 64), tensors(40, 4, 64)
    out, lse = attnjit.attention(flat, kv, kv, q_offsets=offsets, kv_offsets=offsets, lse=True,
                                 service=service)
    assert out.shape == (30, 8, 64) and lse.shape == (8, 30)

    cache, table = tensors(50, 16, 4, 64), torch.zeros(3, 20, dtype=torch.int32)
    lens, row = torch.ones(3, dtype=torch.int32), tensors(3, 8, 64)
    out, lse = attnjit.paged_attention(row, cache, cache, table, lens, lse=True, service=service)
    assert out.shape == row.shape and lse.shape == (3, 8)
    assert len(gpu.report()[0]) >= before + 4

    # Who watches operators sees it.
    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            names.append(str(function))
            return function(*args, **(kwargs or {}))

    names = []
    with Watch():
        attnjit.attention(*rows, mask="causal", service=service)
    assert "attnjit.launch.default" in names, names

    pushed = []
    torch.cuda.nvtx.range_push, push = pushed.append, torch.cuda.nvtx.range_push
    torch.cuda.nvtx.range_pop, pop = lambda: pushed.append(None), torch.cuda.nvtx.range_pop
    attnjit.nvtx_ranges()
    window = {"kind": "sliding_window", "window": 8}
    attnjit.attention(*rows, mask=window, service=service)
    fails(lambda: attnjit.attention(*rows, out=rows[1], service=service), ValueError, "shape")
    attnjit.nvtx_ranges(False)
    attnjit.attention(*rows, mask=window, service=service)
    torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop = push, pop
    assert pushed[0] == "attnjit sliding_window q[2, 300, 8, 64] k[2, 500, 4, 64]", pushed
    assert pushed[1:] == [None, pushed[2], None] and "null" in pushed[2], pushed

    q.requires_grad_()
    fails(lambda: attnjit.attention(q, k, k, layout="bhsd", service=service),
          attnjit.UnsupportedError, "gradients")
    with torch.no_grad():
        attnjit.attention(q, k, k, layout="bhsd", service=service)


def copied():
    """What a launch reads packed is copied where it is a view, at each call, on one geometry too."""
    made, copy = [], _launch.packed_on

    def recorded(tensor, stream):
        made.append(copy(tensor, stream))
        return made[-1]

    _launch.packed_on = recorded
    q, cache, row = tensors(3, 16, 576), tensors(50, 64, 576), tensors(3, 8, 64)
    for turn in range(3):
        numbers = torch.arange(60, dtype=torch.int32).reshape(20, 3) + turn
        lens, sink = numbers[:3, 1], torch.full((1,), float(turn)).expand(16)
        del made[:]
        attnjit.mla_attention(q, cache, numbers.t(), lens, sink=sink, service=service)
        for given in (numbers.t(), lens, sink):
            assert any(torch.equal(one, given) and one.is_contiguous() for one in made), (turn, given)
        del made[:]
        pages = tensors(50, 16, 4, 64)
        attnjit.paged_attention(row, pages, pages, numbers.t(), lens, service=service)
        for given in (numbers.t(), lens):
            assert any(torch.equal(one, given) and one.is_contiguous() for one in made), (turn, given)
    _launch.packed_on = copy


def workspaces():
    """A thread keeps one for a stream, and shares it with no other thread."""
    launcher = types.SimpleNamespace(_needed=4096, _zero_bytes=16,
                                     args=types.SimpleNamespace(stream=0))
    made = []

    def launches():
        made.append([kept_workspace(launcher, tensors(1)) for _ in range(2)])

    for thread in [threading.Thread(target=launches) for _ in range(2)]:
        thread.start()
        thread.join()
    (first, again), (other, _) = made
    assert first is again and first is not other


def in_parts(gpu):
    """attention() asks for parts of the keys where few rows would leave the GPU idle, and for the
    kernel of a decode where there are a few of each sequence."""
    used, launch = [], _launch.Launcher.launch
    _launch.Launcher.launch = lambda self, *rest: (used.append(self), launch(self, *rest))

    def chosen(rows, keys, mask="causal", batch=1):
        """max_q_len and num_partitions of the kernel, and how many kernels run."""
        q, k = tensors(batch, rows, 8, 64), tensors(batch, keys, 2, 64)
        before = len(gpu.report()[0])
        attnjit.attention(q, k, k, mask=mask, service=mine)
        fields = used[-1]._spec.fields
        return (fields.get("max_q_len"), fields.get("num_partitions"),
                len(gpu.report()[0]) - before)

    with attnjit.Service(no_disk_cache=1, driver_path=gpu.path) as mine:
        assert chosen(128, 8192) == (None, 0, 2)
        assert chosen(128, 8192, mask=None) == (None, 0, 2)
        assert chosen(128, 600) == (None, None, 1)  # too few keys to gain by parts
        assert chosen(128, 8100) == (None, 0, 2)
        assert chosen(4000, 8192, batch=6) == (None, None, 1)  # enough rows
        assert chosen(128, 8192, mask={"kind": "sliding_window", "window": 64}) == (None, None, 1)
        assert chosen(1, 8192) == (1, 0, 2)
        assert chosen(3, 8192, mask={"kind": "sliding_window", "window": 64}) == (16, 0, 1)
        assert chosen(8, 40, batch=3) == (16, 0, 1)
        assert chosen(9, 40) == (16, 0, 1)  # a tile of all four heads of a group
        assert chosen(16, 40, mask=None) == (16, 0, 1)
        assert chosen(17, 40) == (None, None, 1)
        compiles = mine.statistics()["compiles"]
        assert chosen(128, 9000) == (None, 0, 2) and mine.statistics()["compiles"] == compiles
        # The kernel that is asked for in the background is the one that launches.
        q, k = tensors(1, 128, 4, 64), tensors(1, 8192, 2, 64)
        while attnjit.attention(q, k, k, service=mine, meanwhile=lambda: None) is None:
            time.sleep(0.01)
        assert mine.statistics()["compiles"] == compiles + 1
        attnjit.attention(q, k, k, service=mine)
        assert mine.statistics()["compiles"] == compiles + 1
    _launch.Launcher.launch = launch


def eight_bits(gpu):
    """Results of e4m3 are bf16, in any layout; scales reach the operator. The fake GPU passes for
    one that has such kernels."""
    q, k = (tensors(*shape).to(torch.float8_e4m3fn) for shape in ((2, 30, 8, 64), (2, 50, 4, 64)))
    scales = {name: torch.ones(2, heads) for name, heads in (("q_scale", 8), ("k_scale", 4),
                                                             ("v_scale", 4))}
    architecture, _launch.architecture = _launch.architecture, lambda *_: "sm_100a"
    _launch._architectures.clear()
    seen = []

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            if "attnjit" in str(function):
                seen.extend(args)
            return function(*args, **(kwargs or {}))

    with attnjit.Service(no_disk_cache=1, driver_path=gpu.path) as blackwell:
        out = attnjit.attention(q, k, k, service=blackwell, **scales)
        assert out.shape == q.shape and out.dtype == torch.bfloat16
        swapped = [one.transpose(1, 2) for one in (q, k, k)]
        out = attnjit.attention(*swapped, layout="bhsd", service=blackwell, **scales)
        assert out.shape == (2, 8, 30, 64) and out.transpose(1, 2).is_contiguous()
        one = torch.ones(1)
        out = attnjit.attention(q, k, k, service=blackwell, output_scale=one)
        assert out.shape == q.shape and out.dtype == torch.float8_e4m3fn
        with Watch():
            attnjit.attention(q, k, k, service=blackwell, **scales, output_scale=one)
        for scale in (*scales.values(), one):
            assert any(one is scale for one in seen), len(seen)
    _launch.architecture = architecture
    _launch._architectures.clear()


def compiled(gpu):
    mask = attnjit.mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)

    def layer(x, k):
        out, lse = attnjit.attention(2 * x, k, k, mask=mask, scale=0.5, lse=True, service=service)
        return out + 1, lse

    graph = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=False)
    before = len(gpu.report()[0])
    with torch.no_grad():
        out, lse = graph(tensors(1, 40, 8, 64), tensors(1, 50, 8, 64))
        assert out.shape == (1, 40, 8, 64) and lse.shape == (1, 8, 40)
        graph(tensors(1, 40, 8, 64), tensors(1, 50, 8, 64))
    assert len(gpu.report()[0]) == before + 2

    shapes = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=True)
    with torch.no_grad():
        for rows in (40, 41, 77):
            assert shapes(tensors(1, rows, 8, 64), tensors(1, 90, 8, 64))[1].shape == (1, 8, rows)

    def masked(x, k, bools, numbers):
        return (attnjit.attention(x, k, k, mask=bools, service=service)
                + attnjit.attention(x, k, k, mask="causal", bias=numbers, service=service))

    given = (tensors(2, 40, 8, 64), tensors(2, 50, 8, 64), tensors(2, 1, 40, 50, dtype=torch.bool),
             tensors(1, 1, 1, 50).expand(2, 8, 40, 50))
    before = len(gpu.report()[0])
    with torch.no_grad():
        masked(*given)
        launches = len(gpu.report()[0]) - before
        torch.compile(masked, fullgraph=True, backend="aot_eager", dynamic=False)(*given)
    assert launches >= 4 and len(gpu.report()[0]) == before + 2 * launches  # with the maps
    fake = torch._subclasses.fake_tensor.FakeTensorMode()
    with fake, torch.no_grad():
        out = attnjit.attention(*[torch.empty(1, 9, 8, 64, dtype=torch.float16)] * 3,
                                service=service)
        assert out.shape == (1, 9, 8, 64)


def falling_back(gpu):
    """Under torch.compile, too: the operator is told, and launches what is at hand."""
    q, doc = tensors(1, 40, 8, 64), torch.arange(40) // 7

    def masked(divisor):
        return attnjit.mask(lambda b, h, q, kv: (kv + doc[q]) % divisor != 1)

    with attnjit.Service(no_disk_cache=1, driver_path=gpu.path, compile_fallbacks=1) as own:
        def until_it_serves(divisor):
            deadline = time.monotonic() + 60
            while time.monotonic() < deadline:
                divisor += 1
                attnjit.attention(q, q, q, mask=masked(divisor), service=own, fallback=True)
                if attnjit.fallback_served():
                    return divisor
            raise AssertionError("nothing fell back")

        divisor = until_it_serves(2)
        mask = masked(divisor + 1)
        graph = torch.compile(lambda x: attnjit.attention(x, x, x, mask=mask, service=own,
                                                          fallback=True) + 1,
                              fullgraph=True, backend="aot_eager", dynamic=False)
        with torch.no_grad():
            before = len(gpu.report()[0])
            assert graph(q).shape == q.shape and attnjit.fallback_served()
            assert len(gpu.report()[0]) > before + 1  # with the map that what interprets makes
            deadline = time.monotonic() + 60
            while attnjit.fallback_served():
                assert time.monotonic() < deadline
                graph(q)


def cost():
    q, k = tensors(4, 1, 32, 128), tensors(4, 500, 8, 128)
    out = torch.empty_like(q)

    def best(call, repeats=2000):
        times = []
        for _ in range(7):
            began = time.perf_counter()
            for _ in range(repeats):
                call()
            times.append((time.perf_counter() - began) / repeats * 1e6)
        return min(times)

    mask = attnjit.mask(lambda b, h, q_idx, kv_idx: q_idx >= kv_idx)
    spec = service.prepare({"arch": "sm_90a", "num_q_heads": 32, "group": 4, "qk_depth": 128,
                            "mask": "causal"})
    kernel, state = service.get(spec), service.launch_state()
    prepared = service.prepare_launch(kernel, state, service.launch_args(q=q, k=k, v=k, o=out))
    with torch.no_grad():
        call = best(lambda: attnjit.attention(q, k, k, mask=mask, out=out, service=service))
        print(f"attention() {call:.1f} us, a prepared launch {best(prepared):.1f} us, both with the "
              "fake driver's own work")


gpu = Gpu(sys.argv[1])
if not have_nvrtc():
    print("skipped: there is no NVRTC")
    sys.exit(77)
with tempfile.TemporaryDirectory() as folder:
    service = attnjit.Service(cache_layers=folder, driver_path=gpu.path)
    eager(gpu)
    copied()
    workspaces()
    in_parts(gpu)
    eight_bits(gpu)
    compiled(gpu)
    falling_back(gpu)
    if "--time" in sys.argv:
        cost()
print("all right")
