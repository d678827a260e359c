#!/usr/bin/env bash
# Builds what our journal reader is held against (libsystemd, through the crate systemd) in the cache; does nothing
# where it is there. Called by tests/setup.sh, which brings libsystemd's headers. Never writes into the clone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}/oracles
mkdir -p "$cache"
inputs=(systemd/Cargo.toml systemd/Cargo.lock systemd/src/main.rs)

[ -f "$cache/systemd.stamp" ] && [ "$(cat "$cache/systemd.stamp")" = "$(sha256sum "${inputs[@]}")" ] && exit
begun=$SECONDS
CARGO_TARGET_DIR=$cache/systemd cargo build --quiet --locked --manifest-path systemd/Cargo.toml >"$cache/systemd.log" 2>&1 ||
  { tail -n 30 "$cache/systemd.log" >&2; exit 1; }
sha256sum "${inputs[@]}" >"$cache/systemd.stamp"
echo "setup: oracle systemd built in $((SECONDS - begun)) s"
