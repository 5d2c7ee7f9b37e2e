#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Builds the wheel and the source distribution of attnjit, with the standard library alone.

It is the build backend that pyproject.toml names (PEP 517), and what scripts/wheel runs:

    attnjit_build.py wheel BUILD_FOLDER DIST     from a CMake build folder with attnjit_python built
    attnjit_build.py sdist DIST

The wheel holds no Python ABI: the library is opened through ctypes. Its platform tag is the oldest
glibc that has every symbol that the two binaries need, and the machine that they are for. The same
tree gives the same wheel and the same source distribution.
"""
from __future__ import annotations

import base64
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
NEWEST_GLIBC = (2, 35)  # that of the images that serving runtimes ship
MAX_BYTES = 9_000_000
NATIVE = ("attnjit", "libattnjit.so")
MODIFIED = (2026, 1, 1, 0, 0, 0)  # of every file in the wheel: its content alone decides its bytes
# Machines by the ELF header's number, with the prefix of the tools that read their binaries here.
MACHINES = {62: ("x86_64", "x86_64-linux-gnu-"), 183: ("aarch64", "aarch64-linux-gnu-")}
NEEDED = "a C++20 compiler, CMake 3.25, libfmt, spdlog, nlohmann_json, CLI11 and a static OpenSSL"
DEBIAN = "g++ cmake ninja-build libfmt-dev libspdlog-dev nlohmann-json3-dev libcli11-dev libssl-dev"
# A source distribution has what the build reads, and its tests stay behind.
SOURCES = ("CMakeLists.txt", "LICENSE", "README.md", "cmake", "include", "pyproject.toml", "python",
           "src", "templates")


def version() -> str:
    """The version of attnjit."""
    text = (ROOT / "python/attnjit/_version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([\d.]+)"', text, re.MULTILINE).group(1)


def project(field: str) -> str:
    """A string of pyproject.toml. NOTE: Python 3.9 has no TOML parser, and the file is ours."""
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    return re.search(rf'^{field} = \[?"([^"]+)"', text, re.MULTILINE).group(1)


def classifiers() -> list[str]:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    block = re.search(r"^classifiers = \[(.*?)^\]", text, re.MULTILINE | re.DOTALL).group(1)
    return re.findall('"(.*?)"', block)


def metadata() -> str:
    lines = [("Metadata-Version", "2.4"), ("Name", "attnjit"), ("Version", version()),
             ("Summary", project("description")), ("License-Expression", project("license")),
             ("License-File", "LICENSE"), ("Requires-Python", project("requires-python")),
             ("Requires-Dist", project("dependencies")),
             *(("Classifier", line) for line in classifiers()),
             ("Description-Content-Type", "text/markdown")]
    head = "".join(f"{name}: {value}\n" for name, value in lines)
    return head + "\n" + (ROOT / project("readme")).read_text(encoding="utf-8")


def entry_points() -> str:
    """The command, and how vLLM and SGLang find their plug-ins."""
    return (f"[console_scripts]\nattnjit = {project('attnjit')}\n"
            f"[vllm.general_plugins]\nattnjit = {project('attnjit-vllm')}\n"
            f"[vllm.platform_plugins]\nattnjit = {project('attnjit-vllm-early')}\n"
            f"[sglang.srt.plugins]\nattnjit = {project('attnjit-sglang')}\n")


def machine(binary: pathlib.Path) -> tuple[str, str]:
    """The machine that a binary is for, and the prefix of that machine's tools."""
    number = int.from_bytes(binary.read_bytes()[18:20], "little")
    if number not in MACHINES:
        raise SystemExit(f"wheel: {binary} is for another machine than {MACHINES}")
    return MACHINES[number]


def needed_glibc(binary: pathlib.Path) -> tuple[int, int]:
    """The newest version of glibc that the binary's symbols name."""
    tool = shutil.which(machine(binary)[1] + "objdump") or "objdump"
    symbols = subprocess.run([tool, "-T", binary], check=True, capture_output=True, text=True)
    found = re.findall(r"\(GLIBC_(\d+)\.(\d+)", symbols.stdout)
    return max((int(major), int(minor)) for major, minor in found)


def platform_tag(binaries: list[pathlib.Path]) -> str:
    glibc = max(needed_glibc(binary) for binary in binaries)
    if glibc > NEWEST_GLIBC:
        raise SystemExit(f"wheel: the binaries need glibc {glibc}; images have {NEWEST_GLIBC}")
    return f"manylinux_{glibc[0]}_{glibc[1]}_{machine(binaries[0])[0]}"


