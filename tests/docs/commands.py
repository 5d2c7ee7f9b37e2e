#!/usr/bin/env python3
"""Runs the commands of the README and of the guides that need no GPU: commands.py FOLDER BUILD [DOCUMENT...]

- Every line of a code block that begins with `attnjit` runs with the package of the build, all of a document in one
  folder, and exits with 0; `doctor` may say that this machine has no GPU (4).
- Every block that is fenced as python runs, unless it needs torch.
- A Dockerfile is read: its instructions are well formed, its images have tags, and what it runs of attnjit is run, with
  its folders below one of here. What it installs is not.
- Every other command must be one of ELSEWHERE, which says what runs it; Python that needs a GPU is run by
  tests/gpu/guides.py.
- Words in capitals that stand for a user's file are files here, and what stands in [brackets] is left out.

Exit code 77: there is no NVRTC.
"""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time

GUIDES = ("README.md", "python/README.md", "cache/README.md")
# Commands that are not run here, each by what it begins with, and what runs them.
ELSEWHERE = {
    r"scripts/demo\b|scripts/wheel( &&|  +#|$)|scripts/test\b": ".ci/run",
    r"scripts/wheel --arch aarch64\b|\(cd build/release && cpack\)": "scripts/release-check",
    r"pip install (dist/)?attnjit-|python3 -m venv env ": "tests/packaging/pythons.sh, tests/python/wheel_test.py",
    r"scripts/install ": "tests/packaging/no_toolkit.sh",
    r"cmake -G Ninja -S examples/embed|cmake --build build/embed": "tests/packaging/find_package.sh; with a GPU, too",
    r"export PATH=": "this file, whose PATH has the command",
    r"export ATTNJIT_(REMOTE|LEASE)=|minisign -V|ATTNJIT_TRUST=fleet.key.pub my-server": "tests/cli/fleet_test.cpp",
    r"skopeo copy": "tests/cli/fleet_test.cpp, with a folder in the place of the registry",
    r"vllm serve|vllm bench serve|curl -s localhost:8000/metrics|for backend in|kill |done": "tests/gpu/server/run.py",
    r"python -m sglang.launch_server|grep \"attnjit .* serves\" server.log": "tests/gpu/server/run_sglang.py",
    r"tests/gpu/bring-up ": "itself, on a new GPU",
}
# What a line of a shell begins with.
SHELL = re.compile(r"(?:export |(?:[A-Z_]+=\S* )+\w|scripts/|tests/|build/|pip |python3? -|cmake |cc |ctest |vllm |curl |grep "
                   r"|minisign |skopeo |docker |for \w+ in |kill |done$|\(cd )")
# Python that needs a GPU or another package.
PYTHON = re.compile(r"(?:import|from) |\w+(?:, \w+)* = .*attnjit\.|attnjit\.")
COMMAND = re.compile(r"(?:[A-Z_]+=\S* )*(?:eval |build/release/)?\S*\battnjit (?:[a-z]|-)")


def blocks(text):
    """(language, lines) of each code block."""
    fence, lines = None, []
    for line in [*text.split("\n"), ""]:
        if line.startswith("```"):
            if fence is not None:
                yield fence, lines
            fence, lines = (line[3:].strip() or "text", []) if fence is None else (None, [])
        elif fence is not None:
            lines.append(line)
        elif line.startswith("    "):
            lines.append(line[4:])
        elif lines:
            yield "", lines
            lines = []


def image_commands(code):
    """The commands of attnjit that a Dockerfile runs, and one that finds what they compiled as the
    container will. What is wrong with it is a ValueError."""
    ends, settings, prewarm = False, "", None
    for line in re.sub(r"\\\n\s*", "", code).split("\n"):
        name, _, rest = line.partition(" ")
        if name == "FROM" and not re.fullmatch(r"[\w./-]+:(?!latest$)[\w.-]+", rest):
            raise ValueError(f"the image has no tag: {line}")
        elif name == "COPY" and len(rest.split()) < 2:
            raise ValueError(f"copies to nowhere: {line}")
        elif name == "ENV" and not all("=" in one for one in rest.split()):
            raise ValueError(f"is no list of NAME=VALUE: {line}")
        elif name in ("ENTRYPOINT", "CMD"):
            ends = all(isinstance(one, str) for one in json.loads(rest))  # else a shell would get the signals
        elif name == "RUN" and "attnjit " in rest and not rest.startswith("pip "):
            prewarm = re.search(r"attnjit prewarm [^&]*", rest) or prewarm
            yield rest
        elif name not in ("FROM", "COPY", "ENV", "RUN"):
            raise ValueError(f"is no instruction: {line}")
        settings += f"{rest} " if name == "ENV" else ""
    if not ends:
        raise ValueError("has no ENTRYPOINT that is a list")
    if prewarm:
        yield (f"trap 'chmod -R u+w /opt' EXIT; chmod -R a-w /opt; {settings}{prewarm[0]} | "
               "grep '^0 compiled'")


def scripts(text):
    """(what, kind) of each thing that is to be run, in order: kind is shell or python."""
    for language, lines in blocks(text):
        code = "\n".join(lines)
        if language == "python":
            if not re.search(r"\btorch\b|attention\(", code):
                yield code, "python"
        elif language == "sh":
            yield code, "shell"
        elif language == "dockerfile":
            yield from ((line, "image") for line in image_commands(code))
        elif language == "":
            code = re.sub(r"\\\n\s*", "", code)
            for line in code.split("\n"):
                line = re.sub(r"^\$ ", "", line.strip())
                if COMMAND.match(line) and " serves " not in line:
                    yield line, "shell"


