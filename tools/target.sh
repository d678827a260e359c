#!/usr/bin/env bash
# Prints the folder that cargo builds into, wherever the environment or a configuration file puts it.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cargo metadata --format-version 1 --no-deps |
  python3 -c 'import json, sys; print(json.load(sys.stdin)["target_directory"])'
