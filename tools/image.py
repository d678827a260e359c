#!/usr/bin/env python3
"""Assembles the module's image from a static binary, without a container engine and without root:

    tools/image.py [--any-size] arm64|amd64 BINARY SBOM IMAGE.tar

User, labels, entry point, health check and ports are read from the last stage of the Dockerfile, so that both ways
give the same image. The tar is an OCI layout (index.json) and has the manifest.json of `docker save` beside it:
`docker load`, `ctr images import` and `k3s ctr images import` all take it. No time and no user of this machine is in
it: the same binary and SLICE_HEALER_COMMIT give the same tar. Prints the sizes; fails from 15 MB on."""

import gzip
import hashlib
import io
import json
import os
import pathlib
import re
import shlex
import sys
import tarfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
DOCKERFILES = {"arm64": "Dockerfile.arm64v8", "amd64": "Dockerfile.amd64"}
# What a slow line to a plant can bear, in bytes.
LIMIT = 15_000_000
SECOND = 1_000_000_000


def last_stage(path):
    """The instructions after the last FROM, as (name, rest)."""
    lines = re.sub(r"\\\n", " ", path.read_text()).splitlines()
    stage = []
    for line in lines:
        if not line.strip() or line.startswith("#"):
            continue
        name, rest = line.split(None, 1)
        if name == "FROM":
            stage = []
        stage.append((name, rest.strip()))
    return stage


def image_config(path, version, commit):
    """The `config` object of the OCI image configuration."""
    config = {"Labels": {}, "ExposedPorts": {}, "WorkingDir": "/"}
    values = {"VERSION": version, "COMMIT": commit}
    for name, rest in last_stage(path):
        if name == "LABEL":
            for pair in shlex.split(rest):
                key, value = pair.split("=", 1)
                config["Labels"][key] = re.sub(r"\$(\w+)", lambda m: values[m[1]], value)
        elif name == "USER":
            config["User"] = rest
        elif name == "EXPOSE":
            config["ExposedPorts"][f"{rest}/tcp"] = {}
        elif name in ("ENTRYPOINT", "CMD"):
            config["Entrypoint" if name == "ENTRYPOINT" else "Cmd"] = json.loads(rest)
        elif name == "HEALTHCHECK":
            options, command = rest.split(" CMD ")
            times = dict(re.findall(r"--(interval|timeout|start-period)=(\d+)s", options))
            config["Healthcheck"] = {
                "Test": ["CMD", *json.loads(command)],
                "Interval": int(times["interval"]) * SECOND,
                "Timeout": int(times["timeout"]) * SECOND,
                "StartPeriod": int(times["start-period"]) * SECOND,
            }
        elif name not in ("FROM", "COPY", "ARG"):
            sys.exit(f"image: {path.name}: {name} is not known here")
    return config


def add(tar, name, data=None, mode=0o755, owner=0):
    """A file, or without data a folder, with nothing of this machine in its header."""
    info = tarfile.TarInfo(name)
    info.uid = info.gid = owner
    info.mode = mode
    if data is None:
        info.type = tarfile.DIRTYPE
        tar.addfile(info)
    else:
        info.size = len(data)
        tar.addfile(info, io.BytesIO(data))


def layer(binary, sbom, owner):
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.USTAR_FORMAT) as tar:
        add(tar, "slice-healer", binary, 0o755, owner)
        add(tar, "sbom.cdx.json", sbom, 0o644, owner)
        add(tar, "tmp/", mode=0o1777, owner=owner)
        for folder in ("var/", "var/lib/", "var/lib/slice-healer/"):
            add(tar, folder, owner=owner)
    return packed.getvalue()


def main():
    any_size = "--any-size" in sys.argv
    arch, binary, sbom, out = (one for one in sys.argv[1:] if one != "--any-size")
    dockerfile = ROOT / DOCKERFILES[arch]
    binary = pathlib.Path(binary).read_bytes()
    # e_machine at offset 18 of the ELF header: 183 is AArch64, 62 is x86-64.
    if binary[:4] != b"\x7fELF" or binary[18] != {"arm64": 183, "amd64": 62}[arch]:
        sys.exit(f"image: the binary is not for {arch}")
    sbom = pathlib.Path(sbom).read_bytes()
    version = json.loads((ROOT / "module/module.json").read_text())["image"]["tag"]["version"]
    config = image_config(dockerfile, version, os.environ.get("SLICE_HEALER_COMMIT", "unknown"))

    blobs = {}

    def blob(data, media):
        digest = hashlib.sha256(data).hexdigest()
        blobs[digest] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    oci = "application/vnd.oci.image"
    plain = layer(binary, sbom, int(config["User"].split(":")[0]))
    packed = blob(gzip.compress(plain, 9, mtime=0), f"{oci}.layer.v1.tar+gzip")
    described = {
        "architecture": arch,
        **({"variant": "v8"} if arch == "arm64" else {}),
        "os": "linux",
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(plain).hexdigest()}"]},
        "history": [{"created_by": dockerfile.name}],
    }
    about = blob(json.dumps(described, sort_keys=True).encode(), f"{oci}.config.v1+json")
    manifest = blob(
        json.dumps({"schemaVersion": 2, "mediaType": f"{oci}.manifest.v1+json", "config": about, "layers": [packed]}).encode(),
        f"{oci}.manifest.v1+json",
    )
    name = f"slice-healer:{version}-{dockerfile.suffix[1:]}"
    manifest["annotations"] = {
        "io.containerd.image.name": f"docker.io/library/{name}",
        "org.opencontainers.image.ref.name": f"{version}-{dockerfile.suffix[1:]}",
    }
    path = lambda one: "blobs/sha256/" + one["digest"].split(":")[1]
    files = {
        "oci-layout": {"imageLayoutVersion": "1.0.0"},
        "index.json": {"schemaVersion": 2, "mediaType": f"{oci}.index.v1+json", "manifests": [manifest]},
        "manifest.json": [{"Config": path(about), "RepoTags": [name], "Layers": [path(packed)]}],
    }
    with tarfile.open(out, "w", format=tarfile.USTAR_FORMAT) as tar:
        for file, content in files.items():
            add(tar, file, json.dumps(content).encode(), 0o644)
        for folder in ("blobs/", "blobs/sha256/"):
            add(tar, folder)
        for digest, data in sorted(blobs.items()):
            add(tar, f"blobs/sha256/{digest}", data, 0o644)
    size = pathlib.Path(out).stat().st_size
    print(f"{name}: binary {len(binary) / 1e6:.2f} MB, image tar {size / 1e6:.2f} MB, {out}")
    if size >= LIMIT and not any_size:
        sys.exit("image: 15 MB or more; something heavy came in")


main()
