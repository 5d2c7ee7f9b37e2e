#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the site's API pages have all that is public: api.py [FOLDER], the repository's root.

The pages are written by docs/site/pages.py; scripts/docs makes the site and checks its links.
"""
import ast
import pathlib
import re
import sys
import tempfile

root = pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else __file__).resolve()
root = root if root.is_dir() else root.parents[2]
sys.path.insert(0, str(root / "docs/site"))
import pages  # noqa: E402

with tempfile.TemporaryDirectory() as folder:
    pages.write(pathlib.Path(folder))
    text = {name: pathlib.Path(folder, f"pages/api-{name}.md").read_text(encoding="utf-8")
            for name in ("cpp", "c", "python")}
missing = []
header = (root / "include/attnjit/attnjit.h").read_text(encoding="utf-8")
for name in set(re.findall(r"\battnjit_\w+(?=\()|\bATTNJIT_(?!EXPORT|ATTNJIT_H_)[A-Z_]+\b|"
                           r"\battnjit_\w+(?=;)", header)):
    if not re.search(rf"\b{name}\b", text["c"]):
        missing.append(f"api-c.md lacks {name}")
for path in sorted((root / "include/attnjit").glob("*.h")):
    if path.name == "attnjit.h":
        continue
    if path.stem not in pages.HEADERS:
        missing.append(f"docs/site/pages.py does not list {path.name}")
    # NOTE: what stands at the margin: members stand with their class.
    for line in re.findall(r"^(?:ATTNJIT_EXPORT|struct|class|enum class|using) .*",
                           path.read_text(encoding="utf-8"), re.MULTILINE):
        code = line.partition("//")[0].rstrip()
        if not code.endswith(";") or "=" in code or "(" in code:  # no forward declaration
            if line not in text["cpp"]:
                missing.append(f"api-cpp.md lacks {path.name}'s {line}")
public = next(ast.literal_eval(one.value) for one in ast.parse(
    (root / "python/attnjit/__init__.py").read_text(encoding="utf-8")).body
    if isinstance(one, ast.Assign))
for name in public:
    if name != "__version__" and f"## {name}\n" not in text["python"]:
        missing.append(f"api-python.md lacks {name}")
print(*missing, sep="\n", end="\n" if missing else "")
sys.exit(1 if missing else 0)
