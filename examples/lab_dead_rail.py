"""A rail dies in the middle of a transfer: routing moves it to the other, and nothing is lost. Needs a lab."""

from __future__ import annotations

import sys
import time

from syncline.fabric import load
from syncline.lab import Lab

SIZE_BYTES = 12_000_000
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
CLIENT = f"import socket, sys; socket.create_connection((sys.argv[1], 5000)).sendall(bytes({SIZE_BYTES}))"

with Lab(load("lab-two-rails.yaml"), scale=0.1) as lab:
    names = lab.blueprint.link_names
    server = lab.spawn("host-03", [sys.executable, "-c", SERVER])
    while "up" not in server.lines["stdout"]:
        time.sleep(0.01)
    print("path before:", ", ".join(names[link] for link in lab.paths().path("host-00", "host-03")))
    client = lab.spawn("host-00", [sys.executable, "-c", CLIENT, lab.address("host-03")])
    with lab.counters() as recording:
        while "a quarter" not in server.lines["stdout"]:
            time.sleep(0.01)
        lab.fault("host-00:eth0 down")
        client.wait(60)
        server.wait(60)
    print("path after: ", ", ".join(names[link] for link in lab.paths().path("host-00", "host-03")))
    count, longest_s = server.lines["stdout"][-1].split()
    carried = recording.counters.carried_bytes()

print("arrived:", int(count) == SIZE_BYTES)
print("carried by both rails:", all(carried[f"host-00/nic-{r} -> rail-{r}/leaf-00"] > 1e6 for r in (0, 1)))
print("stood still for less than 5 s:", float(longest_s) < 5)
