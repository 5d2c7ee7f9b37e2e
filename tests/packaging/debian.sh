#!/usr/bin/env bash
# debian.sh BUILD EXAMPLES: makes Debian's packages of a build with CPack, unpacks them into a private root, runs the
# command there, and builds an example against them.
set -euo pipefail
build=$(realpath "$1") examples=$(realpath "$2")
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
(cd "$work" && cpack --config "$build/CPackConfig.cmake" -G DEB >"$work/log") || { cat "$work/log"; exit 1; }
version=$(sed -n 's/^Version: //p' "$build/attnjit.pc")
arch=$(dpkg --print-architecture)
for package in attnjit attnjit-dev; do
  dpkg-deb -x "$work/${package}_${version}_$arch.deb" "$work/root"
done
field() { dpkg-deb -f "$work/$1_${version}_$arch.deb" "$2"; }
for library in libc6 libfmt9 libssl3; do
  grep -q "$library" <<<"$(field attnjit Depends)" || { echo "attnjit does not depend on $library"; exit 1; }
done
grep -q "attnjit (= $version)" <<<"$(field attnjit-dev Depends)" || { echo "attnjit-dev fits any attnjit"; exit 1; }
packed=$(dpkg-deb -c "$work/attnjit_${version}_$arch.deb")
for file in bin/attnjit share/man/man1/attnjit.1 share/bash-completion/completions/attnjit \
            share/zsh/site-functions/_attnjit share/fish/vendor_completions.d/attnjit.fish share/doc/attnjit/copyright; do
  [[ -s $work/root/usr/$file ]] || { echo "attnjit has no /usr/$file"; exit 1; }
  grep -q "usr/$file" <<<"$packed" || { echo "/usr/$file is not of attnjit"; exit 1; }
done
export HOME="$work" XDG_CACHE_HOME="$work/cache"
unset ATTNJIT_CACHE_DIR
[[ $("$work/root/usr/bin/attnjit" --version) == "attnjit $version" ]]
"$work/root/usr/bin/attnjit" plan --arch sm_90a --num-q-heads 8 --qk-depth 128 >/dev/null
cmake -G Ninja -S "$examples/embed" -B "$work/embed" -DCMAKE_PREFIX_PATH="$work/root/usr" -DCMAKE_BUILD_TYPE=Debug >/dev/null
cmake --build "$work/embed" --target embed >/dev/null
rc=0; CUDA_VISIBLE_DEVICES='' "$work/embed/embed" 2>"$work/err" || rc=$?
[[ $rc == 4 ]] && grep -qE 'CUDA|GPU' "$work/err" || { echo "embed: $rc"; cat "$work/err"; exit 1; }
