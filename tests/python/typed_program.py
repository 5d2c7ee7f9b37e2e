# SPDX-License-Identifier: Apache-2.0
"""A user's program over the whole surface, which mypy --strict takes as it is (types_test.py)."""
from typing import Any, Tuple

import numpy
import numpy.typing

import attnjit

Array = numpy.typing.NDArray[numpy.float64]

document = [0, 0, 0, 1, 1, 2]


def same_document(b: Any, h: Any, q_idx: Any, kv_idx: Any) -> Any:
    return (q_idx >= kv_idx) & (document[q_idx] == document[kv_idx])


mask: attnjit.Mask = attnjit.mask(same_document) & "causal"
picture: attnjit.Picture = mask.draw(6)
lines: Tuple[str, ...] = picture.rows

q: Array = numpy.zeros((1, 6, 8, 64))
k: Array = numpy.zeros((1, 6, 2, 64))
out: Array = attnjit.reference(q, k, k, mask=mask)
both: Tuple[Array, Array] = attnjit.reference(q, k, k, mask=mask, lse=True, layout="bshd")
one: Array = attnjit.attention(q, k, k, mask=mask)
pair: Tuple[Array, Array] = attnjit.attention(q, k, k, mask=mask, lse=True)
paged: Array = attnjit.paged_attention(q, k, k, q, q, mask="causal")

spec: attnjit.SpecFields = {"arch": "sm_90a", "num_q_heads": 8, "group": 4, "qk_depth": 64,
                            "mask": mask}
verification: attnjit.Verification = attnjit.verify(spec, backend="emulator", q_len=64, kv_len=128)
passed: bool = verification["passed"]
supported: bool = attnjit.plan(spec)["supported"]

try:
    attnjit.plan({"num_q_heads": 8})
except attnjit.InvalidError as error:
    field: str = error.field

with attnjit.Service(log=lambda level, text: None) as service:
    prepared: attnjit.Spec = service.prepare(spec)
    key: str = prepared.key
