#!/usr/bin/env python3
"""Writes the CycloneDX 1.5 SBOM of the binary for one target: tools/sbom.py TARGET > slice-healer.cdx.json

From `cargo metadata` and Cargo.lock only: what is linked in or runs at build time for this target with the
features of the images, with version, licence, checksum and the dependency graph. Dependencies of tests are left
out. The same commit gives the same file."""

import collections
import json
import pathlib
import subprocess
import sys
import tomllib
import uuid

ROOT = pathlib.Path(__file__).resolve().parent.parent
NAMESPACE = uuid.UUID("5f0b8d1e-6a0c-4c57-9f0e-6d4a7f0c9b11")


def metadata(target):
    command = ["cargo", "metadata", "--locked", "--format-version=1", "--no-default-features", f"--filter-platform={target}"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def checksums():
    lock = tomllib.loads((ROOT / "Cargo.lock").read_text())
    return {(p["name"], p["version"]): p["checksum"] for p in lock["package"] if "checksum" in p}


def reachable(meta, root):
    """For each package that the binary needs, the ids of the packages that it needs itself."""
    nodes = {node["id"]: node for node in meta["resolve"]["nodes"]}
    found = collections.OrderedDict()
    waiting = [root]
    while waiting:
        one = waiting.pop()
        if one in found:
            continue
        found[one] = sorted({
            dep["pkg"] for dep in nodes[one]["deps"] if any(kind["kind"] != "dev" for kind in dep["dep_kinds"])
        })
        waiting += found[one]
    return found


def main():
    target = sys.argv[1]
    meta = metadata(target)
    packages = {p["id"]: p for p in meta["packages"]}
    root = next(p["id"] for p in meta["packages"] if p["name"] == "slice-healer" and p["source"] is None)
    needs = reachable(meta, root)
    sums = checksums()

    def ref(one):
        package = packages[one]
        return f"pkg:cargo/{package['name']}@{package['version']}"

    def component(one):
        package = packages[one]
        made = {
            "type": "application" if one == root else "library",
            "bom-ref": ref(one),
            "name": package["name"],
            "version": package["version"],
            "purl": ref(one),
        }
        if package["license"]:
            # Old crates write `MIT/Apache-2.0`, which is no SPDX expression.
            made["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        if checksum := sums.get((package["name"], package["version"])):
            made["hashes"] = [{"alg": "SHA-256", "content": checksum}]
        if package["description"] and one == root:
            made["description"] = package["description"]
        return made

    bom = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "component": component(root),
            "properties": [{"name": "slice-healer:target", "value": target}],
        },
        "components": sorted((component(one) for one in needs if one != root), key=lambda c: c["bom-ref"]),
        "dependencies": sorted(
            ({"ref": ref(one), "dependsOn": sorted(map(ref, deps))} for one, deps in needs.items()),
            key=lambda d: d["ref"],
        ),
    }
    bom["serialNumber"] = f"urn:uuid:{uuid.uuid5(NAMESPACE, json.dumps(bom, sort_keys=True))}"
    json.dump(bom, sys.stdout, indent=1)
    print()


main()
