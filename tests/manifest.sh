#!/usr/bin/env bash
# Generates the deployment manifest as a user does (iotedgedev genconfig) and holds it against the
# schemas in tests/schemas. Planted errors must be refused. Needs python3 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."
cache="${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}/py/manifest"
if [ ! -x "$cache/bin/iotedgedev" ]; then
  python3 -m venv "$cache"
  "$cache/bin/pip" -q install iotedgedev==3.3.9 jsonschema==4.23.0
fi
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$work/home/.iotedgedev" "$work/solution"
# Its first run asks whether it may phone home; nobody is here to answer.
printf '[DEFAULT]\nfirsttime = no\ncollect_telemetry = no\n' > "$work/home/.iotedgedev/setting.ini"
cp -r deployment.template.json module Dockerfile.* "$work/solution/"
cp .env.template "$work/solution/.env"
for platform in arm64v8 amd64; do
  (cd "$work/solution" && HOME="$work/home" "$cache/bin/iotedgedev" genconfig \
     -f deployment.template.json -P "$platform" >"$work/log" 2>&1) || { cat "$work/log"; exit 1; }
done
"$cache/bin/python" tests/manifest.py "$work/solution/config/deployment.arm64v8.json" arm64v8
"$cache/bin/python" tests/manifest.py "$work/solution/config/deployment.amd64.json" amd64
