# SPDX-License-Identifier: Apache-2.0
"""Lengths and page tables of a batch, of SGLang's table of token slots: made on the device, so that
a graph that captures it makes them again at each replay.

On a GPU one kernel of Triton's writes a request's own pages alone; elsewhere torch computes all
columns, past the last page of anything.
"""
from __future__ import annotations

from typing import Any, List, Optional

import torch

_COLUMNS = 256
_kernel: Any = None  # made at its first use: elsewhere Triton is not needed


def _make_kernel() -> Any:
    import triton
    import triton.language as tl

    @triton.jit
    def fill(slots, slots_stride, requests, lens, more, starts, kv_lens, table, window_table,
             table_stride, to_window, PAGE: tl.constexpr, HAS_STARTS: tl.constexpr,
             HAS_WINDOW: tl.constexpr, COLUMNS: tl.constexpr):
        row = tl.program_id(0)
        length = tl.load(lens + row).to(tl.int32) + more
        if tl.program_id(1) == 0:
            tl.store(kv_lens + row, length)
        column = tl.program_id(1) * COLUMNS + tl.arange(0, COLUMNS)
        inside = column < (length + PAGE - 1) // PAGE
        begin = slots + tl.load(requests + row).to(tl.int64) * slots_stride
        if HAS_STARTS:
            begin += tl.load(starts + row).to(tl.int64)
        slot = tl.load(begin + column * PAGE, mask=inside, other=0)
        at = row.to(tl.int64) * table_stride + column
        tl.store(table + at, (slot // PAGE).to(tl.int32), mask=inside)
        if HAS_WINDOW:
            moved = tl.load(to_window + slot, mask=inside, other=0)
            tl.store(window_table + at, (tl.maximum(moved, 0) // PAGE).to(tl.int32), mask=inside)

    return fill


def fill_page_tables(slots: torch.Tensor, requests: torch.Tensor, lens: torch.Tensor, more: int,
                     page_size: int, kv_lens: torch.Tensor, table: torch.Tensor,
                     window_table: Optional[torch.Tensor] = None,
                     to_window: Optional[torch.Tensor] = None,
                     starts: Optional[torch.Tensor] = None) -> None:
    """Writes `kv_lens` and the pages of each request.

    Args:
        slots: [requests, tokens]: the slot of each token, whole pages one behind another.
        requests: the row of `slots` of each request.
        lens, more: a request has so many keys: `more` beside those of `lens`.
        to_window: the slot in the windows' pool of each slot.
        starts: the column of `slots` at which a request's keys begin; None: 0.
    """
    if table.is_cuda:
        global _kernel
        if _kernel is None:
            _kernel = _make_kernel()
        _kernel[(table.shape[0], -(-table.shape[1] // _COLUMNS))](
            slots, slots.stride(0), requests, lens, more, starts, kv_lens, table, window_table,
            table.stride(0), to_window, PAGE=page_size, HAS_STARTS=starts is not None,
            HAS_WINDOW=window_table is not None, COLUMNS=_COLUMNS)
        return
    kv_lens.copy_(lens + more)
    columns = torch.arange(table.shape[1], device=table.device) * page_size
    if starts is not None:
        columns = columns[None, :] + starts[:, None].long()
    columns = columns.expand(table.shape[0], -1).clamp(max=slots.shape[1] - 1)
    found = slots[requests.long()[:, None], columns]
    table.copy_(found.div(page_size, rounding_mode="floor"))
    if window_table is not None:
        moved = to_window[found.long().clamp_(0, to_window.shape[0] - 1)]  # type: ignore[index]
        window_table.copy_(moved.clamp_(min=0).div(page_size, rounding_mode="floor"))


def image_ranges(mask: torch.Tensor, rows: List[int], before: List[int],
                 total: int) -> torch.Tensor:
    """The first and last key that a row sees beside those before it: i32 [total, 2], of a mask that
    has for each request [rows, keys before + rows], one behind another. Rows are causal, except
    those of an image, which see all of it; a last key that is none ahead changes nothing.
    """
    found = mask.new_zeros(total, 2, dtype=torch.int32)
    row = at = 0
    for count, past in zip(rows, before):
        keys = past + count
        seen = mask[at:at + count * keys].view(count, keys).to(torch.uint8)
        found[row:row + count, 1] = keys - 1 - seen.flip(1).argmax(1)
        row, at = row + count, at + count * keys
    return found


def tree_bits(mask: torch.Tensor, lens: torch.Tensor, rows: int, out: torch.Tensor) -> None:
    """Packs SGLang's mask of drafts: `out` i32 [requests, rows * words] has, row by row, a bit for
    each row of the request that the row sees.

    `mask` is bool of [requests, rows, rows], or of each request [rows, keys before + rows], one
    behind another; `lens` are the keys before.
    """
    count = lens.shape[0]
    if mask.numel() < count * rows * rows:
        raise ValueError(f"a mask of drafts has {mask.numel()} elements; {count} requests of "
                         f"{rows} rows have at least {count * rows * rows}")
    row = torch.arange(rows, device=mask.device)
    if mask.numel() == count * rows * rows:
        seen = mask.view(count, rows, rows)
    else:
        width = lens.long() + rows
        begin = torch.cumsum(width * rows, 0) - width * rows
        at = (begin[:, None, None] + row[None, :, None] * width[:, None, None]
              + lens.long()[:, None, None] + row[None, None, :])
        seen = mask[at.clamp_(max=mask.numel() - 1)]
    words = -(-rows // 32)
    padded = torch.nn.functional.pad(seen.to(torch.int64), (0, words * 32 - rows))
    weights = torch.ones(32, dtype=torch.int64, device=mask.device) << torch.arange(
        32, device=mask.device)
    packed = (padded.view(count, rows, words, 32) * weights).sum(-1)
    # NOTE: as an i32 keeps the bits.
    packed = torch.where(packed >= 1 << 31, packed - (1 << 32), packed)
    out[:count].copy_(packed.view(count, rows * words))
