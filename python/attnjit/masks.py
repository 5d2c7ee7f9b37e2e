# SPDX-License-Identifier: Apache-2.0
"""Masks and score modifications from Python functions, and from the names of specs.

    doc = torch.tensor([0, 0, 0, 1, 1], dtype=torch.int32, device="cuda")
    mask = attnjit.mask(lambda b, h, q_idx, kv_idx: doc[q_idx] == doc[kv_idx])
    out = attnjit.attention(q, k, v, mask=mask)

The function is called once, with symbols; what it computes becomes an expression of the kernel.
FlexAttention's mask_mod and score_mod work unchanged. Tensors, arrays and lists that the function
names become parameters of the launch; its Python numbers are compiled in.
"""
from __future__ import annotations

import json
import re
import types
from ctypes import c_int32
from typing import (TYPE_CHECKING, Any, Callable, Dict, List, Mapping, Optional, Tuple, Type,
                    TypeVar, Union)

from . import language
from ._abi import PARAM_TYPES, integer
from ._errors import AttnjitError, InvalidError, UnsupportedError, refused, wrong_type
from ._tensors import dtype_name, packed, view
from .language import Array, Symbol

if TYPE_CHECKING:
    from ._host import Picture, ScorePicture

# FlexAttention counts the rows of this call, specs the positions in the sequence.
_Q_IDX = {"row": Symbol("q_row", "int", natural=True),
          "end": Symbol("q_idx", "int"),
         "total": Symbol("total_row", "int", natural=True)}
# Names that no parameter may have: what expressions see, and the keywords that Python has not.
_TAKEN = frozenset(
    "b h kv_h q_idx kv_idx q_len kv_len q_row total_row score p auto bool case catch char const "
    "default delete do double else enum explicit export extern false float for friend goto inline int long mutable "
    "namespace new operator private protected public register short signed sizeof static struct "
    "switch template this throw true typedef typename union unsigned using virtual void volatile "
    "while".split())
_TYPE_OF = {"i32": "int", "u32": "u32", "f32": "float", "bf16": "float"}
_LIBRARIES = ("torch", "numpy", "jax", "attnjit", "math", "builtins", "functools", "operator")


def declared_params(*modifications: Any) -> List[Dict[str, str]]:
    """The parameters of specs' custom code, each once, in the order in which they are named."""
    found: Dict[str, Dict[str, str]] = {}

    def collect(node: Any) -> None:
        if isinstance(node, Mapping):
            for param in node.get("params", ()):
                found.setdefault(param["name"], param)
            for part in node.get("of", ()):
                collect(part)

    for one in modifications:
        collect(one)
    return list(found.values())


M = TypeVar("M", bound="Modification")


class Modification:
    """A mask or a score modification of a spec, with the tensors that it reads.

    Attributes:
        spec: what the spec's field holds: a name, or an object with `kind`.
        params: the values of its parameters by their names: tensors, or ints.
        tensor: a materialized mask's own, or the slopes of alibi; else None.
        declared: its parameters as the spec declares them.
        blocks: of a mask that block_mask() returned, the arrays of its lists of blocks; else None.
    """

    field = ""  #: of a spec
    blocks: Optional[Tuple[Any, ...]] = None

    def __init__(self, spec: Union[str, Mapping[str, Any]],
                 params: Optional[Mapping[str, Any]] = None, tensor: Any = None,
                 _json: str = "") -> None:
        self.spec, self.params, self.tensor = spec, dict(params or {}), tensor
        # NOTE: torch.compile cannot follow json.dumps, which is not called for what it may make.
        self.json = _json or json.dumps(spec, sort_keys=True)
        self.declared = declared_params(spec)

    @property
    def code(self) -> str:
        """The expression, where it is one."""
        return self.spec.get("code", "") if isinstance(self.spec, Mapping) else ""

    def __repr__(self) -> str:
        return f"<attnjit {self.field} {self.code or self.json}>"

    def renamed(self: M, taken: Mapping[str, Any]) -> M:
        """The same, with other names for parameters that `taken` has with other values."""
        names = {name: _free(name, {*taken, *self.params}) for name, value in self.params.items()
                 if name in taken and taken[name] is not value}
        if not names:
            return self

        def rename(node: Any) -> Any:
            if isinstance(node, list):
                return [rename(one) for one in node]
            if not isinstance(node, dict):
                return node
            out = {key: rename(value) for key, value in node.items()}
            if out.get("kind") == "custom":
                out["code"] = re.sub(r"\bp\.(\w+)",
                                     lambda m: "p." + names.get(m[1], m[1]), out["code"])
                for param in out.get("params", ()):
                    param["name"] = names.get(param["name"], param["name"])
            return out

        return type(self)(rename(self.spec), {names.get(name, name): value
                                              for name, value in self.params.items()}, self.tensor)


