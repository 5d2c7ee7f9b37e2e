#!/usr/bin/env python3
"""Checks that the text which a test damages stands once in the template that it names: most damages are compiled by
proofs alone, so that a renamed template would be noticed late.

Usage: damages.py [FOLDER]     FOLDER is the repository's root (default: this script's repository).
"""
import ast
import pathlib
import re
import sys

FAMILIES = "common|maps|mla|partials|sm90|sm90_mla|sm100|sm100_mla"
LITERAL = r'"(?:[^"\\]|\\.)*"'
# {"sm90/softmax.cuh", {"from", "to"}}, or the three in a row.
DAMAGE = re.compile(rf'"((?:{FAMILIES})/\w+\.cuh)"\s*,\s*\{{?\s*((?:{LITERAL}\s*)+),\s*{LITERAL}')


def problems_of(root):
    tests = [*(root / "tests/sm90").iterdir(), *(root / "tests/sm100").iterdir(), *(root / "tests").glob("*.h")]
    found = 0
    for path in sorted(path for path in tests if path.suffix in {".h", ".cpp"}):
        for template, literals in DAMAGE.findall(path.read_text(encoding="utf-8")):
            found += 1
            text = "".join(map(ast.literal_eval, re.findall(LITERAL, literals)))
            file = root / "templates" / template
            places = file.read_text(encoding="utf-8").count(text) if file.exists() else 0
            if places != 1:
                yield f"{path.relative_to(root)}: {template} has {text!r} {places} times"
    if found < 50:
        yield f"only {found} damages were found: how they are written has changed"


def main():
    problems = list(problems_of(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])))
    for line in problems:
        print(line, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
