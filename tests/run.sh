#!/usr/bin/env bash
# Passes all tests, the ones on a real Kubernetes control plane included, on a bare Debian machine: installs first
# what is missing. Arguments go to cargo test.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}

tests/setup.sh
tests/manifest.sh
export PATH=$cache/bin:$PATH
# What failed is in the error's text; a trace of the runtime would push it out of a log that is cut.
export RUST_LIB_BACKTRACE=${RUST_LIB_BACKTRACE:-0}
# Most tests wait for a cluster rather than compute.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-4}
exec cargo test --workspace --locked "$@"
