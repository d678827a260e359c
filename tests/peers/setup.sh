#!/usr/bin/env bash
# Installs the foreign SDKs that the emulated edgeHub is judged by (azure-iot-device of PyPI and of npm, the crate
# azure_iot_sdk) into the cache; does nothing where they are there in the versions asked for. Called by tests/setup.sh;
# by hand: `tests/peers/setup.sh`. Debian packages (OpenSSL's headers, pkg-config, node) come from tests/setup.sh.
# Never writes into the clone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}/peers
mkdir -p "$cache"

# True when what was installed last was made from these files.
fresh() {
  local stamp=$cache/$1.stamp
  shift
  [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(sha256sum "$@")" ]
}

# Installs one peer: its name, the command, the files that decide what is installed.
install() {
  local name=$1 command=$2 begun=$SECONDS
  shift 2
  fresh "$name" "$@" && return
  "$command" >"$cache/$name.log" 2>&1 || { tail -n 30 "$cache/$name.log" >&2; exit 1; }
  sha256sum "$@" >"$cache/$name.stamp"
  echo "setup: peer $name installed in $((SECONDS - begun)) s"
}

python() {
  rm -rf "$cache/python"
  python3 -m venv "$cache/python"
  "$cache/python/bin/pip" -q --disable-pip-version-check install -r python/requirements.txt
}

node() {
  rm -rf "$cache/node"
  mkdir -p "$cache/node"
  cp node/package.json node/package-lock.json "$cache/node/"
  npm ci --prefix "$cache/node" --no-audit --no-fund --ignore-scripts
}

crate() {
  CARGO_TARGET_DIR=$cache/azure_iot_sdk cargo build --locked --manifest-path azure_iot_sdk/Cargo.toml
}

install python python python/requirements.txt
install node node node/package.json node/package-lock.json
install azure_iot_sdk crate azure_iot_sdk/Cargo.toml azure_iot_sdk/Cargo.lock azure_iot_sdk/src/main.rs
