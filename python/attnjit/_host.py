# SPDX-License-Identifier: Apache-2.0
"""What needs no GPU: plans, verification and pictures, computed by the package's command.

The command runs as a process of its own, is given the spec on standard input and arrays as .npy
files of a temporary folder, and answers with one JSON object.
"""
from __future__ import annotations

import ctypes
import json
import operator
import os
import struct
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Mapping, Optional, Sequence, Tuple, Union

from ._abi import command_path
from ._errors import AttnjitError, MissingError, error_class, refused, wrong_type
from ._nvrtc import nvrtc_path
from ._tensors import DLPackView, dtype_name, packed
from ._types import (Backend, Config, EmulatorModel, Input, Lengths, Numbers, SpecFields, Verification)
from .masks import (BLOCK_ARRAYS, HostArray, Mask, Modification, ScoreMod, as_mask,
                    as_score_mod)

# What .npy calls the element types of tensors.
_DESCR = {"float16": "<f2", "float32": "<f4", "float64": "<f8", "uint8": "|u1", "int32": "<i4",
          "uint32": "<u4", "int64": "<i8", "bool": "|u1", "bool_": "|u1"}
# What it has no name for, and a wider type that holds every value.
_WIDENED = ("bfloat16", "float8_e4m3fn")


def is_torch(tensor: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(tensor, torch.Tensor)


def on_host(tensor: Any, name: str) -> Any:
    """The tensor on the CPU, without gaps: torch's as it is, any other as an array of numpy."""
    if isinstance(tensor, HostArray):
        return tensor
    if is_torch(tensor):
        tensor = tensor.detach()
        if dtype_name(tensor.dtype) in _WIDENED:
            tensor = tensor.float()
        return tensor.cpu().contiguous()
    if isinstance(tensor, DLPackView):
        if tensor.device.type != "cpu":
            raise wrong_type(f"{name} lies on {tensor.device}, and is read on the CPU", name,
                             "copy it there, e.g. by cupy.asnumpy(x)")
        return packed(tensor, name)
    try:
        import numpy
    except ImportError:
        raise MissingError(f"{name} is of {type(tensor).__name__}, which numpy is asked to read; "
                           "there is none", code="environment", field=name,
                           hint="pip install numpy, or give a tensor of torch") from None
    try:
        array = numpy.asarray(tensor)
    except Exception as error:  # NOTE: each library has its own, e.g. for what lies on a GPU
        raise wrong_type(f"{name}: {type(tensor).__name__} gives numpy no array: {error}", name,
                         "copy it to the CPU, e.g. by cupy.asnumpy(x)") from error
    if dtype_name(array.dtype) in _WIDENED:
        array = array.astype(numpy.float32)
    return numpy.ascontiguousarray(array).reshape(array.shape)  # which would give a scalar a rank


def _bytes_of(tensor: Any, name: str) -> bytes:
    """The elements of what on_host() returned."""
    if isinstance(tensor, HostArray):
        code = {"float32": "f", "int32": "i", "bool": "B"}[tensor.dtype]
        return struct.pack(f"<{len(tensor.values)}{code}", *tensor.values)
    if hasattr(tensor, "tobytes"):
        return bytes(tensor.tobytes())
    size = int(_DESCR[dtype_name(tensor.dtype)][2:])
    for extent in tensor.shape:
        size *= int(extent)
    return ctypes.string_at(tensor.data_ptr(), size) if size else b""


def save_npy(path: str, tensor: Any, name: str) -> None:
    """Writes an array of the CPU as NumPy's format 1.0 has it."""
    tensor = on_host(tensor, name)
    descr = _DESCR.get(dtype_name(tensor.dtype))
    if descr is None:
        raise wrong_type(f"{name} is of {dtype_name(tensor.dtype)}; allowed: "
                         f"{', '.join([*_DESCR, *_WIDENED])}", name)
    shape = tuple(int(extent) for extent in tensor.shape)
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode("ascii"))
        file.write(_bytes_of(tensor, name))


