#!/usr/bin/env python3
"""Following, side by side: our journal reader, libsystemd and journalctl on a real journald that is written to.

Usage: bench_follow.py OUR_READER ORACLE. All three follow the same journald at the same time. It gets RATE entries a second,
each tenth of the identifier that they follow. Prints how long after the sending each saw it (median, 99th percentile), which
part of a core it took, also while nobody wrote, and its anonymous memory. journalctl's latency is taken where its pipe ends.
"""

import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

RATE = 100
SECONDS = float(os.environ.get("JOURNAL_FOLLOW_SECONDS", "30"))
MACHINE = "5a1ce5a1ce5a1ce5a1ce5a1ce5a1ce00"
VALUE = "SYSLOG_IDENTIFIER=followed"


def journald(folder):
    """In mount namespaces of its own, as tests/support/journald.rs has it."""
    run = folder / "run"
    for path in ("run/systemd/journal", "run/systemd/journald.conf.d", "run/log/journal", "varlog"):
        (folder / path).mkdir(parents=True)
    (folder / "machine-id").write_text(MACHINE + "\n")
    (run / "systemd/journald.conf.d/bench.conf").write_text(
        "[Journal]\nReadKMsg=no\nAudit=no\nRateLimitIntervalSec=0\nRateLimitBurst=0\n"
    )
    script = (
        f"mount --bind {folder}/run /run && mount --bind {folder}/varlog /var/log && "
        f"mount --bind {folder}/machine-id /etc/machine-id && exec /lib/systemd/systemd-journald"
    )
    child = subprocess.Popen(
        ["unshare", "-m" if os.getuid() == 0 else "-Urm", "--propagation", "private", "sh", "-c", script], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = run / "systemd/journal/socket"
    until(lambda: address.exists() and (run / "log/journal" / MACHINE / "system.journal").exists())
    return child, str(address), run / "log/journal"


def until(holds, seconds=60):
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            sys.exit("bench_follow: waited in vain")
        time.sleep(0.02)


class Reader:
    """A process that follows, the lines that it prints, and when they came."""

    def __init__(self, name, command, stamps):
        self.name, self.stamps, self.delays, self.ready = name, stamps, [], not stamps
        self.child = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.child.stdout:
            now = time.time() * 1e6
            words = line.split()
            if words == [b"ready"]:
                self.ready = True
                continue
            if self.stamps:
                now, words = int(words[0]), words[1:]
            if len(words) == 1 and words[0].isdigit():
                self.delays.append(now - int(words[0]))

    def core_seconds(self):
        return int(pathlib.Path(f"/proc/{self.child.pid}/schedstat").read_text().split()[0]) / 1e9

    def anonymous(self):
        for line in pathlib.Path(f"/proc/{self.child.pid}/status").read_text().splitlines():
            if line.startswith("RssAnon:"):
                return int(line.split()[1])
        return 0


def span(readers, seconds, work):
    """Share of a core that each took while `work` ran."""
    before = [reader.core_seconds() for reader in readers]
    begun = time.monotonic()
    work(begun + seconds)
    took = time.monotonic() - begun
    return [(reader.core_seconds() - was) / took for reader, was in zip(readers, before)]


def main():
    ours, oracle = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="bf", dir="/dev/shm") as folder:
        child, address, directory = journald(pathlib.Path(folder))
        client = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        sent = 0

        def write(end):
            nonlocal sent
            n, begun = 0, time.monotonic()
            while time.monotonic() < end:
                followed = n % 10 == 0
                name = "followed" if followed else f"other-{n % 37}"
                text = f"{time.time() * 1e6:.0f}" if followed else f"entry {n} that says this and that"
                client.sendto(f"SYSLOG_IDENTIFIER={name}\nPRIORITY=6\nMESSAGE={text}\n".encode(), address)
                sent += followed
                n += 1
                time.sleep(max(0, begun + n / RATE - time.monotonic()))

        write(time.monotonic() + 1)
        sent = 0
        readers = [
            Reader("slice-journal", [ours, "follow", str(directory), VALUE], True),
            Reader("libsystemd", [oracle, "follow", str(directory), VALUE], True),
            Reader("journalctl -f -o cat", ["journalctl", f"--directory={directory}", "-fn0", "-ocat", VALUE], False),
        ]
        try:
            until(lambda: all(reader.ready for reader in readers))
            time.sleep(1)
            for reader in readers:
                reader.delays.clear()
            busy = span(readers, SECONDS, write)
            until(lambda: all(len(reader.delays) >= sent for reader in readers))
            idle = span(readers, SECONDS / 2, lambda end: time.sleep(end - time.monotonic()))
            print(f"following {RATE} entries a second for {SECONDS:.0f} s, {sent} of them of the identifier followed")
            print(f"{'':24}{'seen':>6}{'median ms':>11}{'99 % ms':>9}{'of ours':>9}{'core %':>8}{'idle %':>8}{'anon KiB':>10}")
            reference = sorted(readers[0].delays)
            for reader, at_work, at_rest in zip(readers, busy, idle):
                delays = sorted(reader.delays)
                median, late = delays[len(delays) // 2], delays[len(delays) * 99 // 100]
                ratio = median / reference[len(reference) // 2]
                print(
                    f"  {reader.name:22}{len(delays):>6}{median / 1e3:>11.1f}{late / 1e3:>9.1f}{ratio:>8.2f}x"
                    f"{at_work * 100:>8.2f}{at_rest * 100:>8.2f}{reader.anonymous():>10}"
                )
        finally:
            for reader in readers:
                reader.child.kill()
            child.send_signal(signal.SIGKILL)
            child.wait()


main()
