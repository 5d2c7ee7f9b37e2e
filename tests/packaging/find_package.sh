#!/usr/bin/env bash
# find_package.sh BUILD EXAMPLE: installs BUILD into a private prefix, builds EXAMPLE against it, runs it.
set -euo pipefail
build=$1 example=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
DESTDIR='' cmake --install "$build" --prefix "$work/prefix" >/dev/null
cmake -G Ninja -S "$example" -B "$work/example" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Debug >/dev/null
cmake --build "$work/example" >/dev/null
export XDG_CACHE_HOME="$work/cache" HOME="$work"
unset ATTNJIT_CACHE_DIR
for program in embed embed_static embed_c; do
  rc=0; "$work/example/$program" >"$work/out" 2>"$work/err" || rc=$?
  # 4 is "the environment lacks NVRTC": planning has to have worked all the same.
  [[ $rc == 0 || $rc == 4 ]] || { echo "$program exited with $rc"; cat "$work/out" "$work/err"; exit 1; }
  grep -q '^key [0-9a-f]\{64\}$' "$work/out" || { echo "$program printed no key"; cat "$work/out" "$work/err"; exit 1; }
done
"$work/prefix/bin/attnjit" --version
