# SPDX-License-Identifier: Apache-2.0
"""Symbols of a trace, and the functions that work on them.

A mask or score modification is called once with symbols; what it computes with them becomes an
expression of docs/snippets.md. The functions of this module (where, minimum, tanh, ..) take symbols
and plain numbers alike. torch's and numpy's functions of the same names may be used as well: they
hand symbols over to the ones here.
"""
from __future__ import annotations

import builtins
import linecache
import math
import os
import sys
import threading
import types
from typing import Any, Callable, Dict, Iterable, NoReturn, Optional, Tuple, Union

from ._errors import TraceError

__all__ = ["abs", "ceil", "clamp", "cos", "erf", "exp", "exp2", "floor", "fmod", "log", "log2",
           "logical_and", "logical_not", "logical_or", "logical_xor", "maximum", "minimum", "pow",
           "remainder", "rsqrt", "sigmoid", "sin", "sqrt", "square", "tanh", "trunc", "where"]

Value = Union["Symbol", int, float, bool]

# C's precedences, from 1 (?:) to 15 (a name).
_SELECT, _LOR, _LAND, _BOR, _XOR, _BAND, _EQUAL, _ORDER, _SHIFT, _ADD, _MULTIPLY, _UNARY, _ATOM = (
    1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 15)
_MAX_CODE = 16 << 10  # as kMaxExpressionLength
_PACKAGE = os.path.dirname(os.path.abspath(__file__))


def refuse(text: str, hint: str = "") -> NoReturn:
    """Raises TraceError with the line of the traced function that is being called."""
    frame: Optional[types.FrameType] = sys._getframe(1)
    # The innermost frame that is neither this package's nor a library's that passed a call on.
    while frame is not None and (os.path.dirname(os.path.abspath(frame.f_code.co_filename))
                                 == _PACKAGE or _is_library(frame.f_globals.get("__name__", ""))):
        frame = frame.f_back
    if frame is None:
        raise TraceError(text, hint=hint)
    name, line = frame.f_code.co_filename, frame.f_lineno
    raise TraceError(text, filename=name, line=line, source=linecache.getline(name, line).strip(),
                     hint=hint) from None


def _is_library(module: str) -> bool:
    return module.partition(".")[0] in ("torch", "numpy")


class _Trace(threading.local):
    """What the trace of this thread has captured; see attnjit.masks."""

    captures: Any = None


_trace = _Trace()