class Mask(Modification):
    """Which keys a query sees. `&` and `|` combine masks."""

    field = "mask"

    def _with(self, kind: str, other: Any) -> "Mask":
        right = as_mask(other)
        if self.blocks is not None or right.blocks is not None:
            raise InvalidError("a mask with lists of blocks is one by itself: of whole blocks no "
                               "mask is asked", field="block_mask",
                               hint="combine the masks first, and give the result to block_mask")
        if self.tensor is not None and right.tensor is not None:
            raise InvalidError("both masks are tensors, and a kernel reads one", field="mask",
                               hint="combine the tensors before")
        right = right.renamed(self.params)
        (left_spec, left_json), (right_spec, right_json) = self._object(), right._object()
        return Mask({"kind": kind, "of": [left_spec, right_spec]},
                    {**self.params, **right.params},
                    right.tensor if self.tensor is None else self.tensor,
                    f'{{"kind": "{kind}", "of": [{left_json}, {right_json}]}}')

    def _object(self) -> Tuple[Mapping[str, Any], str]:
        """The spec as an object with `kind`, and its text."""
        if isinstance(self.spec, str):
            return {"kind": self.spec}, f'{{"kind": {self.json}}}'
        return self.spec, self.json

    def __and__(self, other: Any) -> "Mask":
        return self._with("and", other)

    def __or__(self, other: Any) -> "Mask":
        return self._with("or", other)

    def dense(self, q_len: int, kv_len: Optional[int] = None, *, sequence: int = 0, head: int = 0,
              group: int = 1) -> Any:
        """Which keys each row sees, as a bool array of numpy: [q_len, kv_len]. No GPU is needed.

        Args:
            q_len: rows of the call. Positions are aligned at the end, as in a launch.
            kv_len: keys; None: q_len.
            sequence, head: whose: the function's `b` and `h`.
            group: query heads that share a key-value head, for code that names `kv_h`.

        Raises:
            InvalidError: a parameter has no value, or the mask's tensor does not fit the lengths.
            UnsupportedError: the mask is trusted code, which only a GPU's compiler reads.
            MissingError: there is no numpy.
        """
        from . import _host
        return _host.dense(self, q_len, kv_len, sequence, head, group)

    def draw(self, q_len: Optional[int] = None, kv_len: Optional[int] = None, *, columns: int = 64,
             sequence: int = 0, head: int = 0, group: int = 1) -> "Picture":
        """What the mask shows: text where it is printed, and a drawing in a notebook.

        Args:
            q_len, kv_len: as dense() takes them; None: those of the mask's tensor or of its longest
                array, else 64.
            columns: signs in a line, at most: of more keys several share a sign.
            sequence, head, group: as dense() takes them.

        Returns:
            A picture with `text`, `svg` and `rows`.

        Raises:
            InvalidError: as dense() says.
            UnsupportedError: as dense() says. numpy is not needed.
        """
        from . import _host
        return _host.draw(self, q_len, kv_len, columns, sequence, head, group)

    def _repr_svg_(self) -> Optional[str]:
        """What a notebook shows of it; None: it has no picture, and draw() says why."""
        try:
            return self.draw().svg
        except AttnjitError:
            return None


class ScoreMod(Modification):
    """How a score is changed after scaling and before masking."""

    field = "score_mod"

    def draw(self, q_len: Optional[int] = None, kv_len: Optional[int] = None, *,
             score: float = 0.0, mask: Any = None, heads: Optional[int] = None, head: int = 0,
             sequence: int = 0, group: int = 1) -> "ScorePicture":
        """What becomes of scores: text where it is printed, and a drawing in a notebook.

        Args:
            q_len, kv_len: rows of the call and keys; None: the length of the longest array that
                the code reads, else 64.
            score: the score that each place is asked about.
            mask: as attention() takes it: what it hides is left blank.
            heads: query heads, by which ALiBi has its slopes; None: as many as slopes were given,
                else 8 or as many as `head` needs.
            head, sequence, group: whose, as Mask.dense() takes them.

        Returns:
            A picture with `text`, `svg` and `rows`.

        Raises:
            InvalidError: a parameter or a number has no value, or there is nothing to draw.
            UnsupportedError: it is trusted code, which only a GPU's compiler reads.
        """
        from . import _host
        return _host.draw_score_mod(self, q_len, kv_len, score, mask, heads, head, sequence, group)

    def _repr_svg_(self) -> Optional[str]:
        """What a notebook shows of it; None: it has no picture, and draw() says why."""
        try:
            return self.draw().svg
        except AttnjitError:
            return None


