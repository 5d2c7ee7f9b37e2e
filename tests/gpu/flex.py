# SPDX-License-Identifier: Apache-2.0
"""Traced masks and score modifications beside FlexAttention itself, on the GPU at hand: flex.py.

Runs the functions of tests/python/flex_functions.py unchanged in both, with 200 rows over 260 keys,
fp16, and prints each function's error relative to FlexAttention's result in f32. It needs attnjit
and torch. Exit code 1 if one is wrong.
"""
import os
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import attnjit

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import flex_functions as functions  # noqa: E402

Q_LEN, KV_LEN, DEPTH, BOUND = 200, 260, 64, 3e-3


def use_longer_data():
    """Puts data for these lengths, on the GPU, into the functions' module."""
    torch.set_default_device("cuda")
    at, batch, heads = torch.arange(KV_LEN), functions.BATCH, functions.HEADS
    functions.T = torch
    functions.DOCUMENT = at // 37
    functions.PREFIX, functions.LENGTHS = torch.tensor([77, 30]), torch.tensor([150, 230])
    functions.SLOPES = torch.tensor(functions.SLOPES)
    functions.TABLE = torch.randn(heads, KV_LEN)
    functions.TREE = ((at[:, None] & at) == at).int()
    functions.SINKS = at % 91 < 3
    functions.BIAS = torch.randn(batch, heads, 3)
    functions.WINDOW, functions.CHUNK, functions.OFFSET = 33, 48, -20
    functions.GIVEN = 25


def error_of(function, q, k, v):
    wide = q.float(), k.float(), v.float()
    if function in functions.MASKS:
        blocks = create_block_mask(function, q.shape[0], q.shape[1], Q_LEN, KV_LEN, device="cuda")
        expected = flex_attention(*wide, block_mask=blocks)
        functions.GIVEN = attnjit.Scalar(functions.GIVEN)  # which FlexAttention does not take
        got = attnjit.attention(q, k, v, mask=function, layout="bhsd")
        functions.GIVEN = int(functions.GIVEN)
    else:
        expected = flex_attention(*wide, score_mod=function)
        got = attnjit.attention(q, k, v, score_mod=function, layout="bhsd")
    return ((got.float() - expected).norm() / expected.norm()).item()


def main():
    torch.manual_seed(0)
    use_longer_data()
    q, k, v = (torch.randn(functions.BATCH, functions.HEADS, rows, DEPTH, dtype=torch.float16)
               for rows in (Q_LEN, KV_LEN, KV_LEN))
    # FlexAttention wants a tensor of what a mask returns, which the constant True is not.
    what = [one for one in functions.MASKS + functions.SCORE_MODS if one is not functions.full]
    errors = {one.__name__: error_of(one, q, k, v) for one in what}
    for name, error in errors.items():
        print(f"{name}: {error:.1e}{'' if error < BOUND else ' WRONG'}")
    wrong = [name for name, error in errors.items() if not error < BOUND]
    print(f"{len(errors)} functions, largest error {max(errors.values()):.1e}, wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
