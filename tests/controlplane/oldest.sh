#!/usr/bin/env bash
# Builds the oldest control plane that the judge is tried on (oldest.mod) and prints its folder, for KUBEBUILDER_ASSETS.
# Its etcd is the newer one of go.mod: the tests reach it by a Unix socket with a path, which etcd 3.5 does not take.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
{
  ./build.sh etcd
  CONTROLPLANE_MODFILE=oldest.mod ./build.sh kube-apiserver kube-controller-manager
} >&2
version() { sed -n 's|^[[:space:]]*k8s\.io/kubernetes \(v[0-9][0-9.]*\).*|\1|p' "$1" | head -n 1; }
cache=${SLICE_HEALER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/slice-healer}/controlplane
oldest=$cache/$(version oldest.mod)
ln -sf "../$(version go.mod)/etcd" "$oldest/etcd"
echo "$oldest"
