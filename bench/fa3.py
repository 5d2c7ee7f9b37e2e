# SPDX-License-Identifier: Apache-2.0
"""FlashAttention-3 through a library without PyTorch, for the benchmarks beside it.

The library has `int fa3_fwd(Args*, stream)` and `int fa3_metadata(Args*, stream)`, which call
FlashAttention-3's own kernels; 0 means that they were launched.
"""
import ctypes

import torch


class Args(ctypes.Structure):
    """q, o: [batch, seqlen_q, h, d] or [total_q, h, d]; k, v likewise, or [pages, page_size, hk, d].
    Pointers may be null where the call does not use them."""
    _fields_ = [(name, ctypes.c_void_p) for name in
                ("q", "k", "v", "o", "lse", "cu_seqlens_q", "seqused_k", "page_table", "meta",
                 "oaccum", "lseaccum")] + [("oaccum_floats", ctypes.c_int64)] + [
        (name, ctypes.c_int32) for name in
        ("batch", "seqlen_q", "total_q", "seqlen_k", "h", "hk", "d", "page_size", "num_pages",
         "page_table_stride", "causal", "window_left", "window_right", "num_splits",
         "metadata_given", "out_num_splits", "out_pack_gqa", "is_fp16")]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        for name in ("fa3_fwd", "fa3_metadata"):
            getattr(self.lib, name).argtypes = [ctypes.c_void_p, ctypes.c_void_p]

    def call(self, name, args):
        """Enqueues on the current stream; RuntimeError where the library does not take the call."""
        code = getattr(self.lib, name)(ctypes.addressof(args),
                                       torch.cuda.current_stream().cuda_stream)
        if code:
            raise RuntimeError(f"{name}: {code}")