def read_doubles(path: str) -> bytearray:
    """The elements of a .npy file that the command wrote."""
    with open(path, "rb") as file:
        data = file.read()
    return bytearray(data[10 + struct.unpack("<H", data[8:10])[0]:])


def _error_of(found: Mapping[str, Any]) -> AttnjitError:
    message, field, hint = found["message"], found.get("field", ""), found.get("hint", "")
    line, column = found.get("line", 0), found.get("column", 0)
    if field and not field.endswith(".code"):
        line = column = 0  # of JSON that this module wrote
    text = (f"{field}: " if field else "") + message + (
        f" (line {line}, column {column})" if line else "") + (f"; {hint}" if hint else "")
    others = [_error_of(one) for one in found.get("others", ())]
    return error_class(found["code"])(
        "\n".join([text, *map(str, others)]), code=found["code"], message=message, field=field,
        hint=hint, line=line, column=column, others=others)


def run_command(words: Sequence[str], standard_input: str = "") -> Dict[str, Any]:
    """The JSON object that the command prints. Errors: those of the library, by their classes."""
    environment = dict(os.environ)
    found = nvrtc_path()
    if found:
        environment["ATTNJIT_NVRTC"] = found
    command = command_path()
    try:
        done = subprocess.run([command, *words, "--json"], input=standard_input.encode(),
                              capture_output=True, env=environment, check=False)
    except OSError as error:
        raise MissingError(f"cannot run {command}: {error.strerror}", code="environment",
                           field="command", hint="install the wheel again") from error
    try:
        answer: Dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        said = done.stderr.decode("utf-8", "replace").strip()[-2000:]
        raise AttnjitError(f"attnjit {words[0]} ended with {done.returncode} and no answer: {said}",
                           code="internal") from None
    if "error" in answer and isinstance(answer["error"], dict):
        raise _error_of(answer["error"])
    return answer


class Inputs:
    """A temporary folder of what a mask and a score modification read, and their flags."""

    def __init__(self, *modifications: Modification) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="attnjit-")
        self.path = self._folder.name
        self.flags: List[str] = []
        try:
            for one in modifications:
                self._add_params(one)
        except BaseException:
            self._folder.cleanup()
            raise

    def __enter__(self) -> "Inputs":
        return self

    def __exit__(self, *_: Any) -> None:
        self._folder.cleanup()

    def add(self, name: str, tensor: Any) -> None:
        save_npy(os.path.join(self.path, f"{name}.npy"), tensor, name)

    def _add_params(self, owner: Modification) -> None:
        for param in owner.declared:
            name, value = param["name"], owner.params.get(param["name"])
            if value is None:
                continue  # the command says what is missing, or draws it
            if isinstance(value, (int, float)):
                self.flags += ["--param", f"{name}={value!r}"]
                continue
            path = os.path.join(self.path, f"{name}.param")
            save_npy(path, value, name)
            self.flags += ["--param", f"{name}=@{path}"]

    def add_mask(self, mask: Mask) -> None:
        """What it reads beside its parameters."""
        if mask.tensor is not None:
            shape = tuple(mask.tensor.shape)
            tensor = on_host(mask.tensor, "mask")
            missing = (1,) * (4 - len(shape))
            if missing:
                tensor = tensor.reshape(missing + shape) if hasattr(tensor, "reshape") else (
                    _unsqueezed(tensor, len(missing)))
            self.add("mask", tensor)
        for name, array in zip(BLOCK_ARRAYS, mask.blocks or ()):
            self.add(name, array)


def _unsqueezed(tensor: Any, times: int) -> Any:
    for _ in range(times):
        tensor = tensor.unsqueeze(0)
    return tensor