def gpu_scripts(text):
    """The Python that scripts() leaves out."""
    for language, lines in blocks(text):
        code = "\n".join(lines)
        if language == "python" and re.search(r"\btorch\b|attention\(", code) or language == "" and PYTHON.match(code):
            yield code


def not_run(text):
    """Shell commands that neither scripts() nor ELSEWHERE has."""
    for language, lines in blocks(text):
        if language:
            continue
        for line in re.sub(r"\\\n\s*", "", "\n".join(lines)).split("\n"):
            line = re.sub(r"^\$ ", "", line.strip())
            if SHELL.match(line) and not COMMAND.match(line) and not any(re.match(one, line) for one in ELSEWHERE):
                yield line


def prepare(folder, root, run):
    """The files that guides speak of as a user's own."""
    (folder / "examples").symlink_to(root / "examples")
    (folder / "cache").symlink_to(root / "cache")
    (folder / "build").mkdir()
    for name in ("models", "tmp", "opt"):  # of an image
        (folder / name).mkdir()
    spec = {"arch": "sm_100a" if "sm100" in folder.name else "sm_90a", "num_q_heads": 8, "group": 4, "qk_depth": 64,
            "mask": "causal"}
    (folder / "SPEC").write_text(json.dumps(spec))
    run("attnjit compile SPEC --ptx KERNEL.ptx && attnjit generate SPEC -o . --launch --q-len 40 --kv-len 40")
    (folder / "spec.json").write_text(json.dumps({**spec, "mask": {
        "kind": "custom", "name": "near", "code": "abs(q_idx - kv_idx) <= p.w",
        "params": [{"name": "w", "type": "i32"}]}}))
    (folder / "model.json").write_text(json.dumps({"specs": [{k: v for k, v in spec.items() if k != "arch"}]}))
    (folder / "models/config.json").symlink_to("../config.json")
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 2048, "num_attention_heads": 16,
        "num_key_value_heads": 4, "num_hidden_layers": 2, "intermediate_size": 64, "vocab_size": 128,
        "max_position_embeddings": 4096, "torch_dtype": "bfloat16"}))


def runnable(line):
    """A line as a user would type it: without optional parts and dots."""
    line = re.sub(r" \[[^\]]*\]", "", line)
    return re.sub(r" \.\.\.?(?= |$)", "", line).replace("build/release/attnjit", "attnjit")


def main():
    root, build = (pathlib.Path(one).resolve() for one in sys.argv[1:3])
    documents = [root / one for one in sys.argv[3:]] or [
        *(root / one for one in GUIDES), *sorted(path for path in (root / "docs").glob("*.md"))]
    problems, count = [], 0
    with tempfile.TemporaryDirectory() as work:
        work = pathlib.Path(work)
        (work / "bin").mkdir()
        command = work / "bin/attnjit"
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -B -m attnjit "$@"\n')
        command.chmod(0o755)
        environment = {"PATH": f"{work}/bin:{os.environ['PATH']}", "HOME": str(work), "PYTHONPATH": str(build / "python"),
                       "ATTNJIT_CACHE_DIR": str(work / "kernels"), "CUDA_VISIBLE_DEVICES": "", "COLUMNS": "100"}
        if "ATTNJIT_NVRTC" in os.environ:
            environment["ATTNJIT_NVRTC"] = os.environ["ATTNJIT_NVRTC"]
        doctor = json.loads(subprocess.run([command, "doctor", "--json"], env=environment, capture_output=True,
                                           text=True).stdout)
        if not doctor["nvrtc"].get("path"):
            print("skipped: there is no NVRTC")
            return 77

        def run(code, folder, kind="shell"):
            program = [sys.executable, "-B", "-c"] if kind == "python" else ["bash", "-e", "-o", "pipefail", "-c"]
            return subprocess.run([*program, code], cwd=folder, env=environment, capture_output=True, text=True,
                                  timeout=300)

        for path in documents:
            for line in not_run(path.read_text(encoding="utf-8")):
                problems.append(f"{path.relative_to(root)}: nothing runs: {line}")
            try:
                todo = list(scripts(path.read_text(encoding="utf-8")))
            except ValueError as error:
                problems.append(f"{path.relative_to(root)}: a Dockerfile {error}")
                continue
            if not todo:
                continue
            folder = work / path.relative_to(root).as_posix().replace("/", "-")
            folder.mkdir()
            prepare(folder, root, lambda code: run(code, folder).check_returncode())
            for code, kind in todo:
                begin = time.monotonic()
                text = runnable(code) if kind == "shell" else code
                if kind == "image":
                    text = re.sub(r"(?<![\w.])/(models|tmp|opt)\b", rf"{folder}/\1", text)
                done = run(text, folder, kind)
                count += 1
                allowed = (0, 4) if re.match(r"attnjit doctor", code) else (0,)
                print(f"{path.relative_to(root)}: {time.monotonic() - begin:.1f} s: {code.splitlines()[0][:90]}")
                if done.returncode not in allowed:
                    problems.append(f"{path.relative_to(root)}: exit code {done.returncode}: {code}\n"
                                    f"{done.stdout[-800:]}{done.stderr[-800:]}")
            shutil.rmtree(folder)
    print(f"{count} commands")
    for line in problems:
        print(line, file=sys.stderr)
    return 1 if problems or not count else 0


if __name__ == "__main__":
    sys.exit(main())