class Symbol:
    """A value that a launch computes: an expression with its type ("bool", "int", "u32" or
    "float").
    """

    __slots__ = ("code", "type", "precedence", "natural")
    __hash__ = None  # type: ignore[assignment]  # == makes a symbol
    __array_priority__ = 1000  # numpy's scalars leave their operators to symbols

    def __init__(self, code: str, type: str, precedence: int = _ATOM, natural: bool = False):
        if len(code) > _MAX_CODE:
            refuse(f"the expression has more than {_MAX_CODE} characters",
                   "an expression has no variables: what is used twice is computed twice")
        self.code, self.type, self.precedence = code, type, precedence
        self.natural = natural  # never negative: // and % are C's then

    def at(self, precedence: int) -> str:
        """The code as an operand of an operator of that precedence."""
        return self.code if self.precedence > precedence else f"({self.code})"

    # What would need a number now.
    def __bool__(self) -> bool:
        refuse("a symbol has no truth value yet: `if`, `and`, `or`, `not` and chained comparisons "
               "cannot be traced", "use where(), `&`, `|` and `~`")

    def __index__(self) -> int:
        refuse("a symbol is no index into this object",
               "index a tensor, an array or a list that the function names directly: a local "
               "variable around it, a global, or a default argument")

    def __int__(self) -> int:
        refuse("int() of a symbol cannot be traced", "use .int()")

    def __float__(self) -> float:
        refuse("this function needs a number, and a symbol is none yet",
               "use attnjit.language, or torch's functions instead of math's")

    def __len__(self) -> int:
        refuse("a symbol is one number")

    def __iter__(self) -> Any:
        refuse("a symbol is one number")

    # Operators.
    def __add__(self, other: Value) -> "Symbol":
        return _arithmetic("+", self, other, _ADD)

    def __radd__(self, other: Value) -> "Symbol":
        return _arithmetic("+", other, self, _ADD)

    def __sub__(self, other: Value) -> "Symbol":
        return _arithmetic("-", self, other, _ADD)

    def __rsub__(self, other: Value) -> "Symbol":
        return _arithmetic("-", other, self, _ADD)

    def __mul__(self, other: Value) -> "Symbol":
        return _arithmetic("*", self, other, _MULTIPLY)

    def __rmul__(self, other: Value) -> "Symbol":
        return _arithmetic("*", other, self, _MULTIPLY)

    def __truediv__(self, other: Value) -> "Symbol":
        return _divide(self, other)

    def __rtruediv__(self, other: Value) -> "Symbol":
        return _divide(other, self)

    def __floordiv__(self, other: Value) -> "Symbol":
        return _floor_divide(self, other)

    def __rfloordiv__(self, other: Value) -> "Symbol":
        return _floor_divide(other, self)

    def __mod__(self, other: Value) -> "Symbol":
        return _floor_modulo(self, other)

    def __rmod__(self, other: Value) -> "Symbol":
        return _floor_modulo(other, self)

    def __divmod__(self, other: Value) -> Tuple["Symbol", "Symbol"]:
        return _floor_divide(self, other), _floor_modulo(self, other)

    def __pow__(self, other: Value) -> "Symbol":
        return _power(self, other)

    def __rpow__(self, other: Value) -> "Symbol":
        return _power(other, self)

    def __lshift__(self, other: Value) -> "Symbol":
        return _integer("<<", self, other, _SHIFT)

    def __rlshift__(self, other: Value) -> "Symbol":
        return _integer("<<", other, self, _SHIFT)

    def __rshift__(self, other: Value) -> "Symbol":
        return _integer(">>", self, other, _SHIFT)

    def __rrshift__(self, other: Value) -> "Symbol":
        return _integer(">>", other, self, _SHIFT)

    def __and__(self, other: Value) -> "Symbol":
        return _bits("&", self, other, _BAND)

    __rand__ = __and__

    def __or__(self, other: Value) -> "Symbol":
        return _bits("|", self, other, _BOR)

    __ror__ = __or__

    def __xor__(self, other: Value) -> "Symbol":
        return _bits("^", self, other, _XOR)

    __rxor__ = __xor__

    def __neg__(self) -> "Symbol":
        operand = _number(self)
        return Symbol("-" + operand.at(_UNARY), operand.type, _UNARY)

    def __pos__(self) -> "Symbol":
        return self

    def __invert__(self) -> "Symbol":
        if self.type == "float":
            refuse("~ of a float")
        return Symbol(("!" if self.type == "bool" else "~") + self.at(_UNARY), self.type, _UNARY)

    def __abs__(self) -> "Symbol":
        operand = _number(self)
        return Symbol(f"abs({operand.code})", operand.type, natural=True)

    def __floor__(self) -> "Symbol":
        return to_int(_function("floor", self))

    def __ceil__(self) -> "Symbol":
        return to_int(_function("ceil", self))

    def __trunc__(self) -> "Symbol":
        return to_int(self)

    def __round__(self, digits: Optional[int] = None) -> "Symbol":
        refuse("round() takes halves to the even number, which the language cannot",
               "use floor(x + 0.5)")

    def __lt__(self, other: Value) -> "Symbol":
        return _compare("<", self, other, _ORDER)

    def __le__(self, other: Value) -> "Symbol":
        return _compare("<=", self, other, _ORDER)

    def __gt__(self, other: Value) -> "Symbol":
        return _compare(">", self, other, _ORDER)

    def __ge__(self, other: Value) -> "Symbol":
        return _compare(">=", self, other, _ORDER)

    def __eq__(self, other: Value) -> "Symbol":  # type: ignore[override]
        return _compare("==", self, other, _EQUAL)

    def __ne__(self, other: Value) -> "Symbol":  # type: ignore[override]
        return _compare("!=", self, other, _EQUAL)

    # Methods of tensors.
    @property
    def device(self) -> None:
        """None: torch.tensor(1, device=q_idx.device) is a constant."""
        return None

    def new_ones(self, *_: Any, dtype: Any = None, **__: Any) -> "Symbol":
        return _convert(symbol(True), dtype)

    def new_zeros(self, *_: Any, dtype: Any = None, **__: Any) -> "Symbol":
        return _convert(symbol(False), dtype)

    def to(self, dtype: Any, *_: Any, **__: Any) -> "Symbol":
        return _convert(self, dtype)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        function = _FUNCTIONS.get(name)
        if function is None:
            refuse(f"`.{name}` of a symbol cannot be traced")
        return lambda *args, **kwargs: function(self, *args, **kwargs)

    # What torch and numpy ask of foreign operands of their functions.
    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Tuple[Any, ...] = (),
                           kwargs: Optional[Dict[str, Any]] = None) -> Any:
        return _call(getattr(function, "__name__", str(function)), args, kwargs or {})

    def __array_ufunc__(self, function: Any, method: str, *args: Any, **kwargs: Any) -> Any:
        if method != "__call__":
            refuse(f"numpy.{function.__name__}.{method} cannot be traced")
        return _call(function.__name__, args, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Tuple[Any, ...],
                           kwargs: Dict[str, Any]) -> Any:
        return _call(function.__name__, args, kwargs)


