# SPDX-License-Identifier: Apache-2.0
"""mypy --strict of the package and of a user's program: types_test.py SOURCE_FOLDER BUILD_FOLDER.

What integrations make of classes of vLLM, SGLang and transformers is left out: it is not typed.
"""
import pathlib
import subprocess
import sys

import checks

source, build = map(pathlib.Path, sys.argv[1:3])
python = checks.python(build)


def mypy(*files):
    """What mypy says of them, with the package found in the build folder."""
    done = subprocess.run([python, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir",
                           build / "python/mypy", "--config-file", source / "tests/python/mypy.ini",
                           *files], capture_output=True, text=True,
                          env={"MYPYPATH": str(build / "python"), "PATH": "/usr/bin:/bin"})
    return done.stdout + done.stderr


said = mypy("-p", "attnjit")
assert not said, said
program = source / "tests/python/typed_program.py"
said = mypy(program)
assert not said, said

# Each line that is marked so is refused, and no other.
wrong = source / "tests/python/typed_mistakes.py"
said = mypy(wrong)
refused = {int(line.split(":")[1]) for line in said.splitlines() if ": error:" in line}
marked = {number for number, line in enumerate(wrong.read_text(encoding="utf-8").splitlines(), 1)
          if line.endswith("# refused")}
assert refused == marked, f"{sorted(refused)}, marked are {sorted(marked)}\n{said}"
print(f"the package, a program, and {len(marked)} mistakes")
