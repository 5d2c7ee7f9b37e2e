#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Packs SGLang 0.5.17 for a GPU machine that has no network, of files of PyPI's wheels alone.

    pack_sglang.py OUT [--wheel attnjit.whl] [--python PYTHON] [--only attnjit]
    source OUT/env.sh OUT && python3 run_sglang.py RESULTS --smoke

The machine has Python 3.12, torch 2.11 of CUDA 13 with its companions, nvcc, and one GPU of sm_90;
requirements-sglang.txt pins what it lacks. OUT/part1 gets FlashAttention-3, OUT/part2 the rest;
each can be carried and unpacked by itself. Of the libraries the images of other GPUs are zeroed,
and of FlashAttention-3 those, too, that shapes.py's models do not ask for: a model with another
head, a softcap with other heads than 256, or numbers of fp16 needs an entry in _FA3. PYTHON is a
3.12 with torch 2.11: with it nvcc compiles here what SGLang would compile at its first start on the
machine, where the rest is compiled.
"""
import argparse
import io
import json
import multiprocessing
import os
import pathlib
import re
import struct
import subprocess
import sys
import tarfile
import zipfile

_HERE = pathlib.Path(__file__).resolve().parent
_MIB = 1 << 20
_PLATFORMS = [f"--platform={name}_x86_64" for name in (
    "manylinux1", "manylinux2014", "linux",
    *(f"manylinux_2_{n}" for n in (5, 12, 17, 24, 26, 27, 28, 31, 34, 35)))]

#: Of FlashAttention-3: depths of K and of V, numbers, and with a softcap or without.
_FA3 = {*((depth, depth, numbers, False) for depth in (64, 128, 256)
          for numbers in (b"bfloat16_t", b"float_e4m3_t")),
        (256, 256, b"bfloat16_t", True), (256, 256, b"float_e4m3_t", True),
        # of MLA, prompts and decodes
        (192, 128, b"bfloat16_t", False), (64, 512, b"bfloat16_t", False)}
_MAINLOOP = re.compile(
    rb"CollectiveMainloopFwdSm90<\d+, cute::tuple<.*?> >, cute::tuple<cute::C<\d+>, cute::C<\d+>, "
    rb"cute::C<(\d+)> >, (\d+), cutlass::(\w+), float, cutlass::arch::Sm90, \w+, \w+, (true|false)")

#: What one engine on one H200 does without.
_LEAVE = re.compile(
    r".*\.dist-info/RECORD|[^/]+\.data/scripts/.*|sgl_kernel/(sm100/|infllm_ops|testing/).*"
    r"|sglang/(test|benchmark|multimodal_gen|eval|lang/test)/.*"
    r"|sglang/srt/(grpc|server|multimodal)/_core\..*"
    r"|.*/configs/.*device_name=(?!NVIDIA_H200).*").fullmatch

#: SGLang imports these names of FlashInfer, which is not carried, and calls none of them.
_FLASHINFER = {"__init__": "bmm_fp8", "prefill": "cudnn_batch_prefill_with_kv_cache",
               "sampling": "min_p_sampling_from_probs = top_k_top_p_sampling_from_probs"}
_STAND_IN = """\
def _missing(*_, **__):
    raise NotImplementedError("FlashInfer is not packed")


{} = _missing
"""

_BF16 = "bfloat16"  # of torch
#: Modules below sglang.kernels.ops that compile kernels, the function, and its arguments: what the
#: models of shapes.py start with, on sm_90.
_KERNELS = [
    ("activation.activation", "activation_module", _BF16),
    *(("attention.clamp_position", "_jit_clamp_position_module", numbers)
      for numbers in ("int64", "int32")),
    *(("attention.rope", "_jit_fused_rope_module", *which, _BF16, _BF16)
      for which in ((True, 64), (True, 128), (True, 256), (False, 64))),
    ("attention.rope", "_jit_rotary_embedding_module"),
    *(("kvcache.kvcache", "_jit_kvcache_module", row, row)  # bytes of a row of K and of V
      for row in (128, 256, 512, 1024, 2048, 4096)),
    *(("kvcache.set_mla_kv_buffer", "set_mla_kv_buffer_module", *rows, True)
      for rows in ((1024, 128), (512, 64))),
    ("attention.concat_mla", "_jit_concat_mla_k_module"),
    ("attention.concat_mla", "_jit_concat_mla_absorb_q_module"),
    ("moe.moe_align", "_jit_moe_align_module", "int32"),
    ("moe.moe_fused_gate", "_jit_moe_fused_gate_module"),
    ("moe.moe_topk_sum", "_jit_topk_sum_module"),
    ("attention.dsv4.moe", "_jit_silu_and_mul_clamp_module", _BF16),
    ("attention.dsv4.moe", "_jit_mask_topk_module"),
    ("layernorm.norm", "_jit_qknorm_module", 128, _BF16),
    ("speculative.ngram_corpus", "get_ngram_corpus_cls"),
]
_COMPILE = """\
import importlib, json, sys
import torch
from sglang.kernels.jit.utils import override_jit_cuda_arch
for module, function, *given in json.loads(sys.argv[1]):
    given = [getattr(torch, one) if isinstance(one, str) else one for one in given]
    print("compiling", module, function, *given, flush=True)
    with override_jit_cuda_arch(9, 0):
        getattr(importlib.import_module(f"sglang.kernels.ops.{module}"), function)(*given)
