# SPDX-License-Identifier: Apache-2.0
"""A reference that stands in at the launch: what attnjit::launch writes, computed by torch on the CPU.

Expressions are evaluated by ATTNJIT_EVALUATE (tests/python/evaluate.cpp), so that the text of the
kernel's mask decides, not the function that it was traced from.

With ATTNJIT_TEST_DEVICE=cuda nothing stands in: the kernels run, and are compared with attend().
"""
import json
import math
import os
import subprocess

import torch

from attnjit import _launch, _torch

calls = []  # the fields of each launch
ON_GPU = os.environ.get("ATTNJIT_TEST_DEVICE") == "cuda"
DTYPE, TOLERANCE = (torch.bfloat16, 3e-2) if ON_GPU else (torch.float32, 1e-5)


def install():
    """From now on attention() computes here, but for a GPU, where tensors are made from now on."""
    if ON_GPU:
        torch.set_default_device("cuda")
        return
    _launch.gpu_of = lambda tensor: 0
    _torch.stream = lambda q, given: 0
    _torch.launch = _dense


def check_calls(condition):
    """Asserts what holds of the launches that were made here."""
    assert ON_GPU or condition(), calls


def _evaluate(code, params, points):
    test = {"kind": "mask", "code": code, "params": params, "points": points}
    done = subprocess.run([os.environ["ATTNJIT_EVALUATE"]], input=json.dumps([test]),
                          capture_output=True, text=True, check=True)
    values = json.loads(done.stdout)[0]
    assert isinstance(values, list), f"{code}: {values}"
    return torch.tensor(values)


