# SPDX-License-Identifier: Apache-2.0
"""Views, expanded tensors, second calls and wrong arguments: read as they are, or refused by name.

views_test.py FAKE_LIBCUDA

The GPU is a fake one, whose driver records the tensor maps of launches.
"""
import copy
import itertools
import os
import pickle
import random
import sys
import tempfile

os.environ["ATTNJIT_FAKE_KERNEL"] = "*"  # those that each image has

import attnjit  # noqa: E402
from attnjit import _launch  # noqa: E402
from attnjit._tensors import Device  # noqa: E402
from fake_gpu import Gpu, Tensor, fails, have_nvrtc  # noqa: E402

SEED = int(os.environ.get("ATTNJIT_TEST_SEED", "1"))
Q, K, V, O, TABLE, LENS, DOC, SINK, LSE = (0x10000000 * i for i in range(1, 10))
SHAPES = {"q": (2, 64, 8, 128), "k": (2, 96, 8, 128), "v": (2, 96, 8, 128), "o": (2, 64, 8, 128)}
AT = {"q": Q, "k": K, "v": V, "o": O}


def workspace(self, q):  # of maps, for which torch is asked elsewhere
    self.args.workspace, self.args.workspace_bytes = 0xA0000000, self._needed


def packed(shape):
    return Tensor(0, shape).strides


def dense(service, **given):
    """Launches over those tensors and plain ones; returns (dims, strides in bytes) by address."""
    tensors = {name: given.get(name) or Tensor(AT[name], shape) for name, shape in SHAPES.items()}
    attnjit.attention(tensors["q"], tensors["k"], tensors["v"], out=tensors["o"], mask="causal",
                      service=service)


def strides_of(gpu, address):
    """{(extent, stride in bytes)} of the dimensions of more than one element."""
    dims, strides = gpu.report()[1][address]
    return sorted((extent, stride) for extent, stride in zip(dims[1:], strides) if extent > 1)


def strides_are_read_as_they_are(gpu, service):
    """Expanded, sliced, transposed: the maps have the tensor's own strides, or it is refused."""
    rng = random.Random(SEED)
    seen = 0
    for name in ("k", "v"):
        for expanded in itertools.product((False, True), repeat=3):
            for _ in range(3):
                seen += 1
                # NOTE: other rows each time: a map of a remembered launch is not encoded again.
                shape = (2, 96 + seen, 8, 128)
                order = rng.sample(range(3), 3)  # of the dimensions in memory, the innermost first
                strides, next_one = [0, 0, 0, 1], 128 + 8 * rng.randrange(3)
                for axis in order:
                    if not expanded[axis]:
                        strides[axis], next_one = next_one, next_one * shape[axis] + 8 * rng.randrange(3)
                at = AT[name] + 0x100000 * seen
                other = {"k": "v", "v": "k"}[name]
                dense(service, **{name: Tensor(at, shape, strides=tuple(strides)),
                                  other: Tensor(AT[other], shape)})
                wanted = sorted((extent, 2 * stride) for extent, stride in zip(shape, strides[:3]))
                assert strides_of(gpu, at) == wanted, (name, strides, gpu.report()[1][at])
    # Of one element a dimension may have any stride.
    for any_stride in (0, 1, -3, 7):
        q = Tensor(Q, (1, 64, 8, 128), strides=(any_stride, 1024, 128, 1))
        attnjit.attention(q, q, q, out=q, mask="causal", service=service)
    for name, stride, axis in itertools.product("qkv", (-1024, 1028, 4), range(3)):
        strides = list(packed(SHAPES[name]))
        strides[axis] = stride
        error = fails(lambda: dense(service, **{name: Tensor(AT[name], SHAPES[name],
                                                             strides=tuple(strides))}),
                      attnjit.InvalidError)
        assert error.field.startswith(name), (name, stride, axis, error.field)
    for strides in ((1024 * 64, 1024, 256, 2), (0, 0, 0, 0)):
        error = fails(lambda: dense(service, k=Tensor(K, SHAPES["k"], strides=strides)),
                      attnjit.InvalidError, "last dimension", "contiguous")
        assert error.field == "k"
    # What is written lies over itself nowhere.
    for strides in ((0, 1024, 128, 1), (65536, 0, 128, 1), (65536, 1024, 0, 1), (0, 0, 0, 1),
                    (65536, 1024, 64, 1), (8, 1024, 128, 1)):
        error = fails(lambda: dense(service, o=Tensor(O, SHAPES["o"], strides=strides)),
                      attnjit.InvalidError, "out", "over itself")
        assert error.field == "out"


