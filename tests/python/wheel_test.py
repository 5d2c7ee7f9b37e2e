# SPDX-License-Identifier: Apache-2.0
"""The wheel in an empty environment: wheel_test.py SOURCE_FOLDER BUILD_FOLDER.

It is built from the build folder's binaries and installed with what it requires; then the examples
of python/README.md run, and the command, with the NVRTC of its wheel. Nothing else is
installed there: no torch, no numpy.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile

source, build = map(pathlib.Path, sys.argv[1:3])
wheels = build / "python/wheels"  # NVRTC is downloaded once per build folder
NVRTC = re.search(r'^dependencies = \["(nvidia-cuda-nvrtc[^"]*)"\]$',
                  (source / "pyproject.toml").read_text(), re.M)[1]


def run(*command, **options):
    """The command's standard output; its failure is the test's."""
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True,
                          **options)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


if not list(wheels.glob("nvidia_cuda_nvrtc-*.whl")):
    fetched = subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                              "--only-binary=:all:", "--retries", "1", "--timeout", "20", "--dest",
                              wheels, NVRTC], capture_output=True, text=True)
    if fetched.returncode:
        print("skipped: nvidia-cuda-nvrtc cannot be downloaded\n" + fetched.stderr)
        sys.exit(77)

with tempfile.TemporaryDirectory() as folder:
    folder = pathlib.Path(folder)
    backend = source / "python/backend/attnjit_build.py"
    wheel = pathlib.Path(run(sys.executable, "-B", backend, "wheel", build, folder).strip())
    again = pathlib.Path(run(sys.executable, "-B", backend, "wheel", build, folder / "2").strip())
    assert wheel.read_bytes() == again.read_bytes(), "the wheel is another one each time"
    assert re.fullmatch(r"attnjit-[\d.]+-py3-none-manylinux_2_\d\d_x86_64\.whl", wheel.name), wheel

    sdist = pathlib.Path(run(sys.executable, "-B", backend, "sdist", folder).strip())
    again = pathlib.Path(run(sys.executable, "-B", backend, "sdist", folder / "2").strip())
    assert sdist.read_bytes() == again.read_bytes(), "the source distribution is another one each time"
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"PKG-INFO", "pyproject.toml", "CMakeLists.txt", "python/attnjit/__init__.py",
            "src/CMakeLists.txt", "templates/attention.cu.tmpl"} <= names, "the sdist is not whole"

    run(sys.executable, "-m", "venv", "--without-pip", folder / "venv")
    python = folder / "venv/bin/python"
    run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-index",
        "--find-links", wheels, wheel)
    # As a user's shell: no Python path, no toolkit of CUDA_HOME, a cache of its own.
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder),
                   "ATTNJIT_CACHE_DIR": str(folder / "cache")}
    modules = run(python, "-c", "import sys, attnjit; print(*sys.modules)", env=environment)
    assert not {"torch", "numpy"} & set(modules.split()), "imports what it does not require"

    # All say one version.
    said = run(python, "-c", "import attnjit, attnjit._abi as a, importlib.metadata as m; "
               "print(attnjit.__version__, a.Library(a.library_path()).version().decode(), m.version('attnjit'), "
               "m.metadata('attnjit')['License-Expression'])", env=environment).split()
    command = run(folder / "venv/bin/attnjit", "--version", env=environment).split()[1]
    assert len({*said[:3], command}) == 1 and said[3] == "Apache-2.0", f"{said}, {command}"

    # A toolkit comes before the wheel, by either variable; a folder that has no NVRTC is none.
    toolkit = folder / "toolkit"
    (toolkit / "lib64").mkdir(parents=True)
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        for has_nvrtc in (False, True):
            library = toolkit / "lib64/libnvrtc.so.13"
            library.touch() if has_nvrtc else library.unlink(missing_ok=True)
            found = run(python, "-c", "from attnjit._nvrtc import nvrtc_path; print(nvrtc_path())",
                        env={**environment, variable: str(toolkit)}).strip()
            assert (found == "None") == has_nvrtc, f"{variable}, {has_nvrtc}: {found}"

    found = run(python, "-c", "from importlib.metadata import distribution as d; "
                "print(*(f'{e.group}={e.value}' for e in d('attnjit').entry_points))",
                env=environment)
    for plug_in in ("vllm.general_plugins=attnjit.integrations.vllm:register",
                    "vllm.platform_plugins=attnjit.integrations.vllm:register_early",
                    "sglang.srt.plugins=attnjit.integrations.sglang:register"):
        assert plug_in in found.split(), found

    doctor = subprocess.run([folder / "venv/bin/attnjit", "doctor", "--json"], env=environment,
                            capture_output=True, text=True, cwd=folder)
    assert doctor.returncode in (0, 4), doctor.stderr  # 4: there is no GPU
    path = json.loads(doctor.stdout)["nvrtc"]["path"]
    assert path.startswith(str(folder / "venv")), f"NVRTC is {path}, not the wheel's"

    readme = (source / "python/README.md").read_text(encoding="utf-8")
    examples = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    shown = "registers", ".....#\n. hidden: 26   # seen: 10\nTrue ", "p.document"
    assert len(examples) == len(shown), f"python/README.md has {len(examples)} examples"
    program = folder / "example.py"
    for example, part in zip(examples, shown):
        program.write_text(example, encoding="utf-8")
        printed = run(python, program, env=environment, cwd=folder)
        assert part in printed, printed
    print(f"{wheel.name}, {wheel.stat().st_size} bytes, with {path}\n{printed}")