def _given_spec(spec: Union[str, SpecFields, Mapping[str, object]]
                ) -> Tuple[str, Tuple[Modification, ...]]:
    """A spec's JSON, and what in it is an object of this package, or a function."""
    if isinstance(spec, str):
        return spec, ()
    if not isinstance(spec, Mapping):
        raise wrong_type(f"spec is of {type(spec).__name__}; allowed: a dict of its fields, or its "
                         "JSON", "spec")
    fields: Dict[str, Any] = dict(spec)
    made: List[Modification] = []
    for name, convert in (("mask", as_mask), ("score_mod", as_score_mod)):
        if name not in fields or isinstance(fields[name], str):
            continue
        one: Modification = convert(fields[name])
        if made:
            one = one.renamed(made[0].params)
        made.append(one)
        fields[name] = one.spec
    try:
        return json.dumps(fields), tuple(made)
    except (TypeError, ValueError) as error:
        raise wrong_type(f"spec: {error}", "spec") from None


def _flags(**values: Any) -> List[str]:
    return [word for name, value in values.items() if value is not None
            for word in ("--" + name.replace("_", "-"), str(value))]


def _lengths(lengths: Optional[Lengths]) -> Optional[str]:
    if lengths is None:
        return None
    try:
        return str(operator.index(lengths))  # type: ignore[arg-type]
    except TypeError:
        return ",".join(map(str, lengths))  # type: ignore[arg-type]


def plan(spec: Union[str, SpecFields, Mapping[str, object]], *, config: Config = "auto",
         max_prompt_len: Optional[int] = None, batch: Optional[int] = None,
         sm_count: Optional[int] = None, tuning: Optional[str] = None) -> Dict[str, Any]:
    """The plan of a spec's kernel: tiles, stages, memory, registers (docs/plan.md). No GPU needed.

    Args:
        spec: the fields of a spec, or their JSON. Its mask and score_mod may be what attnjit.mask
            and attnjit.score_mod take and return. Without a GPU it needs `arch`.
        config: the configuration to show.
        max_prompt_len, batch, sm_count: of a launch, for what is chosen then.
        tuning: file of a tuning table; "modelled": the library's.

    Returns:
        What `attnjit plan --json` prints. Of a spec that nothing serves, `supported` is False, and
        `reason` says why.

    Raises:
        InvalidError: the spec is wrong; `field` names where.
    """
    text, _ = _given_spec(spec)
    return run_command(["plan", "--spec", "-",
                        *_flags(config=config, max_prompt_len=max_prompt_len, batch=batch,
                                sm_count=sm_count, tuning=tuning)], text)


def verify(spec: Union[str, SpecFields, Mapping[str, object]], *, backend: Backend = "auto",
           q_len: Optional[Lengths] = None, kv_len: Optional[Lengths] = None,
           batch: Optional[int] = None, input: Input = "normal", seed: int = 0,
           seeds: Optional[int] = None, scale: Optional[float] = None,
           numbers: Optional[Numbers] = None,
           model: Optional[EmulatorModel] = None, sm_count: Optional[int] = None,
           dump: Optional[str] = None) -> Verification:
    """Runs a spec's kernel over random tensors, and compares it with the float64 reference.

    With backend="emulator" the kernel is compiled by NVRTC, and its PTX runs on the CPU: no GPU and
    no CUDA toolkit is needed. A small problem takes seconds.

    Args:
        spec: as plan() takes it. The parameters of a mask that attnjit.mask made have its values;
            those of other code, and masks that are tensors, are drawn from the seed.
        backend: "gpu", "emulator", or "auto": a GPU if there is one.
        q_len, kv_len: rows and keys of a sequence, or of each; None: 256 and 512.
        batch: the number of sequences.
        input: how q, k and v are drawn (docs/command-line.md).
        seed: of the inputs.
        seeds: of the emulator's scheduler: how many orders of warps are run.
        scale: of the scores; None: 1 / sqrt(qk_depth).
        numbers: what the spec leaves to the launch, by name: {"window": 128}.
        model: the emulator's.
        sm_count: SMs that the emulator's launch is planned for.
        dump: folder for every input and output as .npy.

    Returns:
        Whether it `passed`, the errors and what the emulator found. A wrong kernel raises nothing.

    Raises:
        InvalidError: the spec or an argument is wrong; `field` names which.
        UnsupportedError: no kernel serves the spec.
        MissingError: there is no NVRTC, or with "gpu" no GPU.
    """
    text, made = _given_spec(spec)
    given = dict(numbers or {})
    for name in given:
        if name not in Numbers.__annotations__:
            raise refused(f"numbers has {name!r}; allowed: {', '.join(Numbers.__annotations__)}",
                          "numbers")
    with Inputs(*made) as inputs:
        words = ["verify", "--spec", "-",
                 *_flags(backend=backend, q_len=_lengths(q_len), kv_len=_lengths(kv_len),
                         batch=batch, input=input, seed=seed, seeds=seeds, scale=scale, model=model,
                         sm_count=sm_count, dump=dump, **given), *inputs.flags]
        return run_command(words, text)  # type: ignore[return-value]


