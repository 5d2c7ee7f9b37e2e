#!/usr/bin/env python3
"""Checks that each room of src/ includes only what docs/design.md allows it to, that each folder of src/plan includes
only itself and folders on lower floors there, that nothing stands at the root of the repository that docs/design.md
does not name, and that tests, which run side by side, write into folders of their own alone.

Usage: rooms.py [FOLDER]     FOLDER is the repository's root (default: this script's repository).
"""
import fnmatch
import pathlib
import re
import sys

ROW = re.compile(r"^\| `src/(\w+)` \|.*\| ([^|]*) \|$", re.MULTILINE)
FIRST_COLUMN = re.compile(r"^\| ((?:`[\w./]+`(?:, )?)+) \|", re.MULTILINE)
FLOOR = re.compile(r"^\| \d+ \| ((?:`plan[\w/]*`(?:, )?)+) \|", re.MULTILINE)
PLAN_INCLUDE = re.compile(r'^ *# *include "(plan/[\w./]+)"', re.MULTILINE)
INCLUDE = re.compile(r'^ *# *include "(\w+)/', re.MULTILINE)


def allowed_rooms(design):
    """The rooms that each room may include, by the table of docs/design.md."""
    allowed = {}
    for room, text in ROW.findall(design.replace("|  |", "| - |").replace("| |", "| - |")):
        if text == "every room above":
            allowed[room] = set(allowed)
        elif text == "every room":
            allowed[room] = None
        else:
            allowed[room] = set(re.findall(r"\w+", text))
    return allowed


def strangers(root, design):
    """What stands at the root, is not ignored by Git, and is in no table of docs/design.md."""
    owned = {name.split("/")[0] for cell in FIRST_COLUMN.findall(design) for name in re.findall(r"`([^`]+)`", cell)}
    ignored = [line.strip("/") for line in (root / ".gitignore").read_text(encoding="utf-8").split()]
    for name in sorted(path.name for path in root.iterdir()):
        if name not in owned and not name.startswith(".") and not any(fnmatch.fnmatch(name, i) for i in ignored):
            yield name


def upward(root, design):
    """Includes of src/plan that go to the same floor of another folder, or to a higher one."""
    floors = {folder: floor for floor, cell in enumerate(FLOOR.findall(design)) for folder in re.findall(r"`([^`]+)`", cell)}
    folders = {str(path.parent.relative_to(root / "src")): path for path in (root / "src/plan").rglob("*.cpp")}
    for folder in sorted(set(folders) ^ set(floors)):
        yield f"src/{folder}: docs/design.md lists the folders of src/plan, and no others, on floors"
    for path in sorted((root / "src/plan").rglob("*")):
        folder = str(path.parent.relative_to(root / "src"))
        if path.suffix not in {".h", ".cpp"} or folder not in floors:
            continue
        for included in PLAN_INCLUDE.findall(path.read_text(encoding="utf-8")):
            other = str(pathlib.PurePosixPath(included).parent)
            if other != folder and floors.get(other, len(floors)) >= floors[folder]:
                yield f"{path.relative_to(root)}: includes {included}, which is on no lower floor"


def shared_folders(root):
    """Tests that write into a folder which others have, too: tests/temporary_folder.h gives each its own."""
    for path in sorted((root / "tests").rglob("*")):
        if path.suffix in {".h", ".cpp"} and path.name != "temporary_folder.h":
            if found := re.search(r"\b(TempDir|mkdtemp|tmpnam|mkstemp)\(", path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(root)}: {found[1]} is for tests/temporary_folder.h alone"


def main():
    root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else pathlib.Path(__file__).parents[2]).resolve()
    design = (root / "docs/design.md").read_text(encoding="utf-8")
    allowed = allowed_rooms(design)
    rooms = {path.parent.name for path in (root / "src").glob("*/CMakeLists.txt")}
    problems = [f"docs/design.md: there is no room src/{room}" for room in sorted(set(allowed) - rooms)]
    problems += [f"{name}: docs/design.md names no such thing at the root" for name in strangers(root, design)]
    problems += [f"docs/design.md does not list src/{room}" for room in sorted(rooms - set(allowed))]
    for room in sorted(rooms & set(allowed)):
        for path in sorted((root / "src" / room).rglob("*")):
            if path.suffix not in {".h", ".cpp", ".inc"}:
                continue
            for other in set(INCLUDE.findall(path.read_text(encoding="utf-8"))) & rooms - {room}:
                if allowed[room] is not None and other not in allowed[room]:
                    problems.append(f"{path.relative_to(root)}: src/{room} may not include src/{other}")
    problems += upward(root, design)
    problems += shared_folders(root)
    for line in problems:
        print(line, file=sys.stderr)
    sys.exit(1 if problems else 0)


if __name__ == "__main__":
    main()
