# SPDX-License-Identifier: Apache-2.0
"""mla_attention() over the fake driver: its specs, its checks, and what a launch is given.

    mla_test.py FAKE_LIBCUDA
"""
import os
import sys
import tempfile

os.environ["ATTNJIT_FAKE_KERNEL"] = "*"  # those that each image has

import attnjit  # noqa: E402
from attnjit import InvalidError, _mla  # noqa: E402
from attnjit._tensors import Device  # noqa: E402
from fake_gpu import Gpu, Tensor, fails, have_nvrtc  # noqa: E402

PAGES, PAGE, HEADS, BATCH = 9, 64, 16, 3
Q, CACHE, OUT, TABLE, LENS, OFFSETS, LISTS, SCALE = (0x10000 * i for i in range(1, 9))


def vector(pointer, *shape):
    return Tensor(pointer, shape, "int32")


def call(service, rows=1, ragged=False, kind="bfloat16", depth=576, topk=0, of_q="bfloat16",
         **more):
    shape = (7, HEADS, depth) if ragged else (BATCH, HEADS, depth) if rows == 1 else (
        BATCH, rows, HEADS, depth)
    width = 656 if kind == "uint8" else depth
    arguments = dict(
        q=Tensor(Q, shape, of_q), cache=Tensor(CACHE, (PAGES, PAGE, width), kind),
        page_table=None if topk else vector(TABLE, BATCH, 4),
        kv_lens=None if topk else vector(LENS, BATCH), service=service,
        mask=None if topk else "causal",
        out=Tensor(OUT, (*shape[:-1], depth - 64), of_q), num_partitions=1)
    if ragged:
        arguments.update(q_offsets=vector(OFFSETS, BATCH + 1), max_q_len=4)
    if topk:
        arguments["topk_indices"] = vector(LISTS, 7 if ragged else BATCH * rows, topk)
    if kind == "float8_e4m3fn":
        arguments["k_scale"] = Tensor(SCALE, (1,), "float32")
    arguments.update(more)
    return attnjit.mla_attention(**arguments)


def launches(gpu, service):
    specs = []
    prepare = service.prepare

    def recorded(spec):
        specs.append(spec)
        return prepare(spec)

    service.prepare = recorded
    for made, fields in (
            (dict(), {"max_q_len": 1, "num_partitions": 1, "mask": "causal"}),
            (dict(rows=3), {"max_q_len": 4, "num_partitions": 1}),
            (dict(ragged=True), {"ragged": True, "num_partitions": 1}),
            (dict(kind="float8_e4m3fn"), {"kv_dtype": "e4m3", "scales": "tensor"}),
            (dict(of_q="float16", kind="float16"), {"qkv_dtype": "fp16", "output_dtype": "fp16"}),
            (dict(kind="uint8", topk=128), {"cache_format": "dsv32", "topk": 128, "mask": "null"}),
            (dict(ragged=True, topk=64), {"topk": 64, "ragged": True})):
        before = len(gpu.report()[0])
        for _ in range(2):
            call(service, **made)
        assert len(gpu.report()[0]) >= before + 2, made
        spec = specs[-1]
        assert {name: spec.get(name) for name in fields} == fields, spec
        assert (spec["mla"], spec["num_q_heads"], spec["group"]) == ("decode", HEADS, HEADS)
    assert len(specs) == 7, "a kernel that was there was prepared again"
    call(service, scale=0.5)
    assert len(specs) == 7


def refusals(service):
    fails(lambda: call(service, page_table=None), InvalidError, "page_table", "topk_indices")
    fails(lambda: call(service, topk=64, kv_lens=vector(LENS, BATCH)), InvalidError, "kv_lens")
    fails(lambda: call(service, kv_lens=vector(LENS, BATCH - 1)), ValueError, "kv_lens")
    fails(lambda: call(service, out=Tensor(OUT, (BATCH, HEADS, 576))), ValueError, "out")
    fails(lambda: call(service, kind="float16"), TypeError, "float16")
    fails(lambda: call(service, k_scale=Tensor(SCALE, (1,), "float32")), ValueError, "k_scale")
    fails(lambda: call(service, topk=64, topk_indices=vector(LISTS, BATCH - 1, 64)), ValueError,
          "topk_indices")
    fails(lambda: call(service, cache=Tensor(CACHE, (PAGES, PAGE, 2, 576))), ValueError, "cache")
    # Each tensor by the name that the caller gave it.
    others = {"kind": "float8_e4m3fn"}
    for name, shape, dtype, more in (
            ("cache", (PAGES, PAGE, 576), "bfloat16", {}), ("out", (BATCH, HEADS, 512), "bfloat16", {}),
            ("page_table", (BATCH, 4), "int32", {}), ("kv_lens", (BATCH,), "int32", {}),
            ("q_offsets", (BATCH + 1,), "int32", {"ragged": True}),
            ("sink", (HEADS,), "float32", {}), ("k_scale", (1,), "float32", others),
            ("topk_indices", (BATCH, 64), "int32", {"topk": 64})):
        elsewhere = Tensor(CACHE, shape, dtype, device=Device(2, 1))
        error = fails(lambda: call(service, **{**more, name: elsewhere}), TypeError, name, "cuda:1")
        assert error.field == name
    for name, shape, more in (("k_scale", (1,), others), ("topk_indices", (BATCH, 64), {"topk": 64})):
        wrong = Tensor(CACHE, shape, "float64")
        fails(lambda: call(service, **{**more, name: wrong}), ValueError, name, "float64")


def main():
    gpu = Gpu(sys.argv[1])
    with tempfile.TemporaryDirectory() as folder, attnjit.Service(
            cache_layers=folder, driver_path=gpu.path) as service:
        if not have_nvrtc():
            print("skipped: there is no NVRTC")
            sys.exit(77)
        launches(gpu, service)
        refusals(service)
        # Parts of the keys need memory, which only torch is asked for.
        assert _mla.fields_of(None, None, 0, 0).endswith('"num_partitions":0')
        assert _mla.fields_of(1, None, 512, 64).endswith('"partition_keys":512,"topk":64')


if __name__ == "__main__":
    main()
