# SPDX-License-Identifier: Apache-2.0
"""The attnjit command: runs the one that the package carries."""
import os
import sys

from ._abi import command_path
from ._nvrtc import nvrtc_path


def main() -> None:
    """Becomes the command, with this process's arguments. What servers ask for Python says."""
    if any(one.split("=")[0] == "--for" for one in sys.argv):
        if sys.argv[1:2] == ["manifest"]:
            from .integrations import manifests
            return manifests.main(sys.argv[2:])
        if sys.argv[1:2] == ["doctor"]:
            from .integrations import doctor
            sys.exit(doctor.main(sys.argv[2:]))
    found = nvrtc_path()
    if found:
        os.environ["ATTNJIT_NVRTC"] = found
    command = command_path()
    try:
        os.execv(command, ["attnjit", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"attnjit: cannot run {command}: {error.strerror}")


if __name__ == "__main__":
    main()
