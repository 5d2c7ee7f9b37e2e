#!/usr/bin/env bash
# pythons.sh WHEEL: installs the wheel with pip, and compiles the first kernel of python/README.md, with the oldest and
# the newest Python that are served: 3.9 of Debian 11 and 3.14 of Debian's testing suite, unpacked under build/.
set -euo pipefail
wheel=$(realpath "$1")
cd "$(dirname "$0")/../.."
wheels=build/pythons/wheels
mkdir -p "$wheels"
scripts/debian-root build/pythons/3.9 amd64 bullseye python3 python3-pip
scripts/debian-root build/pythons/3.14 amd64 forky python3 python3-pip dash libstdc++6
ls "$wheels"/nvidia_cuda_nvrtc-*.whl >/dev/null 2>&1 || python3 -m pip download --quiet --no-deps --only-binary=:all: \
  --dest "$wheels" "$(sed -n 's/^dependencies = \["\(nvidia-cuda-nvrtc.*\)"\]$/\1/p' pyproject.toml)"
rm -f "$wheels"/attnjit-*
cp "$wheel" "$wheels"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cat >"$work/first.py" <<'END'
import re, sys, attnjit, attnjit._abi
readme = open(sys.argv[1], encoding="utf-8").read()
exec(re.search(r"```python\n(.*?)```", readme, re.DOTALL).group(1))
assert image["outcome"] in ("compiled", "disk"), image["outcome"]
print("python", sys.version.split()[0], "attnjit", attnjit.__version__, image["outcome"], len(image["cubin"]), "bytes")
END
cp python/README.md "$work"

# What both do, in a folder with the wheels, the program and the README.
steps='set -e; cd "$1"; export HOME=$1 ATTNJIT_CACHE_DIR=$1/cache PYTHONPATH=$1/site PIP_ROOT_USER_ACTION=ignore
  $2 -m pip --disable-pip-version-check install --quiet --no-index --find-links wheels --target site attnjit
  $2 first.py README.md; $2 -m attnjit --version'

# 3.9: its own libraries, but this machine's C library, since the wheel is for newer ones than that of Debian 11.
cp -r "$wheels" "$work/wheels"
mkdir "$work/libraries"
for name in ffi ssl crypto expat mpdec; do ln -s "$PWD"/build/pythons/3.9/usr/lib/x86_64-linux-gnu/lib$name*.so.* "$work/libraries"; done
LD_LIBRARY_PATH=$work/libraries PYTHONHOME=$PWD/build/pythons/3.9/usr \
  bash -c "$steps" steps "$work" "$PWD/build/pythons/3.9/usr/bin/python3.9"

# 3.14: in its own root.
root=$PWD/build/pythons/3.14
rm -rf "$root/work"
mkdir -p "$root"/{work,proc,dev,tmp,etc/ssl/certs}
cp /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs"  # pip reads it before it knows that it needs no network
cp -r "$wheels" "$work/first.py" "$work/README.md" "$root/work"
user=(); [[ $(id -u) == 0 ]] || user=(--map-root-user)
unshare "${user[@]}" --mount bash -c 'mount --rbind /proc "$1/proc"; mount --rbind /dev "$1/dev"
  exec chroot "$1" /bin/sh -c "$2" steps /work /usr/bin/python3.14' steps "$root" "$steps"
rm -rf "$root/work"