_SIGNS = {".": "hidden", "/": "partly seen", "#": "seen"}


class Picture:
    """What a mask shows. It prints as text, and a notebook draws it.

    Attributes:
        text: a line for each row of tiles: `#` where all keys are seen, `.` where none, `/` between.
        svg: the same as an SVG document, for light and dark pages.
        rows: the lines of signs alone.
        tile: the queries and the keys of a sign.
    """

    def __init__(self, answer: Mapping[str, Any], svg: str) -> None:
        self.rows: Tuple[str, ...] = tuple(answer["rows"])
        self.tile = (int(answer["tile_queries"]), int(answer["tile_keys"]))
        self.svg = svg
        counts = {sign: sum(row.count(sign) for row in self.rows) for sign in _SIGNS}
        self.text = "\n".join([
            f"{answer['q_len']} queries (down), {answer['kv_len']} keys (across), {self.tile[0]} x "
            f"{self.tile[1]} to a sign", *self.rows,
            "   ".join(f"{sign} {name}: {counts[sign]}" for sign, name in _SIGNS.items()
                       if counts[sign])])

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg


class ScorePicture:
    """What a score modification makes of scores. It prints as text, and a notebook draws it.

    Attributes:
        text: a line for each row of cells, in shades of signs, and some scores before and after.
        svg: the cells in shades and curves of scores before and after, for light and dark pages.
        rows: what becomes of the score in each cell; None where the mask hides it.
        cell: the queries and the keys of a cell, which has the score of its middle.
    """

    def __init__(self, answer: Mapping[str, Any], svg: str) -> None:
        self.rows: List[List[Optional[float]]] = answer["rows"]
        self.cell = (int(answer["cell_queries"]), int(answer["cell_keys"]))
        self.text: str = answer["text"]
        self.svg = svg

    def __repr__(self) -> str:
        return self.text

    def _repr_svg_(self) -> str:
        return self.svg


def _check_counts(**counts: Any) -> None:
    for name, value in counts.items():
        if not isinstance(value, int) or value < (1 if name in ("group", "heads") else 0):
            raise refused(f"{name} is {value!r}; allowed: an int, not negative", name)


