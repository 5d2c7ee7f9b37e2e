# SPDX-License-Identifier: Apache-2.0
"""Masks and score modifications from Python functions: masks_test.py ATTNJIT_EVALUATE.

Each function is traced, and the reference's evaluator of its expression is compared with the
function itself, called with numbers, over grids where q_len is below, at and above kv_len. Where
torch is installed, they use torch's functions instead of attnjit.language's.
"""
import json
import math
import pathlib
import re
import subprocess
import sys

import attnjit
import flex_functions
from attnjit import language
from attnjit.masks import HostArray
from flex_functions import (BATCH, DOCUMENT, END_MASKS, HEADS, MASKS, SCORE_MODS, TREE, bias_table,
                            causal, full)

try:
    import torch
except ImportError:
    torch = None

SHAPES = ((5, 9), (7, 7), (9, 4))  # q_len, kv_len


class Words(HostArray):
    """Words of bits without a sign, as an array of a library."""

    def __init__(self, values):
        super().__init__(values)
        self.dtype = "uint32"

    def __getitem__(self, index):
        return self.values[index]


PATHS = Words([0x80000001 | 5 << 3 * i for i in range(9)])


def words_of_bits(b, h, q_idx, kv_idx):  # torch has no shifts of uint32
    return (PATHS[q_idx] >> (kv_idx * 3) & 5) // 4 % 2 != h % 2




def grid():
    for q_len, kv_len in SHAPES:
        for b in range(BATCH):
            for h in range(HEADS):
                for row in range(q_len):
                    for kv_idx in range(kv_len):
                        score = 0.3 * row - 0.7 * kv_idx + h - 0.1
                        yield [b, h, row, kv_idx, q_len, kv_len, score]


def case(function, q_idx):
    """A traced function as attnjit_evaluate takes it, and its values when called."""
    is_mask = function in (*MASKS, *END_MASKS, words_of_bits)
    flex_functions.T = torch or language
    traced = (attnjit.mask if is_mask else attnjit.score_mod)(function, q_idx=q_idx)
    flex_functions.T = language
    params = []
    for param in traced.spec.get("params", ()):
        value = traced.params[param["name"]]
        if isinstance(value, HostArray):
            params.append({**param, "values": value.values, "shape": list(value.shape)})
        else:
            params.append({**param, "values": [value], "shape": [1]})
    expected = []
    for b, h, row, kv_idx, q_len, kv_len, score in points:
        at = row if q_idx == "row" else row + kv_len - q_len
        expected.append(bool(function(b, h, at, kv_idx)) if is_mask
                        else float(function(score, b, h, at, kv_idx)))
    return ({"kind": traced.field, "code": traced.code, "params": params, "points": points},
            expected)


def equal(got, expected):
    if isinstance(expected, bool):
        return got is expected
    got = float(got)
    return got == expected or math.isclose(got, expected, rel_tol=1e-5, abs_tol=1e-6)


def compare():
    what = [(f, "row") for f in (*MASKS, words_of_bits, *SCORE_MODS)]
    what += [(f, "end") for f in END_MASKS + SCORE_MODS if f not in (bias_table,)]
    tests = [case(*one) for one in what]
    done = subprocess.run([sys.argv[1]], input=json.dumps([test for test, _ in tests]),
                          capture_output=True, text=True, check=True)
    for (function, q_idx), (test, expected), got in zip(what, tests, json.loads(done.stdout)):
        where = f"{function.__name__}, q_idx={q_idx}: {test['code']}"
        assert isinstance(got, list), f"{where}: {got}"
        for point, one, other in zip(points, got, expected):
            assert equal(one, other), f"{where} at {point}: {one}, expected {other}"
        if test["kind"] == "mask" and function is not full:
            assert len(set(expected)) == 2, f"{where} shows everything or nothing"
    print(f"{len(what)} traces, {len(points)} scores each")


def refused(function, text, kind=attnjit.mask, **options):
    try:
        got = kind(function, **options)
    except attnjit.TraceError as error:
        line = function.__code__.co_firstlineno
        assert text in str(error), error
        assert error.filename == __file__ and line <= error.line <= line + 2, error
        assert error.source and error.source in open(__file__, encoding="utf-8").read(), error
    else:
        raise AssertionError(f"{function.__name__} was traced: {got}")


