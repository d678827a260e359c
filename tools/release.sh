#!/usr/bin/env bash
# Makes a release: tools/release.sh [FOLDER]. For both architectures the binary, the image tar and the SBOM, and
# one SHA256SUMS over all of them. Pushes nothing. Without an engine and without root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
out=${1:-release}
mkdir -p "$out"
version=$(sed -n '/^\[workspace.package\]/,/^\[/s/^version = "\(.*\)"/\1/p' Cargo.toml)
SLICE_HEALER_COMMIT=${SLICE_HEALER_COMMIT:-$(git rev-parse --short=12 HEAD)}
[ -z "$(git status --porcelain --untracked-files=no)" ] || SLICE_HEALER_COMMIT+=-changed
export SLICE_HEALER_COMMIT
for pair in ${ARCHITECTURES:-arm64:aarch64 amd64:x86_64}; do
  arch=${pair%%:*}
  name=slice-healer-$version-$arch
  binary=$(tools/build.sh "$arch")
  install -m 0755 "$binary" "$out/$name"
  tools/sbom.py "${pair##*:}-unknown-linux-musl" >"$out/$name.cdx.json"
  tools/image.py "$arch" "$out/$name" "$out/$name.cdx.json" "$out/$name-image.tar"
done
(cd "$out" && sha256sum slice-healer-"$version"-* >SHA256SUMS)
cat "$out/SHA256SUMS"
