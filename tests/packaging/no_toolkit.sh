#!/usr/bin/env bash
# What a machine without a CUDA toolkit does: no_toolkit.sh, after a release build. In a mount namespace where no toolkit
# is to be seen it runs the demo, the wheel's first compile, and a sample of kernels with the oldest NVRTC that is
# promised and with the newest that the wheel allows, all from PyPI. Exit code 77: no such namespace can be made.
set -euo pipefail
cd "$(dirname "$0")/../.."
oldest=nvidia-cuda-nvrtc-cu12==12.9.86

if [[ "${1:-}" != --inside ]]; then
  user=(); [[ $(id -u) == 0 ]] || user=(--map-root-user)
  if ! unshare "${user[@]}" --mount true 2>/dev/null; then
    echo "no_toolkit: no mount namespace can be made here, so that a toolkit would be found: NOT RUN" >&2
    exit 77
  fi
  exec unshare "${user[@]}" --mount env -u CUDA_HOME -u CUDA_PATH -u LD_LIBRARY_PATH -u ATTNJIT_NVRTC \
    -u ATTNJIT_NVRTC_POLICY -u ATTNJIT_REMOTE "$0" --inside
fi

shopt -s nullglob
for folder in /usr/local/cuda /usr/local/cuda-* /opt/cuda*; do
  # A link to a folder that is hidden already leads to nothing.
  [[ -d "$folder" && ! -L "$folder" ]] && mount -t tmpfs none "$folder"
done
# Whatever else the dynamic linker knows, such as Debian's.
while read -r library; do
  if [[ -e "$library" ]]; then mount --bind /dev/null "$library"; fi
done < <(/sbin/ldconfig -p | sed -n 's/.*libnvrtc.* => //p')

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
ATTNJIT_CACHE_DIR=$work/demo scripts/demo
scripts/install "$work/prefix"
"$work/prefix/bin/attnjit" --version
python3 -B tests/python/wheel_test.py "$PWD" "$PWD/build/release"

newest=$(sed -n 's/^dependencies = \["\(nvidia-cuda-nvrtc.*\)"\]$/\1/p' pyproject.toml)
for wheel in "$oldest" "$newest"; do
  unpacked=build/nvrtc/$wheel
  if [[ ! -d "$unpacked" ]]; then
    python3 -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$work/wheel" "$wheel"
    python3 -m zipfile -e "$work"/wheel/*.whl "$unpacked"
    rm -r "$work/wheel"
  fi
  libraries=("$unpacked"/nvidia/*/lib/libnvrtc.so.1?)
  for arch in sm_90a sm_100a; do
    echo "no_toolkit: ${libraries[0]}, $arch"
    ATTNJIT_NVRTC=${libraries[0]} ATTNJIT_CACHE_DIR=$work/cache \
      build/release/attnjit prewarm tests/packaging/nvrtc.json --arch "$arch"
  done
done
