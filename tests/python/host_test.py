# SPDX-License-Identifier: Apache-2.0
"""What runs without a GPU: reference(), dense(), draw(), plan() and verify().

host_test.py BUILD_FOLDER runs itself in an environment with numpy. The reference is compared with
attention in plain numpy, written here.
"""
import os
import re
import subprocess
import sys
import tempfile

try:
    import numpy
except ImportError:
    import checks
    sys.exit(subprocess.run([checks.python(sys.argv[1]), "-B", *sys.argv]).returncode)

import attnjit
from attnjit import _host

random = numpy.random.default_rng(7)


def raises(kind, field, function, *arguments, **keywords):
    try:
        function(*arguments, **keywords)
    except kind as error:
        assert error.field == field, f"{error!r} names {error.field}, not {field}"
        return error
    raise AssertionError(f"{function.__name__}{arguments}{keywords} raised nothing")


def softmax_attention(q, k, v, visible=None, modify=None, sink=None, scale=None):
    """out [b, s, h, d] and lse [b, h, s], in the order of the definition."""
    batch, rows, heads, depth = q.shape
    group = heads // k.shape[2]
    k, v = numpy.repeat(k, group, axis=2), numpy.repeat(v, group, axis=2)
    scale = float(numpy.float32(1) / numpy.sqrt(numpy.float32(depth))) if scale is None else scale
    scores = scale * numpy.einsum("bqhd,bkhd->bhqk", q, k)
    if modify is not None:
        scores = modify(scores)
    if visible is not None:
        scores = numpy.where(visible, scores, -numpy.inf)
    most = scores.max(axis=-1, keepdims=True, initial=-numpy.inf)
    if sink is not None:
        most = numpy.maximum(most, numpy.reshape(sink, (1, -1, 1, 1)))
    shift = numpy.where(numpy.isfinite(most), most, 0)
    weights = numpy.exp(scores - shift)
    total = weights.sum(axis=-1, keepdims=True)
    if sink is not None:
        total = total + numpy.exp(numpy.reshape(sink, (1, -1, 1, 1)) - shift)
    with numpy.errstate(divide="ignore"):
        lse = numpy.log(total[..., 0]) + shift[..., 0]
    return numpy.einsum("bhqk,bkhd->bqhd", weights / numpy.where(total == 0, 1, total), v), lse


def near(found, wanted, what, bound=1e-12):
    assert found.dtype == numpy.float64, f"{what} is of {found.dtype}"
    assert found.shape == wanted.shape, f"{what}: {found.shape}, wanted {wanted.shape}"
    finite = numpy.isfinite(wanted)
    assert (numpy.isfinite(found) == finite).all(), what
    assert numpy.abs(found[finite] - wanted[finite]).max(initial=0) < bound, what


def tensors(batch=2, rows=5, keys=7, heads=4, kv_heads=2, depth=12, v_depth=10):
    return (random.standard_normal((batch, rows, heads, depth)),
            random.standard_normal((batch, keys, kv_heads, depth)),
            random.standard_normal((batch, keys, kv_heads, v_depth)))


# ---- reference(): masks and score modifications

q, k, v = tensors()
b, h, row, key = numpy.ogrid[:2, :4, :5, :7]
end = row + 2  # the last row has the last key
document = numpy.array([0, 0, 0, 1, 1, 2, 2])
slopes = numpy.array([2.0 ** -(2 * i + 2) for i in range(4)])
bias = random.standard_normal((2, 4, 5, 7)).astype(numpy.float32)
bools = random.random((1, 4, 5, 7)) < 0.5

