#!/usr/bin/env bash
# shared_library.sh LIBATTNJIT: it has a SONAME, links neither NVRTC nor libcuda, and exports only attnjit's names.
set -euo pipefail
library=$1
dynamic=$(readelf -d "$library")
grep -q 'SONAME.*libattnjit\.so\.[0-9]' <<<"$dynamic" || { echo "no versioned SONAME"; exit 1; }
if grep -E 'NEEDED.*(cuda|nvrtc)' <<<"$dynamic"; then echo "links a CUDA library"; exit 1; fi
# Weak symbols are the standard library's templates; a strong one that is not ours is a leak.
foreign=$(nm -D --defined-only "$library" | awk '$2 ~ /^[TDBR]$/ {print $3}' | c++filt |
  grep -vE '^(attnjit|(typeinfo|vtable|typeinfo name|guard variable|VTT) for attnjit|__(asan|ubsan|odr_asan|start|stop)|_(init|fini|edata|end)|__bss_start)' || true)
if [[ -n "$foreign" ]]; then echo "exports names that are not attnjit's:"; echo "$foreign" | head -20; exit 1; fi
api=$(nm -D --defined-only "$library" | c++filt)
grep -q 'attnjit::to_string' <<<"$api" || { echo "exports no API"; exit 1; }