_NAMED: Dict[str, Modification] = {
    "null": Mask("null"), "causal": Mask("causal"), "identity": ScoreMod("identity"),
    "alibi": ScoreMod("alibi")}


def mask(function: Callable[..., Any], *, q_idx: str = "row", name: Optional[str] = None) -> Mask:
    """The mask that a function of (b, h, q_idx, kv_idx) computes: True where a key is seen.

    Args:
        function: FlexAttention's mask_mod, unchanged.
        q_idx: "row": the row within this call, as FlexAttention has it; "end": the position in
            the sequence, whose last key the last row has; "total": the row in the whole batch.
        name: in messages and in the kernel's source; by default the function's.
    """
    symbols = [Symbol("b", "int", natural=True), Symbol("h", "int", natural=True),
               _q_symbol(q_idx), Symbol("kv_idx", "int", natural=True)]
    spec, params = _trace(function, symbols, language.to_bool, "mask", name)
    return Mask(spec, params)


def score_mod(function: Callable[..., Any], *, q_idx: str = "row", name: Optional[str] = None) -> ScoreMod:
    """What a function of (score, b, h, q_idx, kv_idx) makes of a score; the rest is as for mask."""
    symbols = [Symbol("score", "float"), Symbol("b", "int", natural=True),
               Symbol("h", "int", natural=True), _q_symbol(q_idx),
               Symbol("kv_idx", "int", natural=True)]
    spec, params = _trace(function, symbols, language.to_float, "score_mod", name)
    return ScoreMod(spec, params)


def bit_mask(tensor: Any) -> Mask:
    """The mask of a tensor of bits: uint8 [batch or 1, heads or 1, q_len or 1, bytes].

    Key i is seen where bit i % 8 of byte i // 8 is set.
    """
    tensor = view(tensor, name="mask")
    if dtype_name(tensor.dtype) != "uint8":
        raise wrong_type(f"a mask of bits is of uint8, not of {dtype_name(tensor.dtype)}", "mask")
    return _with_tensor(_MATERIALIZED["bits"], tensor)


def block_mask(blocks: Any, asked: Any = None) -> Mask:
    """The mask that the lists of blocks of FlexAttention's BlockMask say, with blocks of 128.

    Blocks that no list names are hidden, and those of the full list are seen whole, whatever
    `asked` shows of either: it is the mask of the others.

    Args:
        blocks: a BlockMask, or another object with its kv_num_blocks [batch or 1, heads or 1,
            q_blocks], kv_indices [.., kv_blocks], full_kv_num_blocks and full_kv_indices or None,
            and BLOCK_SIZE. Heads that share a key-value head share lists, too.
        asked: as attention() takes a mask; None: the BlockMask's mask_mod.
    """
    if not hasattr(blocks, "BLOCK_SIZE"):
        raise wrong_type(f"block_mask: {type(blocks).__name__} is no BlockMask: it has no "
                         "BLOCK_SIZE", "block_mask")
    size = blocks.BLOCK_SIZE
    if tuple(size if isinstance(size, (list, tuple)) else (size, size)) != (_BLOCK, _BLOCK):
        raise InvalidError(f"block_mask has blocks of {size}; allowed: {_BLOCK}",
                           field="block_mask", hint=f"create_block_mask(.., BLOCK_SIZE={_BLOCK})")
    if asked is None:
        asked = getattr(blocks, "mask_mod", None)
        # NOTE: it makes a tensor of what it is given, and symbols have none to make.
        if (getattr(asked, "__name__", ""), getattr(asked, "__module__", "")) == _NO_MASK:
            asked = None
    return _listed(blocks, as_mask(asked))


def with_blocks(blocks: Any, asked: Any, bias: Any) -> Mask:
    """What block_mask() returns; `bias`: numbers that are added to the scores, or None."""
    listed = block_mask(blocks, asked)
    if bias is None:
        return listed
    return _listed(blocks, with_bias(Mask(listed.spec, listed.params, listed.tensor, listed.json),
                                     bias))


