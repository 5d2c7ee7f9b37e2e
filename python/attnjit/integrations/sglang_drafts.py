# SPDX-License-Identifier: Apache-2.0
"""The steps in which a draft model of SGLang decodes one token behind another.

All steps share tables: step i of them sees i + 1 keys beside those of its request. Where a request
follows several branches, each branch is a row of its own, whose table has single slots.
"""
from __future__ import annotations

from dataclasses import replace
from typing import Any, Callable, List

import torch

from .sglang_backend import Step
from .sglang_tables import fill_page_tables


class AttnjitMultiStepDraftBackend:
    """What SGLang's workers of drafts take for a list of backends, one for each step but the last.
    """

    needs_cpu_seq_lens: bool = False

    def __init__(self, create: Callable[..., Any], runner: Any, topk: int, steps: int) -> None:
        self.topk, self.speculative_num_steps = max(1, topk), steps
        self.slots_of = runner.req_to_token_pool.req_to_token
        page_size = 1 if self.topk > 1 else None
        self.attn_backends: List[Any] = [create(runner, page_size) for _ in range(steps - 1)]
        for backend in self.attn_backends:
            backend.max_pages += steps  # NOTE: branches' slots come behind those of the request

    def init_forward_metadata(self, forward_batch: Any) -> None:
        rows = forward_batch.seq_lens.shape[0] * self.topk
        self._bind(self.attn_backends[0]._memory(rows, torch.empty), rows)
        self._fill(forward_batch)

    def init_cuda_graph_state(self, max_bs: int, max_num_tokens: int) -> None:
        # NOTE: zeros: requests that pad a graph read page 0.
        most = max_bs * self.topk
        self._static = self.attn_backends[0]._memory(most, torch.zeros)
        self._lens = [torch.zeros_like(self._static.kv_lens) for _ in self.attn_backends]

    def init_forward_metadata_out_graph(self, forward_batch: Any, in_capture: bool = False) -> None:
        self._bind(self._static, forward_batch.batch_size * self.topk, self._lens)

    def init_forward_metadata_in_graph(self, forward_batch: Any) -> None:
        self._fill(forward_batch)

    def _bind(self, memory: Step, rows: int, lens: Any = None) -> None:
        """Gives each step its view of the memory."""
        shared = memory.first(rows)
        for i, backend in enumerate(self.attn_backends):
            own = torch.empty_like(shared.kv_lens) if lens is None else lens[i][:rows]
            backend.forward_metadata = replace(shared, kv_lens=own)

    def _fill(self, batch: Any) -> None:
        first = self.attn_backends[0].forward_metadata
        rows = first.kv_lens.shape[0]
        count = rows // self.topk
        if count == 0:
            return
        pool, steps = self.attn_backends[0], self.speculative_num_steps
        requests, lens = batch.req_pool_indices[:count], batch.seq_lens[:count]
        if self.topk > 1:
            requests, lens = (one.repeat_interleave(self.topk) for one in (requests, lens))
        fill_page_tables(self.slots_of, requests, lens, steps - 1 if self.topk == 1 else 0,
                         pool.page_size, first.kv_lens, first.page_table, first.window_table,
                         pool.to_window())
        if self.topk > 1:
            slots = batch.out_cache_loc[:rows * steps].view(rows, steps)
            columns = lens.long()[:, None] + torch.arange(steps, device=lens.device)
            first.page_table.scatter_(1, columns, slots.int())
            if first.window_table is not None:
                first.window_table.scatter_(1, columns, pool.to_window()[slots.long()].int())
        locs = None
        if first.window_table is not None and batch.out_cache_loc is not None:
            locs = pool.window_loc(batch.out_cache_loc).view(count, self.topk, steps)
            locs = locs.permute(2, 0, 1).reshape(steps, rows)
        for i, backend in enumerate(self.attn_backends):
            step = backend.forward_metadata
            step.kv_lens.copy_(lens + (i + 1))
            if locs is not None:
                step.window_loc = locs[i]
