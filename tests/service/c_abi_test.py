"""The C ABI through ctypes: python3 c_abi_test.py LIBATTNJIT CACHE_FOLDER LIBCUDA SPEC_JSON.

The folder holds the spec's image; LIBCUDA is the driver that the library opens too.
"""
import ctypes
import sys
from ctypes import (POINTER, Structure, byref, c_char_p, c_double, c_float, c_int32, c_int64,
                    c_size_t, c_uint32, c_uint64, c_void_p, sizeof)


class ServiceOptions(Structure):
    _fields_ = [("struct_size", c_size_t), ("cache_layers", c_char_p), ("no_disk_cache", c_int32),
                ("forbid_compile", c_int32), ("compile_in_helper", c_int32),
                ("compile_threads", c_int32), ("any_build", c_int32), ("reserved", c_int32),
                ("cache_max_bytes", c_int64), ("failure_ttl_s", c_int64), ("nvrtc_path", c_char_p),
                ("driver_path", c_char_p), ("helper_path", c_char_p),
                ("templates_folder", c_char_p), ("log", c_void_p), ("log_context", c_void_p)]


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
         ("stream", c_void_p)]


def load(path):
    lib = ctypes.CDLL(path)
    lib.attnjit_version.restype = c_char_p
    lib.attnjit_abi_version.restype = c_uint32
    for name in ("text", "field", "message", "hint", "code_name"):
        function = getattr(lib, "attnjit_error_" + name)
        function.restype, function.argtypes = c_char_p, [c_void_p]
    lib.attnjit_error_free.argtypes = [c_void_p]
    lib.attnjit_error_code.argtypes = [c_void_p]
    lib.attnjit_spec_key.restype, lib.attnjit_spec_key.argtypes = c_char_p, [c_void_p]
    for name, arguments in {
            "service_create": [POINTER(ServiceOptions), POINTER(c_void_p)],
            "service_statistics": [c_void_p, POINTER(Statistics)],
            "spec_prepare": [c_void_p, c_char_p, c_size_t, POINTER(c_void_p)],
            "get": [c_void_p, c_void_p, c_int64, c_void_p, POINTER(c_void_p)],
            "launch_state_create": [POINTER(c_void_p)],
            "launch": [c_void_p, POINTER(LaunchArgs), c_void_p]}.items():
        function = getattr(lib, "attnjit_" + name)
        function.restype, function.argtypes = c_void_p, arguments
    lib.attnjit_find.restype, lib.attnjit_find.argtypes = c_void_p, [c_void_p, c_void_p]
    for name in ("service_destroy", "spec_free", "launch_state_free"):
        function = getattr(lib, "attnjit_" + name)
        function.restype, function.argtypes = None, [c_void_p]
    return lib


def main():
    path, cache, cuda_path, spec_json = sys.argv[1:5]
    lib = load(path)

    def check(error):
        if error:
            text = lib.attnjit_error_text(error).decode()
            lib.attnjit_error_free(error)
            raise RuntimeError(text)

    def code_and_field(error):
        result = lib.attnjit_error_code(error), lib.attnjit_error_field(error).decode()
        lib.attnjit_error_free(error)
        return result

    # A primary context, made current as a framework makes it.
    cuda = ctypes.CDLL(cuda_path)

    def driver(name, *arguments):
        address, status = c_void_p(), c_int32()
        assert cuda.cuGetProcAddress_v2(name, byref(address), 12000, c_uint64(0),
                                        byref(status)) == 0
        assert ctypes.CFUNCTYPE(c_int32)(address.value)(*arguments) == 0, name

    context = c_void_p()
    driver(b"cuInit", 0)
    driver(b"cuDevicePrimaryCtxRetain", byref(context), 0)
    driver(b"cuCtxSetCurrent", context)

    options = ServiceOptions(struct_size=sizeof(ServiceOptions), cache_layers=cache.encode(),
                             forbid_compile=1, any_build=1, driver_path=cuda_path.encode())
    service, spec, kernel, state = c_void_p(), c_void_p(), c_void_p(), c_void_p()
    check(lib.attnjit_service_create(byref(options), byref(service)))
    bad = lib.attnjit_spec_prepare(service, b"{", 1, byref(spec))
    assert code_and_field(bad)[0] == 1 and not spec.value
    check(lib.attnjit_spec_prepare(service, spec_json.encode(), len(spec_json.encode()),
                                   byref(spec)))
    assert len(lib.attnjit_spec_key(spec)) == 64
    assert lib.attnjit_find(service, spec) is None
    check(lib.attnjit_get(service, spec, 10000, None, byref(kernel)))
    assert lib.attnjit_find(service, spec) == kernel.value

    params = (Param * 2)(
        Param(struct_size=sizeof(Param), name=b"doc", type=2, extent=(c_int32 * 2)(500, 0),
              pointer=0x50000),
        Param(struct_size=sizeof(Param), name=b"first", type=0, i32=4))
    args = LaunchArgs(struct_size=sizeof(LaunchArgs), q=0x10000, k=0x20000, v=0x30000, o=0x40000,
                      batch=2, q_len=300, kv_len=500, params=params, num_params=2)
    check(lib.attnjit_launch_state_create(byref(state)))
    for _ in range(3):
        check(lib.attnjit_launch(kernel, byref(args), state))
    args.k = 0x20004
    assert code_and_field(lib.attnjit_launch(kernel, byref(args), state)) == (1, "k")

    statistics = Statistics(struct_size=sizeof(Statistics))
    check(lib.attnjit_service_statistics(service, byref(statistics)))
    assert statistics.disk_hits == 1 and statistics.compiles == 0
    lib.attnjit_launch_state_free(state)
    lib.attnjit_spec_free(spec)
    lib.attnjit_service_destroy(service)
    print("ok", lib.attnjit_version().decode(), lib.attnjit_abi_version())


main()