window = {"kind": "sliding_window", "window": 3}
CASES = {
    "no mask": ({}, {}),
    "causal": ({"mask": "causal"}, {"visible": key <= end}),
    "window": ({"mask": window}, {"visible": (key <= end) & (key > end - 3)}),
    "document": ({"mask": attnjit.mask(lambda b, h, q_idx, kv_idx:
                                       document[q_idx] == document[kv_idx])},
                 {"visible": document[:5].reshape(5, 1) == document}),
    "list, head and end": (
        {"mask": attnjit.mask(lambda b, h, q_idx, kv_idx: (kv_idx + h <= q_idx), q_idx="end")},
        {"visible": key + h <= end}),
    "and": ({"mask": attnjit.Mask(window) & "causal"}, {"visible": (key <= end) & (key > end - 3)}),
    "bools": ({"mask": bools}, {"visible": bools}),
    "numbers": ({"bias": bias, "mask": "causal"},
                {"visible": key <= end, "modify": lambda s: s + bias}),
    "softcap": ({"score_mod": {"kind": "softcap", "cap": 5.0}},
                {"modify": lambda s: 5 * numpy.tanh(s / 5)}),
    "alibi": ({"score_mod": "alibi"},
              {"modify": lambda s: s - slopes.reshape(1, 4, 1, 1) * abs(end - key)}),
    "slopes": ({"score_mod": attnjit.alibi(numpy.float32([0.5, 1, 2, 4]))},
               {"modify": lambda s: s - numpy.reshape([0.5, 1, 2, 4], (1, 4, 1, 1))
                * abs(end - key)}),
    "code": ({"score_mod": lambda score, b, h, q_idx, kv_idx: score * 2.0 + 0.5},
             {"modify": lambda s: 2 * s + 0.5}),
    "sink": ({"sink": numpy.float32([0, 1, -2, 3])}, {"sink": [0, 1, -2, 3]}),
    "scale": ({"scale": 0.25}, {"scale": 0.25}),
    "row without keys": ({"mask": attnjit.mask(lambda b, h, q_idx, kv_idx: q_idx > 2)},
                         {"visible": (row > 2) & (key >= 0)}),
}
for name, (given, meant) in CASES.items():
    out, lse = attnjit.reference(q, k, v, lse=True, **given)
    wanted, wanted_lse = softmax_attention(q, k, v, **meant)
    near(out, wanted, f"{name}: out")
    near(lse, wanted_lse, f"{name}: lse")
causal, causal_lse = softmax_attention(q, k, v, visible=key <= end)
assert not attnjit.reference(q, k, v, **CASES["row without keys"][0])[:, :3].any()

# ---- layouts, strides, element types

near(attnjit.reference(q, k, v, mask="causal"), causal, "without lse")
heads_first = [one.swapaxes(1, 2) for one in (q, k, v)]
near(attnjit.reference(*heads_first, mask="causal", layout="bhsd"), causal.swapaxes(1, 2), "bhsd")
near(attnjit.reference(q[:, ::-1][:, ::-1], numpy.asfortranarray(k), v, mask="causal"), causal,
     "strides")
for dtype in (numpy.float16, numpy.float32):
    rounded = [one.astype(dtype) for one in (q, k, v)]
    near(attnjit.reference(*rounded, mask="causal"),
         softmax_attention(*(one.astype(float) for one in rounded), visible=key <= end)[0],
         str(dtype))
wide = numpy.broadcast_to(bools[:, :1, :1], (1, 4, 5, 7))
near(attnjit.reference(q, k, v, mask=wide), softmax_attention(q, k, v, visible=wide)[0], "expanded")

# ---- ragged, paged, scaled

flat = [one.reshape(-1, *one.shape[2:]) for one in (q, k, v)]
offsets = numpy.int32([0, 2, 10]), numpy.int32([0, 4, 14])
out, lse = attnjit.reference(*flat, q_offsets=offsets[0], kv_offsets=offsets[1], mask="causal",
                             lse=True)
for (q0, q1), (k0, k1) in (((0, 2), (0, 4)), ((2, 10), (4, 14))):
    part = [flat[0][None, q0:q1], flat[1][None, k0:k1], flat[2][None, k0:k1]]
    seen = numpy.arange(k1 - k0) <= numpy.arange(q1 - q0)[:, None] + (k1 - k0) - (q1 - q0)
    wanted, wanted_lse = softmax_attention(*part, visible=seen)
    near(out[q0:q1], wanted[0], "ragged: out")
    near(lse[:, q0:q1], wanted_lse[0], "ragged: lse")