def modules() -> dict[str, bytes]:
    """The Python files of the package, and what must be what CMake says."""
    folder = ROOT / "python/attnjit"
    return {f"attnjit/{path.relative_to(folder).as_posix()}": path.read_bytes()
            for path in sorted(folder.rglob("*"))
            if path.suffix == ".py" or path.name == "py.typed"}


def write_wheel(build: pathlib.Path, dist: pathlib.Path) -> pathlib.Path:
    """The wheel from a build folder's binaries."""
    binaries = [build / "python/attnjit" / name for name in NATIVE]
    tag = f"py3-none-{platform_tag(binaries)}"
    info = f"attnjit-{version()}.dist-info"
    files = modules()
    files.update({f"attnjit/{path.name}": path.read_bytes() for path in binaries})
    files[f"{info}/METADATA"] = metadata().encode()
    files[f"{info}/WHEEL"] = (f"Wheel-Version: 1.0\nGenerator: attnjit_build\n"
                              f"Root-Is-Purelib: false\nTag: {tag}\n").encode()
    files[f"{info}/entry_points.txt"] = entry_points().encode()
    files[f"{info}/licenses/LICENSE"] = (ROOT / "LICENSE").read_bytes()
    record = ""
    for name, data in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        record += f"{name},sha256={digest},{len(data)}\n"
    files[f"{info}/RECORD"] = (record + f"{info}/RECORD,,\n").encode()

    dist.mkdir(parents=True, exist_ok=True)
    wheel = dist / f"attnjit-{version()}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            entry = zipfile.ZipInfo(name, MODIFIED)
            entry.compress_type = zipfile.ZIP_DEFLATED
            executable = name == "attnjit/attnjit"
            entry.external_attr = (stat.S_IFREG | (0o755 if executable else 0o644)) << 16
            archive.writestr(entry, data)
    if wheel.stat().st_size > MAX_BYTES:
        raise SystemExit(f"wheel: {wheel.stat().st_size} bytes; at most {MAX_BYTES}")
    return wheel


def write_sdist(dist: pathlib.Path) -> pathlib.Path:
    """The source distribution: pip builds the wheel from it with CMake and Debian's packages."""
    base = f"attnjit-{version()}"
    paths = [path for name in SOURCES for path in ((ROOT / name), *(ROOT / name).rglob("*"))]
    files = {str(path.relative_to(ROOT)): (path.read_bytes(), path.stat().st_mode & 0o111)
             for path in paths if path.is_file() and "__pycache__" not in path.parts}
    files["PKG-INFO"] = (metadata().encode(), 0)
    dist.mkdir(parents=True, exist_ok=True)
    sdist = dist / f"{base}.tar.gz"
    with open(sdist, "wb") as file, gzip.GzipFile("", "wb", mtime=0, fileobj=file) as packed, \
            tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, (data, executable) in sorted(files.items()):
            entry = tarfile.TarInfo(f"{base}/{name}")
            entry.size, entry.mode = len(data), 0o755 if executable else 0o644
            archive.addfile(entry, io.BytesIO(data))
    return sdist


def cmake_build() -> pathlib.Path:
    """A build folder with the native part, for an installation from the sources."""
    build, jobs = ROOT / "build/wheel", os.cpu_count() or 1
    print(f"attnjit: compiling takes about {20 // jobs + 1} minutes; pip install -v shows them",
          flush=True)
    try:
        subprocess.run(["cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release",
                        *(["-G", "Ninja"] if shutil.which("ninja") else []),
                        "-DATTNJIT_BUILD_TESTS=OFF", "-DATTNJIT_BUILD_BENCH=OFF"], check=True)
        subprocess.run(["cmake", "--build", build, "--target", "attnjit_python", "--parallel",
                        str(jobs)], check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemExit(f"attnjit: {error}\nA build from the sources needs {NEEDED}.\n"
                         f"On Debian 12: apt-get install {DEBIAN}") from None
    return build


# The hooks of PEP 517.
def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    return write_wheel(cmake_build(), pathlib.Path(wheel_directory)).name


def build_sdist(sdist_directory, config_settings=None):
    return write_sdist(pathlib.Path(sdist_directory)).name


def main() -> None:
    kind, *folders = sys.argv[1:]
    paths = [pathlib.Path(folder) for folder in folders]
    print(write_wheel(*paths) if kind == "wheel" else write_sdist(*paths))


if __name__ == "__main__":
    main()
