# SPDX-License-Identifier: Apache-2.0
"""What attnjit/_abi.py says is what attnjit.h says: structs, functions and enumerators.

abi_test.py HEADER
"""
import ctypes
import pathlib
import re
import sys

from attnjit import _abi

CTYPES = {"size_t": ctypes.c_size_t, "int32_t": ctypes.c_int32, "int64_t": ctypes.c_int64,
          "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "float": ctypes.c_float,
          "double": ctypes.c_double, "const char*": ctypes.c_char_p, "void*": ctypes.c_void_p,
          "const void*": ctypes.c_void_p, "attnjit_log_function": _abi.LogFunction,
          "attnjit_compile_function": _abi.CompileFunction,
          "const double*": ctypes.POINTER(ctypes.c_double),
          "const attnjit_param*": ctypes.POINTER(_abi.Param), "attnjit_strides": _abi.Strides}


def declared_structs(text):
    """name: [(field, ctypes type)] of each struct of the header."""
    for body, name in re.findall(r"typedef struct \w+ \{(.*?)\} (\w+);", text, re.DOTALL):
        fields = []
        for kind, names in re.findall(r"((?:const )?\w+\*?) ([\w\[\], ]+);", body):
            for field in names.split(", "):
                one, _, extent = field.partition("[")
                fields.append((one, CTYPES[kind] * int(extent[:-1]) if extent else CTYPES[kind]))
        yield name, fields


def declared_functions(text):
    """name: number of arguments of each function of the header."""
    for name, arguments in re.findall(r"ATTNJIT_EXPORT [\w\s*]*?\battnjit_(\w+)\((.*?)\);", text,
                                      re.DOTALL):
        yield name, 0 if arguments.strip() == "void" else arguments.count(",") + 1


def declared_enumerators(text):
    """name without ATTNJIT_: number of each enumerator of the header that is no error."""
    for body in re.findall(r"enum \{(.*?)\};", text, re.DOTALL):
        if "ATTNJIT_OK" in body:
            continue
        for name, number in re.findall(r"ATTNJIT_(\w+) = (\d+)", body):
            yield name, int(number)


text = re.sub(r"/\*.*?\*/|//[^\n]*", "", pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"),
              flags=re.DOTALL)
structs = dict(declared_structs(text))
assert set(structs) == set(_abi.STRUCTS), structs.keys() ^ _abi.STRUCTS.keys()
for name, fields in structs.items():
    said = _abi.STRUCTS[name]._fields_
    assert len(said) == len(fields), f"{name}: {len(said)} fields, the header has {len(fields)}"
    for ours, theirs in zip(said, fields):
        assert ours == theirs, f"{name}: {ours}, the header has {theirs}"
functions = dict(declared_functions(text))
assert set(functions) == set(_abi.FUNCTIONS), functions.keys() ^ _abi.FUNCTIONS.keys()
for name, count in functions.items():
    assert len(_abi.FUNCTIONS[name][1]) == count, f"attnjit_{name} has {count} arguments"
enumerators = dict(declared_enumerators(text))
assert enumerators == _abi.ENUMERATORS, enumerators.items() ^ _abi.ENUMERATORS.items()
print(f"{len(structs)} structs, {len(functions)} functions, {len(enumerators)} enumerators")