lens = numpy.array([7, 5])  # of 64 bits
cache_k, cache_v = (numpy.full((6, 3, *one.shape[2:]), numpy.nan) for one in (k, v))
table = numpy.int32([[4, 0, 2, -1], [5, 1, -9, -9]])
for sequence in range(2):
    for position in range(lens[sequence]):
        for cache, one in ((cache_k, k), (cache_v, v)):
            cache[table[sequence, position // 3], position % 3] = one[sequence, position]
out = attnjit.reference(q, cache_k, cache_v, page_table=table, kv_lens=lens, mask="causal")
for sequence in range(2):
    n = lens[sequence]
    seen = numpy.arange(n) <= numpy.arange(5)[:, None] + n - 5
    wanted, _ = softmax_attention(q[sequence:][:1], k[sequence:][:1, :n], v[sequence:][:1, :n],
                                  visible=seen)
    near(out[sequence:][:1], wanted, "paged")
one_row = attnjit.reference(q[:, 4], cache_k, cache_v, page_table=table, kv_lens=lens)
near(one_row[:1], softmax_attention(q[:1, 4:], k[:1], v[:1])[0][:, 0], "a row of each")

of_tensor = [numpy.float32([x]) for x in (2.0, 0.5, 3.0)]
near(attnjit.reference(q, k, v, q_scale=of_tensor[0], k_scale=of_tensor[1], v_scale=of_tensor[2]),
     softmax_attention(2 * q, k / 2, 3 * v)[0], "scales of tensors")
of_head = [numpy.float32(random.random((2, n))) for n in (4, 2, 2)]
near(attnjit.reference(q, k, v, q_scale=of_head[0], k_scale=of_head[1], v_scale=of_head[2]),
     softmax_attention(*(x * s[:, None, :, None] for x, s in zip((q, k, v), of_head)))[0],
     "scales of heads")
of_row = [numpy.float32(random.random(x.shape[:3])) for x in (k, v)]
near(attnjit.reference(q, k, v, k_scale=of_row[0], v_scale=of_row[1]),
     softmax_attention(q, k * of_row[0][..., None], v * of_row[1][..., None])[0], "scales of rows")
near(attnjit.reference(q, k, v, output_scale=numpy.float32([0.5])),
     2 * softmax_attention(q, k, v)[0], "output_scale")

blocks = type("Blocks", (), {
    "BLOCK_SIZE": (128, 128), "kv_num_blocks": numpy.int32([[[1]]]),
    "kv_indices": numpy.int32([[[[1, 0]]]]), "full_kv_num_blocks": numpy.int32([[[1]]]),
    "full_kv_indices": numpy.int32([[[[0, 0]]]]), "mask_mod": None})
long = tensors(keys=200)
seen = (numpy.arange(200) < 128) | (numpy.arange(200) % 2 == 0)
near(attnjit.reference(*long, block_mask=blocks,
                       mask=attnjit.mask(lambda b, h, q_idx, kv_idx: kv_idx % 2 == 0)),
     softmax_attention(*long, visible=seen)[0], "blocks")

# ---- tensors of torch, where it is at hand

try:
    import torch
except ImportError:
    print("there is no torch")
else:
    of_torch = [torch.tensor(one).bfloat16() for one in (q, k, v)]
    rounded = [one.double().numpy() for one in of_torch]
    wanted, wanted_lse = softmax_attention(*rounded, visible=bools)
    out, lse = attnjit.reference(*(one.requires_grad_() for one in of_torch), lse=True,
                                 mask=torch.tensor(bools).expand(2, 4, 5, 7))
    near(out.numpy(), wanted, "torch: out")
    near(lse.numpy(), wanted_lse, "torch: lse")
    document_of_torch = torch.tensor(document)
    out = attnjit.reference(*(one.detach().transpose(1, 2) for one in of_torch), layout="bhsd",
                            mask=lambda b, h, q_idx, kv_idx: document_of_torch[q_idx] <= kv_idx)
    near(out.transpose(1, 2).numpy(),
         softmax_attention(*rounded, visible=document[:5, None] <= key[0, 0])[0], "torch: bhsd")
    eighth = [one.detach().to(torch.float8_e4m3fn) for one in of_torch]
    near(attnjit.reference(*eighth, q_scale=torch.ones(1), k_scale=torch.tensor(2.0),
                           v_scale=torch.tensor([0.5])).numpy(),
         softmax_attention(*(f * one.double().numpy() for f, one in zip((1, 2, 0.5), eighth)))[0],
         "torch: e4m3")

# ---- errors

raises(attnjit.InvalidError, "v", attnjit.reference, q, k, v[:, :6])
raises(attnjit.InvalidError, "k", attnjit.reference, q, k[..., :8], v)
raises(attnjit.InvalidError, "q", attnjit.reference, q[0], k, v)
raises(attnjit.InvalidError, "k", attnjit.reference, q[:, :, :3], k, v)
raises(attnjit.InvalidError, "mask", attnjit.reference, q, k, v, mask=bools[..., :6])
raises(attnjit.InvalidError, "layout", attnjit.reference, q, k, v, layout="sbhd")
raises(attnjit.InvalidError, "layout", attnjit.reference, q, cache_k, cache_v, page_table=table,
       kv_lens=lens, layout="bhsd")
raises(attnjit.InvalidError, "window", attnjit.reference, q, k, v, mask="sliding_window")
raises(attnjit.InvalidError, "scale", attnjit.reference, q, k, v, scale=-1)
raises(attnjit.InvalidError, "sink", attnjit.reference, q, k, v, sink=numpy.float32([1]))
raises(attnjit.InvalidTypeError, "q", attnjit.reference, q.astype(int), k, v)
raises(attnjit.InvalidTypeError, "k", attnjit.reference, q, object(), v)
raises(attnjit.InvalidError, "kv_lens", attnjit.reference, q, cache_k, cache_v, page_table=table,
       kv_lens=numpy.int32([7, 13]))
raises(attnjit.InvalidError, "page_table", attnjit.reference, q, cache_k, cache_v,
       page_table=table + 2, kv_lens=lens)
raises(attnjit.InvalidError, "q_offsets", attnjit.reference, *flat,
       q_offsets=numpy.int32([0, 11, 10]), kv_offsets=offsets[1])
raises(attnjit.InvalidError, "kv_offsets", attnjit.reference, *flat, q_offsets=offsets[0],
       kv_offsets=numpy.int32([0, 4, 15]))
raises(attnjit.UnsupportedError, "t", attnjit.reference, q, k, v,
       mask={"kind": "custom", "name": "t", "trusted": True, "code": "int a = 1; return a == h;"})
error = raises(attnjit.InvalidError, "mask.code", attnjit.reference, q, k, v,
               mask={"kind": "custom", "name": "t", "code": "kv_indx > 1"})
assert (error.line, error.column) == (1, 1) and "kv_idx" in error.hint, error
error = raises(attnjit.InvalidError, "mask", attnjit.reference, q, k, v, mask="causl")
assert error.line == 0 and "did you mean `causal`" in str(error), error
assert "attnjit.reference" in raises(attnjit.InvalidTypeError, "q", attnjit.attention, q, k, v).hint

# ---- absorbed MLA: V is a part of K

q, cache = random.standard_normal((2, 1, 4, 576)), random.standard_normal((4, 64, 1, 576))
keys = cache[[[0, 3], [2, 1]]].reshape(2, 128, 1, 576)
near(attnjit.reference(q, cache, cache[..., :512], kv_lens=numpy.int32([128, 70]),
                       page_table=numpy.int32([[0, 3], [2, 1]])),
     softmax_attention(q, keys, keys[..., :512],
                       visible=numpy.arange(128) < numpy.reshape([128, 70], (2, 1, 1, 1)))[0], "mla")

# ---- dense() and draw()

mask = CASES["document"][0]["mask"]
dense = mask.dense(7)
assert dense.dtype == numpy.bool_ and (dense == (document[:, None] == document)).all(), dense
assert (attnjit.Mask("causal").dense(2, 4) == [[1, 1, 1, 0], [1, 1, 1, 1]]).all()
of_head = attnjit.mask(lambda b, h, q_idx, kv_idx: kv_idx == h + 10 * b)
assert (of_head.dense(1, 30, sequence=2, head=3)[0] == (numpy.arange(30) == 23)).all()
shown = attnjit.mask(lambda b, h, q_idx, kv_idx: kv_idx == h, q_idx="end") & bools
assert (shown.dense(5, 7, head=2) == bools[0, 2] * (numpy.arange(7) == 2)).all()
packed = numpy.packbits(bools[:, :1], axis=-1, bitorder="little")
assert (attnjit.bit_mask(packed).dense(5, 7) == bools[0, 0]).all()
assert attnjit.Mask("causal").dense(0, 4).shape == (0, 4)
raises(attnjit.InvalidError, "q_len", mask.dense, -1)
raises(attnjit.InvalidError, "mask", shown.dense, 9, 9)

picture = mask.draw()
assert picture.rows == ("###....", "###....", "###....", "...##..", "...##..", ".....##", ".....##")
assert str(picture).splitlines()[1:8] == list(picture.rows), picture
assert "# seen: 17" in repr(picture) and picture.svg.startswith("<svg "), picture
assert picture.svg == picture._repr_svg_() == mask._repr_svg_()
coarse = attnjit.Mask("causal").draw(256, columns=16)
assert coarse.tile == (32, 16) and coarse.rows[0] == "//..............", coarse
trusted = attnjit.Mask({"kind": "custom", "name": "t", "trusted": True,
                        "code": "int a = 1; return a == h;"})
assert trusted._repr_svg_() is None
raises(attnjit.UnsupportedError, "t", trusted.draw, 4)
unsaid = attnjit.Mask({"kind": "sliding_window"})  # its window is the launch's
raises(attnjit.InvalidError, "window", unsaid.draw, 4)
raises(attnjit.InvalidError, "window", unsaid.dense, 4)
assert unsaid._repr_svg_() is None

# ---- a score modification's draw()

drawn = attnjit.ScoreMod("alibi").draw(3, 4, score=5.0, heads=8, head=1, mask="causal")
assert drawn.rows == [[4.75, 5, None, None], [4.5, 4.75, 5, None], [4.25, 4.5, 4.75, 5]], drawn.rows
assert drawn.cell == (1, 1) and drawn.svg.startswith("<svg ") and "alibi" in repr(drawn), drawn
drawn = attnjit.alibi(numpy.float32([0.5, 2])).draw(1, 3, head=1)
assert drawn.rows == [[-4, -2, 0]], drawn.rows
lengths = numpy.array([3, 1, 2], dtype=numpy.int32)
drawn = attnjit.score_mod(lambda s, b, h, q, k: attnjit.language.where(k < lengths[q], s + 1, s)
                          ).draw(score=2)
assert drawn.rows == [[3, 3, 3], [3, 2, 2], [3, 3, 2]], drawn.rows
large = attnjit.ScoreMod({"kind": "softcap", "cap": 20.0}).draw(300, 200, score=1000)
assert large.cell == (8, 4) and {x for row in large.rows for x in row} == {20.0}, large
assert "at every key of the last query:  -100 -> -20 " in large.text, large
raises(attnjit.InvalidError, "cap", attnjit.ScoreMod({"kind": "softcap"}).draw)
raises(attnjit.InvalidError, "head", attnjit.ScoreMod("alibi").draw, 3, heads=2, head=2)
raises(attnjit.InvalidError, "q_len", attnjit.ScoreMod("alibi").draw, 0)
assert attnjit.ScoreMod({"kind": "softcap"})._repr_svg_() is None

# ---- plan() and verify()

spec = {"arch": "sm_90a", "num_q_heads": 4, "group": 2, "qk_depth": 64, "mask": mask}
plan = attnjit.plan(spec)
assert plan["supported"] is True and plan["kernel"], plan
assert plan == attnjit.plan(_host._given_spec(spec)[0])
assert attnjit.plan({**spec, "qk_depth": 60})["reason"]
raises(attnjit.InvalidError, "depth", attnjit.plan, {**spec, "depth": 3})
raises(attnjit.InvalidTypeError, "spec", attnjit.plan, 3)
raises(attnjit.InvalidError, "backend", attnjit.verify, spec, backend="cpu")
raises(attnjit.InvalidError, "window", attnjit.verify, spec, numbers={"window": 3})
for name in ("seed", "timing"):
    raises(attnjit.InvalidError, "numbers", attnjit.verify, spec, numbers={name: 3})

# Every field of a spec has its type, and no other has.
flags = subprocess.run([_host.command_path(), "plan", "--help"], capture_output=True, text=True,
                       check=True).stdout
fields = {word[2:].replace("-", "_") for line in flags.partition("\nSpec:")[2].partition("\n\n")[0]
          .splitlines() for word in line.split()[:1] if word.startswith("--")} - {"spec"}
assert fields == set(attnjit.SpecFields.__annotations__), fields ^ set(
    attnjit.SpecFields.__annotations__)
# So has every number of a launch.
flags = subprocess.run([_host.command_path(), "verify", "--help"], capture_output=True, text=True,
                       check=True).stdout
numbers = set(re.findall(r"The\s+(\w+)\s+at\s+launch\s+where", flags))
assert numbers == set(attnjit.Numbers.__annotations__), numbers

with tempfile.TemporaryDirectory() as folder:
    os.environ["ATTNJIT_CACHE_DIR"] = folder + "/cache"
    try:
        found = attnjit.verify(spec, backend="emulator", q_len=7, kv_len=7, dump=folder + "/run")
    except attnjit.MissingError as error:  # no NVRTC
        print(f"verify() was not run: {error}")
    else:
        assert found["passed"] and found["backend"] == "emulator", found
        assert set(found) == set(attnjit.Verification.__annotations__), found
        # The reference of the command over what was dumped is what the kernel gave.
        dumped = {name: numpy.load(f"{folder}/run/{name}.npy") for name in ("q", "k", "v", "o")}
        again = attnjit.reference(dumped["q"], dumped["k"], dumped["v"], mask=mask)
        assert numpy.abs(again - dumped["o"]).max() < 0.02
print(f"{len(CASES)} meanings of masks and score modifications")
