# SPDX-License-Identifier: Apache-2.0
"""Arrays of the real JAX and numpy through DLPack, on the CPU: address, shape, strides, type, device, and
masks over them. What a launch does with them is tests/python/launch_test.py's."""
import jax
import jax.numpy as jnp
import numpy as np

import attnjit
from attnjit._tensors import DLPackView, dtype_name, view

for dtype, name in ((jnp.bfloat16, "bfloat16"), (jnp.float16, "float16"), (jnp.float32, "float32"),
                    (jnp.int32, "int32")):
    array = jnp.arange(2 * 3 * 4 * 8, dtype=dtype).reshape(2, 3, 4, 8)
    seen = view(array)
    assert isinstance(seen, DLPackView) and seen.shape == (2, 3, 4, 8), seen
    assert seen.stride() == (96, 32, 8, 1) and dtype_name(seen.dtype) == name, name
    assert seen.data_ptr() == array.unsafe_buffer_pointer(), name
    assert seen.device.type == "cpu"
    turned = seen.transpose(1, 2)
    assert (turned.shape, turned.stride()) == ((2, 4, 3, 8), (96, 8, 32, 1))

matrix = np.arange(24, dtype=np.float16).reshape(4, 6)[:, 1:4]
seen = view(matrix)
assert (seen.shape, seen.stride()) == ((4, 3), (6, 1)) and seen.data_ptr() == matrix.ctypes.data

document = jnp.array([0, 0, 1, 1])
mask = attnjit.mask(lambda b, h, q_idx, kv_idx: document[q_idx] == document[kv_idx])
assert mask.code == "p.document[q_row] == p.document[kv_idx]", mask
assert view(mask.params["document"]).data_ptr() == document.unsafe_buffer_pointer()
try:
    attnjit.attention(jnp.zeros((1, 3, 4, 8)), jnp.zeros((1, 3, 4, 8)), jnp.zeros((1, 3, 4, 8)))
except TypeError as error:
    where = jnp.zeros(1).device.platform  # on a GPU `out` is what it lacks
    assert ("lies on the CPU" if where == "cpu" else "`out` must be given") in str(error), error
else:
    raise AssertionError("arrays of the CPU were taken, or an array of JAX was made here")
print(f"jax {jax.__version__}, numpy {np.__version__}: all right")