"""

_ENV = """\
# source env.sh [PARTS [SITE]]: unpacks PARTS/part* to SITE (/tmp/sglang-site); Python looks there.
PARTS=${1:-${SGLANG_PARTS:?the folder of part1 and part2}} SITE=${2:-/tmp/sglang-site}
mkdir -p "$SITE"
for archive in "$PARTS"/part*/*.tar.xz; do
  (
    name=$(basename "$archive" .tar.xz) sum=$(sha256sum < "$archive")
    [ "$(cat "$SITE/$name.done" 2> /dev/null)" = "$sum" ] && exit
    rm -f "$SITE/$name.done"
    [ "$name" != attnjit ] || rm -rf "$SITE"/site/attnjit*
    python3 -m tarfile -e "$archive" "$SITE" && echo "$sum" > "$SITE/$name.done"
  ) &
done
wait
for archive in "$PARTS"/part*/*.tar.xz; do
  [ -e "$SITE/$(basename "$archive" .tar.xz).done" ] || return 1
done
export PYTHONPATH=$SITE/site PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 \\
  TOKENIZERS_PARALLELISM=false TVM_FFI_CACHE_DIR=$SITE/kernels HF_HUB_OFFLINE=1 \\
  SGLANG_IS_FLASHINFER_AVAILABLE=false GLOO_SOCKET_IFNAME=lo