def _tiles_of(mask: Mask, q_len: int, kv_len: int, tile: Tuple[int, int], sequence: int, head: int,
              group: int, picture: bool) -> Tuple[Dict[str, Any], str]:
    """What `attnjit plan --draw-mask --tile` says of a mask, and its SVG if that is wanted."""
    _check_counts(q_len=q_len, kv_len=kv_len, sequence=sequence, head=head, group=group)
    batch, heads = sequence + 1, head + 1
    if mask.tensor is not None:
        extents = (1, 1, 1, *mask.tensor.shape)[-4:]
        batch, heads = max(batch, int(extents[0])), max(heads, int(extents[1]))
    for blocks in (mask.blocks or ())[:1]:
        batch, heads = max(batch, int(blocks.shape[0])), max(heads, int(blocks.shape[1]))
    heads = -(-heads // group) * group
    spec = {"num_q_heads": heads, "group": group, "qk_depth": 64, "mask": mask.spec}
    with Inputs(mask) as inputs:
        inputs.add_mask(mask)
        words = ["plan", "--spec", "-", "--draw-mask", "--tile", f"{tile[0]}x{tile[1]}",
                 "--inputs", inputs.path, *inputs.flags,
                 *_flags(batch=batch, q_len=q_len, kv_len=kv_len, sequence=sequence, head=head)]
        if not picture:
            return run_command(words, json.dumps(spec)), ""
        path = os.path.join(inputs.path, "mask.svg")
        answer = run_command([*words, "-o", path], json.dumps(spec))
        with open(path, encoding="utf-8") as file:
            return answer, file.read()


def _extents(*modifications: Modification) -> Tuple[int, int]:
    """The lengths that arrays of masks and of score modifications suggest."""
    for one in modifications:
        if isinstance(one, Mask) and one.tensor is not None:
            rows, keys = (1, *one.tensor.shape)[-2:]
            if isinstance(one.spec, Mapping) and '"bits"' in one.json:
                keys *= 8
            return int(rows if rows > 1 else keys), int(keys)
    longest = max([int(array.shape[-1]) for one in modifications for array in one.params.values()
                   if getattr(array, "shape", ())], default=64)
    return longest, longest


def dense(mask: Mask, q_len: int, kv_len: Optional[int], sequence: int, head: int,
          group: int) -> Any:
    """Mask.dense()"""
    try:
        import numpy
    except ImportError:
        raise MissingError("dense() returns an array of numpy, and there is none",
                           code="environment", field="numpy",
                           hint="pip install numpy; draw() needs none") from None
    keys = q_len if kv_len is None else kv_len
    answer, _ = _tiles_of(mask, q_len, keys, (1, 1), sequence, head, group, False)
    signs = "".join(answer["rows"]).encode()
    return numpy.ndarray((q_len, keys), dtype=numpy.uint8, buffer=signs or None) == ord("#")


def draw(mask: Mask, q_len: Optional[int], kv_len: Optional[int], columns: int, sequence: int,
         head: int, group: int) -> Picture:
    """Mask.draw()"""
    if not isinstance(columns, int) or columns < 1:
        raise refused(f"columns is {columns!r}; allowed: an int from 1 on", "columns")
    rows, keys = _extents(mask)
    if q_len is not None:
        rows = keys = q_len
    if kv_len is not None:
        keys = kv_len
    width = max(1, -(-keys // columns))
    height = 1 if width == 1 else 2 * width  # signs are twice as high as wide
    return Picture(*_tiles_of(mask, rows, keys, (height, width), sequence, head, group, True))


def draw_score_mod(modification: ScoreMod, q_len: Optional[int], kv_len: Optional[int],
                   score: float, mask: Any, heads: Optional[int], head: int, sequence: int,
                   group: int) -> ScorePicture:
    """ScoreMod.draw()"""
    shown = as_mask(mask)
    modification = modification.renamed(shown.params)
    rows, keys = _extents(shown, modification)
    if q_len is not None:
        rows = keys = q_len
    if kv_len is not None:
        keys = kv_len
    if heads is None:
        of_tensor = 0 if modification.tensor is None else int(modification.tensor.shape[0])
        heads = of_tensor or -(-max(8, head + 1) // group) * group
    _check_counts(q_len=rows, kv_len=keys, sequence=sequence, head=head, group=group, heads=heads)
    spec = {"num_q_heads": heads, "group": group, "qk_depth": 64, "mask": shown.spec,
            "score_mod": modification.spec}
    with Inputs(shown, modification) as inputs:
        inputs.add_mask(shown)
        if modification.tensor is not None:
            inputs.add("slopes", modification.tensor)
        path = os.path.join(inputs.path, "score_mod.svg")
        answer = run_command(
            ["plan", "--spec", "-", "--draw-score-mod", "--inputs", inputs.path, "-o", path,
             *inputs.flags, *_flags(batch=sequence + 1, q_len=rows, kv_len=keys, score=float(score),
                                    sequence=sequence, head=head)], json.dumps(spec))
        with open(path, encoding="utf-8") as file:
            return ScorePicture(answer, file.read())
