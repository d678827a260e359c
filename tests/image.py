"""Reads an image tar as an engine does and checks that what it promises is in it: tests/image.py IMAGE.tar BINARY.
Every digest and size is computed again. Prints what it did; exits 1 on the first fault."""

import gzip
import hashlib
import io
import json
import pathlib
import sys
import tarfile


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")
    print(f"ok: {text}")


def main():
    path, binary = sys.argv[1:]
    with tarfile.open(path) as tar:
        members = tar.getmembers()
        files = {m.name: tar.extractfile(m).read() for m in members if m.isfile()}
    check(all((m.mtime, m.uid, m.gid, m.uname) == (0, 0, 0, "") for m in members), "no time or user of a machine in the tar")

    def blob(descriptor):
        data = files["blobs/sha256/" + descriptor["digest"].removeprefix("sha256:")]
        check(len(data) == descriptor["size"], f"size of {descriptor['mediaType']}")
        check("sha256:" + hashlib.sha256(data).hexdigest() == descriptor["digest"], f"digest of {descriptor['mediaType']}")
        return data

    check(json.loads(files["oci-layout"]) == {"imageLayoutVersion": "1.0.0"}, "an OCI layout")
    [described] = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(blob(described))
    config = json.loads(blob(manifest["config"]))
    [packed] = manifest["layers"]
    layer = gzip.decompress(blob(packed))
    check(config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()], "diff id of the layer")
    [docker] = json.loads(files["manifest.json"])
    check(docker["Config"].endswith(manifest["config"]["digest"][7:]) and docker["Layers"][0].endswith(packed["digest"][7:]), "docker's manifest names the same blobs")
    check(described["annotations"]["io.containerd.image.name"].endswith("/" + docker["RepoTags"][0]), "one name for docker and containerd")

    inner = tarfile.open(fileobj=io.BytesIO(layer))
    entries = {m.name.rstrip("/"): m for m in inner.getmembers()}
    check(set(entries) == {"slice-healer", "sbom.cdx.json", "tmp", "var", "var/lib", "var/lib/slice-healer"}, "nothing but binary, SBOM and folders")
    check(inner.extractfile("slice-healer").read() == pathlib.Path(binary).read_bytes(), "the binary, byte for byte")
    check(entries["slice-healer"].mode == 0o755 and entries["tmp"].mode == 0o1777, "modes")
    check(json.load(inner.extractfile("sbom.cdx.json"))["bomFormat"] == "CycloneDX", "the SBOM")
    user = config["config"]["User"].split(":")[0]
    check(user.isdigit() and user != "0" and entries["var/lib/slice-healer"].uid == int(user), "not root, and the state folder is its own")
    check(config["config"]["Entrypoint"] == ["/slice-healer"] and config["config"]["Cmd"] == ["run"], "entry point")
    check(config["config"]["Healthcheck"]["Test"] == ["CMD", "/slice-healer", "health"], "health check by the binary")
    labels = config["config"]["Labels"]
    check(all("$" not in value for value in labels.values()) and "org.opencontainers.image.revision" in labels, "labels")


main()
