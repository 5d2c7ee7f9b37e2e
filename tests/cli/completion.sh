#!/usr/bin/env bash
# completion.sh ATTNJIT: completion and the man page have every command and flag that --help has.
set -euo pipefail
attnjit=$1
work=$(mktemp -d); trap 'rm -rf "$work"' EXIT
fail() { echo "$1"; exit 1; }

# What bash completes after the words of a command line.
bash --norc -n <("$attnjit" completion bash)
eval "$("$attnjit" completion bash)"
complete_after() {
  COMP_WORDS=(attnjit "$@" ""); COMP_CWORD=$(($# + 1)); COMPREPLY=()
  _attnjit || true  # compgen fails where it finds nothing
  printf '%s\n' "${COMPREPLY[@]}"
}
complete_after > "$work/words"
for command in plan generate compile prewarm verify reference emulate bench tune cache manifest doctor completion man; do
  grep -qx "$command" "$work/words" || fail "bash does not complete $command"
done
complete_after cache > "$work/words"
grep -qx gc "$work/words" || fail "bash does not complete cache gc"
complete_after plan --spec file.json > "$work/words"
grep -qx -- --qk-depth "$work/words" || fail "bash does not complete the flags of plan"

# Values of the flags that have a few; of the others files.
for values in 'plan --arch:sm_90a sm_100a sm_103a' 'verify --backend:auto gpu emulator' \
    'plan --mask:null causal' 'compile --qkv-dtype:bf16 fp16 e4m3' 'prewarm --arch:native sm_100a' \
    'verify --input:normal rising stray' 'tune --model:sm_90a' 'verify --model:isa silicon' \
    'plan --mla:none prefill decode' 'plan --score-mod:identity alibi softcap' 'completion:bash zsh fish'; do
  # shellcheck disable=SC2086
  complete_after ${values%%:*} > "$work/words"
  for value in ${values#*:}; do
    grep -qx -- "$value" "$work/words" || fail "bash does not complete ${values%%:*} $value"
  done
  if grep -q -- '^--' "$work/words" && [[ ${values%%:*} == *--* ]]; then
    fail "bash completes flags after ${values%%:*}"
  fi
done
complete_after compile --ptx > "$work/words"
if grep -q . "$work/words"; then fail "bash completes more than files after compile --ptx"; fi
for shell in zsh fish; do
  "$attnjit" completion $shell > "$work/$shell"
  if command -v $shell >/dev/null; then $shell -n "$work/$shell"; fi
done
# An autoloaded file completes at its first call, too.
tail -1 "$work/zsh" | grep -qF 'then _attnjit "$@"' || fail "zsh's first completion does nothing"
grep -qF -- ":value:(auto gpu emulator)" "$work/zsh" || fail "zsh does not complete --backend auto"
grep -qF -- "-xa 'auto gpu emulator'" "$work/fish" || fail "fish does not complete --backend auto"
"$attnjit" man > "$work/man"
head -1 "$work/man" | grep -q '^\.TH ATTNJIT 1 ' || fail "no title in the man page"
for command in plan compile manifest "cache gc"; do
  # shellcheck disable=SC2086
  "$attnjit" $command --help | grep -oE '^ +(-[a-z],)?--[a-z-]+' | grep -oE -- '--[a-z-]+' > "$work/flags"
  [[ -s "$work/flags" ]] || fail "$command --help shows no flags"
  # shellcheck disable=SC2086
  complete_after $command > "$work/words"
  while read -r flag; do
    grep -qx -- "$flag" "$work/words" || fail "bash does not complete $command $flag"
    grep -qF -- "-l ${flag#--} " "$work/fish" || fail "fish does not complete $command $flag"
    grep -qF -- "'$flag[" "$work/zsh" || fail "zsh does not complete $command $flag"
    grep -qF -- "${flag//-/\\-}" "$work/man" || fail "the man page lacks $command $flag"
  done < "$work/flags"
done
rc=0; "$attnjit" completion csh >"$work/out" 2>"$work/err" || rc=$?
[[ $rc == 2 && ! -s "$work/out" ]] || fail "completion csh: exit code $rc"

# A bug report has the machine, and not the user's folder.
HOME=$work/somebody ATTNJIT_CACHE_DIR=$work/somebody/cache "$attnjit" doctor --collect > "$work/report" || [[ $? == 4 ]]
python3 - "$work/report" <<'P'
import json, sys
report = json.load(open(sys.argv[1]))
assert report["system"]["glibc"] and report["system"]["kernel"] and int(report["system"]["cores"]) > 0
assert report["environment"]["ATTNJIT_CACHE_DIR"] == "~/cache", report["environment"]
assert "somebody" not in json.dumps(report)
P