def a_service_reads_them_too(gpu, service):
    spec = service.prepare({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 128})
    kernel, state = service.get(spec), service.launch_state()
    tensors = {name: Tensor(AT[name], shape) for name, shape in SHAPES.items()}
    service.launch(kernel, state, **tensors)
    service.prepare_launch(kernel, state, service.launch_args(**tensors))()
    one = Tensor(K + 64, SHAPES["k"], strides=(0, 128, 0, 1))
    service.launch(kernel, state, **{**tensors, "k": one})
    assert strides_of(gpu, K + 64) == sorted([(2, 0), (96, 256), (8, 0)])
    on_cpu = Tensor(K, SHAPES["k"])
    on_cpu.device = Device(1, 0)
    wrong = {
        "q": [Tensor(Q, SHAPES["q"], "float32"), Tensor(Q, SHAPES["q"], "float16"),
              Tensor(Q, (2, 64, 4, 128)), Tensor(Q, (2, 64, 8, 64)), Tensor(Q, (64, 8, 128))],
        "k": [Tensor(K, SHAPES["k"], "float16"), Tensor(K, (1, 96, 8, 128)), on_cpu,
              Tensor(K, (2, 96, 4, 128)), Tensor(K, (2, 96, 8, 136))],
        "v": [Tensor(V, SHAPES["v"], "float16"), Tensor(V, (2, 95, 8, 128))],
        "o": [Tensor(O, (2, 60, 8, 128)), Tensor(O, SHAPES["o"], "float32"),
              Tensor(O, (1, 64, 8, 128)), Tensor(O, SHAPES["o"], strides=(0, 1024, 128, 1))]}
    launches = len(gpu.report()[0])
    for name, ones in wrong.items():
        for tensor in ones:
            changed = {**tensors, name: tensor}
            error = fails(lambda: service.launch(kernel, state, **changed), attnjit.InvalidError)
            assert error.field in (name, "o" if name == "q" else name, "v"), (name, error)
    for fields in ({"batch": 3}, {"q_len": 65}, {"kv_len": 97},
                   {"lse": Tensor(LSE, (2, 8, 64), "float16")}):
        fails(lambda: service.launch(kernel, state, **tensors, **fields), attnjit.InvalidError)
        if "lse" not in fields:
            args = service.launch_args(**tensors, **fields)
            fails(lambda: service.prepare_launch(kernel, state, args), attnjit.InvalidError)
    fails(lambda: service.launch_args(**tensors, sink=Tensor(SINK, (8,), "float32", strides=(0,))),
          attnjit.InvalidError, "sink", "contiguous")
    assert len(gpu.report()[0]) == launches


def arrays_are_packed(service):
    """Arrays that masks and score modifications name: packed, or refused."""
    def call(kind, array):
        if kind == "mask":
            more = {"mask": attnjit.mask(lambda b, h, q, kv: (q >= kv) & (array[b, h] > 0))}
        else:
            more = {"score_mod": attnjit.score_mod(lambda s, b, h, q, kv: s + array[b, kv])}
        q = Tensor(Q, (2, 64, 8, 64))
        attnjit.attention(q, q, q, out=q, service=service, **more)

    kept, _launch.Launcher._workspace = _launch.Launcher._workspace, workspace
    for kind, dtype in (("mask", "int32"), ("score_mod", "float32")):
        call(kind, Tensor(DOC, (2, 64), dtype))
        call(kind, Tensor(DOC, (1, 64), dtype, strides=(7, 1)))  # of one row: any stride
        # NOTE: after a packed one, whose geometry the call has.
        for strides in ((1, 2), (128, 2), (128, 1), (0, 1), (64, 0), (0, 0), (-64, 1)):
            error = fails(lambda: call(kind, Tensor(DOC, (2, 64), dtype, strides=strides)),
                          attnjit.InvalidError, "array", "contiguous")
            assert error.field == "params"
        elsewhere = Tensor(DOC, (2, 64), dtype)
        elsewhere.device = Device(2, 1)
        fails(lambda: call(kind, elsewhere), TypeError, "another device", "cuda:1")
    _launch.Launcher._workspace = kept