def _listed(blocks: Any, of: Mask) -> Mask:
    if of.blocks is not None:
        raise InvalidError("the mask of the blocks has lists of its own", field="block_mask")
    given = [(name, getattr(blocks, name, None)) for name in BLOCK_ARRAYS]
    missing = [name for name, array in given[:2] if array is None]
    if missing or (given[2][1] is None) != (given[3][1] is None):
        raise InvalidError(f"has no {' and no '.join(missing) or 'whole list of full blocks'}",
                           field="block_mask")
    listed = Mask(of.spec, of.params, of.tensor, of.json)
    listed.blocks = tuple(packed(view(array, name=name), name) for name, array in given
                          if array is not None)
    return listed


_BLOCK = 128
_NO_MASK = ("noop_mask", "torch.nn.attention.flex_attention")  #: of a BlockMask made without one
BLOCK_ARRAYS = ("kv_num_blocks", "kv_indices", "full_kv_num_blocks", "full_kv_indices")


def alibi(slopes: Any) -> ScoreMod:
    """ALiBi with slopes of the caller's, f32 [heads]: those of a shard's heads, say."""
    return _with_tensor(_ALIBI_SLOPES, view(slopes, name="slopes"))


def as_mask(given: Any) -> Mask:
    """A Mask from what `mask=` takes: a Mask, a name, an object of a spec, a function, a tensor."""
    if hasattr(given, "dtype") and hasattr(given, "shape"):
        return _of_tensor(given)
    return _as(given, Mask, "null", mask)


def with_bias(given: Any, bias: Any) -> Mask:
    """What `mask=` takes, and numbers that are added to the scores."""
    added = _of_tensor(bias)
    if added.spec["dtype"] not in _ADDED:  # type: ignore[index]
        raise wrong_type(f"bias is of {dtype_name(bias.dtype)}; allowed: float32, bfloat16, float16",
                         "bias")
    return added if given is None else as_mask(given) & added


def as_score_mod(given: Any) -> ScoreMod:
    """A ScoreMod from what `score_mod=` takes."""
    return _as(given, ScoreMod, "identity", score_mod)


_ADDED = ("f32", "bf16", "fp16")
_MATERIALIZED: Dict[str, Mask] = {dtype: Mask({"kind": "materialized", "dtype": dtype})
                 for dtype in ("u8", "bits", *_ADDED)}
_ALIBI_SLOPES = ScoreMod({"kind": "alibi", "slopes": True})
_MASK_DTYPES = {"bool": "u8", "bool_": "u8", "uint8": "u8", "float32": "f32", "bfloat16": "bf16",
                "float16": "fp16"}


def _of_tensor(tensor: Any) -> Mask:
    tensor = view(tensor, name="mask")
    dtype = _MASK_DTYPES.get(dtype_name(tensor.dtype))
    if dtype is None:
        raise wrong_type(f"a mask's tensor is of {dtype_name(tensor.dtype)}; allowed: "
                         f"{', '.join(name for name in _MASK_DTYPES if name != 'bool_')}", "mask")
    return _with_tensor(_MATERIALIZED[dtype], tensor)


def _with_tensor(like: M, tensor: Any) -> M:
    return type(like)(like.spec, None, tensor, like.json)  # NOTE: torch.compile cannot follow copy


def _as(given: Any, kind: Type[M], none: str, trace: Callable[[Any], M]) -> M:
    if isinstance(given, kind):
        return given
    name = none if given is None else given
    if isinstance(name, str) and name in _NAMED:  # NOTE: torch.compile could not make one
        return _NAMED[name]  # type: ignore[return-value]
    if isinstance(given, (str, Mapping)):
        return kind(given)
    if callable(given):
        return trace(given)
    raise wrong_type(f"{kind.field}: {type(given).__name__} is neither a name, an object of a "
                     "spec, a function, nor what attnjit.mask and attnjit.score_mod return",
                     kind.field)


def _q_symbol(q_idx: str) -> Symbol:
    if q_idx not in _Q_IDX:
        raise refused(f'q_idx is {q_idx!r}; allowed: "row", "end", "total"', "q_idx")
    return _Q_IDX[q_idx]