def _call(name: str, args: Iterable[Any], kwargs: Dict[str, Any]) -> Any:
    if name == "__getitem__" and _trace.captures is not None:  # torch's, of a tensor of its own
        tensor, index = args
        return _trace.captures.replace(tensor)[index]
    if name.startswith("__") and hasattr(Symbol, name):  # an operator
        first, *others = args
        return getattr(symbol(first), name)(*others)
    function = _FUNCTIONS.get(name)
    if function is None:
        refuse(f"{name}() cannot be traced")
    return function(*args, **kwargs)


def symbol(value: Any) -> Symbol:
    """A value as a symbol: symbols, arrays without dimensions, Python's and numpy's numbers."""
    if isinstance(value, Symbol):
        return value
    if isinstance(value, Array):
        return value.scalar()
    if isinstance(value, bool) or type(value).__name__ in ("bool_", "bool") and bool(value) == value:
        return Symbol("true" if value else "false", "bool", natural=True)
    if hasattr(value, "__index__") and not hasattr(value, "__torch_function__"):
        return _int_literal(int(value))
    if isinstance(value, float) or type(value).__name__.startswith("float"):
        return _float_literal(float(value))
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # made inside the function
        return symbol(value.item())
    refuse(f"{type(value).__name__} is no number, and cannot be traced",
           "tensors are traced where the function names them directly and indexes them")


def _int_literal(value: int) -> Symbol:
    if not -(1 << 31) <= value < 1 << 31:
        refuse(f"{value} does not fit an int of 32 bits")
    if value == -(1 << 31):
        return Symbol("-2147483647 - 1", "int", _ADD)
    return Symbol(str(value), "int", _ATOM if value >= 0 else _UNARY, natural=value >= 0)


def _float_literal(value: float) -> Symbol:
    if math.isnan(value):
        refuse("NaN is no score")
    if builtins.abs(value) > 3.4028235677973366e38:  # rounds to an infinity of f32
        # NOTE: the language has no infinity, and this is one, in the kernel and the reference.
        return Symbol("log(0.0)" if value < 0 else "-log(0.0)", "float",
                      _ATOM if value < 0 else _UNARY, natural=value > 0)
    text = repr(value)
    return Symbol(text if set(text) & set(".e") else text + ".0", "float",
                  _UNARY if text.startswith("-") else _ATOM, natural=value >= 0)


