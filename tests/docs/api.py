#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the site's API pages have all that is public: api.py [FOLDER], the repository's root.

docs/site/pages.py names it; scripts/docs makes the site of mkdocstrings and Doxygen and checks its links.
"""
import ast
import json
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
    python = pathlib.Path(folder, "pages/api-python.md").read_text(encoding="utf-8")
    site = json.loads(pathlib.Path(folder, "mkdocs.yml").read_text(encoding="utf-8"))
    written = {path.relative_to(pathlib.Path(folder, "pages")).as_posix()
               for path in pathlib.Path(folder, "pages").rglob("*.md")}
missing = []
opening = ast.parse((root / "python/attnjit/__init__.py").read_text(encoding="utf-8"))
public = next(ast.literal_eval(one.value) for one in opening.body if isinstance(one, ast.Assign))
for name in public:
    if name != "__version__" and f"::: attnjit.{name}\n" not in python:
        missing.append(f"api-python.md lacks {name}")
# A public function or class says what it is, and its parameters, where it has many.
for path in sorted((root / "python/attnjit").glob("*.py")):
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        overload = any(isinstance(one, ast.Name) and one.id == "overload" for one in node.decorator_list) \
            if hasattr(node, "decorator_list") else False
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and node.name in public and not overload:
            text = ast.get_docstring(node) or ""
            arguments = isinstance(node, ast.FunctionDef) and len(node.args.args) + len(node.args.kwonlyargs)
            if not text or arguments > 3 and "Args:" not in text:
                missing.append(f"{path.name}: {node.name} does not say what its parameters are")
# Each document is in the site's navigation.
listed = set(re.findall(r'"([\w./-]+\.md)"', json.dumps(site["nav"])))
for name in sorted(written - listed - {"LICENSE.md"}):
    if name.startswith(("docs/", "python/", "cache/")):
        missing.append(f"docs/index.md does not list {name}")
print(*missing, sep="\n", end="\n" if missing else "")
sys.exit(1 if missing else 0)
