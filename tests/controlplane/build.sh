#!/usr/bin/env bash
# Builds the Kubernetes control plane that the tests run against, from the Go module proxy, once.
#
#   tests/controlplane/build.sh [BINARY...]     default: etcd kube-apiserver kube-controller-manager
#
# The version is the one that go.mod (or $CONTROLPLANE_MODFILE) requires of k8s.io/kubernetes. The binaries go to
# ${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}/controlplane/VERSION, outside the clone, and are
# built again only when go.mod, go.sum, the Go version or this script changes. Where KUBEBUILDER_ASSETS already
# holds them, nothing is built. Never writes into the clone.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")"
modfile=${CONTROLPLANE_MODFILE:-go.mod}
binaries=("$@")
[ ${#binaries[@]} -gt 0 ] || binaries=(etcd kube-apiserver kube-controller-manager)

if [ -n "${KUBEBUILDER_ASSETS:-}" ]; then
  complete=1
  for name in "${binaries[@]}"; do [ -x "$KUBEBUILDER_ASSETS/$name" ] || complete=0; done
  if [ $complete = 1 ]; then
    echo "control plane: taken from KUBEBUILDER_ASSETS ($("$KUBEBUILDER_ASSETS/${binaries[0]}" --version | head -n 1))"
    exit 0
  fi
  echo "control plane: KUBEBUILDER_ASSETS lacks one of ${binaries[*]}; the tests look there first, so unset it or complete it" >&2
  exit 1
fi

command -v go >/dev/null || { echo "control plane: no Go toolchain; install Go 1.26 or newer, or set KUBEBUILDER_ASSETS" >&2; exit 1; }

version=$(sed -n 's|^[[:space:]]*k8s\.io/kubernetes \(v[0-9][0-9.]*\).*|\1|p' "$modfile" | head -n 1)
[ -n "$version" ] || { echo "control plane: $modfile requires no k8s.io/kubernetes" >&2; exit 1; }
cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}
out=$cache/controlplane/$version
mkdir -p "$out"

# Without these the server calls itself v0.0.0-master, and rules that depend on its version cannot hold.
minor=${version#v*.} minor=${minor%%.*}
component=k8s.io/component-base/version
ldflags="-s -w -X $component.gitVersion=$version -X $component.gitMajor=${version:1:1} -X $component.gitMinor=$minor"

package_of() {
  case $1 in
    etcd) echo go.etcd.io/etcd/server/v3 ;;
    kube-apiserver | kube-controller-manager | kube-proxy) echo "k8s.io/kubernetes/cmd/$1" ;;
    *) echo "control plane: unknown binary $1" >&2; return 1 ;;
  esac
}

# One build at a time for a cache: two would compile the same packages twice.
exec 9>"$cache/controlplane/.lock"
if ! flock -n 9; then
  echo "control plane: waiting for another build"
  flock 9
fi

recipe=$({ cat "$modfile" "${modfile%.mod}.sum" build.sh; go version; } | sha256sum | cut -d ' ' -f 1)
for name in "${binaries[@]}"; do
  stamp=$out/.$name.stamp
  if [ -x "$out/$name" ] && [ "$(cat "$stamp" 2>/dev/null)" = "$recipe" ]; then
    echo "control plane: $name $version is built"
    continue
  fi
  package=$(package_of "$name")
  begun=$SECONDS
  CGO_ENABLED=0 nice -n 5 go build -modfile="$modfile" -trimpath -ldflags "$ldflags" -o "$out/.$name.new" "$package"
  mv "$out/.$name.new" "$out/$name"
  echo "$recipe" >"$stamp"
  echo "control plane: $name $version built in $((SECONDS - begun)) s"
done