def _number(value: Any) -> Symbol:
    """A symbol that is an int or a float: bools count as 0 and 1."""
    given = symbol(value)
    return to_int(given) if given.type == "bool" else given


def to_int(value: Any) -> Symbol:
    """Truncates, as .int() of a tensor."""
    given = symbol(value)
    if given.type == "int":
        return given
    return Symbol("(int)" + given.at(_UNARY - 1), "int", _UNARY, natural=given.natural)


def to_u32(value: Any) -> Symbol:
    """The bits of an int; truncates a float."""
    given = symbol(value)
    if given.type == "u32":
        return given
    return Symbol("(u32)" + given.at(_UNARY - 1), "u32", _UNARY, natural=True)


def to_float(value: Any) -> Symbol:
    given = symbol(value)
    if given.type == "float":
        return given
    if given.code.isdigit():
        return _float_literal(float(given.code))
    return Symbol("(float)" + given.at(_UNARY - 1), "float", _UNARY, natural=given.natural)


def to_bool(value: Any) -> Symbol:
    """True for what is not zero."""
    given = symbol(value)
    if given.type == "bool":
        return given
    return Symbol(f"{given.at(_EQUAL)} != 0", "bool", _EQUAL, natural=True)


def _convert(value: Symbol, dtype: Any) -> Symbol:
    name = str(dtype).rpartition(".")[2] if dtype is not None else value.type
    for prefix, convert in (("bool", to_bool), ("int", to_int), ("long", to_int),
                            ("uint32", to_u32), ("u32", to_u32), ("float32", to_float),
                            ("float", to_float)):
        if name == prefix or prefix == "int" and name in ("int32", "int64"):
            return convert(value)
    refuse(f"a conversion to {name} cannot be traced", "allowed: bool, int32, int64, uint32, float32")


def _same(left: Any, right: Any) -> Tuple[Symbol, Symbol]:
    """Both as numbers of one type."""
    a, b = _number(left), _number(right)
    if a.type != b.type:
        convert = to_float if "float" in (a.type, b.type) else to_u32
        a, b = convert(a), convert(b)
    return a, b


def _arithmetic(sign: str, left: Any, right: Any, precedence: int) -> Symbol:
    a, b = _same(left, right)
    # NOTE: the right operand of - keeps its brackets even where + has the same precedence.
    return Symbol(f"{a.at(precedence - 1)} {sign} {b.at(precedence)}", a.type, precedence,
                  natural=a.type == "u32" or sign != "-" and a.natural and b.natural)


def _integer(sign: str, left: Any, right: Any, precedence: int) -> Symbol:
    a, b = _number(left), _number(right)
    if "float" in (a.type, b.type):
        refuse(f"`{sign}` of a float")
    return Symbol(f"{a.at(precedence)} {sign} {b.at(precedence)}", a.type, precedence,
                  natural=a.type == "u32" or sign == ">>" and a.natural)


def _bits(sign: str, left: Any, right: Any, precedence: int) -> Symbol:
    a, b = symbol(left), symbol(right)
    if a.type == b.type == "bool":
        # What torch's and_masks and or_masks begin with.
        for one, other in ((a, b), (b, a)):
            if one.code == {"&": "true", "|": "false"}.get(sign):
                return other
        # && and || short-circuit nothing here, and read as masks are written.
        sign, precedence = {"&": ("&&", _LAND), "|": ("||", _LOR)}.get(sign, (sign, precedence))
        # NOTE: && inside || keeps brackets, as compilers ask for.
        return Symbol(f"{_logic(a, precedence)} {sign} {_logic(b, precedence)}", "bool", precedence,
                      natural=True)
    a, b = _number(a), _number(b)
    if "float" in (a.type, b.type):
        refuse(f"`{sign}` of a float")
    kind = "u32" if "u32" in (a.type, b.type) else "int"
    natural = (a.natural or b.natural) if sign == "&" else a.natural and b.natural
    return Symbol(f"{a.at(precedence)} {sign} {b.at(precedence)}", kind, precedence,
                  natural or kind == "u32")


