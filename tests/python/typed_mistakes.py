# SPDX-License-Identifier: Apache-2.0
"""Mistakes that mypy --strict finds in a user's program (types_test.py); nobody runs it."""
from typing import List

import attnjit

q: List[float] = []
attnjit.attention(q, q, q, layout="sbhd")  # refused
attnjit.attention(q, q, q, masks="causal")  # refused
pair: List[float] = attnjit.attention(q, q, q, lse=True)  # refused
one, lse = attnjit.reference(q, q, q).shape  # refused
attnjit.verify({"num_q_heads": 8, "qk_depth": 64}, backend="cpu")  # refused
spec: attnjit.SpecFields = {"num_q_heads": 8, "depth": 64}  # refused
typo: attnjit.SpecFields = {"num_q_heads": 8, "arch": "sm_80"}  # refused
attnjit.verify(typo)["pased"]  # refused
attnjit.verify(spec, numbers={"windows": 3})  # refused
attnjit.Mask("causal").draw("6")  # refused
