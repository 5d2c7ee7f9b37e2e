#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# proofs.sh PROOFS.py BUILD: a proof that tests/proofs.py packed runs where it was unpacked, and one
# that fails, or does not end in its time, fails the run.
set -euo pipefail
proofs=$1 build=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
mkdir there
"$proofs" pack packed.txz "$build" -R 'sm90\.upcasting_orders'
tar -C there -xf packed.txz
run=("$proofs" run there --logs logs --orders 5)
said=$("${run[@]}")
[[ $said == *"2 passed, 0 failed, 0 skipped"* || $said == *"0 passed, 0 failed, 2 skipped"* ]] || { echo "$said"; exit 1; }
expect_failure() {
  if said=$("${run[@]}" "${@:2}"); then echo "passed: $said"; exit 1; fi
  [[ $said == *"$1"* ]] || { echo "$said"; exit 1; }
}
printf '#!/bin/sh\nexit 3\n' > there/test_sm90
expect_failure "2 failed"
printf '#!/bin/sh\nexec sleep 60\n' > there/test_sm90
expect_failure "2 not ended" --seconds 1