def _logic(operand: Symbol, precedence: int) -> str:
    if operand.precedence == precedence:
        return operand.code
    return operand.at(_XOR) if operand.precedence in (_LAND, _LOR) else operand.at(precedence)


def _compare(sign: str, left: Any, right: Any, precedence: int) -> Symbol:
    a, b = symbol(left), symbol(right)
    if not (a.type == b.type == "bool"):
        a, b = _same(a, b)
    # NOTE: brackets around every comparison: the language refuses a < b < c.
    return Symbol(f"{a.at(_ORDER)} {sign} {b.at(_ORDER)}", "bool", precedence, natural=True)


def _divide(left: Any, right: Any) -> Symbol:
    a, b = to_float(left), to_float(right)
    return Symbol(f"{a.at(_MULTIPLY - 1)} / {b.at(_MULTIPLY)}", "float", _MULTIPLY,
                  natural=a.natural and b.natural)


def _literal(value: Symbol) -> Optional[int]:
    """The value of an int literal."""
    return int(value.code) if value.type == "int" and value.code.lstrip("-").isdigit() else None


def _floor_divide(left: Any, right: Any) -> Symbol:
    a, b = _same(left, right)
    if a.type == "float":
        return _function("floor", _divide(a, b))
    divisor = _literal(b)
    if divisor == 0:
        refuse("a division by 0")
    plain = f"{a.at(_MULTIPLY - 1)} / {b.at(_MULTIPLY)}"
    if a.type == "u32":
        return Symbol(plain, "u32", _MULTIPLY, natural=True)
    if a.natural and (b.natural or divisor is not None and divisor > 0):
        return Symbol(plain, "int", _MULTIPLY, natural=True)
    if divisor is not None and divisor > 0:  # C truncates: ~(~a / b) is the floor below 0
        return Symbol(f"{a.at(_ORDER)} < 0 ? ~(~{a.at(_UNARY - 1)} / {divisor}) : {plain}", "int",
                      _SELECT)
    rest = f"{a.at(_MULTIPLY - 1)} % {b.at(_MULTIPLY)}"
    return Symbol(f"{plain} - (int)({rest} != 0 && ({rest} ^ {b.at(_ADD)}) < 0)", "int", _ADD)


def _floor_modulo(left: Any, right: Any) -> Symbol:
    a, b = _same(left, right)
    if a.type == "float":
        rest = f"fmod({a.code}, {b.code})"
        return Symbol(f"{rest} != 0.0 && (({rest} < 0.0) != ({b.at(_ORDER)} < 0.0)) ? "
                      f"{rest} + {b.at(_ADD)} : {rest}", "float", _SELECT, natural=b.natural)
    divisor = _literal(b)
    if divisor == 0:
        refuse("a division by 0")
    rest = f"{a.at(_MULTIPLY - 1)} % {b.at(_MULTIPLY)}"
    if a.type == "u32":
        return Symbol(rest, "u32", _MULTIPLY, natural=True)
    if a.natural and (b.natural or divisor is not None and divisor > 0):
        return Symbol(rest, "int", _MULTIPLY, natural=True)
    if divisor is not None and divisor > 0:
        return Symbol(f"{a.at(_ORDER)} < 0 ? {divisor - 1} - ~{a.at(_UNARY - 1)} % {divisor} : "
                      f"{rest}", "int", _SELECT, natural=True)
    return Symbol(f"{rest} + ({rest} != 0 && ({rest} ^ {b.at(_ADD)}) < 0 ? {b.code} : 0)", "int",
                  _ADD, natural=b.natural)


