#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes what the site is made of: pages.py FOLDER.

The documents as they lie in the repository, a page for each API from its own source (the C++
headers, the C header, the Python package), and mkdocs.yml. scripts/docs makes the site of it.
"""
import ast
import inspect
import json
import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
DOCUMENTS = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "LICENSE", "docs", "python/README.md",
             "cache/README.md", "examples/embed", "src/emulator/README.md")
# The headers in the order in which a reader meets what they declare.
HEADERS = ("service", "spec", "launch", "driver", "plan", "types", "result", "source", "compile",
           "cache", "manifest", "tuning", "log", "emulator", "export")
THEME = {"name": "material", "font": False, "palette": [
    {"media": "(prefers-color-scheme: light)", "scheme": "default"},
    {"media": "(prefers-color-scheme: dark)", "scheme": "slate"}],
    "features": ["navigation.sections", "content.code.copy", "toc.follow"]}


def block(language, code):
    return f"```{language}\n{code.rstrip()}\n```\n\n"


def prose(lines):
    """Comment lines without what makes them comments. NOTE: Markdown's lists follow a blank line."""
    text = "\n".join(re.sub(r"^\s*(///?<?|/\*+|\*/|\*)\s?|\s*\*/$", "", line)
                     for line in lines).strip()
    return re.sub(r"\n(1\. |- )", r"\n\n\1", text, count=1)


def chunks(text):
    """(comments, declaration) of what stands between blank lines where no brace is open."""
    depth, chunk = 0, []
    for line in [*text.splitlines(), ""]:
        if not line.strip() and depth == 0:
            if chunk:
                yield split(chunk)
            chunk = []
            continue
        chunk.append(line)
        code = re.sub(r'//.*|/\*.*?\*/|"(\\.|[^"])*"', "", line)
        depth += code.count("{") - code.count("}")


def split(chunk):
    """The comment that a chunk begins with, and the rest of it."""
    count, inside = 0, False
    for line in chunk:
        text = line.strip()
        if not (inside or text.startswith(("//", "/*"))):
            break
        inside = (inside or text.startswith("/*")) and not text.endswith("*/")
        count += 1
    return chunk[:count], chunk[count:]


def name_of(code):
    """What a declaration declares, or None."""
    text = "\n".join(code)
    found = (re.search(r"^(?:template.*\n)?(?:typedef )?(?:struct|class|enum class|enum|union)\s+"
                       r"(?:ATTNJIT_EXPORT )?(\w+)[^;()]*\{", text, re.MULTILINE)
             or re.search(r"^using (\w+) =|^typedef struct (\w+) \w+;|^enum \{\s+(\w+)", text,
                          re.MULTILINE)
             or re.search(r"\(\*(\w+)\)\(", text)
             or re.search(r"(\w+)\(", re.sub(r"\b(decltype|alignas|noexcept)\(", "", text))
             or re.search(r"^#define (\w+)|^(?:inline )?constexpr \S+ (\w+)", text, re.MULTILINE))
    return next((one for one in found.groups() if one), None) if found else None


def declarations(text, language):
    """The documented declarations of a header, as Markdown."""
    out = ""
    for comment, code in chunks(text):
        heading = re.fullmatch(r"/\* --- (.*?) -+ \*/|// --- (.*?) -+",
                               comment[0].strip()) if comment else None
        if heading and len(comment) == 1 and not code:
            out += f"## {heading.group(1) or heading.group(2)}\n\n"
            continue
        name = name_of(code)
        if name is None:
            continue
        out += f"### {name}\n\n" + (prose(comment) + "\n\n" if comment else "")
        out += block(language, "\n".join(code))
    return out


def cpp_page():
    out = ("# The C++ API\n\nEach header is `#include \"attnjit/NAME.h\"`, and all of it is in the "
           "namespace `attnjit`. [embedding.md](docs/embedding.md) says how it is used.\n\n")
    for header in HEADERS:
        text = (ROOT / f"include/attnjit/{header}.h").read_text(encoding="utf-8")
        opening = re.match(r"// SPDX.*\n((?://.*\n)*)", text).group(1)
        body = re.search(r"namespace attnjit \{\n(.*)\n\}  // namespace attnjit", text, re.DOTALL)
        out += f"## attnjit/{header}.h\n\n" + prose(opening.splitlines()) + "\n\n"
        out += declarations(body.group(1) if body else "", "cpp")
    return out


