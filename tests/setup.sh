#!/usr/bin/env bash
# Installs what the tests need and a bare Debian machine lacks; does nothing where it is there.
#
# System packages come from apt (as root, or with sudo), tools and the Kubernetes control plane go into
# ${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}. Rust and Go are expected: Debian's are too old.
# Prints what it installed and how long that took. Never writes into the clone.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}
mkdir -p "$cache/bin"
just_version=1.59.0
deny_version=0.20.2

need() {
  command -v "$1" >/dev/null && return
  echo "setup: $1 is missing: $2" >&2
  exit 1
}
need cargo "install Rust 1.90 or newer with rustup (https://rustup.rs)"
[ -n "${KUBEBUILDER_ASSETS:-}" ] || need go "install Go 1.26 or newer (https://go.dev/dl)"

missing=()
# A package, and a command that succeeds where it is not needed.
want() {
  local package=$1
  shift
  "$@" >/dev/null 2>&1 || missing+=("$package")
}
want build-essential gcc --version
want dbus dbus-daemon --version
want python3 python3 --version
want python3-venv python3 -c 'import venv, ensurepip'
want systemd test -x /lib/systemd/systemd-journald
want systemd-journal-remote test -x /lib/systemd/systemd-journal-remote
# For libsystemd, the oracle of our journal reader.
want libsystemd-dev test -e /usr/include/systemd/sd-journal.h
# For building and running what goes into the arm64 image.
want gcc-aarch64-linux-gnu aarch64-linux-gnu-gcc --version
want qemu-user qemu-aarch64 --version
# For the foreign IoT SDKs that the emulated edgeHub is judged by, each in a network of its own.
want libssl-dev test -e /usr/include/openssl/ssl.h
want pkg-config pkg-config --version
want nodejs node --version
want npm npm --version
want iproute2 ip -V
# For kube-proxy.
want nftables nft --version
if [ ${#missing[@]} -gt 0 ]; then
  begun=$SECONDS
  as_root=()
  if [ "$(id -u)" != 0 ]; then
    need sudo "as root, run: apt-get install ${missing[*]}"
    as_root=(sudo)
  fi
  export DEBIAN_FRONTEND=noninteractive
  "${as_root[@]}" apt-get -qq update
  "${as_root[@]}" apt-get -qq install --yes --no-install-recommends "${missing[@]}" >"$cache/apt.log" 2>&1 ||
    { tail -n 30 "$cache/apt.log" >&2; exit 1; }
  echo "setup: ${missing[*]} installed in $((SECONDS - begun)) s"
fi

if ! command -v just >/dev/null && [ ! -x "$cache/bin/just" ]; then
  begun=$SECONDS
  python3 -m venv "$cache/py/just"
  "$cache/py/just/bin/pip" -q --disable-pip-version-check install "rust-just==$just_version"
  ln -sf "$cache/py/just/bin/just" "$cache/bin/just"
  echo "setup: just $just_version installed in $((SECONDS - begun)) s"
fi

if ! command -v cargo-deny >/dev/null && [ ! -x "$cache/bin/cargo-deny" ]; then
  begun=$SECONDS
  cargo install --quiet --locked --root "$cache" --version "$deny_version" cargo-deny
  echo "setup: cargo-deny $deny_version built in $((SECONDS - begun)) s"
fi

tests/controlplane/build.sh etcd kube-apiserver kube-controller-manager kube-proxy
tests/peers/setup.sh
tests/oracles/setup.sh
