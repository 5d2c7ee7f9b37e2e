"""attnjit from Python, through the C ABI and ctypes; no build step, no dependency.

    service = attnjit.Service("build/release/src/libattnjit.so")
    spec = service.prepare({"arch": "sm_90a", "num_q_heads": 32, "group": 4, "qk_depth": 128,
                            "mask": "causal"})
    kernel = service.get(spec)              # compiled, or found in the cache; loaded
    state = service.launch_state()          # one per stream: keeps the encoded tensor maps
    service.launch(kernel, state, q=q, k=k, v=v, o=o, stream=torch.cuda.current_stream().cuda_stream)

Tensors are anything with data_ptr(), shape and stride() (torch): q, o [batch, q_len, heads, depth],
k, v [batch, kv_len, kv_heads, depth], each with its last dimension contiguous. The launch goes into
the context that is current, torch's own. A prepared launch costs less: see Service.prepare_launch.
"""
import ctypes
import json
from ctypes import (POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32, c_int64,
                    c_size_t, c_uint32, c_uint64, c_void_p, sizeof)


class ServiceOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("cache_layers", c_char_p), ("no_disk_cache", c_int32),
                ("forbid_compile", c_int32), ("compile_in_helper", c_int32),
                ("compile_threads", c_int32), ("any_build", c_int32), ("reserved", c_int32),
                ("cache_max_bytes", c_int64), ("failure_ttl_s", c_int64), ("nvrtc_path", c_char_p),
                ("driver_path", c_char_p), ("helper_path", c_char_p),
                ("templates_folder", c_char_p), ("log", c_void_p), ("log_context", c_void_p),
                ("tuning", c_char_p), ("accept_unconfined_helper", c_int32),
                ("reserved2", c_int32)]


class Statistics(Structure):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in ("memory_hits", "disk_hits", "remote_hits", "compiles",
                                      "failures", "waits", "quarantined", "queued")
    ] + [("compile_ms_total", c_double)]


class Strides(Structure):
    _fields_ = [("batch", c_int64), ("row", c_int64), ("head", c_int64)]


class Param(Structure):
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("type", c_int32), ("i32", c_int32),
                ("f32", c_float), ("extent", c_int32 * 2), ("reserved", c_int32),
                ("pointer", c_uint64)]


class LaunchArgs(Structure):
    _fields_ = [("struct_size", c_size_t)] + [
        (name, c_uint64) for name in ("q", "k", "v", "o", "lse", "sink", "page_table", "kv_lens",
                                      "q_offsets", "q_scale", "k_scale", "v_scale", "mask")
    ] + [(name, c_int32) for name in ("batch", "q_len", "kv_len", "total_q", "num_pages",
                                      "max_pages")] + [
        (name, Strides) for name in ("q_strides", "k_strides", "v_strides", "o_strides")
    ] + [("scale", c_float), ("cap", c_float), ("window", c_int32), ("chunk", c_int32),
         ("more_windows", c_int32 * 7), ("more_chunks", c_int32 * 7), ("params", POINTER(Param)),
         ("num_params", c_size_t), ("workspace", c_uint64), ("workspace_bytes", c_int64),
         ("stream", c_void_p), ("scalars", POINTER(c_double)), ("num_scalars", c_size_t),
         ("kv_offsets", c_uint64), ("pairs_o", c_uint64), ("pairs_lse", c_uint64),
         ("total_kv", c_int32), ("num_pairs", c_int32), ("overlap", c_int32),
         ("reserved", c_int32)]


class ImageInfo(Structure):
    _fields_ = [("struct_size", c_size_t), ("cubin", c_void_p), ("cubin_bytes", c_size_t),
                ("ptx", c_char_p), ("ptx_bytes", c_size_t), ("outcome", c_int32),
                ("registers", c_int32), ("spill_bytes", c_int32), ("stack_bytes", c_int32),
                ("static_smem_bytes", c_int32), ("reserved", c_int32), ("compile_ms", c_double),
                ("total_ms", c_double), ("nvrtc_version", c_char_p)]


