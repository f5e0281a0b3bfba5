"""A rail dies in the middle of a transfer: routing moves it to the other, and nothing is lost. Needs a lab."""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from syncline.fabric import load
from syncline.lab import Lab

SIZE_BYTES = 9_000_000
SERVER = """
import socket, time
listener = socket.create_server(("", 5000))
print("up", flush=True)
stream, _ = listener.accept()
count, longest_s, last_s = 0, 0.0, time.monotonic()
while data := stream.recv(1 << 18):
    if count < 3_000_000 <= count + len(data):
        print("a quarter", flush=True)
    count, longest_s, last_s = count + len(data), max(longest_s, time.monotonic() - last_s), time.monotonic()
print(count, longest_s)
"""
# Sends until the rail is cut, however late that is on a busy machine, and then as much again.
CLIENT = f"""
import os, socket, sys
stream, count = socket.create_connection((sys.argv[1], 5000)), 0
while not os.path.exists(sys.argv[2]):
    stream.sendall(bytes(1 << 16))
    count += 1 << 16
stream.sendall(bytes({SIZE_BYTES}))
print(count + {SIZE_BYTES})
"""

with Lab(load("lab-two-rails.yaml"), scale=0.1) as lab, tempfile.TemporaryDirectory() as folder:
    cut = Path(folder) / "cut"
    names = lab.blueprint.link_names
    server = lab.spawn("host-03", [sys.executable, "-c", SERVER])
    while "up" not in server.lines["stdout"]:
        time.sleep(0.01)
    print("path before:", ", ".join(names[link] for link in lab.paths().path("host-00", "host-03")))
    with lab.counters() as recording:
        client = lab.spawn("host-00", [sys.executable, "-c", CLIENT, lab.address("host-03"), str(cut)])
        while "a quarter" not in server.lines["stdout"]:
            time.sleep(0.01)
        lab.fault("host-00:eth0 down")
        cut.touch()
        client.wait(60)
        server.wait(60)
    print("path after: ", ", ".join(names[link] for link in lab.paths().path("host-00", "host-03")))
    count, longest_s = server.lines["stdout"][-1].split()
    sent = client.lines["stdout"][-1]
    carried = recording.counters.carried_bytes()

print("arrived:", count == sent)
print("carried by both rails:", all(carried[f"host-00/nic-{r} -> rail-{r}/leaf-00"] > 1e6 for r in (0, 1)))
print("stood still for less than 5 s:", float(longest_s) < 5)
