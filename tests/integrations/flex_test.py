# SPDX-License-Identifier: Apache-2.0
"""Traced masks and score modifications beside torch's FlexAttention itself, on the CPU: the functions
of tests/python/flex_functions.py unchanged in FlexAttention, and what their traces' text says, by
ATTNJIT_EVALUATE, in a dense attention. tests/gpu/flex.py does the same with the kernels.
"""
import json
import math
import os
import pathlib
import subprocess
import sys
import warnings

import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
import flex  # noqa: E402
from flex_functions import BATCH, HEADS  # noqa: E402

Q_LEN, KV_LEN, DEPTH = 20, 26, 16


def evaluated(ours, scores):
    """What the text of a trace makes of each score: [batch, heads, rows, keys]."""
    params = []
    for param in ours.spec.get("params", ()):
        value = ours.params[param["name"]]
        tensor = value if isinstance(value, torch.Tensor) else torch.tensor(
            getattr(value, "values", value))
        params.append({**param, "values": tensor.flatten().tolist(),
                       "shape": list(tensor.shape) or [1]})
    points = [[b, h, row, key, Q_LEN, KV_LEN, float(scores[b, h, row, key])] for b in range(BATCH)
              for h in range(HEADS) for row in range(Q_LEN) for key in range(KV_LEN)]
    test = {"kind": ours.field, "code": ours.code, "params": params, "points": points}
    done = subprocess.run([os.environ["ATTNJIT_EVALUATE"]], input=json.dumps([test]),
                          capture_output=True, text=True, check=True)
    values = json.loads(done.stdout)[0]
    assert isinstance(values, list), f"{ours.code}: {values}"
    return torch.tensor([float(one) for one in values]).view(scores.shape)


warnings.simplefilter("ignore")  # FlexAttention is not compiled here
torch.manual_seed(0)
flex.use_longer_data(KV_LEN, "cpu")
q, k, v = (torch.randn(BATCH, HEADS, rows, DEPTH) for rows in (Q_LEN, KV_LEN, KV_LEN))
plain = q @ k.transpose(-1, -2) / math.sqrt(DEPTH)
for function in flex.FUNCTIONS:
    ours = flex.traced(function)
    said = evaluated(ours, plain)
    scores = plain.masked_fill(said == 0, -math.inf) if ours.field == "mask" else said
    got = torch.softmax(scores, -1).nan_to_num(0) @ v
    expected = flex.flex_result(function, q, k, v)
    error = (got - expected).norm() / expected.norm()
    assert error < 1e-6, f"{function.__name__}: {error}: {ours.code}"
assert len(flex.FUNCTIONS) >= 30
print(f"torch {torch.__version__}: {len(flex.FUNCTIONS)} functions: all right")
