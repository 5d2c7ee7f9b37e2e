# SPDX-License-Identifier: Apache-2.0
"""attention() and paged_attention() launch what they say: launch_test.py FAKE_LIBCUDA.

The GPU is a fake one, whose driver records launches and tensor maps.
"""
import ctypes
import json
import os
import pathlib
import sys
import tempfile
import threading
import time
import types

os.environ["ATTNJIT_FAKE_KERNEL"] = "*"  # those that each image has

import attnjit  # noqa: E402
from attnjit import _launch  # noqa: E402
from attnjit._tensors import Device, view  # noqa: E402
from fake_gpu import Gpu, Tensor, fails, have_nvrtc  # noqa: E402

# A proof launches each kind of argument with each type and mask; a usual run each kind once.
IN_PROOF = int(os.environ.get("ATTNJIT_TEST_SEEDS", "1")) > 1
Q, K, V, O, DOC, TABLE, LENS, OFFSETS = (0x100000 * i for i in range(1, 9))


def dense(gpu, service):
    q, k = Tensor(Q, (2, 300, 8, 128)), Tensor(K, (2, 500, 4, 128))
    v, o = Tensor(V, (2, 500, 4, 128)), Tensor(O, (2, 300, 8, 128))
    result = attnjit.attention(q, k, v, out=o, mask="causal", service=service)
    assert result is o
    launches, maps = gpu.report()
    assert launches == [("attnjit_forward", 0)], launches
    # Bytes from row to row and from head to head, as the tensors have them.
    assert {Q, K, V} <= set(maps), maps
    assert 4 * 128 * 2 in maps[K][1] and 500 in maps[K][0], maps[K]

    # Heads before rows: the same memory gives the same launch.
    compiles = service.statistics()["compiles"]
    swapped = [tensor.transpose(1, 2) for tensor in (q, k, v, o)]
    attnjit.attention(*swapped[:3], out=swapped[3], mask="causal", layout="bhsd", service=service)
    again, maps_again = gpu.report()
    assert len(again) == 2 and maps_again == maps and service.statistics()["compiles"] == compiles

    # Other strides of the same shapes are other tensor maps.
    wide = Tensor(K, (2, 500, 4, 128), strides=(500 * 1024, 1024, 128, 1))
    attnjit.attention(q, wide, v, out=o, mask="causal", service=service)
    assert 1024 * 2 in gpu.report()[1][K][1], gpu.report()[1][K]


def mask_of_a_function(gpu, service):
    doc = Tensor(DOC, (500,), "int32")
    table = Tensor(TABLE, (4, 10, 20), "float32")
    mask = attnjit.mask(lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (doc[b] == doc[b + 1]))
    score_mod = attnjit.score_mod(lambda score, b, h, q, kv: score + table[h % 4, 1, q % 20])
    q, k = Tensor(Q, (1, 300, 8, 64)), Tensor(K, (1, 500, 8, 64))
    before = len(gpu.report()[0])
    for _ in range(2):
        attnjit.attention(q, k, k, out=q, mask=mask, score_mod=score_mod, service=service)
    assert len(gpu.report()[0]) == before + 2
    # The same expression over another array has the same kernel.
    other = Tensor(DOC, (900,), "int32")
    compiles = service.statistics()["compiles"]
    doc = other
    again = attnjit.mask(lambda b, h, q_idx, kv_idx: (q_idx >= kv_idx) & (doc[b] == doc[b + 1]))
    assert again.json == mask.json and again.params["doc"] is other
    attnjit.attention(q, k, k, out=q, mask=again, score_mod=score_mod, service=service)
    assert service.statistics()["compiles"] == compiles


