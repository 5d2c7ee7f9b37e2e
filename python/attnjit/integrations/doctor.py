# SPDX-License-Identifier: Apache-2.0
"""attnjit doctor --for vllm|sglang [CONFIG]: whether the server will serve through attnjit here, and what
its first start would compile.

It runs the command's own doctor, and imports neither the server nor torch.
"""
from __future__ import annotations

import argparse
import difflib
import json
import os
import subprocess
import sys
from importlib import metadata
from typing import Any, Dict, Iterable, List, Tuple

from .. import AttnjitError, Service, __version__
from .._abi import command_path
from .._nvrtc import nvrtc_path
from . import manifests
from ._environment import FORBID, VARIABLES, forbids_compiles
from ._servers import SERVERS

_ENVIRONMENT = 4  # the command's exit code where the environment lacks something


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="attnjit doctor", description=__doc__.splitlines()[0])
    made.add_argument("config", nargs="?", help="config.json of the model that is to be served, or its folder")
    made.add_argument("--for", dest="server", required=True, choices=list(SERVERS))
    made.add_argument("--json", action="store_true", help="one JSON object on standard output")
    manifests.add_options(made)
    return made


def native() -> Dict[str, Any]:
    """What `attnjit doctor --json` says of this machine."""
    path = nvrtc_path()
    environment = {**os.environ, **({"ATTNJIT_NVRTC": path} if path else {})}
    done = subprocess.run([command_path(), "doctor", "--json"], env=environment,
                          capture_output=True, text=True, check=False)
    try:
        return json.loads(done.stdout)
    except ValueError:
        raise SystemExit(f"attnjit doctor: {done.stderr.strip()}") from None


def version_of(package: str) -> str:
    """Of an installed package; empty: there is none."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return ""


def plug_ins(server: str) -> List[str]:
    """The server's groups under which an installed wheel names attnjit."""
    found = []
    for distribution in metadata.distributions():
        found += [one.group for one in distribution.entry_points
                  if one.name == "attnjit" and one.group in SERVERS[server].groups]
    return sorted(set(found))


def kernels_of(given: argparse.Namespace, arch: str) -> List[Dict[str, Any]]:
    """Each kernel that the model's layers ask for at start, and whether a cache has it."""
    given.arch = arch
    found = []
    with Service(forbid_compile=1) as service:
        for spec in manifests.specs_of(manifests.model_of(given), given):
            prepared = service.prepare({"arch": arch, **spec})
            try:
                service.compile(prepared)
                cached = True
            except AttnjitError as error:
                if error.code != "compile_forbidden":
                    raise
                cached = False
            found.append({"key": prepared.key, "cached": cached, "spec": spec})
    return found


def misspelt(names: Iterable[str]) -> List[Tuple[str, str]]:
    """Names that are nearly those of attnjit's variables, and which."""
    found = []
    for name in sorted(set(names) - set(VARIABLES)):
        if name.upper().startswith("ATTNJIT"):
            found += [(name, near) for near in
                      difflib.get_close_matches(name.upper(), VARIABLES, 1, 0.85)]
    return found


def _is_tested(version: str, tested: Tuple[str, ...]) -> bool:
    return any((version + ".").startswith(one + ".") for one in tested)


def _problems(said: Dict[str, Any], name: str) -> List[Tuple[str, str]]:
    """What is missing for a server beyond what the command's doctor knows of."""
    found, server = [], SERVERS[name]
    version = said[name]["version"]
    if not version:
        found.append((f"{name} is not installed", f"pip install {name}"))
    elif not _is_tested(version, server.tested):
        found.append((f"{name} {version} is not a version that the backend was made for",
                      f"install {name}=={server.tested[-1]}, or run scripts/test-integrations with "
                      f"{version}"))
    if len(said[name]["plug_ins"]) < len(server.groups):
        found.append((f"no installed wheel names attnjit as a plug-in of {name}",
                      "pip install attnjit's wheel into the server's environment; a folder on "
                      "PYTHONPATH is not enough"))
    for mistaken, meant in misspelt(os.environ):
        found.append((f"nothing reads {mistaken}", f"it may be meant as {meant}"))
    only = os.environ.get(server.only)
    # NOTE: to SGLang an empty list is none.
    if (only or (only == "" and name == "vllm")) and "attnjit" not in only.split(","):
        found.append((f"{server.only}={only} keeps attnjit out", "add attnjit to it, or unset it"))
    missing = [one for one in said.get("kernels", ()) if not one["cached"]]
    if missing and said["compiling_forbidden"]:
        found.append((f"{FORBID} is set, and {len(missing)} kernels are in no cache: the server would "
                      "not start", f"attnjit manifest CONFIG --for {name} -o M.json && "
                      f"attnjit prewarm --arch {said['arch']} M.json"))
    return found