def _visible(mask, batch, q_len, kv_len, params, request=0, first_row=0):
    """[batch, q_len, kv_len] of a mask of a spec; the masks here look at no head.

    `request`: the first one's number; `first_row`: the rows of the batch before its.
    """
    rows = torch.arange(q_len)[:, None] + kv_len - q_len
    keys = torch.arange(kv_len)[None, :]
    kind = mask if isinstance(mask, str) else mask["kind"]
    if kind in ("null", "materialized"):  # whose tensor _dense joins, here of an `and`
        return torch.ones(batch, q_len, kv_len, dtype=torch.bool)
    if kind == "causal":
        return (keys <= rows).expand(batch, q_len, kv_len)
    if kind == "sliding_window":
        right = mask.get("window_right", 0)
        return ((keys <= rows + right) & (keys > rows - mask["window"])).expand(batch, q_len,
                                                                                kv_len)
    if kind == "chunked":
        return (keys // mask["chunk"] == rows // mask["chunk"]).expand(batch, q_len, kv_len)
    if kind in ("and", "or"):
        parts = torch.stack([_visible(one, batch, q_len, kv_len, params, request, first_row)
                             for one in mask["of"]])
        return parts.all(0) if kind == "and" else parts.any(0)
    assert kind == "custom", kind
    points = [[request + b, 0, row, key, q_len, kv_len, 0.0, first_row] for b in range(batch)
              for row in range(q_len) for key in range(kv_len)]
    given = [{**one, **params[one["name"]]} for one in mask.get("params", ())]
    return _evaluate(mask["code"], given, points).reshape(batch, q_len, kv_len)


def _params(fields, arrays, numbers):
    """The values of the parameters by their names, as the evaluator takes them."""
    arrays, numbers, found = iter(arrays), iter(numbers), {}
    for one in _launch.declared_params(fields["mask"], fields["score_mod"]):
        if one["type"] == "i32":
            found[one["name"]] = {"values": [next(numbers)], "shape": [1]}
        else:
            value = next(arrays)
            found[one["name"]] = {"values": value.flatten().tolist(), "shape": list(value.shape)}
    return found


def attend(q, k, v, visible, scale, softcap=None, sink=None, bias=0):
    """[rows, heads, depth] of one sequence, in f32, with the LSE [heads, rows]."""
    group = q.shape[1] // k.shape[1]
    q, k, v = (x.float().transpose(0, 1) for x in (q, k, v))
    k, v = k.repeat_interleave(group, 0), v.repeat_interleave(group, 0)
    scores = q @ k.transpose(1, 2) * (scale or 1 / math.sqrt(q.shape[-1]))
    if softcap:
        scores = softcap * torch.tanh(scores / softcap)
    scores = (scores + bias).masked_fill(~visible, -math.inf)
    if sink is not None:
        scores = torch.cat([scores, sink[:, None, None].expand(-1, scores.shape[1], 1)], -1)
    lse = torch.logsumexp(scores, -1)
    weights = torch.exp(scores - lse[..., None]).nan_to_num(0)[..., :k.shape[1]]
    return (weights @ v).transpose(0, 1), lse


def scaled(rows, scale, request):
    """[rows, heads, depth] times the scale of all, or each head of a request by its own."""
    if scale is None:
        return rows
    return rows.float() * (scale if scale.numel() == 1 else scale[request][:, None])


def _dense(tensors, params, numbers, fields, service, stream, q_len, kv_len, scale, layout,
           fallback):
    tensors = _launch.Tensors(*tensors).rows_first(layout)
    _launch.check(tensors, fields, q_len, kv_len)
    q, k, v, out, lse, *others = tensors
    spec = json.loads("{" + fields + "}")
    calls.append(spec)
    sink, page_table, kv_lens, q_offsets, kv_offsets, *scales, mask, slopes, blocks = others
    q_scale, k_scale, v_scale, output_scale = scales
    assert page_table is not None or scales == [None] * 4, "not written here"
    assert blocks is None and (mask is None or page_table is None is q_offsets), "not written here"
    softcap = spec["score_mod"].get("cap") if isinstance(spec["score_mod"], dict) else None

    def distances(rows, keys):
        """What ALiBi adds to the scores of the last `rows` of `keys`: [heads, rows, keys]."""
        if slopes is None:
            return 0
        apart = torch.arange(rows)[:, None] + keys - rows - torch.arange(keys)
        return -slopes[:, None, None] * apart.abs()
    named = _params(spec, params, numbers)
    if kv_offsets is not None:
        for b in range(q_offsets.shape[0] - 1):
            begin, end, first, last = (int(one[b + i]) for one in (q_offsets, kv_offsets)
                                       for i in (0, 1))
            if begin == end:
                continue
            assert end - begin <= q_len and last - first <= kv_len
            visible = _visible(spec["mask"], 1, end - begin, last - first, named, b, begin)[0]
            rows, sums = attend(q[begin:end], k[first:last], v[first:last], visible, scale, softcap,
                                sink, distances(end - begin, last - first))
            out[begin:end] = rows.to(out.dtype)
            if lse is not None:
                lse[:, begin:end] = sums
        return
    if page_table is None:
        assert q_offsets is None and (q_len, kv_len) == (q.shape[1], k.shape[1])
        visible = _visible(spec["mask"], q.shape[0], q_len, kv_len, named)[:, None]
        bias = torch.zeros(q.shape[0])
        if mask is not None:
            mask = mask[..., :kv_len].expand(q.shape[0], q.shape[2], q_len, kv_len)
            visible, bias = ((visible & mask, bias) if mask.dtype is torch.bool else
                             (visible, mask.float()))
        for b in range(q.shape[0]):
            rows, sums = attend(q[b], k[b], v[b], visible[b], scale, softcap, sink, bias[b])
            out[b] = rows.to(out.dtype)
            if lse is not None:
                lse[b] = sums
        return
    for b in range(page_table.shape[0]):
        begin, end = ((b * q.shape[1], (b + 1) * q.shape[1]) if q_offsets is None
                      else (int(q_offsets[b]), int(q_offsets[b + 1])))
        if begin == end:
            continue
        flat_q, flat_out = q.reshape(-1, *q.shape[-2:]), out.view(-1, *out.shape[-2:])
        keys = int(kv_lens[b])
        assert end - begin <= q_len and keys <= kv_len
        pages = page_table[b, :math.ceil(keys / k.shape[1])].long()
        visible = _visible(spec["mask"], 1, end - begin, keys, named, b, begin)[0]
        if tensors.scales() == "token":
            lines = [(x.float()[pages] * one[pages][..., None]).flatten(0, 1)[:keys]
                     for x, one in ((k, k_scale), (v, v_scale))]
        else:
            lines = [scaled(x.float()[pages].flatten(0, 1)[:keys], one, b)
                     for x, one in ((k, k_scale), (v, v_scale))]
        rows, sums = attend(scaled(flat_q[begin:end], q_scale, b), *lines, visible, scale, softcap,
                            sink, distances(end - begin, keys))
        if output_scale is not None:
            rows = (rows / output_scale).clamp(-448, 448)
        flat_out[begin:end] = rows.to(out.dtype)
        if lse is not None and q_offsets is not None:
            lse[:, begin:end] = sums
