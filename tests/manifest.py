"""Holds a generated deployment manifest, and what config/fleet/ makes of it, against the schemas of edgeAgent and
edgeHub 1.1, and checks that the same check refuses planted errors. Prints what it did; exits 1 on the first fault."""

import copy
import json
import pathlib
import re
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


def layered(base, content):
    """The manifest that a device gets: a layered deployment's dotted keys set over a base deployment."""
    merged = copy.deepcopy(base)
    for module_name, keys in content["modulesContent"].items():
        for key, value in keys.items():
            head, *names = key.removeprefix("properties.desired").split(".")
            if head or not key.startswith("properties.desired.") or not all(names):
                raise ValueError(f"{module_name}: {key} is no key of a layered deployment")
            at = merged["modulesContent"].setdefault(module_name, {}).setdefault("properties.desired", {})
            for name in names[:-1]:
                at = at.setdefault(name, {})
            at[names[-1]] = copy.deepcopy(value)
    return merged


def configuration_errors(document):
    """What IoT Hub would refuse in a configuration, as text: the envelope, which has no public schema."""
    found = []
    if not re.fullmatch(r"[a-z0-9\-+%_*!']{1,128}", document.get("id", "")):
        found.append("id: lower-case letters, digits and - + % _ * ! ' only, at most 128")
    if not isinstance(document.get("priority"), int) or document["priority"] < 0:
        found.append("priority: a whole number from 0")
    if not document.get("targetCondition"):
        found.append("targetCondition: a configuration without one reaches nobody")
    kinds = set(document.get("content", {}))
    if kinds not in ({"modulesContent"}, {"moduleContent"}):
        found.append(f"content: exactly one of modulesContent and moduleContent, not {sorted(kinds)}")
    for key in document.get("content", {}).get("moduleContent", {}):
        if not key.startswith("properties.desired"):
            found.append(f"moduleContent: {key} is no desired property")
    if "moduleContent" in kinds and not document.get("targetCondition", "").startswith("FROM devices.modules"):
        found.append("targetCondition: a module configuration selects FROM devices.modules")
    unknown = set(document) - {"id", "schemaVersion", "labels", "content", "targetCondition", "priority", "metrics"}
    found += [f"{key}: unknown" for key in sorted(unknown)]
    return found


def fleet(manifest):
    """config/fleet on a base deployment that is the manifest without us."""
    folder = pathlib.Path(__file__).parent.parent / "config" / "fleet"
    documents = {path.name: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}
    check(set(documents) == {"deployment.json", "heal.json", "lamp.json", "observe.json"}, "fleet: each file is known here")
    base = copy.deepcopy(manifest)
    del base["modulesContent"]["slice-healer"]
    del base["modulesContent"]["$edgeAgent"]["properties.desired"]["modules"]["slice-healer"]
    base["modulesContent"]["$edgeHub"]["properties.desired"]["routes"] = {}
    ids, priorities = set(), {}
    for name, document in documents.items():
        check(configuration_errors(document) == [], f"fleet: {name} is a configuration")
        ids.add(document["id"])
        priorities[name] = document["priority"]
        if "modulesContent" in document["content"]:
            base = layered(base, document["content"])
            check(errors(base) == [], f"fleet: {name} over a base deployment is valid against both schemas")
    check(len(ids) == len(documents), "fleet: each id once")
    check(priorities["heal.json"] > priorities["observe.json"], "fleet: heal wins over observe")
    both = create_options(module(base)["settings"]), create_options(module(manifest)["settings"])
    for options in both:
        options["HostConfig"].pop("GroupAdd")
    check(both[0] == both[1], "fleet: the same create options as the manifest")

    plants = {
        "a dotted key that is none": ("deployment.json", lambda c: c["modulesContent"]["$edgeAgent"].update({"properties.modules.x": {}})),
        "restartPolicy": ("deployment.json", lambda c: c["modulesContent"]["$edgeAgent"]["properties.desired.modules.slice-healer"].update(restartPolicy="now and then")),
        "a route's priority": ("lamp.json", lambda c: c["modulesContent"]["$edgeHub"]["properties.desired.routes.sliceHealerLamp"].update(priority=10)),
        "createOptions as an object": ("deployment.json", lambda c: c["modulesContent"]["$edgeAgent"]["properties.desired.modules.slice-healer"]["settings"].update(createOptions={})),
    }
    for what, (name, spoil) in plants.items():
        bad = copy.deepcopy(documents[name]["content"])
        spoil(bad)
        try:
            refused = errors(layered(base, bad))
        except ValueError as error:
            refused = [str(error)]
        check(refused, f"fleet: planted error is refused: {what}")
    for what, spoil in {
        "an id with a capital": lambda d: d.update(id="Slice"),
        "no target": lambda d: d.update(targetCondition=""),
        "both kinds of content": lambda d: d["content"].update(modulesContent={}),
        "a key beside the desired ones": lambda d: d["content"]["moduleContent"].update({"settings": {}}),
        "a negative priority": lambda d: d.update(priority=-1),
        "devices as the target of a module": lambda d: d.update(targetCondition="tags.sliceHealer = 'heal'"),
    }.items():
        bad = copy.deepcopy(documents["heal.json"])
        spoil(bad)
        check(configuration_errors(bad), f"fleet: planted error is refused: {what}")


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
    fleet(manifest)


main()