def _power(base: Any, exponent: Any) -> Symbol:
    if isinstance(exponent, int) and 0 <= exponent <= 8:
        factor = _number(base)
        result = to_float(1.0) if factor.type == "float" else _number(1)
        for _ in range(exponent):
            result = factor if result.code in ("1", "1.0") else result * factor
        if exponent % 2 == 0:
            result = Symbol(result.code, result.type, result.precedence, natural=True)
        return result
    a, b = symbol(base), symbol(exponent)
    if a.type != "float" and b.type != "float":
        refuse("a power of ints with this exponent cannot be traced",
               "make one of them a float, or use <<")
    return Symbol(f"pow({to_float(a).code}, {to_float(b).code})", "float", natural=a.natural)


def _function(name: str, value: Any, natural: bool = False) -> Symbol:
    return Symbol(f"{name}({to_float(value).code})", "float", natural=natural)


def _traced(*values: Any) -> bool:
    return any(isinstance(value, (Symbol, Array)) for value in values)


# The functions, over symbols and numbers alike.
def where(condition: Value, a: Value, b: Value) -> Value:
    """a where the condition holds, else b."""
    if not _traced(condition, a, b):
        return a if condition else b
    shown, x, y = to_bool(condition), symbol(a), symbol(b)
    if x.type != y.type:
        x, y = _same(x, y)
    return Symbol(f"{shown.at(_SELECT)} ? {x.at(_SELECT)} : {y.at(_SELECT)}", x.type, _SELECT,
                  natural=x.natural and y.natural)


def _least(name: str, number: Callable[..., Any]) -> Callable[[Value, Value], Value]:
    def function(a: Value, b: Value) -> Value:
        if not _traced(a, b):
            return number(a, b)  # type: ignore[no-any-return]
        x, y = _same(a, b)
        both = all if name == "min" else any
        return Symbol(f"{name}({x.code}, {y.code})", x.type, natural=both((x.natural, y.natural)))
    function.__doc__ = f"The {name}imum of two numbers."
    return function


minimum = _least("min", min)
maximum = _least("max", max)


def clamp(value: Value, min: Optional[Value] = None, max: Optional[Value] = None) -> Value:
    """The value within both bounds."""
    if min is not None:
        value = maximum(value, min)
    return value if max is None else minimum(value, max)


def _of_float(name: str, number: Callable[[float], float],
              natural: bool = False) -> Callable[[Value], Value]:
    def function(value: Value) -> Value:
        if isinstance(value, (Symbol, Array)):
            return _function(name, value, natural)
        return number(value)
    function.__doc__ = f"{name}, of a float."
    return function


exp = _of_float("exp", math.exp, natural=True)
exp2 = _of_float("exp2", lambda x: 2.0 ** x, natural=True)
log = _of_float("log", math.log)
log2 = _of_float("log2", math.log2)
sqrt = _of_float("sqrt", math.sqrt, natural=True)
rsqrt = _of_float("rsqrt", lambda x: 1.0 / math.sqrt(x), natural=True)
tanh = _of_float("tanh", math.tanh)
sin = _of_float("sin", math.sin)
cos = _of_float("cos", math.cos)
erf = _of_float("erf", math.erf)
floor = _of_float("floor", lambda x: float(math.floor(x)))
ceil = _of_float("ceil", lambda x: float(math.ceil(x)))
trunc = _of_float("trunc", lambda x: float(math.trunc(x)))


def abs(value: Value) -> Value:
    """The absolute value."""
    return builtins.abs(value)  # type: ignore[return-value]


def sigmoid(value: Value) -> Value:
    """1 / (1 + exp(-x))"""
    return 1.0 / (1.0 + exp(-value))


def square(value: Value) -> Value:
    """x * x"""
    return value * value


def pow(base: Value, exponent: Value) -> Value:
    """base ** exponent"""
    return base ** exponent