def second_calls_are_checked(gpu, service):
    """A call of the last one's shapes: each tensor has its type, device and strides looked at."""
    good = {"q": Tensor(Q, (4, 8, 128)), "k": Tensor(K, (64, 16, 2, 128)),
            "v": Tensor(V, (64, 16, 2, 128)), "out": Tensor(O, (4, 8, 128)),
            "page_table": Tensor(TABLE, (4, 16), "int32"), "kv_lens": Tensor(LENS, (4,), "int32"),
            "sink": Tensor(SINK, (8,), "float32")}

    def paged(**changed):
        given = {**good, **changed}
        attnjit.paged_attention(given["q"], given["k"], given["v"], given["page_table"],
                                given["kv_lens"], out=given["out"], sink=given["sink"],
                                num_partitions=1, mask="causal", service=service)

    flat = {"q": Tensor(Q, (70, 8, 64)), "k": Tensor(K, (90, 4, 64)), "v": Tensor(V, (90, 4, 64)),
            "out": Tensor(O, (70, 8, 64)), "q_offsets": Tensor(TABLE, (4,), "int32"),
            "kv_offsets": Tensor(LENS, (4,), "int32"),
            "mask": attnjit.alibi(Tensor(SINK, (8,), "float32"))}

    def ragged(**changed):
        given = {**flat, **changed}
        slopes = changed.get("slopes")
        attnjit.attention(given["q"], given["k"], given["v"], out=given["out"],
                          q_offsets=given["q_offsets"], kv_offsets=given["kv_offsets"],
                          max_q_len=30, max_kv_len=40, service=service,
                          score_mod=flat["mask"] if slopes is None else attnjit.alibi(slopes))

    flat_slopes = {"slopes": Tensor(SINK, (8,), "float32")}
    for call, tensors in ((paged, good), (ragged, {**{name: one for name, one in flat.items()
                                                     if name != "mask"}, **flat_slopes})):
        call()
        for name, one in tensors.items():
            launches = len(gpu.report()[0])
            for changed in others(one):
                try:
                    call(**{name: changed})
                except attnjit.InvalidError:
                    continue
                raise AssertionError(f"{name} {vars(changed)} was launched")
            assert len(gpu.report()[0]) == launches, name
            call()


def others(tensor):
    """As a tensor, with another type, device or strides."""
    for dtype in ("int64", "float64", "int16"):
        yield Tensor(tensor.pointer, tensor.shape, dtype)
    for device in (Device(1, 0), Device(2, 1), Device(10, 0)):
        other = Tensor(tensor.pointer, tensor.shape, tensor.dtype)
        other.device = device
        yield other
    yield Tensor(tensor.pointer, tensor.shape, tensor.dtype,
                 tuple(2 * stride for stride in tensor.strides))


def copies_of_handles(service):
    """Nothing is freed twice, and nothing goes to another process."""
    spec = service.prepare({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64})
    for one in (spec, service.launch_state(), service, service.get(spec)):
        for made in (copy.copy(one), copy.deepcopy(one), copy.deepcopy([one])[0]):
            assert made is one
        fails(lambda: pickle.dumps(one), attnjit.InvalidError, "pickle")
    spec.close()
    fails(lambda: service.get(spec), attnjit.InvalidError, "closed")
    other = attnjit.Service(driver_path=service.driver_path, no_disk_cache=1)
    other.close()
    for call in (other.statistics, other.prometheus, other.flush,
                 lambda: other.prepare({"arch": "sm_90a", "num_q_heads": 1, "qk_depth": 64})):
        assert fails(call, attnjit.InvalidError, "closed").field == "service"


def without_a_gpu(gpu, service):
    """Tensors on the CPU: attnjit says so before anything else is asked."""
    def on_cpu(*shape, dtype="bfloat16"):
        tensor = Tensor(Q, shape, dtype)
        tensor.device = Device(1, 0)
        return tensor

    def asked(*_):
        raise AssertionError("the driver was asked")

    q, flat = on_cpu(1, 64, 8, 64), on_cpu(4, 8, 64)
    table, lens = on_cpu(4, 8, dtype="int32"), on_cpu(4, dtype="int32")
    cache = on_cpu(9, 16, 8, 64)
    architecture, _launch.architecture = _launch.architecture, asked
    try:
        for call in (lambda: attnjit.attention(q, q, q), lambda: attnjit.attention(q, q, q, out=q),
                     lambda: attnjit.attention(q, q, q, lse=True),
                     lambda: attnjit.attention(q, q, q, out=q, meanwhile=lambda: None),
                     lambda: attnjit.attention(q, q, q, out=q, fallback=True),
                     lambda: attnjit.paged_attention(flat, cache, cache, table, lens),
                     lambda: attnjit.paged_attention(flat, cache, cache, table, lens, out=flat)):
            error = fails(call, attnjit.InvalidTypeError, "the CPU", "cuda")
            assert error.field == "q" and error.hint
    finally:
        _launch.architecture = architecture
    spec = service.prepare({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64})
    kernel, state = service.get(spec), service.launch_state()
    args = service.launch_args(q=q, k=q, v=q, o=q)
    for call in (lambda: service.launch(kernel, state, q=q, k=q, v=q, o=q),
                 lambda: service.prepare_launch(kernel, state, args)):
        fails(call, attnjit.InvalidTypeError, "cpu")


