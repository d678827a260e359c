#!/usr/bin/env python3
"""`inspect -f` on a dump of 1,000 Services with 100 endpoints each, beside jq that compares just the addresses.

Usage: bench_inspect.py SLICE_HEALER SCALE. SCALE is the example of slice-core that writes the dump (some 200 MB, as kubectl
prints it). What `kubectl get -o json` would take to fetch it comes on top for both. Prints seconds, processor time and memory.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time

# The addresses that pods have and slices do not, and the other way round.
COMPARE = """
([.items[] | select(.kind == "Pod") | {key: .status.podIP, value: 1}] | from_entries) as $pods
| ([.items[] | select(.kind == "EndpointSlice") | .endpoints[].addresses[] | {key: ., value: 1}] | from_entries) as $listed
| ([$pods | keys[] | select($listed[.] | not)] | length), ([$listed | keys[] | select($pods[.] | not)] | length)
"""


def run(name, command, reference=None):
    begun = time.monotonic()
    with open(os.devnull, "w") as out:
        child = subprocess.Popen(command, stdout=out)
        _, status, usage = os.wait4(child.pid, 0)
    took = time.monotonic() - begun
    if os.waitstatus_to_exitcode(status) != 0:
        sys.exit(f"{name} failed")
    used = usage.ru_utime + usage.ru_stime
    ratio = f"{used / reference:.2f}x" if reference else ""
    print(f"  {name:34}{took:>9.2f}{used:>12.2f}{ratio:>8}{usage.ru_maxrss / 1024:>10.0f}")
    return used


def main():
    product, scale = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        dump = os.path.join(folder, "dump.json")
        subprocess.run([scale, dump], check=True)
        print(f"a dump of {os.path.getsize(dump) / 1e6:.0f} MB, warm cache")
        print(f"  {'':34}{'seconds':>9}{'processor s':>12}{'of ours':>8}{'MB most':>10}")
        ours = run("slice-healer inspect -f -o json", [product, "inspect", "-f", dump, "-o", "json"])
        run("python3 json.load", [sys.executable, "-c", "import json,sys; json.load(open(sys.argv[1]))", dump], ours)
        if shutil.which("jq"):
            run("jq: parse it and count", ["jq", ".items | length", dump], ours)
            run("jq: compare the addresses", ["jq", COMPARE, dump], ours)
        else:
            print("  jq is not installed")


main()
