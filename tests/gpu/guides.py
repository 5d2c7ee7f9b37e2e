#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs the Python of the README and of the guides that needs a GPU: guides.py [--list | --cpu]

Each block runs over tensors that are made here, by the names that the guides use, and what each call of an attention
returns is held to attnjit.reference. tests/docs/commands.py runs the Python that needs none, and says which commands
other tests run. --cpu: with the reference in place of the kernels, so that the guides' code itself is tested without a
GPU. Exit code 1 where something is wrong, 77 without a GPU or torch.
"""
import functools
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/docs"))
import commands  # noqa: E402

BOUND = 0.02  # of the largest error of bf16, where values are those of N(0, 1)
# Models by name, which tests/gpu/models.py has.
ELSEWHERE = ("AutoModelForCausalLM",)


def todo():
    """(document, code) of each block, with what guides leave to the reader filled in."""
    documents = [*(ROOT / one for one in commands.GUIDES), *sorted((ROOT / "docs").glob("*.md"))]
    for path in documents:
        for code in commands.gpu_scripts(path.read_text(encoding="utf-8")):
            if not any(word in code for word in ELSEWHERE):
                yield path.relative_to(ROOT), code.replace("(mask_mod, ..)", "(mask_mod, None, None, S, S, device)")


def tensors(torch, attnjit, create_block_mask, device):
    """Heads and rows are as many, so that both layouts fit."""
    batch, size, depth, page = 2, 128, 64, 16
    torch.manual_seed(0)

    def normal(*shape, dtype=torch.bfloat16):
        return torch.randn(*shape, device=device, dtype=dtype)

    def mask_mod(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx

    pages = batch * size // page
    return {
        "S": size, "attnjit": attnjit, "torch": torch, "create_block_mask": create_block_mask, "mask_mod": mask_mod,
        "q": normal(batch, size, size, depth), "k": normal(batch, size, size, depth),
        "v": normal(batch, size, size, depth), "k_cache": normal(pages, page, size, depth),
        "v_cache": normal(pages, page, size, depth),
        "page_table": torch.randperm(pages, device=device).int().reshape(batch, -1),
        "kv_lens": torch.tensor([size, size - 9], device=device, dtype=torch.int32),
        "document": (torch.arange(size, device=device) // 40).int(), "mask": attnjit.mask(mask_mod),
        "bools": torch.rand(1, 1, size, size, device=device) < 0.7, "numbers": normal(size, size, dtype=torch.float32),
        "packed": torch.randint(0, 256, (1, 1, size, size // 8), device=device, dtype=torch.uint8),
        "slopes": torch.rand(size, device=device), "blocks": create_block_mask(mask_mod, None, None, size, size, device),
        "device": device,
    }


def held(function, attnjit, names, found):
    """The function, whose results are compared with the reference's."""

    @functools.wraps(function)
    def call(*arguments, **keywords):
        result = function(*arguments, **keywords)
        meant = {**dict(zip(names, arguments)), **keywords}
        wanted = attnjit.reference(meant.pop("q"), meant.pop("k"), meant.pop("v"), **meant)
        pairs = zip(result, wanted) if isinstance(result, tuple) else [(result, wanted)]
        found.append(max(float((one.double() - other).abs().max()) for one, other in pairs))
        return result

    return call


def main():
    if "--list" in sys.argv[1:]:
        for path, code in todo():
            print(f"{path}:\n{code}\n")
        return 0
    try:
        import torch
        from torch.nn.attention.flex_attention import create_block_mask
    except ImportError:
        print("skipped: there is no torch")
        return 77
    cpu = "--cpu" in sys.argv[1:]
    if not cpu and not torch.cuda.is_available():
        print("skipped: there is no GPU")
        return 77
    import attnjit
    errors = []
    dense, paged = ("q", "k", "v"), ("q", "k", "v", "page_table", "kv_lens")
    if cpu:
        attnjit.attention = attnjit.reference

        def by_position(q, k, v, page_table, kv_lens, **keywords):
            return attnjit.reference(q, k, v, page_table=page_table, kv_lens=kv_lens, **keywords)

        attnjit.paged_attention = by_position
    attnjit.attention = held(attnjit.attention, attnjit, dense, errors)
    attnjit.paged_attention = held(attnjit.paged_attention, attnjit, paged, errors)
    wrong = 0
    for path, code in todo():
        names, before = tensors(torch, attnjit, create_block_mask, "cpu" if cpu else "cuda"), len(errors)
        try:
            exec(compile(code, str(path), "exec"), names)
        except Exception as error:  # NOTE: one block's failure leaves the others to run
            print(f"{path}: {type(error).__name__}: {error}\n{code}")
            wrong += 1
            continue
        calls = errors[before:]
        wrong += any(not one <= BOUND for one in calls)
        print(f"{path}: {len(calls)} calls, largest error {max(calls, default=0):.4f}: "
              f"{re.split(chr(10), code.strip())[0][:80]}")
    print(f"{len(errors)} calls, {wrong} blocks wrong")
    return 1 if wrong or not errors else 0


if __name__ == "__main__":
    sys.exit(main())
