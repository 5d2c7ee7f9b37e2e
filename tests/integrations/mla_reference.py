# SPDX-License-Identifier: Apache-2.0
"""A reference that stands in at the launch of absorbed MLA: find(), for attnjit._mla._find."""
import torch

import reference
from attnjit import _mla
from attnjit.integrations import _specs

specs = []  # of each launch


class Launcher:
    """Stands for a kernel's."""

    @staticmethod
    def launch(call, arrays, numbers, q_len, kv_len, scale):
        spec = specs[-1]
        q, cache, out = call.q, call.cache, call.out
        declared = _mla.declared_params(spec["mask"])
        named = {one["name"]: {"values": array.flatten().tolist(), "shape": list(array.shape)}
                 for one, array in zip(declared, arrays)}
        flat, written = q.reshape(-1, *q.shape[-2:]), out.view(-1, *out.shape[-2:])
        lines = dequantised(cache, call.k_scale)
        if call.topk_indices is not None:
            for row, listed in enumerate(call.topk_indices.tolist()):
                keys = lines[[i for i in listed if i >= 0]][:, None]
                made, sums = reference.attend(flat[row:row + 1], keys, keys[..., :call.latent],
                                              torch.tensor(True), scale)
                written[row] = made[0].to(out.dtype)
                if call.lse is not None:
                    call.lse[row] = sums
            return
        batch = call.page_table.shape[0]
        for b in range(batch):
            begin, end = ((b * q.shape[1], (b + 1) * q.shape[1]) if call.q_offsets is None
                          else call.q_offsets[b:b + 2].tolist())
            keys = int(call.kv_lens[b])
            if begin == end:
                continue
            assert end - begin <= q_len and keys <= kv_len
            page = cache.shape[1]
            rows = (call.page_table[b, :-(-keys // page), None].long() * page
                    + torch.arange(page)).flatten()[:keys]
            visible = reference._visible(spec["mask"], 1, end - begin, keys, named, b, begin)[0]
            made, sums = reference.attend(flat[begin:end], lines[rows][:, None],
                                          lines[rows][:, None, :call.latent], visible, scale)
            written[begin:end] = made.to(out.dtype)
            if call.lse is not None:
                if call.q_offsets is None:
                    call.lse[b] = sums
                else:
                    call.lse[:, begin:end] = sums


def dequantised(cache, scale):
    """The rows of a cache, [all, depth] of f32."""
    flat = cache.reshape(-1, cache.shape[-1])
    if cache.dtype is torch.uint8:
        latent = flat[:, :512].view(torch.float8_e4m3fn).float().view(-1, 4, 128)
        factors = flat[:, 512:528].contiguous().view(torch.float32)
        rope = flat[:, 528:].contiguous().view(torch.bfloat16).float()
        return torch.cat([(latent * factors[..., None]).flatten(1), rope], 1)
    return flat.float() * (1 if scale is None else scale.view(1))


def find(call, fields, number, stream, q_len, wait):
    _mla.check(call, q_len)
    plain = _mla.dtype_name
    _mla.dtype_name = lambda dtype: plain(dtype).replace("float32", "bfloat16")  # exact numbers
    spec = _mla.spec_of(call, fields, "sm_90a")
    _mla.dtype_name = plain
    specs.append(spec)
    reason = _specs.why_not(**spec)
    assert reason is None, (reason, spec)
    return Launcher if wait else None
