# SPDX-License-Identifier: Apache-2.0
"""attnjit doctor --for vllm|sglang: versions, plug-ins, and what the first start would compile."""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

from attnjit._abi import command_path
from attnjit.integrations._environment import LIBRARY
from manifest_for_test import GEMMA3, LLAMA

ENTRY_POINTS = "[vllm.general_plugins]\nattnjit = a:b\n[vllm.platform_plugins]\nattnjit = a:c\n"


def attnjit(folder, *arguments, **environment):
    path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    return subprocess.run([sys.executable, "-B", "-m", "attnjit", *arguments], capture_output=True,
                          text=True, check=False, cwd=folder, env={
                              **os.environ, "PYTHONPATH": path, "HOME": str(folder),
                              "ATTNJIT_CACHE_DIR": str(folder / "cache"), **environment})


def examined(folder, *arguments, server="vllm", **environment):
    done = attnjit(folder, "doctor", "--for", server, "--json", *arguments, **environment)
    assert done.returncode in (0, 4), done
    said = json.loads(done.stdout)
    assert said["ok"] == (done.returncode == 0) == (said["problems"] == []), said["problems"]
    return said, " ".join(one["what"] for one in said["problems"])


def installed(folder, name, version, entry_points=""):
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    (info / "entry_points.txt").write_text(entry_points)
    return info


def versions(folder):
    said, problems = examined(folder)
    assert said["vllm"]["version"] == "" and "vllm is not installed" in problems, problems
    assert "no installed wheel" in problems, problems
    old = installed(folder, "vllm", "0.9.1")
    assert "vllm 0.9.1 is not a version" in examined(folder)[1]
    old.rename(folder / "vllm-0.33.2.dist-info")
    (folder / "vllm-0.33.2.dist-info/METADATA").write_text(
        "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.2\n")
    installed(folder, "attnjit", "0.1.0", ENTRY_POINTS)
    said, problems = examined(folder)
    assert "vllm" not in problems and "wheel" not in problems, problems
    assert said["vllm"]["plug_ins"] == ["vllm.general_plugins", "vllm.platform_plugins"]
    assert "VLLM_PLUGINS=other" in examined(folder, VLLM_PLUGINS="other")[1]
    assert "VLLM_PLUGINS" not in examined(folder, VLLM_PLUGINS="other,attnjit")[1]


def sglang_versions(folder):
    """As of vLLM: SGLang has one group, and several versions are served."""
    said, problems = examined(folder, server="sglang")
    assert said["sglang"]["version"] == "" and "sglang is not installed" in problems, problems
    assert "no installed wheel names attnjit as a plug-in of sglang" in problems, problems
    installed(folder, "attnjit_more", "0.1.0", "[sglang.srt.plugins]\nattnjit = a:b\n")
    for version, served in (("0.5.17", True), ("0.5.23.post1", True), ("0.5.1", False),
                            ("0.5.170", False)):
        info = installed(folder, "sglang", version)
        said, problems = examined(folder, server="sglang")
        assert said["sglang"]["plug_ins"] == ["sglang.srt.plugins"], said["sglang"]
        assert ("sglang" not in problems) == served, (version, problems)
        for file in info.iterdir():
            file.unlink()
        info.rmdir()
    assert "SGLANG_PLUGINS=other" in examined(folder, server="sglang", SGLANG_PLUGINS="other")[1]
    assert "SGLANG_PLUGINS" not in examined(folder, server="sglang", SGLANG_PLUGINS="")[1]


def kernels(folder):
    (folder / "config.json").write_text(json.dumps(GEMMA3))
    asked = ("config.json", "--arch", "sm_90a")
    said, problems = examined(folder, *asked)
    assert [one["cached"] for one in said["kernels"]] == [False] * 4, said
    assert "FORBID" not in problems
    assert "4 kernels are in no cache" in examined(folder, *asked, ATTNJIT_FORBID_COMPILE="1")[1]
    (paged,) = [one for one in examined(folder, *asked, "--page", "64", server="sglang")[0]["kernels"]
                if one["spec"].get("max_q_len") == 1 and one["spec"]["mask"] == "causal"]
    assert paged["spec"]["page_size"] == 64, paged
    text = attnjit(folder, "doctor", "--for", "vllm", *asked).stdout
    assert "4 at start on sm_90a, of which 4 would be compiled" in text, text
    assert not list((folder / "cache").rglob("*.cubin")), "a doctor compiles nothing"
    if said["machine"]["nvrtc"]["found"]:
        (folder / "config.json").write_text(json.dumps(LLAMA))
        assert attnjit(folder, "manifest", "config.json", "--for", "vllm", "-o",
                       "manifest.json").returncode == 0
        done = attnjit(folder, "prewarm", "--arch", "sm_90a", "manifest.json")
        assert done.returncode == 0, done.stderr
        said, problems = examined(folder, *asked, ATTNJIT_FORBID_COMPILE="1")
        assert [one["cached"] for one in said["kernels"]] == [True] * 2, said["kernels"]
        assert "no cache" not in problems, problems
        # As an image has it: what was prewarmed is a lower layer.
        layers = f"{folder / 'scratch'}:{folder / 'cache'}"
        said, _ = examined(folder, *asked, ATTNJIT_CACHE_DIR=layers)
        assert [one["cached"] for one in said["kernels"]] == [True] * 2, said["kernels"]
        said, _ = examined(folder, *asked, "--page", "64")
        assert [one["cached"] for one in said["kernels"]] == [False] * 2


