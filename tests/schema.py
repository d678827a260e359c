"""Holds settings files against the JSON schema of `slice-healer config --schema`, as an editor does:
tests/schema.py SCHEMA.json FILE.toml... Prints one line for each fault; exits 1 where there is one."""

import json
import pathlib
import sys
import tomllib

import jsonschema


def main():
    schema = json.loads(pathlib.Path(sys.argv[1]).read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    faults = [
        f"{path}: {'.'.join(map(str, error.absolute_path))}: {error.message}"
        for path in sys.argv[2:]
        for error in validator.iter_errors(tomllib.loads(pathlib.Path(path).read_text()))
    ]
    print("\n".join(faults))
    sys.exit(bool(faults))


main()