# What callers pass by mistake.
WRONG = (None, True, 0, -1, 3, 1 << 40, 1 << 70, -(1 << 40), 1.5, 1e300, float("nan"), float("inf"),
         "causal", "", "\0", "\ud800", b"x", [], [1], {}, {"kind": "x"}, (), object(), int, max,
         lambda *a: a, Tensor(Q, ()), Tensor(Q, (3,)), Tensor(Q, (2, 64, 8, 128)),
         Tensor(Q, (2, 64, 8, 128), "int64"), Tensor(Q, (1 << 40, 64, 8, 128), strides=(0, 0, 0, 1)),
         Tensor(Q, (0, 64, 8, 128)), Tensor(Q, (2, 0, 8, 128)), Tensor(Q, (2, 64, 0, 128)),
         Tensor(Q, (2, 64, 8, 0)))


def wrong_arguments(service):
    """Every public call, with each argument wrong in turn: attnjit's errors, TypeError, ValueError."""
    q = Tensor(Q, (2, 64, 8, 128))
    cache, table = Tensor(K, (9, 16, 8, 128)), Tensor(TABLE, (2, 8), "int32")
    lens, offsets = Tensor(LENS, (2,), "int32"), Tensor(LENS, (3,), "int32")
    spec = service.prepare({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 128})
    kernel, state = service.get(spec), service.launch_state()
    dense = {"q": q, "k": q, "v": q, "out": q}
    calls = [
        (attnjit.attention, dense,
         ("q", "k", "v", "out", "mask", "score_mod", "scale", "sink", "q_scale", "k_scale",
          "v_scale", "output_scale", "bias", "q_offsets", "kv_offsets", "kv_lens", "max_q_len",
          "max_kv_len", "layout", "service", "stream", "meanwhile", "block_mask")),
        (attnjit.paged_attention,
         {"q": q, "k_cache": cache, "v_cache": cache, "page_table": table, "kv_lens": lens,
          "out": q, "num_partitions": 1},
         ("q", "k_cache", "v_cache", "page_table", "kv_lens", "q_offsets", "max_q_len",
          "max_kv_len", "mask", "scale", "sink", "out", "num_partitions", "partition_keys",
          "service", "stream")),
        (attnjit.mask, {"function": lambda b, h, q, kv: q >= kv}, ("function", "q_idx")),
        (attnjit.score_mod, {"function": lambda s, b, h, q, kv: s}, ("function", "q_idx")),
        (attnjit.bit_mask, {}, ("tensor",)), (attnjit.alibi, {}, ("slopes",)),
        (attnjit.block_mask, {"blocks": None}, ("blocks", "asked")),
        (attnjit.Scalar, {}, ("value",)),
        (service.prepare, {}, ("spec",)), (service.key, {}, ("spec",)),
        (service.compile, {"spec": spec}, ("spec", "timeout_ms")),
        (service.get, {"spec": spec}, ("spec", "timeout_ms", "stream")),
        (service.find, {}, ("spec",)), (service.try_get, {}, ("spec",)),
        (service.get_or_fallback, {"spec": spec}, ("spec", "stream")),
        (service.prepare_kernel, {"kernel": kernel}, ("kernel",)),
        (service.flush, {}, ("timeout",)),
        (service.launch_args, {"q": q, "k": q, "v": q, "o": q},
         ("q", "k", "v", "o", "params", "scalars", "stream", "mask_map", "lse", "mask", "sink",
          "kv_indices", "block_bits", "batch", "kv_len", "scale", "workspace", "q_rope")),
        (service.launch, {"kernel": kernel, "state": state, "q": q, "k": q, "v": q, "o": q},
         ("kernel", "state", "q", "k", "v", "o", "lse", "batch")),
        (service.workspace, {"kernel": kernel}, ("kernel", "args")),
        (service.mask_map_shape, {"kernel": kernel}, ("kernel", "args")),
        (service.mask_map_bits, {"kernel": kernel}, ("kernel", "args")),
        (service.prepare_launch, {"kernel": kernel, "state": state}, ("kernel", "state", "args"))]
    count = refused = 0
    for call, given, names in calls:
        for name in names:
            for wrong in WRONG:
                arguments = {**given, name: wrong}
                if call in (attnjit.attention, attnjit.paged_attention):
                    arguments.setdefault("service", service)
                    if name == "service" and wrong is None:
                        continue  # the process's own, which has a real driver
                if name == "stream" and isinstance(wrong, int) and 0 <= wrong < 1 << 64:
                    continue  # an address, which nobody can look at
                if name in ("timeout_ms", "timeout") and wrong in (-1, None, float("inf")):
                    continue
                count += 1
                try:
                    call(**arguments)
                except attnjit.AttnjitError as error:
                    refused += 1
                    assert str(error), (call, name, wrong)
                except (TypeError, ValueError) as error:
                    refused += 1
                    assert "unpack" not in str(error), (call.__name__, name, wrong, error)
                except Exception as error:
                    raise AssertionError(f"{call.__name__}({name}={wrong!r}): {error!r}") from error
    for name in ("log", "on_compile", "library", "cache_layers", "nvrtc_path", "driver_path",
                 "compile_threads", "tuning", "remote"):
        for wrong in WRONG:
            if wrong is None or callable(wrong) and name in ("log", "on_compile"):
                continue
            count += 1
            try:
                with attnjit.Service(**{"no_disk_cache": 1, name: wrong}):
                    pass
            except (attnjit.AttnjitError, TypeError, ValueError):
                refused += 1
    print(f"{count} calls with a wrong argument, {refused} refused")


