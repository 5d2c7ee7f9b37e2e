// SPDX-License-Identifier: Apache-2.0
/* A small causal attention on the CPU: what the examples compare the GPU's answer with.
 *
 * Tensors are bf16 in attnjit's layout: q and o [batch, q_len, num_q_heads, depth], k and v
 * [batch, kv_len, num_kv_heads, depth]. The batch is 1 here.
 */
#ifndef ATTNJIT_EXAMPLES_REFERENCE_H_
#define ATTNJIT_EXAMPLES_REFERENCE_H_

#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum { kHeads = 8, kGroup = 4, kDepth = 128, kRows = 200, kKeys = 333 };
enum { kQuerySize = kRows * kHeads * kDepth, kKeySize = kKeys * (kHeads / kGroup) * kDepth };

static double bf16_value(uint16_t code) {
  const uint32_t bits = (uint32_t)code << 16;
  float value = 0;
  memcpy(&value, &bits, sizeof value);
  return (double)value;
}

/* Fills a tensor with numbers in [-2, 2): the upper half of a float is a bf16. */
static void fill(uint16_t* tensor, size_t size, uint32_t seed) {
  for (size_t i = 0; i < size; ++i) {
    seed = 1664525u * seed + 1013904223u;
    const float value = (float)(seed >> 8) / 4194304.0f - 2.0f;
    uint32_t bits = 0;
    memcpy(&bits, &value, sizeof bits);
    tensor[i] = (uint16_t)(bits >> 16);
  }
}

/* One row of O in double precision: softmax(scale * q . k) v over the keys that `row` may see. */
static void reference_row(const uint16_t* q, const uint16_t* k, const uint16_t* v, int row,
                          int head, double* o) {
  const uint16_t* query = q + (row * kHeads + head) * kDepth;
  const int keys = row + kKeys - kRows + 1; /* the masks are aligned at the end */
  double score[kKeys], maximum = -HUGE_VAL, sum = 0;
  for (int key = 0; key < keys; ++key) {
    const uint16_t* other = k + (key * (kHeads / kGroup) + head / kGroup) * kDepth;
    score[key] = 0;
    for (int d = 0; d < kDepth; ++d) score[key] += bf16_value(query[d]) * bf16_value(other[d]);
    score[key] /= sqrt((double)kDepth);
    if (score[key] > maximum) maximum = score[key];
  }
  for (int d = 0; d < kDepth; ++d) o[d] = 0;
  for (int key = 0; key < keys; ++key) {
    const uint16_t* value = v + (key * (kHeads / kGroup) + head / kGroup) * kDepth;
    const double weight = exp(score[key] - maximum);
    for (int d = 0; d < kDepth; ++d) o[d] += weight * bf16_value(value[d]);
    sum += weight;
  }
  for (int d = 0; d < kDepth; ++d) o[d] /= sum;
}

/* The norm of o's difference from the reference over the norm of the reference. */
static double relative_error(const uint16_t* q, const uint16_t* k, const uint16_t* v,
                             const uint16_t* o) {
  double difference = 0, norm = 0, expected[kDepth];
  for (int row = 0; row < kRows; ++row) {
    for (int head = 0; head < kHeads; ++head) {
      reference_row(q, k, v, row, head, expected);
      for (int d = 0; d < kDepth; ++d) {
        const double off = bf16_value(o[(row * kHeads + head) * kDepth + d]) - expected[d];
        difference += off * off;
        norm += expected[d] * expected[d];
      }
    }
  }
  return sqrt(difference / norm);
}

#endif /* ATTNJIT_EXAMPLES_REFERENCE_H_ */
