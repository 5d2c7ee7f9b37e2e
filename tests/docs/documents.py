#!/usr/bin/env python3
"""Checks what readers of the documents rely on.

- Links between documents lead somewhere, and so do the headings that they name.
- Files of the repository that a document or a comment names exist.
- The README's example is the code of examples/embed/embed.cpp, which another test builds and runs.
- Lines have at most 100 columns, except for what a program writes; the README has at most 150 lines, and the
  documents have 5,500 in all.
- Words that only this project would know are not used, nor by the Python package, and no document says when something was measured or done.

Usage: documents.py [FOLDER]     FOLDER is the repository's root (default: this script's repository).
"""
import pathlib
import re
import sys
import textwrap
import xml.etree.ElementTree

COLUMNS = 100
README_LINES, LINES = 150, 5500
# Words of this project's own, and the field's for them.
WORDS = {
    r"park(?:s|ed|ing)?": "stash in shared memory",
    r"announce[sd]?|told of|is told": "publish; is notified",
    r"hand(?:s|ed|ing)? (?:over|back)|giv(?:es|en|e) back": "release, signal, return",
    r"couple[sd]?|coupling": "a cluster for L2 locality",
    r"widen(?:s|ed|ing)?": "upcast, dequantize",
    r"anew": "again",
    r"but for": "except for",
    r"hangs? (?:on|from)": "depends on",
    r"to and fro|work list": "snake order, tile scheduler",
    r"(?:low|second) body": "small-tile variant",
    r"two_o|one_o|direct_o|held Q": "dual or single accumulator, Q in registers",
    r"even parts": "uniform KV splits",
    r"spare warp": "scheduler warp",
    r"claim(?:s|ed|ing|ants?)?": "take tiles from counters; dynamic scheduler",
    r"moods?": "schedule policy",
    r"surroundings": "load of other SMs",
    r"tried out|was tried|we tried": "say what is, in results what was measured",
}
# The same in names of the kernel side, which begin with the noun that they are of.
NAMES = re.compile(r"\b(?:(?:of|own)_\w+|\w*(?:park|widen|announc|deep_heads|held_q|takes?_over|low_body)\w*|(?:one|two)_o|"
                   r"\w*[Cc]laim(?!s_work)\w*|\w*(?:WorkList|TileNote|ListPlace))\b")
DATED = re.compile(r"\b20\d\d-\d\d-\d\d\b(?!-)")
CODE = re.compile(r"```.*?```|`[^`]*`|\]\([^)]*\)", re.DOTALL)
ROOMS = ("include", "src", "templates", "tests", "bench", "examples", "docs", "scripts", "cache", "cmake",
         "python")
SOURCES = {".cpp", ".h", ".cuh", ".c", ".inc", ".cu", ".tmpl", ".py", ".cmake", ".txt", ".sh", ""}
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# A path below one of the folders. NAME and FAMILY stand for what the reader puts there.
NAMED = re.compile(r"(?<![\w/.~-])((?:%s)/[\w./-]*\w)" % "|".join(ROOMS))
GENERATED = re.compile(r"<!-- table: generated.*?<!-- end of table -->", re.DOTALL)


def documents(root):
    yield from sorted(root.glob("*.md"))
    for folder in ("docs", "cache", "tests", "examples", "python"):
        yield from sorted((root / folder).rglob("*.md"))


def sources(root):
    for folder in ROOMS:
        for path in sorted((root / folder).rglob("*")):
            if path.is_file() and path.suffix in SOURCES and "corpus" not in path.parts:
                yield path


def anchors(text):
    """The names by which links reach a document's headings and the marks that keep an older name."""
    names = set(re.findall(r'<a id="([\w-]+)"></a>', text))
    for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE):
        words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").lower())
        names.add(words.strip().replace(" ", "-"))
    return names


def broken_links(path, text):
    for target in LINK.findall(text):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        other = (path.parent / file).resolve() if file else path
        if not other.exists():
            yield f"links to {target}, which does not exist"
        elif anchor and anchor not in anchors(other.read_text(encoding="utf-8")):
            yield f"links to {target}: there is no such heading"


def missing_files(root, text):
    """Files that the text names by their path from the root, and that do not exist."""
    for name in sorted(set(NAMED.findall(text))):
        placeholder = re.search(r"NAME|FAMILY", name)
        exists = (root / name).exists() or any(root.glob(name + ".*"))
        if not exists and not placeholder:
            yield f"names {name}, which does not exist"


def own_words(root, path, text):
    """Private words and dates, in prose."""
    if path.name in ("CHANGELOG.md", "CONTRIBUTING.md") or path.is_relative_to(root / "tests"):
        return
    if path.is_relative_to(root / "docs" / "proof"):  # of which commit a proof is, its page says
        return
    prose = CODE.sub("", text)
    for word, meant in WORDS.items():
        word = word.replace(" ", r"\s+")
        for found in re.finditer(rf"\b(?:{word})\b", prose):
            yield f"says '{found.group()}': {meant}"
    for found in DATED.finditer(prose):
        yield f"has the date {found.group()}"


def lengths(root):
    readme = len((root / "README.md").read_text(encoding="utf-8").splitlines())
    if readme > README_LINES:
        yield f"README.md has {readme} lines; {README_LINES} are allowed"
    all_lines = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (root / "docs").rglob("*.md"))
    if all_lines > LINES:
        yield f"docs has {all_lines} lines; {LINES} are allowed"


def wide_lines(root, path, text):
    if path.is_relative_to(root / "docs" / "proof"):  # written by the proofs
        return
    text = GENERATED.sub(lambda match: "\n" * match.group().count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > COLUMNS:
            yield f"line {number} has {len(line)} columns; {COLUMNS} are allowed"


def example_problems(root):
    """Compares the README's code with the lines of the example that are marked for it."""
    blocks = re.findall(r"```cpp\n(.*?)```", (root / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    code = (root / "examples/embed/embed.cpp").read_text(encoding="utf-8")
    marked = re.search(r"NOTE: README\.md shows .*?\n(.*?)^}", code, re.DOTALL | re.MULTILINE)
    if marked is None:
        yield "examples/embed/embed.cpp marks no lines for the README"
    elif blocks != [textwrap.dedent(marked.group(1))]:
        yield "README.md: its example is not the code that examples/embed/embed.cpp marks"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    problems = [*example_problems(root), *lengths(root)]
    for path in documents(root):
        text = path.read_text(encoding="utf-8")
        for problem in (*broken_links(path, text), *missing_files(root, text), *wide_lines(root, path, text),
                        *own_words(root, path, text)):
            problems.append(f"{path.relative_to(root)}: {problem}")
    for path in sorted((root / "python/attnjit").rglob("*.py")):  # whose docstrings are the API's pages
        for problem in own_words(root, path, path.read_text(encoding="utf-8")):
            problems.append(f"{path.relative_to(root)}: {problem}")
    for path in sources(root):
        text = path.read_text(encoding="utf-8", errors="replace")
        for name in sorted(set(re.findall(r"(?<![\w/])(?:docs|cache)/[\w/-]+\.md", text))):
            if not (root / name).exists():
                problems.append(f"{path.relative_to(root)}: names {name}, which does not exist")
        if str(path.relative_to(root)).startswith(("src/plan/", "templates/")):
            problems += [f"{path.relative_to(root)}: {name} has a word of the project's own" for name in
                         sorted(set(NAMES.findall(text)))]
    for picture in sorted((root / "docs").rglob("*.svg")):
        xml.etree.ElementTree.parse(picture)
    for line in problems:
        print(line, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
