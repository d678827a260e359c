"""A link between two network namespaces that can be slow, lossy or cut, packet by packet.

Stands in for netem, which not every kernel has. Makes a TUN device in the namespace it is started in (10.77.0.1) and one
in the namespace of the process whose id is given (10.77.0.2), and carries IP packets between them. Reads one command a
line: `up`, `down`, `delay MILLISECONDS` (one way), `loss PERCENT` (each way). Prints `ready` once, and `ok` for each.

    python3 link.py PID
"""

import fcntl
import heapq
import os
import random
import select
import struct
import subprocess
import sys
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000


def tun(name):
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", name.encode(), IFF_TUN | IFF_NO_PI))
    return device


def ip(*arguments, inside=None):
    enter = ["nsenter", f"--net=/proc/{inside}/ns/net"] if inside else []
    subprocess.run([*enter, "ip", *arguments], check=True)


def main():
    far = sys.argv[1]
    here, there = tun("near"), tun("far")
    ip("link", "set", "far", "netns", far)
    for name, address, inside in (("near", "10.77.0.1/24", None), ("far", "10.77.0.2/24", far)):
        ip("address", "add", address, "dev", name, inside=inside)
        ip("link", "set", name, "up", inside=inside)
    ip("link", "set", "lo", "up", inside=far)
    print("ready", flush=True)

    # Unbuffered: a line that waits in a buffer is one that select does not see.
    orders = os.fdopen(0, "rb", 0)
    up, delay, loss = True, 0.0, 0.0
    chance = random.Random(1)
    flying, number = [], 0
    while True:
        wait = max(0.0, flying[0][0] - time.monotonic()) if flying else None
        readable, _, _ = select.select([orders, here, there], [], [], wait)
        if orders in readable:
            words = orders.readline().decode().split()
            if not words:
                return
            if words[0] in ("up", "down"):
                up = words[0] == "up"
            elif words[0] == "delay":
                delay = float(words[1]) / 1000
            elif words[0] == "loss":
                loss = float(words[1]) / 100
            print("ok", flush=True)
        now = time.monotonic()
        for source, target in ((here, there), (there, here)):
            while source in readable:
                try:
                    packet = os.read(source, 65536)
                except BlockingIOError:
                    break
                if up and chance.random() >= loss:
                    number += 1
                    heapq.heappush(flying, (now + delay, number, target, packet))
        while flying and flying[0][0] <= time.monotonic():
            _, _, target, packet = heapq.heappop(flying)
            try:
                os.write(target, packet)
            except BlockingIOError:
                pass  # A full queue drops, as a real one does.


main()