def forbidden(folder):
    """What plug-ins ask for at start, where compiles are forbidden and no cache has it."""
    code = ("import attnjit\nfrom attnjit.integrations import sglang_service as one\ntry:\n"
            "    one.ask([{'arch': 'sm_90a', 'num_q_heads': 3, 'qk_depth': 64, 'merge': True}])\n"
            "except attnjit.AttnjitError as error:\n"
            "    print(error.code)\nelse:\n    print('asked')\n")
    for value, said in (("1", "compile_forbidden"), ("0", "asked")):
        done = subprocess.run([sys.executable, "-B", "-c", code], capture_output=True, text=True,
                              check=True, env={**os.environ, "ATTNJIT_FORBID_COMPILE": value,
                                               "ATTNJIT_CACHE_DIR": str(folder / "empty")})
        assert done.stdout.strip() == said, (value, done)


def variables(folder):
    """What the plug-ins make of the environment is what the library makes of it, and names that are
    nearly right are said."""
    source = pathlib.Path(__file__).resolve().parents[2] / "src/base/environment.cpp"
    read = set(re.findall(r'"(ATTNJIT_\w+)"', source.read_text(encoding="utf-8")))
    assert read == set(LIBRARY), read ^ set(LIBRARY)
    for name, meant in (("ATTNJIT_CAHCE_DIR", "ATTNJIT_CACHE_DIR"),
                        ("ATTNJIT_FORBID_COMPILES", "ATTNJIT_FORBID_COMPILE"),
                        ("attnjit_nvrtc", "ATTNJIT_NVRTC")):
        said, problems = examined(folder, **{name: "1"})
        assert f"nothing reads {name}" in problems and meant in str(said["problems"]), problems
    assert "nothing reads" not in examined(folder, ATTNJIT_TEST_DEVICE="x", MY_ATTNJIT_TRUST="x")[1]
    for value, forbids in (("1", True), ("yes", True), ("TRUE", True), ("", False), ("0", False),
                           ("false", False), ("No", False), ("off", False)):
        said, _ = examined(folder, ATTNJIT_FORBID_COMPILE=value)
        assert said["compiling_forbidden"] == forbids, value
    for given in ({"ATTNJIT_CACHE_DIR": ""}, {"ATTNJIT_CACHE_DIR": ":"}, {"ATTNJIT_CACHE_DIR": "/a::/b"},
                  {"ATTNJIT_CACHE_DIR": "", "XDG_CACHE_HOME": "/x"},
                  {"ATTNJIT_CACHE_DIR": "", "HOME": "", "XDG_CACHE_HOME": ""}):
        said, _ = examined(folder, **given)
        layers = [one["path"] for one in said["machine"]["cache"]["layers"]]
        environment = {**os.environ, "HOME": str(folder), **given}
        place = subprocess.run([sys.executable, "-c", "from attnjit.integrations import _environment as"
                                " one; print(one.cache_place())"], env=environment, check=True,
                               capture_output=True, text=True).stdout.strip()
        assert place == (":".join(layers) or "memory alone"), (given, place, layers)


def unwritable(folder):
    """A cache that cannot be made is no cache."""
    closed = folder / "closed"
    closed.mkdir()
    closed.chmod(0o555)
    folder.chmod(0o755)
    other = {"user": 65534, "group": 65534, "extra_groups": []} if os.geteuid() == 0 else {}
    for place, cannot in ((closed / "a/b", True), ("/tmp/attnjit-doctor-none", False)):
        done = subprocess.run([command_path(), "doctor", "--json"], capture_output=True, text=True, check=False,
                              env={"ATTNJIT_CACHE_DIR": str(place)}, cwd="/tmp", **other)
        (layer,) = json.loads(done.stdout)["cache"]["layers"]
        assert layer["usable"] != cannot and ("Permission denied" in layer["reason"]) == cannot, layer


def mistakes(folder):
    for arguments, text in ((("config.json",), "--arch"), (("missing", "--arch", "sm_90a"), "missing"),
                            (("config.json", "--arch", "sm_90a", "--batch-invariant", "4096,8192"), "3 numbers")):
        done = attnjit(folder, "doctor", "--for", "vllm", *arguments)
        if "--arch" not in arguments and done.returncode in (0, 4):
            continue  # the GPU at hand says it
        assert done.returncode == 2 and text in done.stderr and not done.stdout, done


def main():
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        versions(folder)
        sglang_versions(folder)
        kernels(folder)
        mistakes(folder)
        variables(folder)
        forbidden(folder)
        unwritable(folder)


if __name__ == "__main__":
    main()