class AttnjitError(RuntimeError):
    """What went wrong, with the parts of the library's error."""

    def __init__(self, text, code, field):
        super().__init__(text)
        self.code, self.field = code, field


# name: (result, arguments); without attnjit_. A void* result of a function that can fail is its
# error.
_FUNCTIONS = {
    "version": (c_char_p, []),
    "abi_version": (c_uint32, []),
    "error_code": (c_int32, [c_void_p]),
    "error_code_name": (c_char_p, [c_void_p]),
    "error_field": (c_char_p, [c_void_p]),
    "error_text": (c_char_p, [c_void_p]),
    "error_free": (None, [c_void_p]),
    "service_create": (c_void_p, [POINTER(ServiceOptions), POINTER(c_void_p)]),
    "service_destroy": (None, [c_void_p]),
    "service_statistics": (c_void_p, [c_void_p, POINTER(Statistics)]),
    "spec_prepare": (c_void_p, [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)]),
    "spec_key": (c_char_p, [c_void_p]),
    "spec_free": (None, [c_void_p]),
    "get": (c_void_p, [c_void_p, c_void_p, c_int64, c_void_p, POINTER(c_void_p)]),
    "find": (c_void_p, [c_void_p, c_void_p]),
    "try_get": (c_void_p, [c_void_p, c_void_p, POINTER(c_void_p)]),
    "compile": (c_void_p, [c_void_p, c_void_p, c_int64, c_int32, POINTER(c_void_p)]),
    "image_get_info": (c_void_p, [c_void_p, POINTER(ImageInfo)]),
    "image_free": (None, [c_void_p]),
    "launch_state_create": (c_void_p, [POINTER(c_void_p)]),
    "launch_state_reset": (None, [c_void_p]),
    "launch_state_free": (None, [c_void_p]),
    "workspace": (c_void_p, [c_void_p, POINTER(LaunchArgs), POINTER(c_int64), POINTER(c_int32)]),
    "launch": (c_void_p, [c_void_p, POINTER(LaunchArgs), c_void_p]),
}


class Handle:
    """A handle of the C ABI, freed with its owner."""

    def __init__(self, pointer, free):
        self.pointer, self._free = pointer, free

    def close(self):
        if self.pointer is not None:
            self._free(self.pointer)
            self.pointer = None

    __del__ = close