"""


def download(pins, cache):
    """A wheel for each NAME==VERSION, of the cache or of PyPI."""
    def plain(text):
        return re.sub(r"[-_.]+", "-", text).lower()

    def found():
        of = {tuple(map(plain, path.name.split("-")[:2])): path for path in cache.glob("*.whl")}
        return {pin: of.get(tuple(map(plain, pin.split("==")))) for pin in pins}

    missing = [pin for pin, path in found().items() if path is None]
    if missing:
        print("downloading", *missing, flush=True)
        subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--no-deps",
                        "--only-binary=:all:", "--python-version=3.12", "--implementation=cp",
                        *_PLATFORMS, "-d", cache, *missing], check=True)
    return list(found().values())


def images(elf):
    """(offset, size, is it sm_90's) of each image in an ELF's .nv_fatbin."""
    table, = struct.unpack_from("<Q", elf, 0x28)
    count, names = struct.unpack_from("<HH", elf, 0x3C)
    heads = [struct.unpack_from("<IIQQQQIIQQ", elf, table + 64 * i) for i in range(count)]
    wanted = [head for head in heads if elf.startswith(b".nv_fatbin\0", heads[names][4] + head[0])]
    for *_, at, size, _, _, _, _ in wanted:
        end = at + size
        while at + 16 <= end:
            magic, _, header, length = struct.unpack_from("<IHHQ", elf, at)
            if magic != 0xBA55ED50:
                at += 8
                continue
            entry, at = at + header, at + header + length
            while entry < at:
                kind, _, head, room, _, _, _, arch = struct.unpack_from("<HHIQIIII", elf, entry)
                if kind not in (1, 2) or not 64 <= head <= 128:  # PTX and cubins
                    raise ValueError(f"an image of kind {kind} with a header of {head} bytes")
                yield entry + head, room, kind == 2 and arch == 90
                entry += head + room


def is_wanted(cubin):
    """Whether an image of FlashAttention-3 has what _FA3 asks for, or helps all."""
    if not cubin.startswith(b"\x7fELF"):  # NOTE: zstd finds fault with what pads the image
        cubin = subprocess.run(["zstd", "-dcq"], input=cubin, capture_output=True).stdout
        if not cubin.startswith(b"\x7fELF"):
            raise ValueError("an image that zstd does not unpack")
    names = set(re.findall(rb"_ZN7cutlass13device_kernel\w+", cubin))
    if not any(b"CollectiveMainloop" in name for name in names):
        return True
    plain = subprocess.run(["c++filt"], input=b"\n".join(names), capture_output=True, check=True)
    return any((int(deep), int(values), numbers, softcap == b"true") in _FA3
               for deep, values, numbers, softcap in _MAINLOOP.findall(plain.stdout))


def stripped(elf, wanted):
    """The library, with zeros for each image but those of sm_90 that are wanted."""
    made, kept, all_ = bytearray(elf), 0, 0
    for at, room, ours in images(elf):
        ours = ours and wanted(elf[at:at + room])
        kept, all_ = kept + ours, all_ + 1
        if not ours:
            made[at:at + room] = bytes(room)
    return bytes(made), f"{kept} of {all_} images"


def is_fa3(name):
    return name == "sgl_kernel/flash_ops.abi3.so"


def is_rest(name):
    return not (name.endswith("/") or is_fa3(name) or _LEAVE(name))


def files(job):
    """(name, bytes, mode) of all that an archive holds."""
    _, wheels, chosen, more = job
    for name, data in more:
        yield name, data, 0o644
    for wheel in wheels:
        with zipfile.ZipFile(wheel) as content:
            for name in sorted(filter(chosen, content.namelist())):
                mode = content.getinfo(name).external_attr >> 16 & 0o777
                yield f"site/{name}", content.read(name), mode or 0o644


def pack(job):
    """Writes an archive, and says what is in it."""
    target = job[0]
    target.parent.mkdir(parents=True, exist_ok=True)
    said = []
    with tarfile.open(target, "w:xz", preset=9) as archive:
        for name, data, mode in files(job):
            if name.startswith("site/sgl_kernel/") and name.endswith(".so"):
                data, what = stripped(data, is_wanted if "flash_ops" in name else lambda _: True)
                said.append(f"{name}: {what}")
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(data), mode
            archive.addfile(entry, io.BytesIO(data))
    return "\n".join([*said, f"{target}: {target.stat().st_size / _MIB:.1f} MiB"])


def compiled(given, archive):
    """(name, bytes) of SGLang's kernels, which --python's Python compiles with what was packed."""
    folder = given.out / "compile"
    subprocess.run([sys.executable, "-m", "tarfile", "-e", archive, folder], check=True)
    subprocess.run([given.python, "-c", _COMPILE, json.dumps(_KERNELS)], check=True, env={
        **os.environ, "PYTHONPATH": str((folder / "site").resolve()),
        "CXX": "c++ -include cstddef",  # NOTE: sources of the n-grams name size_t, not its header
        "TVM_FFI_CACHE_DIR": str((folder / "kernels").resolve())})
    return [(f"kernels/{path.parent.name}/{path.name}", path.read_bytes())
            for path in sorted(folder.glob("kernels/*/*.so"))]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--wheel", type=pathlib.Path, help="attnjit's")
    parser.add_argument("--python", help="compiles SGLang's kernels: with torch 2.11, beside nvcc")
    parser.add_argument("--only", default="fa3,site,kernels,attnjit", help="which archives")
    given = parser.parse_args()
    only, cache = given.only.split(","), given.out / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    lines = (_HERE / "requirements-sglang.txt").read_text(encoding="utf-8").splitlines()
    wheels = download([line for line in lines if line and not line.startswith("#")], cache)
    (given.out / "env.sh").write_text(_ENV, encoding="utf-8")

    def archive(name):
        return given.out / f"part{1 if name == 'fa3' else 2}" / f"{name}.tar.xz"

    stand_ins = [(f"site/flashinfer/{name}.py", _STAND_IN.format(names).encode())
                 for name, names in _FLASHINFER.items()]
    jobs = [(archive("site"), wheels, is_rest, stand_ins), (archive("fa3"), wheels, is_fa3, [])]
    if given.wheel:
        jobs.append((archive("attnjit"), [given.wheel], is_rest, []))
    with multiprocessing.Pool(2) as pool:
        for line in pool.imap(pack, [job for job in jobs if job[0].name.split(".")[0] in only]):
            print(line, flush=True)
    if given.python and "kernels" in only:
        print(pack((archive("kernels"), [], None, compiled(given, archive("site")))))


if __name__ == "__main__":
    main()