def fmod(a: Value, b: Value) -> Value:
    """The remainder with the sign of a, as C has it."""
    if not _traced(a, b):
        return math.fmod(a, b)
    x, y = _same(a, b)
    if x.type != "float":
        return Symbol(f"{x.at(_MULTIPLY - 1)} % {y.at(_MULTIPLY)}", x.type, _MULTIPLY, x.natural)
    return Symbol(f"fmod({x.code}, {y.code})", "float", natural=x.natural)


def remainder(a: Value, b: Value) -> Value:
    """a % b, with the sign of b."""
    return a % b


def logical_and(a: Value, b: Value) -> Value:
    """Whether both are not zero."""
    return to_bool(a) & to_bool(b) if _traced(a, b) else bool(a) and bool(b)


def logical_or(a: Value, b: Value) -> Value:
    """Whether one of them is not zero."""
    return to_bool(a) | to_bool(b) if _traced(a, b) else bool(a) or bool(b)


def logical_xor(a: Value, b: Value) -> Value:
    """Whether exactly one of them is not zero."""
    return to_bool(a) ^ to_bool(b) if _traced(a, b) else bool(a) != bool(b)


def logical_not(a: Value) -> Value:
    """Whether it is zero."""
    return ~to_bool(a) if _traced(a) else not a


def _div(a: Value, b: Value, rounding_mode: Optional[str] = None) -> Value:
    if rounding_mode == "floor":
        return a // b
    if rounding_mode == "trunc":
        x, y = _same(a, b)
        if x.type != "float":
            return Symbol(f"{x.at(_MULTIPLY - 1)} / {y.at(_MULTIPLY)}", x.type, _MULTIPLY,
                          x.natural and y.natural)
        return trunc(x / y)
    return a / b


def _add(a: Value, b: Value, alpha: Value = 1) -> Value:
    return a + b if type(alpha) is int and alpha == 1 else a + alpha * b


def _sub(a: Value, b: Value, alpha: Value = 1) -> Value:
    return a - b if type(alpha) is int and alpha == 1 else a - alpha * b


# By the names that torch, numpy and methods of tensors have.
_FUNCTIONS: Dict[str, Callable[..., Any]] = {name: globals()[name] for name in __all__}
_FUNCTIONS.update({
    "min": minimum, "max": maximum, "clip": clamp, "absolute": abs, "power": pow,
    "float_power": lambda a, b: to_float(a) ** b, "mod": remainder, "fix": trunc,
    "floor_divide": lambda a, b: symbol(a) // b, "div": _div, "divide": _div, "true_divide": _div,
    "add": _add, "sub": _sub, "subtract": _sub, "rsub": lambda a, b: b - a,
    "mul": lambda a, b: symbol(a) * b, "multiply": lambda a, b: symbol(a) * b,
    "neg": lambda a: -a, "negative": lambda a: -a, "positive": lambda a: +a,
    "eq": lambda a, b: symbol(a) == b, "equal": lambda a, b: symbol(a) == b,
    "ne": lambda a, b: symbol(a) != b, "not_equal": lambda a, b: symbol(a) != b,
    "lt": lambda a, b: symbol(a) < b, "less": lambda a, b: symbol(a) < b,
    "le": lambda a, b: symbol(a) <= b, "less_equal": lambda a, b: symbol(a) <= b,
    "gt": lambda a, b: symbol(a) > b, "greater": lambda a, b: symbol(a) > b,
    "ge": lambda a, b: symbol(a) >= b, "greater_equal": lambda a, b: symbol(a) >= b,
    "bitwise_and": lambda a, b: symbol(a) & b, "bitwise_or": lambda a, b: symbol(a) | b,
    "bitwise_xor": lambda a, b: symbol(a) ^ b, "bitwise_not": lambda a: ~symbol(a),
    "invert": lambda a: ~symbol(a),
    "bitwise_left_shift": lambda a, b: symbol(a) << b, "left_shift": lambda a, b: symbol(a) << b,
    "bitwise_right_shift": lambda a, b: symbol(a) >> b, "right_shift": lambda a, b: symbol(a) >> b,
    "masked_fill": lambda a, mask, value: where(mask, value, a),
    "ones_like": lambda a, dtype=None, **_: _convert(_convert(symbol(1), symbol(a).type), dtype),
    "zeros_like": lambda a, dtype=None, **_: _convert(_convert(symbol(0), symbol(a).type), dtype),
    "float": to_float, "int": to_int, "long": to_int, "bool": to_bool,
    "clone": lambda a, **_: a, "detach": lambda a: a, "contiguous": lambda a, **_: a,
    "item": lambda a: a, "type": lambda a, dtype: _convert(a, dtype),
})