def refusals():
    def control_flow(b, h, q_idx, kv_idx):
        return q_idx > 3 if kv_idx else q_idx

    def both(b, h, q_idx, kv_idx):
        return q_idx >= kv_idx and kv_idx > 2

    def chained(b, h, q_idx, kv_idx):
        return 0 < kv_idx < q_idx

    def number_function(score, b, h, q_idx, kv_idx):
        return math.exp(score)

    def unknown(score, b, h, q_idx, kv_idx):
        return score.cumsum(0)

    def unlisted(b, h, q_idx, kv_idx):
        return {"rows": DOCUMENT}["rows"][q_idx] == bytearray(9)[kv_idx]

    def too_large(b, h, q_idx, kv_idx):
        return q_idx < 1 << 40

    def by_zero(b, h, q_idx, kv_idx):
        return q_idx % 0 == kv_idx

    def not_a_number(b, h, q_idx, kv_idx):
        return q_idx == "row"

    def whole_array(b, h, q_idx, kv_idx):
        return DOCUMENT > q_idx

    def slices(b, h, q_idx, kv_idx):
        return TREE[q_idx][1:] == kv_idx

    def long(score, b, h, q_idx, kv_idx):
        for _ in range(20):
            score = score * score
        return score

    refused(control_flow, "no truth value")
    refused(both, "no truth value")
    refused(chained, "no truth value")
    refused(number_function, "needs a number", attnjit.score_mod)
    refused(unknown, "cumsum", attnjit.score_mod)
    refused(unlisted, "no index into this object")
    refused(too_large, "32 bits")
    refused(by_zero, "division by 0")
    refused(not_a_number, "no number")
    refused(whole_array, "1 dimensions")
    refused(slices, "indexed by numbers")
    refused(long, "characters", attnjit.score_mod)
    try:
        assert attnjit.mask(causal, q_idx="total").code == "total_row >= kv_idx"
        attnjit.mask(causal, q_idx="start")
    except ValueError as error:
        assert "allowed" in str(error)
    else:
        raise AssertionError("an unknown q_idx was taken")


def names():
    """Parameters of one spec have names of their own, and only what is read is one."""
    def of(doc, unread):
        return attnjit.mask(lambda b, h, q, kv: (unread, doc[q] == doc[kv])[1])
    one, other, int_ = of([1, 2], [3]), of([4, 5], [6]), [7]
    assert list(one.params) == ["doc"], one.params
    both = one & other & "causal"
    assert [value.values for value in both.params.values()] == [[1, 2], [4, 5]], both
    assert both.spec["of"][0]["of"][1]["code"].count("p.doc_2[") == 2, both
    assert (one & one).params == one.params
    assert list(attnjit.mask(lambda b, h, q_idx, kv_idx: int_[b] == 7).params) == ["int_"]
    h = [1.0]
    shadowed = attnjit.score_mod(lambda score, b, _, q, kv: score * h[b])
    assert shadowed.code == "score * p.h_[b]", shadowed
    # In messages and in the source: what was asked for, else the function's name.
    assert attnjit.mask(causal, name="rows").spec["name"] == "rows"
    assert attnjit.mask(causal).spec["name"] == "causal"
    assert attnjit.mask(lambda b, h, q, kv: q >= kv).spec["name"] == "mask"


def functions():
    """The table of functions is what Python traces, and what the document lists."""
    root = pathlib.Path(__file__).resolve().parents[2]
    table = (root / "templates/common/expression_functions.cuh").read_text(encoding="utf-8")
    listed = (root / "docs/snippets.md").read_text(encoding="utf-8")
    listed = re.search(r"These take floats: `([^`]+)`", listed).group(1).split()
    rows = re.findall(r"^  (?:OPAQUE|RANGED)\(\w+, (\w+), \w+, (\d),", table, re.MULTILINE)
    assert len(rows) > 10 and sorted(listed) == sorted(
        [name for name, _ in rows] + ["fabs", "fmin", "fmax", "fma"]), (rows, listed)
    operands = [language.Symbol("score", "float"), language.Symbol("p.x", "float")]
    for name, arity in rows:
        if name == "round":  # halves away from zero: Python's and torch's go to the even number
            continue
        made = getattr(language, name)(*operands[:int(arity)])
        assert made.code.startswith(name + "(score"), made.code


points = list(grid())
compare()
refusals()
names()
functions()