class Service:
    """A Service of attnjit. Keyword options are those of attnjit_service_options."""

    def __init__(self, library, **options):
        lib = ctypes.CDLL(library)
        self._calls = {}
        for name, (result, arguments) in _FUNCTIONS.items():
            function = getattr(lib, "attnjit_" + name)
            function.restype, function.argtypes = result, arguments
            self._calls[name] = function
        given = {name: value.encode() if isinstance(value, str) else value
                 for name, value in options.items()}
        self._service = Handle(
            self._create("service_create", byref(ServiceOptions(sizeof(ServiceOptions), **given))),
            self._calls["service_destroy"])

    def call(self, name, *arguments):
        """Calls a function that can fail; raises AttnjitError."""
        error = self._calls[name](*arguments)
        if error:
            failure = AttnjitError(self._calls["error_text"](error).decode(),
                                   self._calls["error_code_name"](error).decode(),
                                   self._calls["error_field"](error).decode())
            self._calls["error_free"](error)
            raise failure

    def _create(self, name, *arguments):
        result = c_void_p()
        self.call(name, *arguments, byref(result))
        return result

    def close(self):
        self._service.close()

    def version(self):
        return self._calls["version"]().decode(), self._calls["abi_version"]()

    def statistics(self):
        out = Statistics(sizeof(Statistics))
        self.call("service_statistics", self._service.pointer, byref(out))
        return {name: getattr(out, name) for name, _ in Statistics._fields_[1:]}

    def prepare(self, spec):
        """A spec (a dict or JSON text), validated, planned and hashed."""
        text = (spec if isinstance(spec, str) else json.dumps(spec)).encode()
        return Handle(self._create("spec_prepare", self._service.pointer, text, len(text)),
                      self._calls["spec_free"])

    def key(self, spec):
        return self._calls["spec_key"](spec.pointer).decode()

    def compile(self, spec, timeout_ms=-1, want_ptx=False):
        """The image: its cubin and what the compiler says of it. Needs no GPU."""
        image = Handle(self._create("compile", self._service.pointer, spec.pointer, timeout_ms,
                                    int(want_ptx)), self._calls["image_free"])
        info = ImageInfo(sizeof(ImageInfo))
        self.call("image_get_info", image.pointer, byref(info))
        return {"cubin": ctypes.string_at(info.cubin, info.cubin_bytes),
                "ptx": info.ptx.decode(),
                "outcome": ("memory", "disk", "remote", "compiled")[info.outcome],
                "registers": info.registers, "spill_bytes": info.spill_bytes,
                "compile_ms": info.compile_ms, "total_ms": info.total_ms}

    def get(self, spec, timeout_ms=-1, stream=None):
        """The loaded kernel, compiled if need be."""
        return self._create("get", self._service.pointer, spec.pointer, timeout_ms, stream)

    def find(self, spec):
        """The kernel if it is loaded, else None."""
        return self._calls["find"](self._service.pointer, spec.pointer)

    def try_get(self, spec):
        """The kernel, or None and a compile in the background. Never blocks."""
        kernel = self._create("try_get", self._service.pointer, spec.pointer)
        return kernel if kernel.value else None

    def launch_state(self):
        return Handle(self._create("launch_state_create"), self._calls["launch_state_free"])

    def launch_args(self, *, q, k, v, o, params=None, scalars=(), stream=None, **fields):
        """LaunchArgs of tensors. `fields` are further tensors (lse, sink, ..) and numbers by their
        names; `params` maps names of the spec's parameters to int, float or tensors; `scalars` are
        the numbers of the spec's masks in preorder, then of its score modification."""
        args = LaunchArgs(sizeof(LaunchArgs), batch=q.shape[0], q_len=q.shape[1],
                          kv_len=k.shape[1], stream=stream)
        for name, tensor in (("q", q), ("k", k), ("v", v), ("o", o)):
            batch, row, head, one = tensor.stride()
            if one != 1 and tensor.shape[3] != 1:
                raise ValueError(name + ": the last dimension must be contiguous")
            setattr(args, name, tensor.data_ptr())
            setattr(args, name + "_strides", Strides(batch, row, head))
        for name, value in fields.items():
            setattr(args, name, value.data_ptr() if hasattr(value, "data_ptr") else value)
        args.scalars, args.num_scalars = (c_double * len(scalars))(*scalars), len(scalars)
        if params:
            array = (Param * len(params))()
            for out, (name, value) in zip(array, params.items()):
                out.struct_size, out.name = sizeof(Param), name.encode()
                if hasattr(value, "data_ptr"):
                    floating = "float" in str(value.dtype)
                    out.type = 4 if len(value.shape) == 2 else 3 if floating else 2
                    out.pointer = value.data_ptr()
                    out.extent[:len(value.shape)] = list(value.shape)
                elif isinstance(value, float):
                    out.type, out.f32 = 1, value
                else:
                    out.type, out.i32 = 0, value
            args.params, args.num_params = array, len(params)
            args.keep_alive = array
        return args

    def workspace(self, kernel, args):
        """(bytes, zeroed) of the device memory that such a launch needs beside its tensors."""
        needed, zeroed = c_int64(), c_int32()
        self.call("workspace", kernel, byref(args), byref(needed), byref(zeroed))
        return needed.value, bool(zeroed.value)

    def launch(self, kernel, state, **tensors):
        self.call("launch", kernel, byref(self.launch_args(**tensors)), state.pointer)

    def prepare_launch(self, kernel, state, args):
        """A function without arguments that launches: for loops that launch the same again."""
        function, pointer = self._calls["launch"], byref(args)

        def launch(kernel=kernel, pointer=pointer, state=state.pointer, keep_alive=(args, state)):
            if function(kernel, pointer, state):
                self.call("launch", kernel, pointer, state)

        return launch
