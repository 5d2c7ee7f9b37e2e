# SPDX-License-Identifier: Apache-2.0
"""Masks and score modifications from Python functions: masks_test.py ATTNJIT_EVALUATE.

Each function is traced, and the reference's evaluator of its expression is compared with the
function itself, called with numbers, over grids where q_len is below, at and above kv_len. Where
torch is installed, they use torch's functions instead of attnjit.language's.
"""
import json
import math
import subprocess
import sys

import attnjit
from attnjit import language
from attnjit.masks import HostArray

try:
    import torch
except ImportError:
    torch = None

SHAPES = ((5, 9), (7, 7), (9, 4))  # q_len, kv_len
BATCH, HEADS, LONGEST = 2, 4, 9
T = language  # what the functions compute with: torch's functions while they are traced

# Data that the functions name.
DOCUMENT = [0, 0, 0, 1, 1, 2, 2, 2, 2]
PREFIX = [3, 0]
LENGTHS = [4, 8]
SLOPES = [0.5, 0.25, 0.125, 0.0625]
TABLE = [[0.1 * i - 0.3 * j for j in range(LONGEST)] for i in range(HEADS)]
TREE = [[int((i & j) == j) for j in range(LONGEST)] for i in range(LONGEST)]
SINKS = [True, False, False, True, False, False, False, False, False]
BIAS = [[[float(8 * b + 4 * h - d) for d in range(3)] for h in range(HEADS)] for b in range(BATCH)]
WINDOW, CHUNK, CAP, OFFSET = 3, 4, 20.0, -2
GIVEN = attnjit.Scalar(2)  # at launch


def causal(b, h, q_idx, kv_idx):
    return q_idx >= kv_idx


def full(b, h, q_idx, kv_idx):
    return True


def sliding_window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx <= WINDOW)


def two_sided_window(b, h, q_idx, kv_idx):
    return T.abs(q_idx - kv_idx) <= WINDOW


def dilated_window(b, h, q_idx, kv_idx):
    return (T.abs(q_idx - kv_idx) <= 2 * WINDOW) & ((q_idx - kv_idx) % 2 == 0)


def prefix_lm(b, h, q_idx, kv_idx):
    return (kv_idx < PREFIX[b]) | (q_idx >= kv_idx)


def document(b, h, q_idx, kv_idx):
    return DOCUMENT[q_idx] == DOCUMENT[kv_idx]


def causal_document(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (DOCUMENT[q_idx] == DOCUMENT[kv_idx])


def padding(b, h, q_idx, kv_idx):
    return (q_idx < LENGTHS[b]) & (kv_idx < LENGTHS[b])


def chunked(b, h, q_idx, kv_idx):
    return q_idx // CHUNK == kv_idx // CHUNK


def chunk_of_positions(b, h, q_idx, kv_idx):  # with q_idx="end": negative before the first key
    return (q_idx // CHUNK == kv_idx // CHUNK) | (q_idx % CHUNK == 1)


def shifted_floor(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx + OFFSET) // (h + 1) % 3 == (kv_idx - q_idx) % (-2)


def divided_by_data(b, h, q_idx, kv_idx):
    return (q_idx - 4) // (PREFIX[b] - 1) >= (kv_idx - 4) % (PREFIX[b] - 1)


def strided(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & T.logical_or(q_idx - kv_idx < 2, kv_idx % CHUNK == CHUNK - 1)


def per_head_window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & (q_idx - kv_idx < 2 ** 1 * (h + 1))


def global_tokens(b, h, q_idx, kv_idx):
    return SINKS[kv_idx] | (T.abs(q_idx - kv_idx) < 2)


def attention_sink_window(b, h, q_idx, kv_idx):
    return (q_idx >= kv_idx) & ((kv_idx < 2) | (q_idx - kv_idx < WINDOW))


def tree(b, h, q_idx, kv_idx):
    return TREE[q_idx][kv_idx] == 1


def image_prefix(b, h, q_idx, kv_idx):
    same = (DOCUMENT[q_idx] == DOCUMENT[kv_idx]) & (DOCUMENT[q_idx] > 0)
    return same | T.logical_and(q_idx >= kv_idx, kv_idx >= 0)


def two_dimensional_neighbours(b, h, q_idx, kv_idx):
    x, y = q_idx % 3 - kv_idx % 3, q_idx // 3 - kv_idx // 3
    return (T.abs(x) <= 1) & (T.abs(y) <= 1)


def bits(b, h, q_idx, kv_idx):
    return ((5 << h) >> (kv_idx & 3)) & 1 == (q_idx ^ kv_idx) & 1


def window_given_at_launch(b, h, q_idx, kv_idx):
    return (q_idx - kv_idx < GIVEN) & (kv_idx - q_idx < GIVEN)


def combined(b, h, q_idx, kv_idx):
    return causal(b, h, q_idx, kv_idx) & T.logical_not(document(b, h, q_idx, kv_idx))


def identity(score, b, h, q_idx, kv_idx):
    return score


def softcap(score, b, h, q_idx, kv_idx):
    return CAP * T.tanh(score / CAP)


def alibi(score, b, h, q_idx, kv_idx):
    return score + SLOPES[h] * (kv_idx - q_idx)


def alibi_exp2(score, b, h, q_idx, kv_idx):
    return score - T.exp2(-(h + 1) * 8.0 / HEADS) * T.abs(q_idx - kv_idx)


def relative(score, b, h, q_idx, kv_idx):
    return score + (q_idx - kv_idx)


def causal_score(score, b, h, q_idx, kv_idx):
    return T.where(q_idx >= kv_idx, score, -float("inf"))


def bias_table(score, b, h, q_idx, kv_idx):
    return score + TABLE[h][kv_idx]


def bias_of_distance(score, b, h, q_idx, kv_idx):
    return score * 2 + BIAS[b][h][T.clamp(T.abs(q_idx - kv_idx), 0, 2)]


def decay(score, b, h, q_idx, kv_idx):
    return score * T.pow(0.5, T.abs(q_idx - kv_idx) / 2) + T.sqrt(kv_idx + 1.0)


def float_floor(score, b, h, q_idx, kv_idx):
    return (score // 0.75) % 3.0 - (q_idx - kv_idx) % 2.5


def gate(score, b, h, q_idx, kv_idx):
    return T.clamp(score, -1, 1) * T.sigmoid(score) + T.square(T.floor(score))


MASKS = (causal, full, sliding_window, two_sided_window, dilated_window, prefix_lm, document,
         causal_document, padding, chunked, shifted_floor, divided_by_data, strided,
         per_head_window, global_tokens, attention_sink_window, tree, image_prefix,
         two_dimensional_neighbours, bits, window_given_at_launch, combined)
END_MASKS = (causal, sliding_window, chunk_of_positions, dilated_window, shifted_floor, strided,
             bits)
SCORE_MODS = (identity, softcap, alibi, alibi_exp2, relative, causal_score, bias_table,
              bias_of_distance, decay, float_floor, gate)


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
    global T
    is_mask = function in MASKS + END_MASKS
    T = torch or language
    traced = (attnjit.mask if is_mask else attnjit.score_mod)(function, q_idx=q_idx)
    T = language
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
    what = [(f, "row") for f in MASKS + SCORE_MODS] + [(f, "end") for f in END_MASKS + SCORE_MODS
                                                        if f not in (bias_table,)]
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


points = list(grid())
compare()
refusals()
names()
