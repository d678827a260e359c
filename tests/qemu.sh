#!/usr/bin/env bash
# Builds the module for arm64 as the Dockerfile does, starts it under qemu-user, assembles the image and looks into it;
# then a second build with the lab, which plays its story there:
#   tests/qemu.sh        without optimisation, for CI: about a minute where the dependencies are built
#   tests/qemu.sh dist   what images carry; minutes
# Sizes and times are printed; what differs from the expected ends with 1.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
qemu=${QEMU_AARCH64:-qemu-aarch64}
SLICE_HEALER_COMMIT=${SLICE_HEALER_COMMIT:-$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)}
export SLICE_HEALER_COMMIT

if [ "${1:-}" = dist ]; then
  export PROFILE=dist
  size=()
else
  # Nobody debugs it, and it is linked in half the time.
  export PROFILE=dev CARGO_PROFILE_DEV_DEBUG=none
  size=(--any-size)
fi
# Builds with these features; the next build would take the binary's place.
build() {
  local begun=$SECONDS
  cp "$(tools/build.sh arm64 "$@")" "$work/slice-healer"
  echo "binary${1:+ with the $1}: $(stat -c %s "$work/slice-healer") bytes, built in $((SECONDS - begun)) s"
}
run() { timeout 300 "$qemu" "$work/slice-healer" "$@"; }
# The exit code, what it must print, and the command.
expect() {
  local code=$1 text=$2 got=0 begun=$SECONDS
  shift 2
  "$@" >"$work/out" 2>"$work/err" </dev/null || got=$?
  if [ "$got" != "$code" ] || ! grep -qE -- "$text" "$work/out" "$work/err"; then
    echo "FAILED: $* ended with $got (expected $code), or printed no line like: $text" >&2
    tail -n 40 "$work/out" "$work/err" >&2
    exit 1
  fi
  echo "ok: $* -> $got in $((SECONDS - begun)) s"
}

build
# Nothing of this machine may be in what is shipped.
if grep -qaF -e "$PWD/" -e "${CARGO_HOME:-$HOME/.cargo}/" "$work/slice-healer"; then
  echo "FAILED: a path of this machine is in the binary" >&2
  exit 1
fi
objects=tests/cases/01-edited-address/objects.yaml
expect 0 "^slice-healer [0-9.]+ \(commit $SLICE_HEALER_COMMIT, aarch64-linux-musl\)$" run --version
expect 1 'WrongAddress' run inspect -f "$objects" --at 2026-11-30T10:00:00Z
# No cluster is here, and doctor has to say so.
export KUBECONFIG=$work/none SLICE_HEALER__STORE__DIRECTORY=$work SLICE_HEALER__SERVE__PORT=9
expect 1 '"schema": *"slice-healer/doctor/v1"' run doctor -o json
expect 1 "nothing listens on 127.0.0.1:9" run health

tools/sbom.py aarch64-unknown-linux-musl >"$work/sbom.json"
for n in 1 2; do
  tools/image.py "${size[@]}" arm64 "$work/slice-healer" "$work/sbom.json" "$work/image$n.tar"
done
cmp "$work/image1.tar" "$work/image2.tar"
python3 tests/image.py "$work/image1.tar" "$work/slice-healer"

build lab
expect 0 '^redeploy-stale-slice' run lab --list
expect 0 '"outcome": *"healed"' run lab --once -o json
