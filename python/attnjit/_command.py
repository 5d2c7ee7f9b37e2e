# SPDX-License-Identifier: Apache-2.0
"""The attnjit command: runs the one that the package carries."""
import os
import sys

from ._abi import command_path
from ._nvrtc import nvrtc_path


def main() -> None:
    """Becomes the command, with this process's arguments. What servers ask for Python says."""
    if sys.argv[1:2] == ["manifest"] and any(one.split("=")[0] == "--for" for one in sys.argv):
        from .integrations import manifests
        manifests.main(sys.argv[2:])
        return
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