def c_page():
    text = (ROOT / "include/attnjit/attnjit.h").read_text(encoding="utf-8")
    opening = re.search(r"/\* attnjit\.h: (.*?)\*/", text, re.DOTALL).group(1)
    body = text[text.index("/* Raised when"):text.rindex("#ifdef __cplusplus")]
    return ("# The C API\n\n`#include \"attnjit/attnjit.h\"`: " + prose(opening.splitlines())
            + "\n\n" + declarations(body, "c"))


def signature(node):
    """A function's definition without its body."""
    returns = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"def {node.name}({ast.unparse(node.args)}){returns}"


def python_text(node, level):
    """A class or a function with its docstring, and a class's public methods."""
    out = f"{'#' * level} {node.name}\n\n"
    if isinstance(node, ast.ClassDef):
        bases = ", ".join(map(ast.unparse, node.bases))
        out += block("python", f"class {node.name}" + (f"({bases})" if bases else ""))
    else:
        out += block("python", signature(node))
    if ast.get_docstring(node):
        out += block("text", inspect.cleandoc(ast.get_docstring(node)))
    for child in getattr(node, "body", ()) if isinstance(node, ast.ClassDef) else ():
        if isinstance(child, ast.FunctionDef) and (not child.name.startswith("_")
                                                   or child.name == "__init__"):
            out += python_text(child, level + 1)
    return out


def python_page():
    folder = ROOT / "python/attnjit"
    opening = ast.parse((folder / "__init__.py").read_text(encoding="utf-8"))
    public = next(ast.literal_eval(one.value) for one in opening.body
                  if isinstance(one, ast.Assign) and one.targets[0].id == "__all__")
    found = {}
    for path in sorted(folder.glob("*.py")):
        for node in ast.parse(path.read_text(encoding="utf-8")).body:
            if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
                found.setdefault(node.name, node)
    out = ("# The Python API\n\n[python/README.md](python/README.md) says how it is installed and "
           "used.\n\n")
    first = ("attention", "paged_attention", "mask", "score_mod", "Service")
    for name in [*first, *(one for one in public if one not in first and one != "__version__")]:
        out += python_text(found[name], 2)
    for name in ("transformers", "vllm", "sglang"):
        module = ast.parse((folder / f"integrations/{name}.py").read_text(encoding="utf-8"))
        out += f"## attnjit.integrations.{name}\n\n" + block("text", ast.get_docstring(module))
        for node in module.body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                out += python_text(node, 3)
    return out


def navigation():
    """The sections of the site: the start, the documents in the order of docs/index.md, the APIs."""
    index = (ROOT / "docs/index.md").read_text(encoding="utf-8")
    listed = []
    for target in re.findall(r"\]\(([^)#]+\.md)\)", index):
        path = (ROOT / "docs" / target).resolve().relative_to(ROOT).as_posix()
        if path not in listed and path != "README.md":
            listed.append(path)
    proofs = [one for one in listed if "/proof/" in one]
    return [{"Start": ["README.md", "docs/index.md"]},
            {"Documents": [one for one in listed if one not in proofs]}, {"Proofs": proofs},
            {"API": ["api-cpp.md", "api-c.md", "api-python.md"]}]


def write(folder):
    pages = folder / "pages"
    shutil.rmtree(pages, ignore_errors=True)
    for name in DOCUMENTS:
        path = ROOT / name
        for one in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if one.is_file() and one.suffix in (".md", ".svg", ".png", ".json", ".c", ".cpp", ".h", ""):
                target = pages / one.relative_to(ROOT)
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_bytes(one.read_bytes())
    for name, page in (("cpp", cpp_page), ("c", c_page), ("python", python_page)):
        (pages / f"api-{name}.md").write_text(page(), encoding="utf-8")
    # NOTE: JSON is YAML.
    (folder / "mkdocs.yml").write_text(json.dumps({
        "site_name": "attnjit", "docs_dir": "pages", "site_dir": "site", "theme": THEME,
        "use_directory_urls": False, "nav": navigation(),
        "validation": {"links": {"not_found": "warn", "anchors": "warn",
                                 "unrecognized_links": "warn"}},
        "markdown_extensions": ["tables", "fenced_code", "pymdownx.highlight",
                                {"toc": {"permalink": True}}]}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    write(pathlib.Path(sys.argv[1]))