def examine(given: argparse.Namespace) -> Dict[str, Any]:
    machine, name = native(), given.server
    gpus = machine.get("gpus", [])
    said: Dict[str, Any] = {
        "version": __version__, "machine": machine, "torch": {"version": version_of("torch")},
        name: {"version": version_of(name), "tested": list(SERVERS[name].tested),
               "plug_ins": plug_ins(name)},
        "compiling_forbidden": forbids_compiles(),
        "arch": given.arch or next((one["arch"] for one in gpus if one.get("arch")), None)}
    if given.config is not None:
        if said["arch"] is None:
            parser().error("--arch: is missing, and there is no GPU that says it")
        said["kernels"] = kernels_of(given, said["arch"])
    said["problems"] = machine["problems"] + [
        {"what": what, "todo": todo} for what, todo in _problems(said, name)]
    said["ok"] = not said["problems"]
    return said


def _short(spec: Dict[str, Any]) -> str:
    rows = (f"{spec['max_q_len']} rows a request" if "max_q_len" in spec else "prompts and decodes")
    mask = spec.get("mask")
    name = mask if isinstance(mask, str) else mask.get("name") or mask["kind"]
    heads = f"{spec['num_q_heads']}/{spec['num_q_heads'] // spec['group']}"
    return f"{rows}, {name}, {heads} heads of {spec['qk_depth']}, {spec['qkv_dtype']}"


def text_of(said: Dict[str, Any], name: str) -> str:
    machine, server = said["machine"], said[name]
    nvrtc, layers = machine["nvrtc"], machine["cache"]["layers"]
    gpus = ", ".join(str(one.get("name", one)) for one in machine["gpus"])
    rows = [("attnjit", said["version"]),
            (name, f"{server['version'] or 'not installed'} (made for "
             f"{', '.join(server['tested'])})"),
            ("torch", said["torch"]["version"] or "not installed"),
            ("plug-ins", ", ".join(server["plug_ins"]) or "none"),
            ("nvrtc", f"{nvrtc['version']} ({nvrtc['path']})" if nvrtc["found"] else "not found"),
            ("gpu", gpus or "none"),
            ("cache", ", ".join(one["path"] for one in layers) or "memory alone"),
            ("compiling", "forbidden" if said["compiling_forbidden"] else "allowed")]
    if "kernels" in said:
        missing = [one for one in said["kernels"] if not one["cached"]]
        rows.append(("kernels", f"{len(said['kernels'])} at start on {said['arch']}, of which "
                     f"{len(missing)} would be compiled"))
        rows += [("", _short(one["spec"])) for one in missing]
    lines = [f"{what:<10}{found}" for what, found in rows]
    for one in said["problems"]:
        lines += ["", f"missing: {one['what']}", f"  {one['todo']}"]
    return "\n".join(lines + ([] if said["problems"] else ["", "nothing is missing"])) + "\n"


def main(arguments: List[str]) -> int:
    """Says what it found; returns the command's exit code."""
    given = manifests.parsed(parser(), arguments)
    try:
        said = examine(given)
    except AttnjitError as error:
        sys.stderr.write(f"attnjit doctor: {error}\n")
        return 3
    sys.stdout.write(json.dumps(said, indent=2) + "\n" if given.json else text_of(said, given.server))
    return 0 if said["ok"] else _ENVIRONMENT
