#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the site is made of: pages.py FOLDER.

The documents as they lie in the repository, a page that names each public object of the Python
package for mkdocstrings, and mkdocs.yml, which has the C++ and C headers documented by Doxygen.
scripts/docs makes the site of it.
"""
import ast
import json
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "python/README.md",
             "cache/README.md", "examples", "src/emulator/README.md")
# What most readers look for, first; the rest follows as __all__ has it.
FIRST = ("attention", "paged_attention", "mla_attention", "mask", "score_mod", "Service")
INTEGRATIONS = ("transformers", "vllm", "sglang")
THEME = {"name": "material", "font": False, "palette": [
    {"media": "(prefers-color-scheme: light)", "scheme": "default", "toggle": {
        "icon": "material/weather-night", "name": "dark"}},
    {"media": "(prefers-color-scheme: dark)", "scheme": "slate", "toggle": {
        "icon": "material/weather-sunny", "name": "light"}}],
    "features": ["navigation.sections", "navigation.indexes", "content.code.copy", "toc.follow",
                 "search.suggest", "search.highlight"]}
PYTHON = {"docstring_style": "google", "show_root_heading": True, "show_root_full_path": False,
          "show_source": False, "separate_signature": True, "line_length": 88,
          "show_signature_annotations": True, "members_order": "source",
          "filters": ["!^_(?!_init__)"], "heading_level": 2}
# Headers' comments are Doxygen's but for those that open a file, and but for C's.
OPENING = "sed '1s|.*|/// @file|; 2,/^.pragma once/s|^//|///|'"  # NOTE: to Doxygen a hash begins a comment
C_COMMENTS = r"sed -E '1,2d; s|^(\s*)/\* |\1/** |; s|(\S\s*)/\* |\1/**< |; s|^/\*\* attnjit.h:|/** @file|'"


def doxygen(name, only, left_out, comments):
    include = ROOT / "include"
    return {name: {"src-dirs": str(include / "attnjit"), "full-doc": True, "doxy-cfg": {
        "FILE_PATTERNS": only, "EXCLUDE_PATTERNS": left_out, "EXTRACT_ALL": True,
        "STRIP_FROM_PATH": str(include), "STRIP_FROM_INC_PATH": str(include),
        "MACRO_EXPANSION": True, "EXPAND_ONLY_PREDEF": True, "PREDEFINED": "ATTNJIT_EXPORT=",
        "OPTIMIZE_OUTPUT_FOR_C": name == "c", "INPUT_FILTER": comments, "QUIET": True,
        "WARN_IF_UNDOCUMENTED": False, "WARNINGS": False}}}


def public_names():
    """What `attnjit` exports."""
    opening = ast.parse((ROOT / "python/attnjit/__init__.py").read_text(encoding="utf-8"))
    names = next(ast.literal_eval(one.value) for one in opening.body
                 if isinstance(one, ast.Assign) and one.targets[0].id == "__all__")
    return [*FIRST, *(one for one in names if one not in FIRST and one != "__version__")]


def python_page():
    names = [f"attnjit.{name}" for name in public_names()]
    names += [f"attnjit.integrations.{name}" for name in INTEGRATIONS]
    return ("# The Python API\n\n[python/README.md](python/README.md) says how it is installed and "
            "used.\n\n" + "\n".join(f"::: {name}" for name in names) + "\n")


def navigation():
    """The sections of the site: the start, the documents in the order of docs/index.md, the APIs."""
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    sections, seen = [{"Start": ["README.md", "docs/index.md"]}], {"README.md"}
    for part in re.split(r"^## ", index, flags=re.MULTILINE):
        listed = []
        for target in re.findall(r"\]\(([^)#]+\.md)\)", part):
            path = (ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix()
            if path not in seen:
                listed.append(path)
                seen.add(path)
        if listed:
            sections.append({part.splitlines()[0].strip("# "): listed})
    return [*sections, {"API": ["api-python.md", {"C++: classes": "cpp/annotated.md"},
                                {"C++: headers": "cpp/files.md"}, {"C": "c/attnjit_8h.md"}]}]


def write(folder):
    folder = folder.resolve()
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for name in DOCUMENTS:
        path = ROOT / name
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if one.is_file() and one.suffix in (".md", ".svg", ".png", ".json", ".c", ".cpp", ".h", ""):
                target = pages / one.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(one.read_bytes())
    (pages / "api-python.md").write_text(python_page(), encoding="utf-8")
    # NOTE: JSON is YAML.
    (folder / "mkdocs.yml").write_text(json.dumps({
        "site_name": "attnjit", "docs_dir": "pages", "site_dir": "site", "theme": THEME,
        "use_directory_urls": False, "nav": navigation(), "hooks": [str(ROOT / "docs/site/rank.py")],
        "plugins": ["search",
                    {"mkdocstrings": {"handlers": {"python": {"paths": [str(ROOT / "python")],
                                                              "options": PYTHON}}}},
                    {"mkdoxy": {"projects": {
                        **doxygen("cpp", "*.h", "*/attnjit.h", OPENING),
                        **doxygen("c", "attnjit.h", "", C_COMMENTS)}}}],
        "validation": {"nav": {"omitted_files": "ignore"},
                       "links": {"not_found": "warn", "anchors": "warn",
                                 "unrecognized_links": "warn"}},
        "markdown_extensions": ["tables", "fenced_code", "pymdownx.highlight", "attr_list",
                                {"toc": {"permalink": True}}]}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
