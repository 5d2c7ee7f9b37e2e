# SPDX-License-Identifier: Apache-2.0
"""A virtual environment for tests that need packages from PyPI, made once per build folder."""
import pathlib
import subprocess
import sys

PACKAGES = ("mypy>=1.10,<3", "numpy")


def python(build):
    """The interpreter of the environment; the test is skipped where PyPI cannot be reached."""
    folder = pathlib.Path(build) / "python/checks"
    interpreter = folder / "bin/python"
    done = folder / "done"
    if not done.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        fetched = subprocess.run([interpreter, "-m", "pip", "install", "--quiet", "--retries", "1",
                                  "--timeout", "20", *PACKAGES], capture_output=True, text=True)
        if fetched.returncode:
            print(f"skipped: {', '.join(PACKAGES)} cannot be installed\n{fetched.stderr}")
            sys.exit(77)
        done.touch()
    return str(interpreter)
