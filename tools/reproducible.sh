#!/usr/bin/env bash
# Builds one architecture twice, each time from nothing and in another folder, and compares the binaries:
# tools/reproducible.sh arm64|amd64. Fails where one byte differs.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
arch=${1:-arm64}
cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}
mkdir -p "$cache"
work=$(mktemp -d "$cache/reproducible.XXXXXX")
trap 'rm -rf "$work"' EXIT
for run in first second-with-a-longer-name; do
  # Another place for the sources too: where they lay must not be in the binary.
  mkdir -p "$work/$run"
  git archive --prefix="$run/" HEAD | tar -x -C "$work"
  SLICE_HEALER_COMMIT=$(git rev-parse --short=12 HEAD) CARGO_TARGET_DIR="$work/$run-target" \
    "$work/$run/tools/build.sh" "$arch" >"$work/$run.path"
  sha256sum "$(cat "$work/$run.path")" | sed "s|$work/||"
done
cmp "$(cat "$work/first.path")" "$(cat "$work/second-with-a-longer-name.path")"
echo "reproducible: the two binaries are equal"