def _trace(function: Callable[..., Any], symbols: List[Symbol], convert: Callable[[Any], Symbol],
           kind: str, name: Optional[str]) -> Tuple[Dict[str, Any], Dict[str, Any]]:
    if not callable(function):
        raise wrong_type(f"attnjit.{kind} takes a function, not a {type(function).__name__}; "
                         "names and objects of specs are given to attention() as they are", kind)
    captures = _Captures()
    with_symbols = captures.replace(function)
    outer, language._trace.captures = language._trace.captures, captures
    try:
        result = convert(with_symbols(*symbols))
    finally:
        language._trace.captures = outer
    if name is None:
        given = getattr(function, "__name__", kind)
        name = kind if "lambda" in given else re.sub(r"[^a-z0-9_]", "_", given.lower())[:64]
    spec: Dict[str, Any] = {"kind": "custom", "name": name, "code": result.code}
    # What the expression reads; a function may name more.
    used = {name: value for name, value in captures.params.items()
            if re.search(rf"\bp\.{name}\b", result.code)}
    if used:
        spec["params"] = [{"name": name, "type": captures.types[name]} for name in used]
    return spec, used


def _free(name: str, taken: Any) -> str:
    """The name, or the first like it that is not taken."""
    number, free = 2, name
    while free in taken:
        free, number = f"{name}_{number}", number + 1
    return free


class _Captures:
    """What a function names, with its tensors replaced by Arrays."""

    def __init__(self) -> None:
        self.params: Dict[str, Any] = {}
        self.types: Dict[str, str] = {}
        self._done: Dict[int, Any] = {}
        self._alive: List[Any] = []  # NOTE: an id is an object's own only while it lives

    def replace(self, value: Any, name: str = "array") -> Any:
        """The value itself, or what stands for it in the trace."""
        if id(value) in self._done:
            return self._done[id(value)]
        if isinstance(value, types.FunctionType):
            return self._function(value)
        if isinstance(value, types.MethodType):
            return types.MethodType(self._function(value.__func__),  # type: ignore[arg-type]
                                    value.__self__)
        if isinstance(value, (list, tuple)) and value and all(map(callable, value)):
            return self._keep(value, [self.replace(one) for one in value])
        if isinstance(value, Mapping) and type(value) is dict and value:
            return self._keep(value, {key: self.replace(one, str(key))
                                      for key, one in value.items()})
        if isinstance(value, Scalar):
            return self._keep(value, self._scalar(value, name))
        if _is_array(value):
            return self._keep(value, self._array(value, name))
        return value

    def _keep(self, value: Any, stands_for: Any) -> Any:
        self._alive.append(value)
        self._done[id(value)] = stands_for
        return stands_for

    def _function(self, function: types.FunctionType) -> types.FunctionType:
        names = dict(function.__globals__)
        variables = function.__code__.co_freevars
        cells = tuple(types.CellType() for _ in variables)
        copy: types.FunctionType = self._keep(function, types.FunctionType(function.__code__, names,
                                                       function.__name__, None, cells))
        for cell, name, original in zip(cells, variables, function.__closure__ or ()):
            try:
                value = original.cell_contents
            except ValueError:  # the variable has no value yet
                continue
            cell.cell_contents = self.replace(value, name)
        if (function.__module__ or "").partition(".")[0] not in _LIBRARIES:
            for name in function.__code__.co_names:
                if name in names:
                    names[name] = self.replace(names[name], name)
        if function.__defaults__:
            arguments = function.__code__.co_varnames[:function.__code__.co_argcount]
            copy.__defaults__ = tuple(map(self.replace, function.__defaults__,
                                          arguments[-len(function.__defaults__):]))
        if function.__kwdefaults__:
            copy.__kwdefaults__ = {name: self.replace(value, name)
                                   for name, value in function.__kwdefaults__.items()}
        return copy

    def _name(self, given: str) -> str:
        """A name for a parameter: an identifier of C that nothing else has."""
        name = re.sub("__+", "_", re.sub("[^A-Za-z0-9]", "_", given)).strip("_").lower()[:48]
        name = f"a_{name}" if not name or name[0].isdigit() else name
        return _free(f"{name}_" if name in _TAKEN else name, self.params)

    def _scalar(self, value: Scalar, name: str) -> Symbol:
        name = self._name(name)
        self.params[name], self.types[name] = int(value), "i32"
        return Symbol(f"p.{name}", "int")

    def _array(self, value: Any, name: str) -> Array:
        tensor, element, truth = _as_param(value)
        shape = tuple(int(extent) for extent in tensor.shape)
        name = self._name(name)
        flat = f"{element}{'[]' * len(shape)}" not in PARAM_TYPES or not shape
        if flat:
            tensor = tensor.reshape(-1)  # row-major
            for axis in range(1, len(shape)):
                self.params[f"{name}_{axis}"] = shape[axis]
                self.types[f"{name}_{axis}"] = "i32"
        self.params[name] = tensor
        self.types[name] = element + ("[]" if flat else "[]" * len(shape))
        return Array(name, _TYPE_OF[element], shape, flat, truth)


