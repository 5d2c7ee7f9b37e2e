# SPDX-License-Identifier: Apache-2.0
"""vLLM's enumeration of backends, sent to processes that have not loaded plug-ins: the member is
added where it is read. A stand-in has the enumeration's way to add members; the package itself is
in tests/integrations/vllm_server_test.py."""
import copy
import multiprocessing
import pathlib
import pickle
import sys
import tempfile

REGISTRY = '''
import enum


class AttentionBackendEnum(enum.Enum):
    FLASH_ATTN = "vllm.flash_attn.Backend"
    CUSTOM = None

    @classmethod
    def register(cls, name, value):
        if name in cls._member_map_:
            raise ValueError(f"{name} is there")
        member = object.__new__(cls)
        member._name_, member._value_ = name, value
        setattr(cls, name, member)
        cls._member_map_[name] = member
        cls._value2member_map_[value] = member
        cls._member_names_.append(name)
        return member


def register_backend(name, path):
    AttentionBackendEnum.register(name, path)
'''


def read(pipe, configuration):
    """In a spawned process, which was given the configuration before it ran anything."""
    from vllm.v1.attention.backends.registry import AttentionBackendEnum

    backend = configuration["backend"]
    pipe.send((backend.name, backend is AttentionBackendEnum["ATTNJIT"],
               configuration["layers"][0] is backend))


def main():
    with tempfile.TemporaryDirectory() as folder:
        package = pathlib.Path(folder) / "vllm/v1/attention/backends"
        package.mkdir(parents=True)
        for part in (package, *list(package.parents)[:3]):
            (part / "__init__.py").touch()
        (package / "registry.py").write_text(REGISTRY)
        sys.path.insert(0, folder)
        from attnjit.integrations import vllm as integration

        integration.register()
        integration.register()
        from vllm.v1.attention.backends.registry import AttentionBackendEnum

        member = AttentionBackendEnum["ATTNJIT"]
        for protocol in range(pickle.HIGHEST_PROTOCOL + 1):
            assert pickle.loads(pickle.dumps(member, protocol)) is member
        assert copy.copy(member) is member and copy.deepcopy([member]) == [member]
        other = AttentionBackendEnum["FLASH_ATTN"]
        assert pickle.loads(pickle.dumps(other)) is other

        context = multiprocessing.get_context("spawn")
        mine, theirs = context.Pipe()
        child = context.Process(target=read, args=(theirs, {"backend": member,
                                                            "layers": [member]}))
        child.start()
        child.join()
        assert child.exitcode == 0, "the process could not read its configuration"
        assert mine.recv() == ("ATTNJIT", True, True)


if __name__ == "__main__":
    main()
