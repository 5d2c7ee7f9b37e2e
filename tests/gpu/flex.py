# SPDX-License-Identifier: Apache-2.0
"""Traced masks and score modifications beside FlexAttention itself, on the GPU at hand: flex.py.

Runs the functions of tests/python/flex_functions.py unchanged in both, with 200 rows over 260 keys,
fp16, and a BlockMask; prints each one's error relative to FlexAttention's result in f32. It needs
attnjit and torch. Exit code 1 if one is wrong.
"""
import os
import sys

import torch
from torch.nn.attention.flex_attention import BlockMask, create_block_mask, flex_attention

import attnjit

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "python"))
import flex_functions as functions  # noqa: E402

Q_LEN, KV_LEN, DEPTH, BOUND = 200, 260, 64, 3e-3


def use_longer_data(kv_len, device):
    """Puts data for these lengths, on the device, into the functions' module."""
    torch.set_default_device(device)
    at, batch, heads = torch.arange(kv_len), functions.BATCH, functions.HEADS
    functions.T = torch
    of_document = kv_len // 7
    functions.DOCUMENT = at // of_document
    functions.BEGIN = torch.arange(0, kv_len, of_document)
    functions.IMAGE, functions.IMAGE_KEYS = at // (kv_len // 5), kv_len // 4
    functions.STARTS = torch.tensor([0, kv_len // 5])
    functions.PREFIX = torch.tensor([kv_len * 3 // 10, kv_len // 8])
    functions.LENGTHS = torch.tensor([kv_len * 15 // 26, kv_len * 23 // 26])
    functions.SLOPES = torch.tensor(functions.SLOPES)
    functions.TEMPERATURE = torch.tensor(functions.TEMPERATURE)
    functions.BUCKETS = torch.tensor(functions.BUCKETS)
    functions.TABLE = torch.randn(heads, kv_len)
    functions.TREE = ((at[:, None] & at) == at).int()
    functions.SINKS = at % (kv_len // 3 + 5) < 3
    functions.BIAS = torch.randn(batch, heads, 3)
    functions.WINDOW, functions.CHUNK = kv_len // 8 + 1, kv_len * 12 // 65
    functions.OFFSET, functions.GIVEN = -(kv_len // 13), kv_len * 5 // 52


# FlexAttention wants a tensor of what a mask returns, which the constant True is not.
FUNCTIONS = [one for one in functions.MASKS + functions.SCORE_MODS if one is not functions.full]


def flex_result(function, q, k, v):
    """What FlexAttention gives."""
    if function in functions.MASKS:
        blocks = create_block_mask(function, *q.shape[:3], k.shape[2], device=q.device)
        return flex_attention(q, k, v, block_mask=blocks)
    return flex_attention(q, k, v, score_mod=function)


def traced(function):
    """The function as attnjit has it; a number that is given at launch is none to FlexAttention."""
    given, functions.GIVEN = functions.GIVEN, attnjit.Scalar(functions.GIVEN)
    kind = attnjit.mask if function in functions.MASKS else attnjit.score_mod
    try:
        return kind(function)
    finally:
        functions.GIVEN = given


def error_of(function, q, k, v):
    expected = flex_result(function, q.float(), k.float(), v.float())
    ours = traced(function)
    got = attnjit.attention(q, k, v, layout="bhsd", **{ours.field: ours})
    return ((got.float() - expected).norm() / expected.norm()).item()


def error_of_blocks(q, k, v):
    """Of lists of blocks over a causal mask: those of documents, which call some blocks whole."""
    blocks = create_block_mask(lambda b, h, q_idx, kv_idx: q_idx // 130 == kv_idx // 130,
                               q.shape[0], 1, q.shape[2], k.shape[2], device=q.device)
    blocks = BlockMask.from_kv_blocks(
        blocks.kv_num_blocks, blocks.kv_indices, blocks.full_kv_num_blocks, blocks.full_kv_indices,
        mask_mod=lambda b, h, q_idx, kv_idx: q_idx >= kv_idx, seq_lengths=(q.shape[2], k.shape[2]))
    # NOTE: compiled, because FlexAttention in eager mode asks the mask alone, and reads no list.
    expected = torch.compile(flex_attention)(q.float(), k.float(), v.float(), block_mask=blocks)
    got = attnjit.attention(q, k, v, layout="bhsd", block_mask=blocks)
    return ((got.float() - expected).norm() / expected.norm()).item()


def main():
    torch.manual_seed(0)
    use_longer_data(KV_LEN, "cuda")
    q, k, v = (torch.randn(functions.BATCH, functions.HEADS, rows, DEPTH, dtype=torch.float16)
               for rows in (Q_LEN, KV_LEN, KV_LEN))
    errors = {one.__name__: error_of(one, q, k, v) for one in FUNCTIONS}
    longer = [torch.randn(functions.BATCH, functions.HEADS, rows, DEPTH, dtype=torch.float16)
              for rows in (500, 650, 650)]
    errors["blocks over causal"] = error_of_blocks(*longer)
    for name, error in errors.items():
        print(f"{name}: {error:.1e}{'' if error < BOUND else ' WRONG'}")
    wrong = [name for name, error in errors.items() if not error < BOUND]
    print(f"{len(errors)} functions, largest error {max(errors.values()):.1e}, wrong: {wrong}")
    return 1 if wrong else 0


if __name__ == "__main__":
    with torch.no_grad():
        sys.exit(main())
