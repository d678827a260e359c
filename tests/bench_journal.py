#!/usr/bin/env python3
"""Benchmarks our journal reader beside libsystemd and journalctl on a generated journal (`just bench-journal`).

Usage: bench_journal.py OUR_READER ORACLE. Prints a table: best of three each, and the ratio to ours.
JOURNAL_BENCH_ENTRIES says how many entries (1,000,000). The journal is made by systemd-journal-remote in a
temporary folder and removed at the end. At the cold start ours finds the place behind the newest entry; the others also
read that entry.
"""

import os
import pathlib
import subprocess
import sys
import tempfile
import time

ENTRIES = int(os.environ.get("JOURNAL_BENCH_ENTRIES", "1000000"))
REMOTE = "/lib/systemd/systemd-journal-remote"
UNIT = "_SYSTEMD_UNIT=iotedge.service"
ROUNDS = 3


def generate(folder):
    """Fields as a host's journal has them; each 100th entry is of the unit that is looked for."""
    command = [REMOTE, "--split-mode=none", "-o", str(folder / "bench.journal"), "-"]
    writer = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL)
    same = "".join(f"_FIELD_{n}=the same in each entry of process {n}\n" for n in range(12))
    for n in range(ENTRIES):
        unit = "iotedge" if n % 100 == 0 else f"unit-{n % 37}"
        writer.stdin.write(
            f"__REALTIME_TIMESTAMP={1_790_000_000_000_000 + n * 1000}\n"
            f"__MONOTONIC_TIMESTAMP={1_000_000 + n * 1000}\n"
            "_BOOT_ID=0123456789abcdef0123456789abcdef\n_MACHINE_ID=fedcba9876543210fedcba9876543210\n"
            f"PRIORITY=6\nSYSLOG_FACILITY=3\nSYSLOG_IDENTIFIER={unit}\n_PID={1000 + n % 37}\n"
            f"_SYSTEMD_UNIT={unit}.service\n_SOURCE_REALTIME_TIMESTAMP={1_790_000_000_000_000 + n * 1000}\n"
            f"{same}MESSAGE=entry {n} of a process that has this and that to say, pod-{n % 4099}\n\n".encode()
        )
    writer.stdin.close()
    if writer.wait() != 0:
        sys.exit("systemd-journal-remote failed")
    return sorted(str(path) for path in folder.glob("*.journal"))


def best(run):
    return min((run() for _ in range(ROUNDS)), key=lambda result: result[0])


def reader(program, what, files):
    """Seconds as the reader measured them, entries, KiB of anonymous memory."""
    out = subprocess.run([program, *what, *files], check=True, capture_output=True, text=True).stdout.split()
    return int(out[2]) / 1e6, int(out[0]), int(out[3])


def journalctl(form, what, files):
    command = ["journalctl", "--quiet", "--all", "-o", form, *(f"--file={f}" for f in files), *what]
    begun = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - begun, 0, 0


def main():
    ours, oracle = sys.argv[1:]
    with tempfile.TemporaryDirectory() as folder:
        files = generate(pathlib.Path(folder))
        size = sum(os.path.getsize(file) for file in files) / 1e6
        print(f"{ENTRIES} entries in {len(files)} files, {size:.0f} MB; best of {ROUNDS}, warm cache")
        print(f"{'':26}{'entries':>10}{'seconds':>12}{'of ours':>10}{'anon KiB':>10}")
        for title, what, match in [
            ("full scan with MESSAGE", ["scan"], []),
            ("one unit's entries", ["match", UNIT], [UNIT]),
            ("cold start at the tail", ["cold", UNIT], ["-n1", UNIT]),
        ]:
            rows = [
                ("slice-journal", best(lambda: reader(ours, what, files))),
                ("libsystemd", best(lambda: reader(oracle, what, files))),
                ("journalctl -o cat", best(lambda: journalctl("cat", match, files))),
                ("journalctl -o json", best(lambda: journalctl("json", match, files))),
            ]
            if what[0] != "cold" and rows[0][1][1] != rows[1][1][1]:
                sys.exit(f"{title}: {rows[0][1][1]} entries, libsystemd {rows[1][1][1]}")
            print(title)
            for name, (seconds, entries, kib) in rows:
                ratio = seconds / rows[0][1][0]
                print(f"  {name:24}{entries or '':>10}{seconds:>12.4f}{ratio:>9.2f}x{kib or '':>10}")


main()
