# SPDX-License-Identifier: Apache-2.0
"""Masks and score modifications as FlexAttention's users write them: its documentation's kinds of
examples, and what the tests of traces want besides.

They read this module's data when they are called: whoever runs them with longer sequences, or on a
GPU, puts other arrays into their place. T is what they compute with.
"""
import attnjit
from attnjit import language

BATCH, HEADS, LONGEST = 2, 4, 9
T = language  # what the functions compute with: torch's functions while they are traced

# Data that the functions name.
DOCUMENT = [0, 0, 0, 1, 1, 2, 2, 2, 2]
BEGIN = [0, 3, 5]  # of each document
IMAGE = [0, 0, 0, 1, 1, 1, 1, 2, 2]  # the last one before each row
STARTS = [0, 2]  # rows before those of the call
TEMPERATURE = [0.5, 1.0, 1.5, 2.0]
BUCKETS = [[0.3 * i - 0.2 * j for j in range(6)] for i in range(HEADS)]
PREFIX = [3, 0]
LENGTHS = [4, 8]
SLOPES = [0.5, 0.25, 0.125, 0.0625]
TABLE = [[0.1 * i - 0.3 * j for j in range(LONGEST)] for i in range(HEADS)]
TREE = [[int((i & j) == j) for j in range(LONGEST)] for i in range(LONGEST)]
SINKS = [True, False, False, True, False, False, False, False, False]
BIAS = [[[float(8 * b + 4 * h - d) for d in range(3)] for h in range(HEADS)] for b in range(BATCH)]
WINDOW, CHUNK, CAP, OFFSET, IMAGE_KEYS = 3, 4, 20.0, -2, 3
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


def within_documents(b, h, q_idx, kv_idx):  # another mask, by the positions within a document
    row, key = q_idx - BEGIN[DOCUMENT[q_idx]], kv_idx - BEGIN[DOCUMENT[kv_idx]]
    return (DOCUMENT[q_idx] == DOCUMENT[kv_idx]) & (row >= key) & (row - key < 2)


def last_image(b, h, q_idx, kv_idx):  # text over the keys of the image that came last
    return IMAGE[q_idx] == kv_idx // IMAGE_KEYS


def checkerboard(b, h, q_idx, kv_idx):
    return (q_idx + kv_idx) % 2 == 0


def cached_rows(b, h, q_idx, kv_idx):
    return q_idx + STARTS[b] >= kv_idx


def heads_of_two_kinds(b, h, q_idx, kv_idx):
    return T.where(h % 2 == 0, q_idx >= kv_idx, T.abs(q_idx - kv_idx) <= WINDOW)


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


def buckets(score, b, h, q_idx, kv_idx):  # of distances, wider as they grow
    back = T.clamp(q_idx - kv_idx, 0)
    far = T.where(back < 4, 2, 3) + T.where(back < 8, 0, 1) + T.where(back < 16, 0, 1)
    return score + BUCKETS[h][T.where(back < 2, back, far)]


def log_distance(score, b, h, q_idx, kv_idx):
    return score - T.log(T.abs(q_idx - kv_idx) + 1.0)


def head_temperature(score, b, h, q_idx, kv_idx):
    return score / TEMPERATURE[h]


def float_floor(score, b, h, q_idx, kv_idx):
    return (score // 0.75) % 3.0 - (q_idx - kv_idx) % 2.5


def gate(score, b, h, q_idx, kv_idx):
    return T.clamp(score, -1, 1) * T.sigmoid(score) + T.square(T.floor(score))


MASKS = (causal, full, sliding_window, two_sided_window, dilated_window, prefix_lm, document,
         causal_document, within_documents, last_image, checkerboard, cached_rows,
         heads_of_two_kinds, padding, chunked, shifted_floor, divided_by_data, strided,
         per_head_window, global_tokens, attention_sink_window, tree, image_prefix,
         two_dimensional_neighbours, bits, window_given_at_launch, combined)
END_MASKS = (causal, sliding_window, chunk_of_positions, dilated_window, shifted_floor, strided,
             bits)
SCORE_MODS = (identity, softcap, alibi, alibi_exp2, relative, causal_score, bias_table,
              bias_of_distance, buckets, log_distance, head_temperature, decay, float_floor, gate)
