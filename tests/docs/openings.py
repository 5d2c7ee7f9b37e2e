#!/usr/bin/env python3
"""Checks that every source file opens with its licence and with one sentence that says what it is for.

Usage: openings.py [FOLDER]     FOLDER is the repository's root (default: this script's repository).
"""
import pathlib
import re
import sys

LICENCE = "SPDX-License-Identifier: Apache-2.0"
FOLDERS = ("include", "src", "templates", "tests", "bench", "examples")
ENDINGS = {".cpp", ".h", ".cuh", ".c", ".inc"}


def problem_of(text):
    """Says what is wrong with a file's first lines, or returns None."""
    lines = text.split("\n")
    if LICENCE not in lines[0]:
        return "the first line is not the SPDX line"
    second = lines[1] if len(lines) > 1 else ""
    if not re.match(r"(//|/\*) \S", second):
        return "the second line does not say what the file is for"
    opening = []  # the comment's first paragraph, without its marks
    for line in lines[1:]:
        words = re.sub(r"^(//|/\*| \*/?)", "", line).replace("*/", "").strip()
        if not re.match(r"(//|/\*| \*)", line) or not words:
            break
        opening.append(words)
    if not re.search(r"[.:](\s|$)", " ".join(opening)) or len(" ".join(opening).split()) < 3:
        return "the comment on the second line is not a sentence"
    return None


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2])
    files = [path for folder in FOLDERS for path in sorted((root / folder).rglob("*"))
             if path.suffix in ENDINGS]
    if not files:
        sys.exit(f"openings: there is no source file under {root}")
    problems = [f"{path.relative_to(root)}: {problem}" for path in files
                if (problem := problem_of(path.read_text(encoding="utf-8")))]
    for line in problems:
        print(line, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
