"""The agent as it is shipped, on a shaped cable between two namespaces: which cuts it names, how soon, how they end.

`syncline watch` runs with no option but its interfaces in one namespace, traffic of one kind crosses the cable, and
the cable is cut to a share of its rate (or loses packets) for some seconds, on the way out or on the way in.

    python research/watch_default.py [two-way] [one-way] [bursty] [idle] [clean:60]

Needs root, `ip` and `tc`. `clean:60` is so many seconds without a fault; alerts in them are false.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

PEER = r"""
import random, socket, sys, threading, time
kind, role, address = sys.argv[1:4]
def receive(s):
    while s.recv(1 << 20): pass
def exchange(s, size):
    sender = threading.Thread(target=s.sendall, args=(bytes(size),))
    sender.start()
    left = size
    while left: left -= len(s.recv(min(left, 1 << 20)))
    sender.join()
if role == "listen":
    server = socket.create_server((address, 5001)); s, _ = server.accept()
else:
    for _ in range(100):
        try: s = socket.create_connection((address, 5001)); break
        except OSError: time.sleep(0.1)
random.seed(1)
while True:
    if kind == "two-way": time.sleep(0.1); exchange(s, 2_000_000)
    elif kind == "one-way": s.sendall(bytes(1 << 18)) if role == "dial" else s.recv(1 << 20)
    elif kind == "bursty":
        if role == "dial": s.sendall(bytes(random.randrange(1 << 16, 1 << 21))); time.sleep(random.expovariate(4))
        else: s.recv(1 << 20)
    else: time.sleep(0.5); exchange(s, 200)
"""
HERE, THERE = "watch-here", "watch-there"
RATE_MBIT = 200
RATES = (90, 70, 50, 20, 10, 2, 1)
WARM_S, FAULT_S, CALM_S = 16.0, 6.0, 8.0
LINE = re.compile(r"^\S+\s+(OK|WARNING|CRITICAL|UNKNOWN|cleared)\s+(\S+)\s+(.*)$")


def ip(*words: str) -> None:
    """Run `ip`."""
    subprocess.run(["ip", *words], check=True, capture_output=True)


def shape(netns: str, share: float = 1.0, *, first: bool = False) -> None:
    """Give what leaves a namespace a share of the cable's rate."""
    rate = f"{int(RATE_MBIT * 1000 * share)}kbit"
    verb = "add" if first else "change"
    subprocess.run(["tc", "-n", netns, "qdisc", verb, "dev", "eth0", "root", "tbf", "rate", rate, "burst", "64k",
                    "latency", "400ms"], check=True, capture_output=True)  # fmt: skip


@contextlib.contextmanager
def cable() -> Iterator[None]:
    """Give two namespaces with one shaped cable between them."""
    for name in (HERE, THERE):
        subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    try:
        for name in (HERE, THERE):
            ip("netns", "add", name)
        ip("link", "add", "eth0", "netns", HERE, "type", "veth", "peer", "name", "eth0", "netns", THERE)
        for name, address in ((HERE, "10.9.9.1/24"), (THERE, "10.9.9.2/24")):
            ip("-n", name, "addr", "add", address, "dev", "eth0")
            ip("-n", name, "link", "set", "eth0", "up")
            ip("-n", name, "link", "set", "lo", "up")
            shape(name, first=True)
        yield
    finally:
        for name in (HERE, THERE):
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


class Watched:
    """The agent's lines as they come."""

    def __init__(self, *options: str) -> None:
        command = ["ip", "netns", "exec", HERE, str(Path(sys.executable).with_name("syncline")), "watch", *options]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.lines: list[tuple[float, str, str, str]] = []
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            if match := LINE.match(line.strip()):
                self.lines.append((time.monotonic(), match[1], match[2], match[3]))

    def up(self) -> set[tuple[str, str]]:
        found: set[tuple[str, str]] = set()
        for _, word, rule, rest in self.lines:
            place = rest.split(":")[0]
            found = found - {(rule, place)} if word == "cleared" else found | {(rule, place)}
        return found

    def close(self) -> None:
        self.process.terminate()
        self.process.wait(10)


def cut(watched: Watched, netns: str, share: float) -> dict[str, Any]:
    """Return what a cut raised, after how long, and how long after its end the last alert of it was up."""
    begun, old = time.monotonic(), len(watched.lines)
    shape(netns, share)
    time.sleep(FAULT_S)
    shape(netns)
    ended = time.monotonic()
    time.sleep(CALM_S)
    rows = watched.lines[old:]
    raised = [(round(at - begun, 2), rule, rest.split(":")[0]) for at, word, rule, rest in rows if word != "cleared"]
    way = "tx" if netns == HERE else "rx"
    is_named = {(rule, place): rule == "link.degraded" and place.endswith(way) for _, rule, place in raised}
    named = [at for at, rule, place in raised if is_named[rule, place]]
    cleared = [at - ended for at, word, *_ in rows if word == "cleared"]
    return {
        "cut_to": f"{share:.0%}", "way": way, "named_after_s": named[0] if named else None,
        "closed_after_s": round(max(cleared), 2) if cleared else None, "still_up": sorted(watched.up()),
        "others": [f"{rule} {place}" for (rule, place), named_it in is_named.items() if not named_it],
        "text": next((rest for _, word, rule, rest in rows if word != "cleared"), ""),
    }  # fmt: skip


def judge(word: str) -> list[dict[str, Any]]:
    """Return the rows of one kind of traffic."""
    kind, _, seconds = word.partition(":")
    traffic = "two-way" if kind == "clean" else kind
    with cable(), contextlib.ExitStack() as opened:
        for name, role in ((THERE, "listen"), (HERE, "dial")):
            command = ["ip", "netns", "exec", name, sys.executable, "-c", PEER, traffic, role, "10.9.9.2"]
            opened.callback(subprocess.Popen(command, stderr=subprocess.DEVNULL).kill)
        folder = opened.enter_context(tempfile.TemporaryDirectory())
        watched = Watched("--interfaces", "eth.*", "--spans-socket", f"{folder}/spans.sock")
        opened.callback(watched.close)
        time.sleep(WARM_S + float(seconds or 0))
        found: list[dict[str, Any]] = [
            {"clean_s": WARM_S + float(seconds or 0), "raised": [line[1:] for line in watched.lines]}
        ]
        for share in () if kind == "clean" or seconds else RATES:
            for netns in (HERE, THERE) if kind == "two-way" else (HERE,):
                found.append({"traffic": traffic, **cut(watched, netns, share / 100)})
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
        ticks = sum(map(int, Path(f"/proc/{watched.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]))
        found[0]["agent_cpu_s"] = ticks / os.sysconf("SC_CLK_TCK")
        return found


def run(words: list[str] | None = None) -> dict[str, Any]:
    """Return the rows of every kind of traffic."""
    return {word: judge(word) for word in words or ["two-way", "one-way", "bursty:60", "idle:60"]}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1:]), indent=1))
