#!/usr/bin/env bash
# find_package.sh BUILD EXAMPLES: installs BUILD into a private prefix, builds the examples against it, runs them.
set -euo pipefail
build=$1 examples=$2
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
DESTDIR='' cmake --install "$build" --prefix "$work/prefix" >/dev/null
for example in embed emulate; do
  cmake -G Ninja -S "$examples/$example" -B "$work/$example" -DCMAKE_PREFIX_PATH="$work/prefix" -DCMAKE_BUILD_TYPE=Debug >/dev/null
  cmake --build "$work/$example" >/dev/null
done
export XDG_CACHE_HOME="$work/cache" HOME="$work"
unset ATTNJIT_CACHE_DIR

fail() { echo "$1 (exit code $rc)"; cat "$work/out" "$work/err"; exit 1; }
run() { rc=0; "$@" >"$work/out" 2>"$work/err" || rc=$?; }
# The emulator needs nothing that a machine may lack.
run "$work/emulate/emulate"
[[ $rc == 0 ]] && grep -q 'iota: .* right' "$work/out" && grep -q 'clash: PTX line 22: .*not ordered' "$work/out" ||
  fail "emulate does not find what is right and what is wrong"
for program in embed embed_static embed_c; do
  program=$work/embed/$program
  # On this machine: the answer is right, or the driver, a GPU or NVRTC is missing and named.
  run "$program"
  case $rc in
    0) grep -q 'relative error .*: right' "$work/out" || fail "$program checked nothing" ;;
    4) grep -qE 'NVRTC|CUDA|GPU' "$work/err" || fail "$program does not say what is missing" ;;
    *) fail "$program failed" ;;
  esac
  # Without a GPU that it may use, and without NVRTC.
  run env CUDA_VISIBLE_DEVICES= "$program"
  [[ $rc == 4 ]] && grep -qE 'NVRTC|CUDA|GPU' "$work/err" || fail "$program does not say that there is no GPU"
  run env ATTNJIT_NVRTC="$work/none" XDG_CACHE_HOME="$work/empty" "$program"
  [[ $rc == 4 ]] && grep -q NVRTC "$work/err" || fail "$program does not say that there is no NVRTC"
  run "$program" sm_1
  [[ $rc == 2 ]] || fail "$program takes an architecture that there is not"
done
"$work/prefix/bin/attnjit" --version
for file in man/man1/attnjit.1 bash-completion/completions/attnjit zsh/site-functions/_attnjit fish/vendor_completions.d/attnjit.fish; do
  [[ -s "$work/prefix/share/$file" ]] || fail "share/$file is not installed"
done
# A program with the shared library needs none of the packages that attnjit is built with.
mkdir "$work/shared"
cat > "$work/shared/CMakeLists.txt" <<'CMAKE'
cmake_minimum_required(VERSION 3.25)
project(shared LANGUAGES C)
find_package(attnjit REQUIRED)
add_executable(version version.c)
target_link_libraries(version PRIVATE attnjit::attnjit)
CMAKE
cat > "$work/shared/version.c" <<'C'
#include <attnjit/attnjit.h>
int main(void) { return attnjit_abi_version() == ATTNJIT_ABI_VERSION ? 0 : 1; }
C
disabled=()
for package in fmt spdlog OpenSSL Threads; do disabled+=("-DCMAKE_DISABLE_FIND_PACKAGE_$package=ON"); done
cmake --no-warn-unused-cli -G Ninja -S "$work/shared" -B "$work/shared/build" -DCMAKE_PREFIX_PATH="$work/prefix" "${disabled[@]}" >/dev/null
cmake --build "$work/shared/build" >/dev/null
"$work/shared/build/version"
# The same libraries through pkg-config, where there is one.
if command -v pkg-config >/dev/null; then
  export PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name attnjit.pc)")
  # shellcheck disable=SC2046
  cc "$work/shared/version.c" -o "$work/version" $(pkg-config --cflags --libs attnjit) \
    -Wl,-rpath,"$(pkg-config --variable=libdir attnjit)"
  "$work/version"
  static=$(pkg-config --static --libs attnjit)
  # shellcheck disable=SC2046,SC2086
  cc "$work/shared/version.c" -o "$work/version_static" $(pkg-config --cflags attnjit) ${static/-lattnjit/-l:libattnjit.a}
  "$work/version_static"
  if readelf -d "$work/version_static" | grep libattnjit; then fail "the static program needs libattnjit"; fi
fi
