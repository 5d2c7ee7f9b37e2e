#!/usr/bin/env bash
# aarch64.sh WHEEL COMMAND: the wheel for 64-bit Arm, run in qemu beside NVRTC's wheel for it: plans, sources and the
# emulator's arithmetic are those of this machine's COMMAND, kernels compile and are found in the cache, and Python calls
# the C ABI. scripts/cross must have run.
set -euo pipefail
wheel=$(realpath "$1") native=$(realpath "$2")
cd "$(dirname "$0")/../.."
root=$PWD/build/aarch64-root
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
platforms=()
for glibc in 2_35 2_34 2_31 2_28 2_17; do platforms+=(--platform "manylinux_${glibc}_aarch64"); done
# pip takes the wheel, and NVRTC's for the same machine, as it would there.
python3 -m pip --disable-pip-version-check install --quiet --only-binary=:all: --python-version 3.11 \
  "${platforms[@]}" --target "$work/site" "$wheel"
export HOME=$work PYTHONPATH=$work/site ATTNJIT_CACHE_DIR=$work/cache
unset ATTNJIT_NVRTC CUDA_HOME CUDA_PATH LD_LIBRARY_PATH
arm() { qemu-aarch64-static -L "$root" "$@"; }
attnjit() { ATTNJIT_NVRTC=$(ls "$work"/site/nvidia/cu13/lib/libnvrtc.so.1?) arm "$work/site/attnjit/attnjit" "$@"; }
same() { # WHAT ARGUMENTS...: both commands write the same
  attnjit "${@:2}" >"$work/arm" && "$native" "${@:2}" >"$work/native"
  cmp "$work/arm" "$work/native" || { echo "aarch64: $1 differ" >&2; exit 1; }
}
attnjit --version
for arch in sm_90a sm_100a; do
  flags=(--arch "$arch" --num-q-heads 8 --group 4 --qk-depth 128 --mask causal)
  same plans plan "${flags[@]}" --json
  same sources generate "${flags[@]}"
  attnjit compile "${flags[@]}" --json >"$work/compiled"
  grep -q '"outcome": *"compiled"' "$work/compiled" || { cat "$work/compiled"; exit 1; }
  attnjit compile "${flags[@]}" --json | grep -q '"outcome": *"disk"'
  attnjit verify "${flags[@]}" --backend emulator --q-len 40 --kv-len 70 --json >"$work/verified"
done
attnjit cache verify
arm "$root/usr/bin/python3.11" tests/python/abi_test.py include/attnjit/attnjit.h
cat >"$work/first.py" <<'END'
import platform, re, sys, attnjit
readme = open(sys.argv[1], encoding="utf-8").read()
exec(re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1))
assert platform.machine() == "aarch64"
print("python", platform.machine(), attnjit.__version__, image["outcome"], len(image["cubin"]), "bytes")
END
arm "$root/usr/bin/python3.11" "$work/first.py" python/README.md