def numbers_that_are_too_large(service, folder):
    q = Tensor(Q, (2, 64, 8, 128))

    def call(**more):
        attnjit.attention(q, q, q, out=q, service=service, **more)

    for field, wrong in (("scale", 1e300), ("scale", 1 << 2000), ("max_kv_len", 1 << 40),
                         ("max_q_len", 1 << 40), ("max_q_len", -1), ("scale", 0), ("scale", -1.0)):
        assert fails(lambda: call(**{field: wrong}), attnjit.InvalidError, field).field == field
    elsewhere = Tensor(K, (2, 64, 8, 128))
    elsewhere.device = Device(2, 1)
    fails(lambda: attnjit.attention(q, elsewhere, q, out=q, service=service), TypeError,
          "k lies on cuda:1, q on cuda:0")
    broken = os.path.join(folder, "libattnjit.so")
    with open(broken, "wb") as file:
        file.write(b"\x7fELF no library")
    for path in (broken, folder + "/none.so", "libc.so.6"):
        error = fails(lambda: attnjit.Service(path), attnjit.MissingError, path)
        assert error.field == "library" and error.hint and error.code == "environment"
    # Integers that 32 bits do not hold: refused where they can be looked at.
    for values in ([0, 1 << 40, 1], [[1, 2], [3, -(1 << 31) - 1]], [1 << 31]):
        def named(b, h, q, kv):
            return values[q, 0] == kv if isinstance(values[0], list) else values[q] == values[kv]

        error = fails(lambda: attnjit.mask(named), attnjit.InvalidError, "32 bits")
        assert error.field == "params"
    try:
        import numpy
    except ImportError:
        return
    for dtype, most in (("int64", 1 << 40), ("uint64", 1 << 31), ("int64", -(1 << 31) - 1)):
        doc = numpy.array([0, most, 1], dtype)
        fails(lambda: attnjit.mask(lambda b, h, q, kv: doc[q] == doc[kv]), attnjit.InvalidError,
              "32 bits", dtype)
    doc = numpy.array([0, (1 << 31) - 1, -(1 << 31)])
    assert list(attnjit.mask(lambda b, h, q, kv: doc[q] == doc[kv]).params["doc"]) == list(doc)
    none = numpy.zeros(0, "int64")
    attnjit.mask(lambda b, h, q, kv: none[q] == none[kv])


def main():
    gpu = Gpu(sys.argv[1])
    if not have_nvrtc():
        print("skipped: there is no NVRTC")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        with attnjit.Service(cache_layers=folder, driver_path=gpu.path) as service:
            strides_are_read_as_they_are(gpu, service)
            a_service_reads_them_too(gpu, service)
            arrays_are_packed(service)
            second_calls_are_checked(gpu, service)
            copies_of_handles(service)
            without_a_gpu(gpu, service)
            numbers_that_are_too_large(service, folder)
            wrong_arguments(service)
    print("all right")


main()