def masks_of_tensors(gpu, service):
    """A mask's tensor, bits, bias and slopes reach the launch as they lie in memory."""
    # NOTE: a map needs a workspace, which only torch is asked for; depths above 192 have no map.
    q, k = Tensor(Q, (2, 300, 8, 256)), Tensor(K, (2, 500, 4, 256))

    launched, launch = [], _launch.Launcher.launch
    _launch.Launcher.launch = lambda self, *rest: (launched.append(self), launch(self, *rest))

    def call(**more):
        attnjit.attention(q, k, k, out=q, service=service, **more)
        args = launched.pop().args
        strides = args.mask_strides
        return (args.mask, (args.mask_batch, args.mask_heads, args.mask_rows),
                (strides.batch, strides.head, strides.row), args.slopes)

    bools = Tensor(DOC, (2, 1, 300, 500), "bool")
    assert call(mask=bools)[:3] == (DOC, (2, 1, 300), (150000, 150000, 500))
    # Another tensor of that geometry goes the quick way; expanded ones are one for all.
    assert call(mask=Tensor(TABLE, (2, 1, 300, 500), "bool"))[0] == TABLE
    wide = Tensor(DOC, (2, 8, 300, 512), "bool", strides=(0, 0, 512, 1))
    assert call(mask=wide)[1:3] == ((1, 1, 300), (0, 0, 512))
    # NOTE: each spec is a compile of a second; the calls of float32 share one, which has slopes, too.
    slopes = attnjit.alibi(Tensor(LENS, (8,), "float32"))

    def biased(**more):
        return call(score_mod=slopes, **more)

    assert biased(mask=Tensor(DOC, (300, 500), "float32"))[1:] == (
        (1, 1, 300), (0, 0, 500), LENS)
    assert biased(mask=Tensor(DOC, (8, 1, 500), "float32"))[1:3] == ((1, 8, 1), (0, 500, 500))
    assert biased(bias=Tensor(TABLE, (1, 500), "float32"))[0] == TABLE
    assert attnjit.masks.as_mask(Tensor(DOC, (8, 1, 500), "bfloat16")).spec["dtype"] == "bf16"
    assert call(mask=attnjit.bit_mask(Tensor(DOC, (1, 8, 300, 64), "uint8")))[1:3] == (
        (1, 8, 300), (153600, 19200, 64))
    both = attnjit.masks.with_bias("causal", Tensor(DOC, (300, 500), "float16"))
    assert both.spec == {"kind": "and", "of": [{"kind": "causal"},
                                               {"kind": "materialized", "dtype": "fp16"}]}
    assert both.json == json.dumps(both.spec, sort_keys=True)
    if IN_PROOF:
        assert call(mask=Tensor(DOC, (8, 1, 500), "bfloat16"))[1:3] == ((1, 8, 1), (0, 500, 500))
        assert call(mask="causal", bias=both.tensor)[0] == DOC

    fails(lambda: attnjit.bit_mask(bools), TypeError, "uint8")
    fails(lambda: attnjit.masks.as_mask(bools) & bools, attnjit.InvalidError, "one")
    fails(lambda: call(mask=bools, bias=both.tensor), attnjit.InvalidError, "one")
    fails(lambda: call(bias=bools), TypeError, "bias is of bool")
    fails(lambda: call(mask=Tensor(DOC, (300, 500), "int64")), TypeError, "allowed: bool")
    for shape in ((3, 1, 300, 500), (2, 3, 300, 500), (2, 1, 299, 500), (2, 1, 300, 499), (500,)):
        fails(lambda: call(mask=Tensor(DOC, shape, "bool")), ValueError, "mask")
    fails(lambda: call(mask=attnjit.bit_mask(Tensor(DOC, (300, 62), "uint8"))), ValueError, "63")
    fails(lambda: call(mask=Tensor(DOC, (300, 500), "bool", strides=(1, 300))), ValueError,
          "contiguous")
    fails(lambda: call(mask={"kind": "materialized", "dtype": "u8"}), attnjit.InvalidError,
          "no tensor mask")
    fails(lambda: call(bias=Tensor(DOC, (300, 500), "float32"),
                       score_mod=attnjit.alibi(Tensor(LENS, (7,), "float32"))), ValueError, "slopes")
    _launch.Launcher.launch = launch


class BlockMask:
    """As much of FlexAttention's as attnjit uses."""

    def __init__(self, shape, full=True, size=(128, 128), mask_mod=None, dtype="int32"):
        self.kv_num_blocks = Tensor(DOC, shape[:3], dtype)
        self.kv_indices = Tensor(TABLE, shape, dtype)
        self.full_kv_num_blocks = Tensor(LENS, shape[:3], dtype) if full else None
        self.full_kv_indices = Tensor(OFFSETS, shape, dtype) if full else None
        self.BLOCK_SIZE, self.mask_mod = size, mask_mod


