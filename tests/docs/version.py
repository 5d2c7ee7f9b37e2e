#!/usr/bin/env python3
"""Checks that whatever names a version of attnjit names that of python/attnjit/_version.py: version.py FOLDER

- The first released section of CHANGELOG.md.
- Documents and sources that write "attnjit 1.2.3", or a wheel's file name.
"""
import pathlib
import re
import sys

import documents

# "attnjit 1.2.3", attnjit-1.2.3, attnjit==1.2.3; not attnjit-*.whl.
NAMED = re.compile(r"attnjit(?:-dev)?(?: |-|==|_)(\d+\.\d+\.\d+)")


def main():
    root = pathlib.Path(sys.argv[1]).resolve()
    text = (root / "python/attnjit/_version.py").read_text(encoding="utf-8")
    version = re.search(r'^__version__ = "(\d+\.\d+\.\d+)"$', text, re.MULTILINE).group(1)
    problems = []
    released = re.findall(r"^## \[(\d[^\]]*)\]", (root / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    if released[:1] != [version]:
        problems.append(f"CHANGELOG.md: its newest release is {released[:1]}, and the version {version}")
    for path in (*documents.documents(root), *documents.sources(root)):
        name = path.relative_to(root)
        if name.parts[0] == "tests":  # whose inputs may be of any version
            continue
        for number, line in enumerate(path.read_text(encoding="utf-8", errors="replace").splitlines(), 1):
            problems += [f"{name}:{number}: names attnjit {other}; the version is {version}"
                         for other in NAMED.findall(line) if other != version]
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
