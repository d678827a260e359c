"""Holds a generated deployment manifest against the schemas of edgeAgent and edgeHub 1.1, and
checks that the same check refuses planted errors. Prints what it did; exits 1 on the first fault."""

import copy
import json
import pathlib
import sys

import jsonschema

HERE = pathlib.Path(__file__).parent / "schemas"
SCHEMAS = {
    name: jsonschema.Draft4Validator(json.loads((HERE / f"azure-iot-{name.lower()}-deployment-1.1.json").read_text()))
    for name in ("edgeAgent", "edgeHub")
}


def errors(manifest):
    """All schema errors of a manifest, as text."""
    found = []
    for name, validator in SCHEMAS.items():
        part = {f"${name}": manifest["modulesContent"][f"${name}"]}
        found += [f"${name}: {e.message}" for e in validator.iter_errors(part)]
    return found


def module(manifest):
    agent = manifest["modulesContent"]["$edgeAgent"]["properties.desired"]
    return agent["modules"]["slice-healer"]


def create_options(settings):
    keys = ["createOptions"] + [f"createOptions{i:02}" for i in range(1, 8)]
    return json.loads("".join(settings.get(k, "") for k in keys))


def check(condition, text):
    if not condition:
        sys.exit(f"FAILED: {text}")
    print(f"ok: {text}")


def main():
    path, platform = sys.argv[1:]
    manifest = json.loads(pathlib.Path(path).read_text())
    check(errors(manifest) == [], f"{platform}: valid against both schemas")
    me = module(manifest)
    check(me["settings"]["image"].endswith(f"/slice-healer:0.1.0-{platform}"), f"{platform}: image from module/module.json")
    options = create_options(me["settings"])
    host = options["HostConfig"]
    check(not host.get("Privileged") and host["CapDrop"] == ["ALL"] and host["ReadonlyRootfs"], "no privilege is asked for")
    check(options["User"] not in ("", "0", "root"), "not root")
    targets = {b.split(":")[1] for b in host["Binds"]}
    check({"/var/log/journal", "/run/log/journal", "/etc/machine-id", "/var/lib/slice-healer"} <= targets, "binds for journal, machine id and state")
    twin = manifest["modulesContent"]["slice-healer"]["properties.desired"]["settings"]
    check(twin["mode"] == "heal" and twin["__t"] == "c", "desired twin: component settings, mode heal")

    planted = []
    for what, spoil in {
        "restartPolicy": lambda m: module(m).update(restartPolicy="sometimes"),
        "dotted route name": lambda m: m["modulesContent"]["$edgeHub"]["properties.desired"]["routes"].update({"a.b": "FROM /* INTO $upstream"}),
        "createOptions as an object": lambda m: module(m)["settings"].update(createOptions={}),
        "no image": lambda m: module(m)["settings"].pop("image"),
        "priority out of range": lambda m: m["modulesContent"]["$edgeHub"]["properties.desired"]["routes"]["sliceHealerEvents"].update(priority=10),
    }.items():
        bad = copy.deepcopy(manifest)
        spoil(bad)
        planted.append((what, errors(bad)))
    for what, found in planted:
        check(found, f"planted error is refused: {what}")


main()