def lists_of_blocks(gpu, service):
    """A BlockMask's arrays reach the launch, and its mask_mod is asked."""
    q, k = Tensor(Q, (2, 300, 8, 64)), Tensor(K, (2, 500, 4, 64))
    launched, launch = [], _launch.Launcher.launch
    _launch.Launcher.launch = lambda self, *rest: (launched.append(self), launch(self, *rest))

    def call(**more):
        before = len(gpu.report()[0])
        attnjit.attention(q, k, k, out=q, service=service, **more)
        launches = gpu.report()[0][before:]
        assert launches == [("attnjit_forward", 0)], launches  # no map is made
        args = launched.pop().args
        return (args.mask_map, (args.kv_num_blocks, args.kv_indices, args.full_kv_num_blocks,
                                args.full_kv_indices),
                (args.map_batch, args.map_heads, args.map_q_blocks, args.map_kv_blocks))

    blocks = BlockMask((1, 1, 3, 4))
    everything = (2, (DOC, TABLE, LENS, OFFSETS), (1, 1, 3, 4))
    chunked = {"kind": "chunked", "chunk": 64, "constant": True}
    for mask in ("causal", chunked, None) if IN_PROOF else ("causal",):
        assert call(mask=mask, block_mask=blocks) == everything, mask
    assert call(mask="causal", block_mask=BlockMask((2, 4, 3, 4), full=False)) == (
        2, (DOC, TABLE, 0, 0), (2, 4, 3, 4))
    # Once is enough, and the mask says which blocks, too.
    listed = attnjit.block_mask(blocks, "causal")
    assert listed.json == '"causal"' and call(mask=listed) == everything
    bias = Tensor(Q, (300, 500), "float16")
    both = attnjit.masks.with_blocks(blocks, "causal", bias)
    assert both.spec == attnjit.masks.with_bias("causal", bias).spec
    assert both.tensor is not None and len(both.blocks) == 4
    if IN_PROOF:
        assert call(mask="causal", bias=bias, block_mask=blocks) == everything

    def mod(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    assert attnjit.block_mask(BlockMask((1, 1, 3, 4), mask_mod=mod)).spec["code"] == \
        attnjit.mask(mod).spec["code"]
    mod.__name__, mod.__module__ = "noop_mask", "torch.nn.attention.flex_attention"
    assert attnjit.block_mask(BlockMask((1, 1, 3, 4), mask_mod=mod)).spec == "null"

    def refused(wrong, *texts):
        fails(lambda: call(mask="causal", block_mask=wrong), *texts)

    refused(BlockMask((1, 1, 3, 4), size=(64, 64)), attnjit.InvalidError, "128")
    refused(BlockMask((1, 1, 3, 4), dtype="int64"), TypeError, "int32")
    refused(BlockMask((1, 3, 4)), ValueError, "kv_blocks")
    for shape in ((1, 1, 2, 4), (3, 1, 3, 4), (1, 3, 3, 4)):  # rows, sequences, heads
        refused(BlockMask(shape), attnjit.InvalidError, "mask_map")
    fails(lambda: listed & "causal", attnjit.InvalidError, "lists of blocks")
    # The right one, too, where it has to rename an array.
    alike, other = (attnjit.mask(lambda b, h, q_idx, kv_idx: doc[q_idx] == doc[kv_idx])
                    for doc in (Tensor(DOC, (500,), "int32"), Tensor(LENS, (500,), "int32")))
    fails(lambda: alike & attnjit.block_mask(blocks, other), attnjit.InvalidError,
          "lists of blocks")
    fails(lambda: call(mask=listed, block_mask=blocks), attnjit.InvalidError, "lists of its own")
    _launch.Launcher.launch = launch


def ragged(gpu, service):
    offsets = Tensor(OFFSETS, (4,), "int32")
    q, k = Tensor(Q, (70, 8, 64)), Tensor(K, (90, 4, 64))
    before = len(gpu.report()[0])
    attnjit.attention(q, k, k, out=q, mask="causal", q_offsets=offsets, kv_offsets=offsets,
                      max_q_len=30, max_kv_len=40, service=service)
    # More rows than the sequences can have: what pads a graph.
    attnjit.attention(q, k, k, out=q, mask="causal", q_offsets=offsets, kv_offsets=offsets,
                      max_q_len=10, max_kv_len=20, service=service)
    assert len(gpu.report()[0]) == before + 2


def paged(gpu, service):
    # Keys and values by turns in one cache, heads before rows: views of it.
    shape, strides = (50, 16, 4, 64), (4 * 16 * 128, 128, 16 * 128, 1)
    k, v = Tensor(K, shape, strides=strides), Tensor(K + 128, shape, strides=strides)
    table, lens = Tensor(TABLE, (3, 20), "int32"), Tensor(LENS, (3,), "int32")
    q = Tensor(Q, (3, 1, 8, 64))
    before = len(gpu.report()[0])
    attnjit.paged_attention(q, k, v, table, lens, out=q, num_partitions=1, service=service)
    offsets = Tensor(OFFSETS, (4,), "int32")
    flat = Tensor(Q, (60, 8, 64))
    attnjit.paged_attention(flat, k, v, table, lens, out=flat, q_offsets=offsets, max_q_len=40,
                            service=service)
    assert len(gpu.report()[0]) == before + 2
    fails(lambda: attnjit.paged_attention(q, k, v, table, lens, out=q, num_partitions=4,
                                          service=service), attnjit.UnsupportedError, "workspace",
          "num_partitions=1")


def other_geometry(gpu, service):
    """Each call has its own shapes and strides, whichever the last one had."""
    def launch(rows, stride=512):
        k = Tensor(K, (1, rows, 4, 128), strides=(rows * stride, stride, 128, 1))
        q = Tensor(Q, (1, 30, 8, 128))
        attnjit.attention(q, k, k, out=q, mask="causal", service=service)
        return gpu.report()[1][K]

    # NOTE: others each time: those of a remembered launch are not encoded again.
    for more in (0, 8):
        for rows, stride in ((400 + more, 512), (700 + more, 512), (700 + more, 1024)):
            dims, strides = launch(rows, stride)
            assert rows in dims and stride * 2 in strides, (rows, stride, dims, strides)
    # Tables that are parts of wider ones.
    q, k = Tensor(Q, (3, 8, 64)), Tensor(K, (50, 16, 4, 64))
    table, lens = Tensor(TABLE, (3, 20), "int32", strides=(64, 1)), Tensor(LENS, (3,), "int32")
    before = len(gpu.report()[0])
    attnjit.paged_attention(q, k, k, table, lens, out=q, num_partitions=1, service=service)
    arguments = [one.args for one in _launch._local.recent.values()]
    assert [one.max_pages for one in arguments if one.page_table == TABLE].count(64) == 1
    assert len(gpu.report()[0]) == before + 1


def what_does_not_fit(service):
    """The kernels have addresses alone: what lies outside of a tensor is refused before."""
    q, k, o = Tensor(Q, (2, 30, 8, 64)), Tensor(K, (2, 50, 8, 64)), Tensor(O, (2, 30, 8, 64))
    attnjit.attention(q, k, k, out=o, service=service)

    def dense(kind, *texts, q=q, k=k, v=None, out=o, **more):
        fails(lambda: attnjit.attention(q, k, v or k, out=out, service=service, **more), kind,
              *texts)

    dense(ValueError, "out", "(2, 30, 8, 64)", out=Tensor(O, (2, 29, 8, 64)))
    dense(ValueError, "rows of k and v", v=Tensor(V, (2, 49, 8, 64)))
    dense(ValueError, "sequences", k=Tensor(K, (1, 50, 8, 64)))
    dense(ValueError, "q", "3 dimensions", q=Tensor(Q, (30, 8, 64)), out=Tensor(O, (30, 8, 64)))
    dense(ValueError, "max_kv_len is 51", max_kv_len=51)
    dense(ValueError, "contiguous", out=Tensor(O, (2, 30, 8, 64), strides=(1, 2, 60, 960)))
    dense(ValueError, "sink", sink=Tensor(LENS, (7,), "float32"))
    elsewhere = Tensor(K, (2, 51, 8, 64))
    elsewhere.device = Device(2, 1)
    dense(TypeError, "k lies on", k=elsewhere)
    flat = Tensor(Q, (30, 8, 64))
    for wrong, kind, text in ((Tensor(OFFSETS, (3,), "int64"), TypeError, "int32"),
                              (Tensor(OFFSETS, (3,), "int32", strides=(2,)), ValueError, "rows"),
                              (Tensor(OFFSETS, (4,), "int32"), ValueError, "kv_offsets")):
        dense(kind, text, q=flat, k=Tensor(K, (50, 8, 64)), out=flat, q_offsets=wrong,
              kv_offsets=Tensor(LENS, (3,), "int32"))

    def paged(kind, text, table=(2, 5), lens=(2,), strides=None):
        one = Tensor(Q, (2, 8, 64))
        cache = Tensor(K, (9, 16, 4, 64))
        fails(lambda: attnjit.paged_attention(
            one, cache, cache, Tensor(TABLE, table, "int32", strides=strides),
            Tensor(LENS, lens, "int32"), out=one, service=service), kind, text)

    paged(ValueError, "page_table", table=(1, 5))
    paged(ValueError, "page_table", strides=(1, 2))
    paged(ValueError, "kv_lens", lens=(1,))
    missing = {"kind": "custom", "name": "x", "code": "p.doc[q_idx] == 0",
               "params": [{"name": "doc", "type": "i32[]"}]}
    assert fails(lambda: attnjit.attention(q, k, k, out=o, mask=missing, service=service),
                 attnjit.InvalidError, "doc", "attnjit.Mask").field == "mask"


def eight_bits(gpu):
    """e4m3 has scales, of tensors, heads and rows; the fake GPU passes for an sm_100a, too."""
    kind = "float8_e4m3fn"
    q, k, o = Tensor(Q, (2, 30, 8, 64), kind), Tensor(K, (2, 50, 4, 64), kind), Tensor(
        O, (2, 30, 8, 64))
    one = [Tensor(DOC + 64 * i, (1,), "float32") for i in range(3)]
    of_heads = [Tensor(DOC + 64 * i, (2, heads), "float32") for i, heads in enumerate((8, 4, 4))]
    of_rows = [Tensor(DOC + 64 * i, (2, *rows), "float32")
               for i, rows in enumerate(((30, 8), (50, 4), (50, 4)))]

    def call(scales, service, **more):
        return attnjit.attention(q, k, k, **{"out": o, **more}, service=service,
                                 **dict(zip(("q_scale", "k_scale", "v_scale"), scales)))

    with attnjit.Service(no_disk_cache=1, driver_path=gpu.path) as service:
        for scales in (one, of_rows):
            before = len(gpu.report()[0])
            call(scales, service)
            assert len(gpu.report()[0]) == before + 1
            args = list(_launch._local.recent.values())[-1].args
            assert [args.q_scale, args.k_scale, args.v_scale] == [
                scale.pointer for scale in scales]
        architecture, _launch.architecture = _launch.architecture, lambda *_: "sm_100a"
        _launch._architectures.clear()
        try:
            for scales, name in ((one, "tensor"), (of_heads, "head"), (of_rows, "token"),
                                 ((None,) * 3, None)):
                tensors = _launch.Tensors(q, k, k, o, q_scale=scales[0], k_scale=scales[1],
                                          v_scale=scales[2])
                spec = _launch.spec_of(tensors, _launch.fields_text('"null"', '"identity"'),
                                       "sm_100a")
                assert spec.get("scales") == name and spec["qkv_dtype"] == "e4m3", spec
                if name != "head" and not IN_PROOF:  # the others are launched below
                    continue
                before = len(gpu.report()[0])
                call(scales, service)
                assert len(gpu.report()[0]) == before + 1
                args = list(_launch._local.recent.values())[-1].args
                if name is not None:
                    assert [args.q_scale, args.k_scale, args.v_scale] == [
                        scale.pointer for scale in scales], name
            fails(lambda: call((one[0], None, one[2]), service), ValueError, "together")
            fails(lambda: call((None, one[1], one[2]), service), ValueError, "together")
            fails(lambda: call((of_heads[1], *of_heads[1:]), service), ValueError, "q_scale (2, 4)")
            fails(lambda: call((*one[:2], of_heads[2]), service), ValueError, "v_scale (2, 4)")
            fails(lambda: call((of_rows[0], *of_heads[1:]), service), ValueError, "k_scale (2, 4)",
                  "(2, 50, 4)")
            fails(lambda: call((of_heads[0], *of_rows[1:]), service), ValueError,
                  "k_scale (2, 50, 4)", "(2, 4)")
            # Beside q of 16 bits k and v alone have scales.
            sixteen = Tensor(Q, (2, 30, 8, 64))
            for scales, name in ((one, "tensor"), (of_heads, "head"), (of_rows, "token")):
                tensors = _launch.Tensors(sixteen, k, k, o, k_scale=scales[1], v_scale=scales[2])
                spec = _launch.spec_of(tensors, _launch.fields_text('"null"', '"identity"'),
                                       "sm_90a")
                assert (spec["qkv_dtype"], spec["kv_dtype"], spec["scales"]) == (
                    "bf16", "e4m3", name), spec
                # NOTE: the fake GPU has no such kernel; what a launch of one would be given.
                launcher = _launch.Launcher.__new__(_launch.Launcher)
                launcher.args, launcher._declared, launcher._needed = _launch.LaunchArgs(), [], 0
                launcher._arguments, launcher._launch = (None,) * 3, lambda *arguments: None
                launcher.launch(tensors, (), ())
                args = launcher.args
                assert [args.q_scale, args.k_scale, args.v_scale] == [
                    0, scales[1].pointer, scales[2].pointer], name
            for scales in (one, (None, one[1], None)):
                fails(lambda scales=scales: attnjit.attention(
                    sixteen, k, k, out=o, service=service,
                    **dict(zip(("q_scale", "k_scale", "v_scale"), scales))),
                    ValueError, "no q_scale")
            fails(lambda: attnjit.attention(q, sixteen, sixteen, out=o, service=service),
                  TypeError, "k and v of float8_e4m3fn beside")
            # Those of a page's tokens lie anywhere, K's and V's alike.
            row = Tensor(Q, (2, 8, 64), kind)
            cache = Tensor(K, (9, 16, 4, 64), kind, strides=(9216, 144, 2304, 1))
            table, lens = Tensor(TABLE, (2, 5), "int32"), Tensor(LENS, (2,), "int32")
            of_q = Tensor(DOC, (2, 8), "float32")

            def between(v_strides, service=service):
                scales = [Tensor(DOC + 64 * i, (9, 16, 4), "float32", strides=strides)
                          for i, strides in enumerate(((2304, 36, 576), v_strides))]
                attnjit.paged_attention(row, cache, cache, table, lens, out=Tensor(O, (2, 8, 64)),
                                        q_scale=of_q, k_scale=scales[0], v_scale=scales[1],
                                        num_partitions=1, service=service)

            between((2304, 36, 576))
            own = list(_launch._local.recent.values())[-1].args.kv_scale_strides
            assert (own.batch, own.row, own.head) == (2304, 36, 576), own
            fails(lambda: between((64, 4, 1)), ValueError, "k_scale must be contiguous")
            # Of ragged batches scales of rows and of heads have as many dimensions.
            ragged = dict(q_offsets=Tensor(OFFSETS, (3,), "int32"),
                          kv_offsets=Tensor(OFFSETS, (3,), "int32"))
            rows, keys = Tensor(Q, (70, 8, 64), kind), Tensor(K, (90, 4, 64), kind)
            for shapes, name in ((((70, 8), (90, 4)), "token"), (((2, 8), (2, 4)), "head")):
                scales = [Tensor(DOC, shapes[i > 0], "float32") for i in range(3)]
                if name == "token" or IN_PROOF:
                    attnjit.attention(rows, keys, keys, out=Tensor(O, (70, 8, 64)), service=service,
                                      **dict(zip(("q_scale", "k_scale", "v_scale"), scales)),
                                      **ragged)
                    args = list(_launch._local.recent.values())[-1].args
                    assert [args.q_scale, args.k_scale, args.v_scale] == [DOC] * 3
                tensors = _launch.Tensors(rows, keys, keys, o, q_offsets=ragged["q_offsets"],
                                          q_scale=scales[0], k_scale=scales[1], v_scale=scales[2])
                assert tensors.scales() == name
                assert tensors._replace(q=sixteen, q_scale=None).scales() == name
            words = Tensor(DOC, (1,), "int32")
            fails(lambda: call((words, *one[1:]), service), TypeError, "float32")
            gaps = Tensor(DOC, (2, 8), "float32", strides=(16, 1))
            fails(lambda: call((gaps, *of_heads[1:]), service), ValueError, "contiguous")
            quantised = Tensor(O, (2, 30, 8, 64), kind)
            _launch._local.recent.clear()  # whose last one is then this call's
            call(one, service, out=quantised, output_scale=one[2])
            args = list(_launch._local.recent.values())[-1].args
            assert [args.q_scale, args.k_scale, args.v_scale, args.output_scale] == [
                scale.pointer for scale in (*one, one[2])]
            if IN_PROOF:
                call((None,) * 3, service, out=quantised, output_scale=one[2])
                assert list(_launch._local.recent.values())[-1].args.output_scale == one[2].pointer
            fails(lambda: call(one, service, output_scale=one[2]), ValueError, "output_scale")
            fails(lambda: call(one, service, out=quantised), ValueError, "missing")
            fails(lambda: call(one, service, out=quantised, output_scale=words), TypeError,
                  "float32")
            fails(lambda: call(one, service, out=quantised, output_scale=of_heads[0]), ValueError,
                  "output_scale (2, 8)")
        finally:
            _launch.architecture = architecture
            _launch._architectures.clear()


def closed(gpu, folder):
    """A call through a Service that is closed is refused, also where this thread launched by it."""
    q = Tensor(Q, (1, 64, 8, 64))
    with attnjit.Service(cache_layers=folder, driver_path=gpu.path) as service:
        attnjit.attention(q, q, q, out=q, service=service)
        kernel = service.get(service.prepare({"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64}))
        args, state = service.launch_args(q=q, k=q, v=q, o=q), service.launch_state()
    fails(lambda: attnjit.attention(q, q, q, out=q, service=service), attnjit.InvalidError,
          "closed")
    # Its kernels' memory is gone, and is not looked at.
    for call in (lambda: service.launch(kernel, state, q=q, k=q, v=q, o=q),
                 lambda: service.workspace(kernel, args), lambda: service.prepare_kernel(kernel)):
        assert fails(call, attnjit.InvalidError, "closed").field == "kernel"


def errors(service):
    def call(q_shape=(1, 64, 8, 64), k_shape=(1, 64, 8, 64), dtype="bfloat16", at=K, **more):
        q, k = Tensor(Q, q_shape), Tensor(at, k_shape, dtype)
        return attnjit.attention(q, k, k, out=Tensor(O, q_shape), service=service, **more)

    error = fails(lambda: call(at=K + 4), attnjit.InvalidError, "k")
    assert error.field == "k" and error.code == "invalid", error.field
    error = fails(lambda: call(mask={"kind": "custom", "name": "x", "code": "q_idx >= kv_indx"}),
                  attnjit.InvalidError, "kv_indx")
    assert (error.field, error.line, error.column) == ("mask.code", 1, 10), vars(error)
    assert "kv_idx" in error.hint, error.hint
    fails(lambda: call(q_shape=(1, 64, 8, 576), k_shape=(1, 64, 8, 576)), attnjit.UnsupportedError)
    fails(lambda: call(dtype="float16"), TypeError, "one of")
    fails(lambda: call(k_shape=(1, 64, 3, 64)), ValueError, "heads")
    fails(lambda: call(k_shape=(1, 64, 8, 32)), ValueError, "depths")
    fails(lambda: call(layout="sbhd"), ValueError, "allowed")
    fails(lambda: call(mask=3), TypeError, "mask")
    fails(lambda: call(lse=True), attnjit.UnsupportedError, "lse")
    fails(lambda: attnjit.attention(*[Tensor(Q, (1, 8, 8, 64))] * 3, service=service), TypeError,
          "out")
    fails(lambda: attnjit.attention([1], [1], [1]), TypeError, "no tensor")
    fails(lambda: attnjit.mask(lambda b, h, q, kv: bytes(3)[q] == 0), attnjit.TraceError)
    elsewhere = Tensor(DOC, (64,), "int32")
    elsewhere.device = Device(2, 1)
    fails(lambda: call(mask=attnjit.mask(lambda b, h, q, kv: elsewhere[kv] == 0)), TypeError,
          "elsewhere", "another device")
    on_cpu = Tensor(Q, (1, 8, 8, 64), "float16")
    on_cpu.device = type("Device", (), {"type": "cpu", "index": None})
    fails(lambda: attnjit.attention(on_cpu, on_cpu, on_cpu, out=on_cpu, service=service), TypeError,
          "cpu")


def background(gpu, service):
    q = Tensor(Q, (1, 40, 8, 72))
    before = len(gpu.report()[0])
    deadline = time.monotonic() + 60
    answers = []
    while time.monotonic() < deadline:
        answers.append(attnjit.attention(q, q, q, out=q, service=service,
                                         meanwhile=lambda: "meanwhile"))
        if answers[-1] is q:
            break
        time.sleep(0.01)
    assert answers[0] == "meanwhile" and answers[-1] is q, answers[-3:]
    assert len(gpu.report()[0]) == before + 1


def unknown_options(gpu, folder):
    """What no Service knows is named, whatever stands beside it."""
    for name in ("cache_layer", "reserved", "struct_size", "on_compile_context"):
        fails(lambda: attnjit.Service(cache_layers=folder, driver_path=gpu.path, **{name: 1}),
              TypeError, repr(name), "cache_layers")


def what_an_option_holds(gpu, folder):
    """What a field of the C ABI cannot hold is refused by its name: ctypes would cut it off."""
    def service(**options):
        return attnjit.Service(**{"cache_layers": folder, "driver_path": gpu.path, **options})

    for options, kind, *texts in (
            ({"cache_layers": 5}, TypeError, "cache_layers", "int", "path"),
            ({"cache_layers": [folder]}, TypeError, "cache_layers", "list"),
            ({"cache_layers": folder + "\0x"}, attnjit.InvalidError, "cache_layers", "NUL"),
            ({"compile_threads": 1 << 32}, attnjit.InvalidError, "compile_threads", "32 bits"),
            ({"compile_threads": "2"}, TypeError, "compile_threads", "str", "an int"),
            ({"cache_max_bytes": 1e9}, TypeError, "cache_max_bytes", "float"),
            ({"log": 3}, TypeError, "log", "a function"),
            ({"on_compile": "x"}, TypeError, "on_compile", "a function")):
        fails(lambda options=options: service(**options), kind, *texts)
    service(cache_layers=pathlib.Path(folder)).close()
    service(cache_layers=os.fsencode(folder), no_disk_cache=True).close()


def what_an_argument_holds(service):
    """The same of a launch's arguments: none is cut off, and none that is misspelt is ignored."""
    q, k = Tensor(Q, (1, 64, 8, 64)), Tensor(K, (1, 64, 8, 64))

    def args(**more):
        return service.launch_args(**{"q": q, "k": k, "v": k, "o": q, **more})

    assert args(sink=Tensor(DOC, (8,)), kv_len=7, scale=2).sink == DOC
    assert args(workspace=K, workspace_bytes=1 << 40).workspace_bytes == 1 << 40
    assert args(params={"n": -3, "m": (1 << 32) - 1}).params[1].i32 == -1
    for more, kind, *texts in (
            ({"kv_lenz": TABLE}, TypeError, "'kv_lenz'", "kv_lens"),
            ({"reserved": 1}, TypeError, "'reserved'"),
            ({"q_strides": 1}, TypeError, "'q_strides'"),
            ({"total_q": 1 << 32}, attnjit.InvalidError, "total_q", "4294967296", "32 bits"),
            ({"sink": -1}, attnjit.InvalidError, "sink", "not negative"),
            ({"kv_len": k}, TypeError, "kv_len", "Tensor", "an int"),
            ({"scale": "1"}, TypeError, "scale", "a number"),
            ({"mask_map": "on"}, attnjit.InvalidError, "mask_map", "write"),
            ({"params": {"n": 1 << 32}}, attnjit.InvalidError, "params: n", "32 bits"),
            ({"q": Tensor(Q, (64, 8, 64))}, attnjit.InvalidError, "q: has 3 dimensions")):
        fails(lambda more=more: args(**more), kind, *texts)
    fails(lambda: service.compile({"num_q_heads": 8}), TypeError, "dict is no Spec", "prepare()")
    fails(lambda: service.launch(None, service.launch_state(), q=q, k=k, v=k, o=q), TypeError,
          "no Kernel", "get()")
    fails(lambda: attnjit.mask("causal"), TypeError, "attnjit.mask", "function", "str")
    fails(lambda: attnjit.block_mask(None), TypeError, "no BlockMask")
    fails(lambda: attnjit.Scalar(1 << 31), attnjit.InvalidError, "Scalar", "32 bits")
    fails(lambda: attnjit.Scalar(1.5), TypeError, "Scalar", "float")


class Memory:
    """What torch.empty gives, whose bytes are zero up to `zero`."""
    is_cuda, device = False, "cuda:0"

    def __init__(self, size=0):
        self.size, self.zero = size, 0

    def __getitem__(self, key):
        assert key.start is None and key.step is None and key.stop <= self.size, key
        part = Memory(key.stop)
        part.zero_ = lambda: setattr(self, "zero", key.stop)
        return part

    def data_ptr(self):
        return 0x9000000


def rope_parts(service):
    """Rope parts of their own type come with their strides, as of the rows of MLA's cache."""
    nope, rope = (2, 300, 16, 128), (2, 300, 16, 64)
    cache = Tensor(0x30000000, (2, 300, 1, 64), strides=(300 * 576, 576, 576, 1))
    args = service.launch_args(q=Tensor(Q, nope), k=Tensor(K, nope), v=Tensor(V, nope),
                               o=Tensor(O, nope), q_rope=Tensor(0x20000000, rope), k_rope=cache)
    assert (args.q_rope, args.k_rope) == (0x20000000, 0x30000000)
    assert (args.q_rope_strides.row, args.q_rope_strides.head) == (16 * 64, 64)
    assert (args.k_rope_strides.batch, args.k_rope_strides.row) == (300 * 576, 576)
    cache.strides = (300 * 576, 576, 576, 2)
    try:
        service.launch_args(q=Tensor(Q, nope), k=Tensor(K, nope), v=Tensor(V, nope),
                            o=Tensor(O, nope), k_rope=cache)
    except ValueError as error:
        assert "k_rope" in str(error), error
    else:
        raise AssertionError("a rope part whose elements are apart")


def native(gpu, folder):
    """A spec without an architecture is for the GPU at hand."""
    spec = {"num_q_heads": 8, "qk_depth": 64}
    with attnjit.Service(cache_layers=folder, driver_path=gpu.path) as service:
        own = service.prepare({"arch": "sm_90a", **spec}).key
        assert service.prepare(spec).key == service.prepare({"arch": "native", **spec}).key == own
    with attnjit.Service(cache_layers=folder, driver_path="/nonexistent/libcuda.so") as service:
        fails(lambda: service.prepare(spec), attnjit.InvalidError, "arch", "no GPU is at hand")
        assert service.prepare({"arch": "sm_90a", **spec}).key == own


def zero_bytes(gpu, folder):
    """As much of a workspace is zero as the library says: waits that are bounded need more."""
    torch = types.SimpleNamespace(Tensor=Memory, uint8=None,
                                  empty=lambda size, dtype, device: Memory(size))
    spec = {"arch": "sm_90a", "num_q_heads": 8, "qk_depth": 64, "num_partitions": 3}
    tensors = {"q": Tensor(Q, (1, 64, 8, 64)), "k": Tensor(K, (1, 64, 8, 64)),
               "v": Tensor(V, (1, 64, 8, 64)), "o": Tensor(O, (1, 64, 8, 64))}
    with attnjit.Service(cache_layers=folder, driver_path=gpu.path) as service:
        for more, zero in (({}, 0), ({"debug_waits": True}, 256 + 4096)):
            prepared = service.prepare({**spec, **more})
            kernel = service.get(prepared)
            args = service.launch_args(**tensors)
            needed, told = service.workspace(kernel, args)
            assert told == zero and needed >= zero + 3 * 64 * 8 * 64 * 4, (needed, told)
            launcher = _launch.Launcher(service, prepared, kernel, [], 0)
            launcher._needed, launcher._zero_bytes = needed, told
            kept = sys.modules.get("torch")
            sys.modules["torch"] = torch
            try:
                memory = launcher._workspace(Memory())
            finally:
                del sys.modules["torch"]
                if kept is not None:
                    sys.modules["torch"] = kept
            # One that is kept serves launches with tile counters, too.
            is_kept = memory in _launch._local.kept.values()
            _launch._local.kept.clear()
            assert is_kept == (zero <= 256)
            assert (memory.size, memory.zero) == (needed, 256 if is_kept else zero)
            assert launcher.args.workspace_bytes == needed


def falling_back(gpu, folder):
    """While a new mask's kernel is compiled, the one that interprets serves, once it is at hand."""
    q, k = Tensor(Q, (1, 64, 8, 64)), Tensor(K, (1, 64, 8, 64))
    doc = Tensor(DOC, (64,), "int32")

    def masked(divisor):
        return attnjit.mask(lambda b, h, q, kv: (kv + divisor) % divisor == doc[q])

    def workspace(self, q):  # of maps, for which torch is asked elsewhere
        self.args.workspace, self.args.workspace_bytes = 0x9000000, self._needed

    def until(holds, call=lambda: None):
        deadline = time.monotonic() + 60
        while not holds():
            assert time.monotonic() < deadline, "nothing came of it"
            call()
            time.sleep(0.01)

    kept = _launch.Launcher._workspace, _launch.is_torch
    _launch.Launcher._workspace, _launch.is_torch = workspace, lambda tensor: True
    with attnjit.Service(cache_layers=folder, driver_path=gpu.path, compile_fallbacks=1,
                         compile_threads=2) as service:
        def call(divisor, **more):
            return attnjit.attention(q, k, k, out=q, mask=masked(divisor), service=service, **more)

        def count(name):
            return service.statistics()[name]

        def forwards():
            return sum(name == "attnjit_forward" for name, _ in gpu.report()[0])

        before = count("compiles")
        assert call(3, fallback=True) is q and not attnjit.fallback_served()  # it waited
        until(lambda: count("compiles") == before + 2)  # what interprets comes behind it
        masks = iter(range(4, 100))
        new = next(masks)
        call(new, fallback=True)
        while not attnjit.fallback_served():  # it was compiled, and not loaded
            new = next(masks)
            call(new, fallback=True)
        launched, fallbacks = forwards(), count("fallbacks")
        assert call(new, fallback=True, meanwhile=lambda: "meanwhile") is q
        assert attnjit.fallback_served()
        # In another geometry, too; and its arguments are those of the call.
        wide = Tensor(K, (1, 64, 8, 64), strides=(64 * 4096, 4096, 64, 1))
        attnjit.attention(q, wide, wide, out=q, mask=masked(new), service=service, fallback=True)
        assert attnjit.fallback_served() and gpu.report()[1][K][1][0] == 2 * 4096
        assert forwards() == launched + 2 and count("fallbacks") >= fallbacks + 2
        # Its own kernel serves as soon as it is there, and stays.
        until(lambda: not attnjit.fallback_served(), lambda: call(new, fallback=True))
        fallbacks = count("fallbacks")
        for _ in range(3):
            call(new, fallback=True)
            assert not attnjit.fallback_served()
        assert count("fallbacks") == fallbacks
        # What has no code to interpret; and what interprets makes a map, for which another library
        # is not asked for memory: the call waits for its own kernel, or does something meanwhile.
        _launch.Launcher._workspace, _launch.is_torch = kept
        third = attnjit.mask(lambda b, h, q, kv: kv % 3 == 0)
        assert attnjit.attention(q, k, k, out=q, mask=third, service=service, fallback=True,
                                 meanwhile=lambda: "meanwhile") == "meanwhile"
        assert not attnjit.fallback_served()
        for mask in (third, "causal"):
            attnjit.attention(q, k, k, out=q, mask=mask, service=service, fallback=True)
            assert not attnjit.fallback_served()


def threads(gpu, service):
    """Each thread has launch states of its own."""
    def work():
        q = Tensor(Q, (1, 300, 8, 64))
        gpu._call(b"cuCtxSetCurrent", context)
        for _ in range(50):
            attnjit.attention(q, q, q, out=q, service=service)
        done.append(True)

    context, done = ctypes.c_void_p(), []
    gpu._call(b"cuCtxGetCurrent", ctypes.byref(context))
    before = len(gpu.report()[0])
    workers = [threading.Thread(target=work) for _ in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert len(done) == 3 and len(gpu.report()[0]) == before + 150


def dlpack():
    """A tensor through DLPack is what its producer says."""
    class Managed(ctypes.Structure):
        _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32),
                    ("device_id", ctypes.c_int32), ("ndim", ctypes.c_int32),
                    ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                    ("shape", ctypes.c_void_p), ("strides", ctypes.c_void_p),
                    ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
                    ("deleter", ctypes.c_void_p)]

    class Producer:
        streams = []

        def __init__(self, strides):
            self.shape, self.strides = (ctypes.c_int64 * 3)(4, 5, 6), strides
            self.tensor = Managed(0x1000, 2, 1, 3, 4, 16, 1, ctypes.addressof(self.shape),
                                  strides and ctypes.addressof(strides), 0x20, None, None)

        def __dlpack_device__(self):
            return (2, 1)

        def __dlpack__(self, *, stream):
            self.streams.append(stream)
            new = ctypes.pythonapi.PyCapsule_New
            new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p,
                                                           ctypes.c_void_p]
            return new(ctypes.addressof(self.tensor), b"dltensor", None)

    packed = view(Producer(None), stream=9)
    assert (packed.data_ptr(), packed.shape, packed.stride()) == (0x1020, (4, 5, 6), (30, 6, 1))
    assert (packed.dtype, packed.device.type, packed.device.index) == ("bfloat16", "cuda", 1)
    strided = view(Producer((ctypes.c_int64 * 3)(60, 12, 2)))
    assert strided.stride() == (60, 12, 2) and Producer.streams == [9, 1]
    assert strided.transpose(0, 2).shape == (6, 5, 4)
    assert (strided.unsqueeze(1).shape, strided.unsqueeze(1).stride()[2:]) == ((4, 1, 5, 6), (12, 2))


def main():
    gpu = Gpu(sys.argv[1])
    dlpack()
    if not have_nvrtc():
        print("skipped: there is no NVRTC")
        sys.exit(77)
    logged, events = [], []
    with tempfile.TemporaryDirectory() as cache:
        service = attnjit.Service(cache_layers=cache, driver_path=gpu.path,
                                  log=lambda level, text: logged.append((level, text)),
                                  on_compile=events.append)
        dense(gpu, service)
        mask_of_a_function(gpu, service)
        masks_of_tensors(gpu, service)
        lists_of_blocks(gpu, service)
        ragged(gpu, service)
        paged(gpu, service)
        other_geometry(gpu, service)
        what_does_not_fit(service)
        closed(gpu, cache)
        errors(service)
        eight_bits(gpu)
        background(gpu, service)
        falling_back(gpu, cache)
        unknown_options(gpu, cache)
        what_an_option_holds(gpu, cache)
        what_an_argument_holds(service)
        native(gpu, cache)
        zero_bytes(gpu, cache)
        rope_parts(service)
        threads(gpu, service)
        assert service.flush(float("inf")), "there is nothing to wait for"
        counts = dict(line.split() for line in service.prometheus().splitlines() if line[0] != "#")
        assert int(counts["attnjit_compiles_total"]) == service.statistics()["compiles"] > 0
        assert 0 < float(counts["attnjit_compile_seconds_total"]) < 3600, counts
        assert int(counts["attnjit_remote_puts_total"]) == 0
        assert len(events) == service.statistics()["compiles"], events
        for event in events:
            assert len(event["key"]) == 64 and event["arch"] == "sm_90a", event
            assert event["message"] or (event["registers"] > 0 and event["cubin_bytes"] > 1000)
            assert 1 < event["compile_ms"] < 60000 and "reserved" not in event, event
        print(len(gpu.report()[0]), "launches,", service.statistics()["compiles"], "compiles")
    print("all right")


main()