class Array:
    """A tensor, array or list that the traced function indexes: a parameter of the launch."""

    def __init__(self, name: str, type: str, shape: Tuple[int, ...], flat: bool,
                 truth: bool) -> None:
        self.name, self.type, self.shape = name, type, tuple(shape)
        self._flat, self._truth = flat, truth
        self._given: Tuple[Any, ...] = ()

    def __getitem__(self, index: Any) -> Any:
        indices = self._given + (index if isinstance(index, tuple) else (index,))
        if len(indices) > len(self.shape):
            refuse(f"`{self.name}` has {len(self.shape)} dimensions, and is given "
                   f"{len(indices)} indices")
        if len(indices) < len(self.shape):
            part = Array(self.name, self.type, self.shape, self._flat, self._truth)
            part._given = indices
            return part
        return self._element([self._index(value, axis) for axis, value in enumerate(indices)])

    def _index(self, value: Any, axis: int) -> Symbol:
        if isinstance(value, Array):
            value = value.scalar()
        if isinstance(value, slice) or value is None or value is Ellipsis:
            refuse(f"`{self.name}` can be indexed by numbers alone")
        given = symbol(value)
        literal = _literal(given)
        if literal is not None and literal < 0:
            given = symbol(literal + self.shape[axis])
        if given.type == "float":
            refuse(f"an index into `{self.name}` is a float")
        return to_int(given)

    def _element(self, indices: Any) -> Symbol:
        if self._flat:
            flat = indices[0] if indices else symbol(0)
            for axis, one in enumerate(indices[1:], 1):
                flat = flat * Symbol(f"p.{self.name}_{axis}", "int", natural=True) + one
            indices = [flat]
        code = "p." + self.name + "".join(f"[{one.code}]" for one in indices)
        element = Symbol(code, self.type, natural=self.type == "u32")
        return to_bool(element) if self._truth else element

    def scalar(self) -> Symbol:
        """The value of a tensor without dimensions."""
        if self.shape:
            refuse(f"`{self.name}` has {len(self.shape)} dimensions, and is used as a number",
                   "index it down to a number")
        return self._element([])

    def item(self) -> Symbol:
        return self.scalar()

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def size(self, axis: Optional[int] = None) -> Any:
        return self.shape if axis is None else self.shape[axis]

    def __len__(self) -> int:
        return self.shape[0]

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self.scalar(), name)

    def __bool__(self) -> bool:
        return bool(self.scalar())

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, args: Tuple[Any, ...] = (),
                           kwargs: Optional[Dict[str, Any]] = None) -> Any:
        numbers = [arg.scalar() if isinstance(arg, Array) else arg for arg in args]
        return _call(getattr(function, "__name__", str(function)), numbers, kwargs or {})


def _operator(name: str) -> Callable[..., Any]:
    def operator(self: Array, *args: Any) -> Any:
        return getattr(self.scalar(), name)(*args)
    return operator


# NOTE: Python looks operators up on the class, past __getattr__.
for _name in [name for name in vars(Symbol)
              if name.startswith("__") and callable(getattr(Symbol, name))
              and name not in vars(Array) and name not in ("__init__", "__getattribute__",
                                                           "__array_ufunc__",
                                                           "__array_function__")]:
    setattr(Array, _name, _operator(_name))
