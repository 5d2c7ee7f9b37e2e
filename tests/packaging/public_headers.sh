#!/usr/bin/env bash
# public_headers.sh FOLDER: no CUDA header and no third-party type in the public API.
set -euo pipefail
if grep -nE '#include *[<"](cuda|nvrtc|fmt/|nlohmann/|spdlog/|CLI/|openssl/|zstd)' "$1"/*.h; then
  echo "a public header includes one that is not the standard library's or attnjit's"; exit 1
fi
