#!/usr/bin/env bash
# Builds the module for arm64 as the Dockerfile does and starts it under qemu-user:
#   tests/qemu.sh        quick: one build without optimisation, for CI
#   tests/qemu.sh dist   what images carry, and a second build with the lab; minutes
# Also assembles the image and looks into it. Sizes are printed; what differs from the expected ends with 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
qemu=${QEMU_AARCH64:-qemu-aarch64}
SLICE_HEALER_COMMIT=${SLICE_HEALER_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
export SLICE_HEALER_COMMIT

if [ "${1:-}" = dist ]; then
  built=$(tools/build.sh arm64)
  size=()
else
  # With the lab, so that one build serves for everything.
  built=$(PROFILE=dev tools/build.sh arm64 lab)
  size=(--any-size)
fi
# The second build would take its place.
cp "$built" "$work/slice-healer"
echo "binary: $(stat -c %s "$work/slice-healer") bytes"

# Nothing of this machine may be in what is shipped.
if grep -qaF -e "$PWD/" -e "$HOME/.cargo" "$work/slice-healer"; then
  echo "FAILED: a path of this machine is in the binary" >&2
  exit 1
fi
run() { timeout 300 "$qemu" "$work/slice-healer" "$@"; }
# A command, its expected exit code, and what its output must hold.
expect() {
  local code=$1 text=$2 got=0
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
  if [ "$got" != "$code" ] || ! grep -qE -- "$text" "$work/out"; then
    echo "FAILED: $* ended with $got (expected $code) and printed no line like: $text" >&2
    tail -n 40 "$work/out" "$work/err" >&2
    exit 1
  fi
  echo "ok: $* -> $got"
}
objects=tests/cases/01-edited-address/objects.yaml
expect 0 "^slice-healer [0-9.]+ \(commit $SLICE_HEALER_COMMIT, aarch64-linux-musl\)$" run --version
expect 1 'WrongAddress' run inspect -f "$objects" --at 2026-11-30T10:00:00Z
# No cluster is here, and doctor has to say so.
export KUBECONFIG=$work/none SLICE_HEALER__STORE__DIRECTORY=$work SLICE_HEALER__SERVE__PORT=9
expect 1 '"schema": *"slice-healer/doctor/v1"' run doctor -o json
expect 1 '' run health

tools/sbom.py aarch64-unknown-linux-musl >"$work/sbom.json"
for n in 1 2; do
  tools/image.py "${size[@]}" arm64 "$work/slice-healer" "$work/sbom.json" "$work/image$n.tar"
done
cmp "$work/image1.tar" "$work/image2.tar"
python3 tests/image.py "$work/image1.tar" "$work/slice-healer"

if [ "${1:-}" = dist ]; then
  cp "$(tools/build.sh arm64 lab)" "$work/slice-healer"
  echo "binary with the lab: $(stat -c %s "$work/slice-healer") bytes"
  expect 0 '' run lab --list
  expect 0 '.' run lab --once
  tail -n 3 "$work/out"
else
  expect 0 'redeploy-stale-slice' run lab --list
fi
