#!/usr/bin/env bash
# Builds the static binary of an image: tools/build.sh arm64|amd64 [lab]. The Dockerfiles and the recipes of
# the justfile call the same script, so that what is tested here is what images carry. Prints the binary's path.
#
# Two builds of one commit are meant to be equal byte for byte (`just reproducible`): the toolchain is pinned by the caller, paths of the machine
# are mapped away, and the commit comes from SLICE_HEALER_COMMIT or git.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
root=$PWD

case ${1:-} in
  arm64)
    target=aarch64-unknown-linux-musl
    export CC_aarch64_unknown_linux_musl=${CC_aarch64_unknown_linux_musl:-aarch64-linux-gnu-gcc}
    ;;
  amd64)
    target=x86_64-unknown-linux-musl
    export CC_x86_64_unknown_linux_musl=${CC_x86_64_unknown_linux_musl:-gcc}
    ;;
  *)
    echo "usage: tools/build.sh arm64|amd64 [lab]" >&2
    exit 2
    ;;
esac
features=(--no-default-features)
[ "${2:-}" = lab ] && features+=(--features lab)
[ -n "${PROFILE:-}" ] || PROFILE=dist

if [ -z "${SLICE_HEALER_COMMIT:-}" ]; then
  SLICE_HEALER_COMMIT=$(git rev-parse --short=12 HEAD 2>/dev/null || true)
  [ -z "$SLICE_HEALER_COMMIT" ] || [ -z "$(git status --porcelain 2>/dev/null)" ] || SLICE_HEALER_COMMIT+=-changed
fi
export SLICE_HEALER_COMMIT

cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$cache/target}
# Panic messages carry source paths; whose home directory they were in is nobody's business.
home=${CARGO_HOME:-$HOME/.cargo}
cargo fetch --locked --quiet --target "$target" >&2
registry=("$home"/registry/src/*)
upper=$(tr 'a-z-' 'A-Z_' <<<"$target")
declare -x "CARGO_TARGET_${upper}_LINKER=rust-lld"
separator=$'\x1f'
CARGO_ENCODED_RUSTFLAGS="--remap-path-prefix=$root=/src"
cflags=
for one in "${registry[@]}"; do
  CARGO_ENCODED_RUSTFLAGS+="$separator--remap-path-prefix=$one=/registry"
  cflags+=" -ffile-prefix-map=$one=/registry"
done
export CARGO_ENCODED_RUSTFLAGS
# The assembler of `ring` writes paths as well, where a profile asks for debug information.
declare -x "CFLAGS_${target//-/_}=${cflags# }"

installed() { [ -d "$(rustc --print sysroot)/lib/rustlib/$target" ]; }
installed || rustup target add "$target" >&2
cargo build --locked --profile "$PROFILE" "${features[@]}" --target "$target" --bin slice-healer >&2
[ "$PROFILE" = dev ] && PROFILE=debug
echo "$CARGO_TARGET_DIR/$target/$PROFILE/slice-healer"
