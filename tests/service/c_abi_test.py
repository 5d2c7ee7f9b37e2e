"""The C ABI through ctypes: c_abi_test.py BINDING_FOLDER LIBATTNJIT CACHE_FOLDER LIBCUDA SPEC_JSON.

The folder holds the spec's image; LIBCUDA is the driver that the library opens too.
"""
import ctypes
import sys
from ctypes import byref, c_int32, c_uint64, c_void_p


class Tensor:
    """As much of a torch.Tensor as the binding uses."""

    def __init__(self, pointer, shape, dtype="torch.bfloat16"):
        self.pointer, self.shape, self.dtype = pointer, shape, dtype

    def data_ptr(self):
        return self.pointer

    def stride(self):
        strides = [1]
        for extent in reversed(self.shape[1:]):
            strides.insert(0, strides[0] * extent)
        return tuple(strides)


def make_primary_context_current(path):
    """As a framework does it."""
    cuda = ctypes.CDLL(path)

    def driver(name, *arguments):
        address, status = c_void_p(), c_int32()
        assert cuda.cuGetProcAddress_v2(name, byref(address), 12000, c_uint64(0),
                                        byref(status)) == 0
        assert ctypes.CFUNCTYPE(c_int32)(address.value)(*arguments) == 0, name

    context = c_void_p()
    driver(b"cuInit", 0)
    driver(b"cuDevicePrimaryCtxRetain", byref(context), 0)
    driver(b"cuCtxSetCurrent", context)


def main():
    binding, library, cache, cuda_path, spec_json = sys.argv[1:6]
    sys.path.insert(0, binding)
    import attnjit

    def fails(call, code, field=None):
        try:
            call()
        except attnjit.AttnjitError as error:
            assert error.code == code, error
            assert field is None or error.field == field, error
        else:
            raise AssertionError("no error")

    make_primary_context_current(cuda_path)
    service = attnjit.Service(library, cache_layers=cache, forbid_compile=1, any_build=1,
                              driver_path=cuda_path)
    fails(lambda: service.prepare("{"), "invalid")
    spec = service.prepare(spec_json)
    assert len(service.key(spec)) == 64
    assert service.find(spec) is None
    image = service.compile(spec)
    assert image["cubin"][:4] == b"\x7fELF" and image["outcome"] == "disk"
    kernel = service.get(spec)
    assert service.find(spec) == kernel == service.try_get(spec)
    assert service.get_or_fallback(spec) == (kernel, False)

    tensors = {"q": Tensor(0x10000, (2, 300, 8, 128)), "k": Tensor(0x20000, (2, 500, 4, 128)),
               "v": Tensor(0x30000, (2, 500, 4, 128)), "o": Tensor(0x40000, (2, 300, 8, 128)),
               "params": {"doc": Tensor(0x50000, (500,), "torch.int32"), "first": 4}}
    state = service.launch_state()
    args = service.launch_args(**tensors)
    assert service.workspace(kernel, args)[0] >= 0
    service.launch(kernel, state, **tensors)
    launch = service.prepare_launch(kernel, state, args)
    for _ in range(3):
        launch()
    args.k = 0x20004
    fails(launch, "invalid", "k")
    fails(lambda: service.launch(kernel, state, **dict(tensors, params={"doc": 1.5, "first": 4})),
          "invalid", "param_doc")
    fails(lambda: service.launch(kernel, state, **dict(tensors, scalars=[1.0])), "invalid",
          "scalars")

    statistics = service.statistics()
    assert statistics["disk_hits"] == 1 and statistics["compiles"] == 0
    state.close()
    spec.close()
    service.close()


main()