def _is_array(value: Any) -> bool:
    if isinstance(value, (Symbol, Array, Scalar, type)):
        return False
    if isinstance(value, (list, tuple)):
        return bool(value) and all(isinstance(one, (int, float)) or _is_array(one)
                                   for one in value)
    return hasattr(value, "shape") and hasattr(value, "dtype") and hasattr(value, "__getitem__")


def _as_param(value: Any) -> Tuple[Any, str, bool]:
    """The array with elements that a parameter has, their name, and whether they stand for truth."""
    if isinstance(value, (list, tuple)):
        value = HostArray(value)
    name = dtype_name(value.dtype)
    truth = name in ("bool", "bool_")
    if not truth and not name.startswith(("int", "uint", "float", "bfloat")):
        raise wrong_type(f"an array of {name} is no parameter of a mask or score modification; "
                         "allowed: integers, floats and bools", "params")
    _check_values(value, name)
    kept = {"uint32": "u32", "bfloat16": "bf16"}.get(name)
    if kept and (kept == "u32" or len(value.shape) in (1, 2)):
        return value, kept, False
    floating = "float" in name
    wanted = "float32" if floating else "int32"
    if name != wanted:
        if hasattr(value, "data_ptr"):
            import torch
            value = value.to(getattr(torch, wanted))
        else:
            value = value.astype(wanted)
    return value, "f32" if floating else "i32", truth


def _check_values(array: Any, name: str) -> None:
    """Refuses integers that 32 bits do not hold, where they can be looked at: on the host."""
    if name not in ("int64", "uint64", "uint32") and not isinstance(array, HostArray):
        return
    if isinstance(array, HostArray):
        if array.dtype != "int32":
            return
        least, most = min(array.values), max(array.values)
    else:
        device = getattr(array, "device", "cpu")
        on_host = "cpu" in (device, getattr(device, "type", ""), getattr(device, "platform", ""))
        if not on_host or 0 in tuple(array.shape) or hasattr(array, "fake_mode") or (
                name == "uint32"):
            return
        least, most = int(array.min()), int(array.max())
    if least < -1 << 31 or most >= 1 << 31:
        raise refused(f"an array of {name} that the function names holds {least} to {most}; "
                      "integers of masks and score modifications have 32 bits", "params",
                      "number the values, e.g. by torch.unique(.., return_inverse=True)")


class Scalar(int):
    """An int that a traced function names and that each launch is given: not compiled in.

        window = attnjit.Scalar(1024)
        mask = attnjit.mask(lambda b, h, q_idx, kv_idx: q_idx - kv_idx < window)
    """

    def __new__(cls, value: Any) -> "Scalar":
        return super().__new__(cls, integer("Scalar", value, c_int32))


class HostArray:
    """A list of numbers as an array on the host: attention() copies it to the tensors' device."""

    def __init__(self, values: Any) -> None:
        self.shape: Tuple[int, ...] = ()
        self.values: List[Union[int, float, bool]] = [values]
        while isinstance(self.values[0], (list, tuple)):
            width = len(self.values[0])
            if any(not isinstance(row, (list, tuple)) or len(row) != width for row in self.values):
                raise wrong_type("rows of a list differ in length", "params")
            self.shape += (width,)
            self.values = [one for row in self.values for one in row]
        kinds = {type(value) for value in self.values}
        self.dtype = "float32" if float in kinds else "bool" if kinds == {bool} else "int32"
        self._copies: Dict[Any, Any] = {}  # by device

    def astype(self, dtype: str) -> "HostArray":
        out = HostArray.__new__(HostArray)
        convert = float if dtype == "float32" else int
        out.shape, out.values = self.shape, [convert(value) for value in self.values]
        out.dtype, out._copies = dtype, {}
        return out

    def reshape(self, *_: int) -> "HostArray":
        out = self.astype(self.dtype)
        out.shape = (len(self.values),)
        return out

    def on(self, tensor: Any) -> Any:
        """The same as a torch tensor on the device of another one."""
        if not hasattr(tensor, "new_tensor"):
            raise wrong_type("a list can be copied to the device of torch tensors alone; give an "
                             "array that lies there", "params")
        import torch
        if tensor.device not in self._copies:
            self._copies[tensor.device] = torch.tensor(
                self.values, dtype=getattr(torch, self.dtype),
                device=tensor.device).reshape(self.shape)
        return self._copies[tensor.device]
