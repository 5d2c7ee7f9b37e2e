"""make_ptx.py [NVRTC]: compiles kernels.py's modules to PTX for sm_90a, beside this file. Run after changing a kernel."""
import ctypes as C
import os
import sys

import kernels

here = os.path.dirname(os.path.abspath(__file__))
nvrtc = C.CDLL(sys.argv[1] if len(sys.argv) > 1 else "libnvrtc.so.13")


def text_of(program, size, get):
    n = C.c_size_t()
    size(program, C.byref(n))
    raw = C.create_string_buffer(n.value)
    get(program, raw)
    return raw.value.decode()


for name, make in kernels.MODULES.items():
    program = C.c_void_p()
    nvrtc.nvrtcCreateProgram(C.byref(program), make().encode(), (name + ".cu").encode(), 0, None, None)
    options = (C.c_char_p * 3)(b"--gpu-architecture=sm_90a", b"-std=c++17", b"-default-device")
    if nvrtc.nvrtcCompileProgram(program, 3, options) != 0:
        sys.exit(text_of(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog))
    with open(os.path.join(here, name + ".ptx"), "w") as f:
        f.write(text_of(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX))
