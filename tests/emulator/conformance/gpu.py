"""Runs LAUNCH.json-shaped launches on a real GPU through libcuda and ctypes; for recording, never for CI.

One process, one context. A launch that faults poisons the context: record risky groups in processes of their own.
"""
import ctypes as C
import numpy as np

DTYPES = {  # name: (numpy storage type, CUtensorMapDataType)
    "u8": (np.uint8, 0), "i8": (np.int8, 0), "e4m3": (np.uint8, 0), "e5m2": (np.uint8, 0),
    "u16": (np.uint16, 1), "i16": (np.int16, 1), "u32": (np.uint32, 2), "i32": (np.int32, 3),
    "u64": (np.uint64, 4), "i64": (np.int64, 5), "f16": (np.uint16, 6), "fp16": (np.uint16, 6),
    "f32": (np.float32, 7), "f64": (np.float64, 8), "bf16": (np.uint16, 9)}


class LaunchConfig(C.Structure):
    _fields_ = [("grid", C.c_uint * 3), ("block", C.c_uint * 3), ("smem", C.c_uint),
                ("stream", C.c_void_p), ("attrs", C.c_void_p), ("num_attrs", C.c_uint)]


class LaunchAttribute(C.Structure):
    _fields_ = [("id", C.c_int), ("pad", C.c_int), ("value", C.c_uint * 16)]


class Gpu:
    def __init__(self):
        self.cu = C.CDLL("libcuda.so.1")
        self.call("cuInit", 0)
        device = C.c_int()
        self.call("cuDeviceGet", C.byref(device), 0)
        name = C.create_string_buffer(128)
        self.call("cuDeviceGetName", name, 128, device)
        self.name = name.value.decode()
        version = C.c_int()
        self.call("cuDriverGetVersion", C.byref(version))
        self.driver = version.value
        context = C.c_void_p()
        self.call("cuDevicePrimaryCtxRetain", C.byref(context), device)
        self.call("cuCtxSetCurrent", context)
        self.modules = {}

    def call(self, function, *args):
        rc = getattr(self.cu, function)(*args)
        if rc != 0:
            text = C.c_char_p()
            self.cu.cuGetErrorName(rc, C.byref(text))
            raise RuntimeError(f"{function}: {text.value.decode() if text.value else rc}")

    def function(self, ptx, entry, smem):
        if ptx not in self.modules:
            module = C.c_void_p()
            self.call("cuModuleLoadData", C.byref(module), open(ptx, "rb").read() + b"\0")
            self.modules[ptx] = module
        f = C.c_void_p()
        self.call("cuModuleGetFunction", C.byref(f), self.modules[ptx], entry.encode())
        if smem > 48 * 1024:
            self.call("cuFuncSetAttribute", f, 8, smem)
        return f

    def tensor_map(self, m, address):
        raw = C.create_string_buffer(128 + 64)
        aligned = (C.addressof(raw) + 63) // 64 * 64
        rank = len(m["dims"])
        dims = (C.c_uint64 * rank)(*m["dims"])
        strides = (C.c_uint64 * max(1, rank - 1))(*m["strides"])
        box = (C.c_uint32 * rank)(*m["box"])
        element_strides = (C.c_uint32 * rank)(*m.get("element_strides", [1] * rank))
        swizzle = {0: 0, 32: 1, 64: 2, 128: 3}[m.get("swizzle", 0)]
        self.call("cuTensorMapEncodeTiled", C.c_void_p(aligned), DTYPES[m["dtype"]][1], rank,
                  C.c_void_p(address), dims, strides, box, element_strides, 0, swizzle, 0,
                  {"zero": 0, "nan": 1}[m.get("oob", "zero")])
        return C.string_at(aligned, 128)

    def run(self, ptx, launch, buffers):
        """buffers: name -> bytes. Returns name -> bytes after the launch."""
        pointers = {}
        for name, data in buffers.items():
            p = C.c_uint64()
            self.call("cuMemAlloc_v2", C.byref(p), C.c_size_t(max(len(data), 256)))
            self.call("cuMemcpyHtoD_v2", p, data, C.c_size_t(len(data)))
            pointers[name] = p.value
        maps = {name: self.tensor_map(m, pointers[m["buffer"]] + m.get("offset", 0))
                for name, m in launch.get("tensor_maps", {}).items()}
        keep, slots = [], []
        for a in launch["args"]:
            if "ptr" in a:
                v = C.c_uint64(pointers[a["ptr"]] + a.get("offset", 0))
            elif "i32" in a:
                v = C.c_int32(a["i32"])
            elif "i64" in a:
                v = C.c_int64(a["i64"])
            elif "f32" in a:
                v = C.c_float(a["f32"])
            elif "tensor_map" in a:
                raw = C.create_string_buffer(128 + 64)
                base = (C.addressof(raw) + 63) // 64 * 64
                C.memmove(base, maps[a["tensor_map"]], 128)
                keep.append(raw)
                slots.append(base)
                continue
            else:
                v = C.create_string_buffer(bytes.fromhex(a["bytes"]), len(a["bytes"]) // 2)
            keep.append(v)
            slots.append(C.addressof(v))
        params = (C.c_void_p * max(1, len(slots)))(*slots)
        smem = launch.get("dynamic_smem", 0)
        f = self.function(ptx, launch["entry"], smem)
        attribute = LaunchAttribute(4, 0, (C.c_uint * 16)(*launch.get("cluster", [1, 1, 1])))
        config = LaunchConfig((C.c_uint * 3)(*launch["grid"]), (C.c_uint * 3)(*launch["block"]), smem,
                              None, C.addressof(attribute), 1)
        self.call("cuLaunchKernelEx", C.byref(config), f, params, None)
        self.call("cuCtxSynchronize")
        out = {}
        for name, data in buffers.items():
            host = C.create_string_buffer(len(data))
            self.call("cuMemcpyDtoH_v2", host, C.c_uint64(pointers[name]), C.c_size_t(len(data)))
            self.call("cuMemFree_v2", C.c_uint64(pointers[name]))
            out[name] = host.raw
        return out
