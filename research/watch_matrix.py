"""Configurations of the agent on real cables: what each names, how soon, how it ends, and that clean ones are quiet.

A stand is two namespaces with one cable, traffic of one kind across it, and one agent for each configuration:

    default     syncline watch --interfaces eth.*
    container   the same with --root at a mount of the host's /proc and /sys
    tree        --root at a tree of files that follows the cable's counters, four times a second
    fleet       --agent of the page that `default` serves
    prometheus  --prometheus of a server that scrapes that agent
    exporters   --prometheus of a server that scrapes node_exporter alone

    python research/watch_matrix.py faults [clean:45] [shaped/two-way ...] [prometheus=FOLDER] [at-once:12] \\
        [faults-until:380]
    python research/watch_matrix.py clean:600 [...]

A stand is first clean for some seconds, and then goes through the faults where they are asked for. Packets are of a
frame each, as on a wire: a rule of nftables would else drop 64 KiB at once.

Links: `veth` (no limit, reports 10 Gb/s), `shaped` (80 Mb/s, reports 10 Gb/s), `bonded` (a tree that reports the sum of
two slaves) and `sr-iov` (a tree that reports no speed): the last two need drivers that a laptop lacks. FOLDER holds the
binaries of Prometheus and node_exporter; without it these two configurations are left out. Needs root, `ip`, `tc`,
`nft`.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

PEER = r"""
import random, socket, sys, threading, time
from pathlib import Path
from syncline.runtime.span_writer import SpanWriter
kind, role, address, folder, *sockets = sys.argv[1:]
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
writers = [SpanWriter(path) for path in sockets]
slow, hang = Path(folder, "slow"), Path(folder, "hang")
gone = Path(folder, "away")
def tell(phase):
    for w in writers:
        for rank in range(4): w.tell_phase(rank, phase)
    gone.unlink(missing_ok=True) if phase == "train" else gone.touch()
def away(phase):
    if role == "dial": tell(phase)
    if phase == "evaluation": time.sleep(5.0)
    elif role == "dial":
        for _ in range(300): s.sendall(bytes(1 << 16)); time.sleep(0.012)
    else:
        left = 300 << 16
        while left: left -= len(s.recv(min(left, 1 << 20)))
    if role == "dial": tell("train")
def train(step):
    begun = time.monotonic(); late = 0.1 if slow.exists() else 0.0
    time.sleep(0.1 + late)
    ready = time.monotonic()
    while hang.exists() and role == "dial": time.sleep(0.05)
    exchange(s, 800_000)
    end, spans = time.monotonic(), []
    for rank in range(4):
        own, came = {"rank": rank, "step": step}, ready if rank == 2 else ready - late
        spans += [{**own, "kind": "compute", "name": "forward", "start_s": begun, "end_s": came},
                  {**own, "kind": "collective", "name": "all-reduce", "group": "data", "size_bytes": 800_000,
                   "start_s": came, "end_s": end}]
    for w in writers: w.send(spans)
random.seed(1)
step = 0
while True:
    if kind in ("two-way", "checkpointing", "evaluation"):
        if step % 60 == 59 and kind != "two-way": away("checkpoint" if kind == "checkpointing" else "evaluation")
        train(step); step += 1
    elif kind == "one-way":
        if role == "dial": s.sendall(bytes(1 << 18)); time.sleep(0.01)
        else: s.recv(1 << 20)
    elif kind == "bursty":
        if role == "dial": s.sendall(bytes(random.randrange(1 << 16, 1 << 20))); time.sleep(random.expovariate(4))
        else: s.recv(1 << 20)
    else: time.sleep(0.5); exchange(s, 200)
"""
TRAFFIC = ("two-way", "one-way", "bursty", "idle", "checkpointing", "evaluation")
OF_JOBS = ("two-way", "checkpointing", "evaluation")
LINKS = {"veth": "eth0", "shaped": "eth0", "bonded": "bond0", "sr-iov": "ens1f0v0"}
RATE_MBIT, CUT = 80, 0.2
WARM_S, FAULT_S, CALM_S, AWAY_S = "45", 8.0, 10.0, 20.0
BEGUN_S = 20.0
"""After so long an agent has imported what it needs, and its cost is counted."""
AT_ONCE = max(2, (os.cpu_count() or 1) * 3 // 4)
LINE = re.compile(r"^\S+\s+(OK|WARNING|CRITICAL|UNKNOWN|cleared)\s+(\S+)\s+(.*)$")
SYNCLINE = str(Path(sys.executable).with_name("syncline"))
_NUMBERS = itertools.count(os.getpid() % 997 * 10)


class Fault(NamedTuple):
    """What happens, on which traffic, which rules name it, and who can see it."""

    name: str
    traffic: tuple[str, ...]
    rules: tuple[str, ...]
    configurations: tuple[str, ...]
    begin: Callable[[Stand], object]
    end: Callable[[Stand], object]


class Watched:
    """The lines of one `syncline watch` as they come."""

    def __init__(self, command: list[str]) -> None:
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.lines: list[tuple[float, str, str, str]] = []
        self.said = ""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            if match := LINE.match(line.strip()):
                self.lines.append((time.monotonic(), match[1], match[2], match[3]))
            else:
                self.said = line.strip()

    def cpu_s(self) -> float:
        """Return the processor time it has taken."""
        ticks = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1].split()[11:13]
        return sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK")

    def rss_MiB(self) -> int:
        """Return the memory it holds."""
        pages = int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20

    def up(self) -> list[str]:
        """Return what is up now, as rule and place."""
        if self.process.poll() is not None:
            raise RuntimeError(f"{self.process.args!s} ended with {self.process.returncode}: {self.said}")
        found: dict[str, None] = {}
        for _, word, rule, rest in list(self.lines):
            name = f"{rule} {rest.split(': ')[0]}"
            found.pop(name, None) if word == "cleared" else found.setdefault(name)
        return list(found)


class Stand:
    """A cable with traffic and its agents; use as a context."""

    def __init__(self, link: str, traffic: str, configurations: tuple[str, ...], binaries: str) -> None:
        self.link, self.traffic, self.configurations, self._binaries = link, traffic, configurations, binaries
        number = next(_NUMBERS)
        self.here, self.there = f"wm{number}a", f"wm{number}b"
        self._opened = contextlib.ExitStack()
        self.agents: dict[str, Watched] = {}
        self.usual: set[str] = set()
        """Rules that were up while nothing was wrong: a job may well spend a quarter of its step on the network."""
        self._stop = threading.Event()

    def __enter__(self) -> Stand:
        self.folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory()))
        for name in (self.here, self.there):
            self._run("ip", "netns", "add", name)
            self._opened.callback(subprocess.run, ["ip", "netns", "del", name], capture_output=True, check=False)
        self._run("ip", "link", "add", "eth0", "netns", self.here, "type", "veth", "peer", "eth0", "netns", self.there)
        for name, address in ((self.here, "10.9.9.1/24"), (self.there, "10.9.9.2/24")):
            self._run("ip", "-n", name, "addr", "add", address, "dev", "eth0")
            for device in ("eth0", "lo"):
                self._run("ip", "-n", name, "link", "set", device, "up")
            self._run("ip", "-n", name, "link", "set", "eth0", "gso_max_segs", "1")
            if self.link != "veth":
                self.shape(name)
        sockets = [str(self.folder / f"{name}.sock") for name in ("default", "container")]
        for configuration in self.configurations:
            self._watch(configuration)
        listening = [Path(path) for path in sockets if Path(path).stem in self.configurations]
        until = time.monotonic() + 120.0  # on a crowded machine an agent takes its time to begin
        while not all(path.exists() for path in listening) and time.monotonic() < until:
            time.sleep(0.2)
        for name, role in ((self.there, "listen"), (self.here, "dial")):
            heard = sockets if role == "dial" else []
            self._start(name, sys.executable, "-c", PEER, self.traffic, role, "10.9.9.2", str(self.folder), *heard)
        return self

    def __exit__(self, *error: object) -> None:
        for each in self.agents.values():
            each.process.send_signal(signal.SIGCONT)
        self._opened.close()

    def shape(self, name: str, share: float = 1.0) -> None:
        """Give what leaves a namespace a share of the cable's rate."""
        self._run("tc", "-n", name, "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate",
                  f"{int(RATE_MBIT * 1000 * share)}kbit", "burst", "64k", "latency", "400ms")  # fmt: skip

    def heal(self) -> None:
        """End what `shape` began."""
        if self.link == "veth":
            self._run("tc", "-n", self.here, "qdisc", "del", "dev", "eth0", "root")
        else:
            self.shape(self.here)

    def lose(self, share: float) -> None:
        """Drop a share of what arrives at the other end."""
        rule = f"numgen random mod 1000000 < {round(share * 1e6)} drop"
        text = f"table netdev l {{\n chain c {{\n  type filter hook ingress device eth0 priority 0;\n  {rule}\n }}\n}}"
        subprocess.run(["ip", "netns", "exec", self.there, "nft", "-f", "-"], check=True,
                       input=f"{text}\n" if share else "delete table netdev l\n", text=True)  # fmt: skip

    def mark(self, name: str) -> None:
        (self.folder / name).touch()

    def unmark(self, name: str) -> None:
        (self.folder / name).unlink()

    def _watch(self, configuration: str) -> None:
        """Start the agent of a configuration, with what it reads from."""
        socket, tree = str(self.folder / f"{configuration}.sock"), self.folder / "tree"
        words = ["--interfaces", "eth.*", "--spans-socket", socket]
        if configuration == "container":
            made = f"mkdir -p {tree}/proc {tree}/sys; mount --bind /proc {tree}/proc; mount --bind /sys {tree}/sys"
            script = f"{made}; exec {SYNCLINE} watch --root {tree} {' '.join(words)}"
            self.agents[configuration] = self._agent(["sh", "-c", script])
            return
        if configuration == "default":
            words += ["--serve"] if {"fleet", "prometheus"} & set(self.configurations) else []
        elif configuration == "tree":
            follower = threading.Thread(target=self._follow, args=(self.folder / "captured",))
            follower.start()
            self._opened.callback(follower.join)
            self._opened.callback(self._stop.set)
            time.sleep(0.5)
            words = ["--interfaces", ".*", "--root", str(self.folder / "captured")]
        elif configuration == "fleet":
            words = ["--agent", "http://127.0.0.1:9750"]
        else:
            port, target = (9091, 9750) if configuration == "prometheus" else (9092, 9100)
            self._prometheus(port, target)
            words = ["--prometheus", f"http://127.0.0.1:{port}"]
        self.agents[configuration] = self._agent([SYNCLINE, "watch", *words])

    def _agent(self, command: list[str]) -> Watched:
        watched = Watched(["ip", "netns", "exec", self.here, *command])
        self._opened.callback(watched.process.wait, 10)
        self._opened.callback(watched.process.terminate)
        return watched

    def _prometheus(self, port: int, target: int) -> None:
        folder = self.folder / f"prometheus-{port}"
        folder.mkdir()
        scrape = {"job_name": "a", "scrape_interval": "1s", "static_configs": [{"targets": [f"127.0.0.1:{target}"]}]}
        (folder / "p.yml").write_text(json.dumps({"scrape_configs": [scrape]}))
        if target == 9100:
            self._start(self.here, f"{self._binaries}/prometheus-node-exporter", "--collector.disable-defaults",
                        "--collector.netdev", "--collector.netclass",
                        "--web.listen-address=127.0.0.1:9100")  # fmt: skip
        self._start(self.here, f"{self._binaries}/prometheus", f"--config.file={folder / 'p.yml'}",
                    f"--storage.tsdb.path={folder}", f"--web.listen-address=127.0.0.1:{port}")  # fmt: skip

    def _follow(self, tree: Path) -> None:
        """Write the cable's counters into a tree, under the name and the speed of another kind of interface."""
        from syncline.host.netlink import inside

        files = ("dev", "snmp", "netstat")
        opened = inside(
            f"/run/netns/{self.here}", lambda: [os.open(f"/proc/thread-self/net/{n}", os.O_RDONLY) for n in files]
        )
        device, speed = LINKS[self.link], {"bonded": "20000"}.get(self.link)
        (tree / "proc/net").mkdir(parents=True)
        (tree / "sys/class/net" / device).mkdir(parents=True)
        (tree / "sys/class/net" / device / "operstate").write_text("up\n")
        if speed:
            (tree / "sys/class/net" / device / "speed").write_text(speed)
        while not self._stop.wait(0.05):
            for name, file in zip(files, opened, strict=True):
                text = os.pread(file, 1 << 16, 0).decode().replace("eth0:", f"{device}:")
                (tree / "proc/net" / f".{name}").write_text(text)
                (tree / "proc/net" / f".{name}").rename(tree / "proc/net" / name)

    def _start(self, name: str, *command: str) -> None:
        process = subprocess.Popen(["ip", "netns", "exec", name, *command],
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
        self._opened.callback(process.wait)
        self._opened.callback(process.kill)

    def _run(self, *command: str) -> None:
        subprocess.run(command, check=True, capture_output=True)


RATES, LOSSES = ("link.degraded",), ("link.loss", "host.retransmissions")
BUSY = ("two-way", "one-way", "checkpointing", "evaluation")
NEAR = ("default", "container", "fleet", "prometheus")
ALL = (*NEAR, "tree", "exporters")
FAULTS = (
    Fault("rate 20 %", BUSY, RATES, ALL, lambda s: s.shape(s.here, CUT), Stand.heal),
    Fault("loss 1 %", BUSY, LOSSES, (*NEAR, "tree"), lambda s: s.lose(0.01), lambda s: s.lose(0)),
    Fault("loss 0.1 %", BUSY, LOSSES, (*NEAR, "tree"), lambda s: s.lose(0.001), lambda s: s.lose(0)),
    Fault("straggler 100 %", OF_JOBS, ("job.straggler",), NEAR, lambda s: s.mark("slow"), lambda s: s.unmark("slow")),
    Fault("hung rank", OF_JOBS, ("job.stalled",), NEAR, lambda s: s.mark("hang"), lambda s: s.unmark("hang")),
    Fault("silent host", TRAFFIC, ("host.silent",), ("fleet",),
          lambda s: s.agents["default"].process.send_signal(signal.SIGSTOP),
          lambda s: s.agents["default"].process.send_signal(signal.SIGCONT)),
)  # fmt: skip


def judge(stand: Stand, fault: Fault) -> Iterator[dict[str, Any]]:
    """Give what each configuration said of one fault: when it was named, when all was closed, what else was named.

    A fault lasts for some seconds of training: `met_after_s` is when the job came back from what it did else.
    """
    old = {name: len(agent.lines) for name, agent in stand.agents.items()}
    begun = time.monotonic()
    fault.begin(stand)
    while (stand.folder / "away").exists() and time.monotonic() < begun + AWAY_S:
        time.sleep(0.02)
    met = time.monotonic()
    time.sleep(FAULT_S)
    fault.end(stand)
    ended = time.monotonic()
    time.sleep(CALM_S)
    for name, agent in stand.agents.items():
        if name not in fault.configurations:
            continue
        rows = agent.lines[old[name] :]
        raised = [(at, word, rule, rest) for at, word, rule, rest in rows if word != "cleared"]
        named = [(at, word, rest) for at, word, rule, rest in raised if rule in fault.rules]
        cleared = [at for at, word, rule, _ in rows if word == "cleared" and rule not in stand.usual]
        still = [each for each in agent.up() if each.split()[0] not in stand.usual]
        yield {
            "link": stand.link, "traffic": stand.traffic, "configuration": name, "fault": fault.name,
            "met_after_s": round(met - begun, 2),
            "named_after_s": round(named[0][0] - begun, 2) if named else None, "as": named[0][1] if named else "",
            "closed_after_s": round(max(cleared) - ended, 2) if cleared and not still else None, "still_up": still,
            "others": sorted({f"{word} {rule} {rest.split(': ')[0]}" for _, word, rule, rest in raised
                              if rule not in fault.rules and rule not in stand.usual}),
            "load_average": round(os.getloadavg()[0], 1),
        }  # fmt: skip


def faults(stand: Stand, until_s: float) -> list[dict[str, Any]]:
    """Return the rows of a stand through every fault that its traffic can feel, as far as there is time."""
    found = []
    for fault in FAULTS:
        if time.monotonic() > until_s:
            break
        if stand.traffic in fault.traffic and set(fault.configurations) & set(stand.configurations):
            for row in judge(stand, fault):
                found.append(row)
                print(json.dumps(row), file=sys.stderr, flush=True)
    return found


def clean(stand: Stand, seconds: float) -> list[dict[str, Any]]:
    """Return what agents said, and what they cost, while nothing was wrong."""
    time.sleep(BEGUN_S)
    begun, before = time.monotonic(), {name: agent.cpu_s() for name, agent in stand.agents.items()}
    time.sleep(max(0.0, seconds - BEGUN_S))
    over_s = time.monotonic() - begun
    stand.usual = {line[2] for agent in stand.agents.values() for line in agent.lines}
    row = {
        "link": stand.link, "traffic": stand.traffic, "clean_s": seconds,
        "raised": {name: [" ".join(line[1:]) for line in agent.lines if line[1] != "cleared"]
                   for name, agent in stand.agents.items() if agent.up() is not None},
        "share_of_core": {name: round((agent.cpu_s() - before[name]) / over_s, 4)
                          for name, agent in stand.agents.items()},
        "rss_MiB": {name: agent.rss_MiB() for name, agent in stand.agents.items()},
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip
    print(json.dumps(row), file=sys.stderr, flush=True)
    return [row]


def stands(words: list[str], binaries: str) -> list[tuple[str, str, tuple[str, ...]]]:
    """Return link, traffic and configurations of every stand that is asked for."""
    asked = [word for word in words if "/" in word and "=" not in word]
    behind = ("prometheus", "exporters") if binaries else ()
    found = []
    for link, traffic in itertools.product(LINKS, TRAFFIC):
        on_files = link in ("bonded", "sr-iov")
        every = ("tree",) if on_files else ("default", "container", "fleet", *behind)
        if not asked or f"{link}/{traffic}" in asked:
            found.append((link, traffic, every))
    return found


def run(words: list[str]) -> dict[str, Any]:
    """Return the matrix, some stands at a time."""
    from concurrent.futures import ThreadPoolExecutor

    options = dict(re.split("[:=]", word, maxsplit=1) for word in words if re.search("[:=]", word))
    binaries, seconds = options.get("prometheus", ""), float(options.get("clean", WARM_S))

    until_s = time.monotonic() + float(options.get("faults-until", "inf"))

    def one(wanted: tuple[str, str, tuple[str, ...]]) -> list[dict[str, Any]]:
        with Stand(*wanted, binaries) as stand:
            return clean(stand, seconds) + (faults(stand, until_s) if "faults" in words else [])

    with ThreadPoolExecutor(int(options.get("at-once", AT_ONCE))) as pool:
        rows = [row for part in pool.map(one, stands(words, binaries)) for row in part]
    return {"cores": os.cpu_count(), **summary(rows), "rows": rows}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return what was said of clean stands, and of each fault by configuration how many were named, and how soon."""
    cells: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        if "fault" in row:
            cells.setdefault(f"{row['fault']}, {row['configuration']}", []).append(row)
    found = {}
    for cell, own in sorted(cells.items()):
        after = sorted(max(0.0, row["named_after_s"] - row["met_after_s"]) for row in own if row["named_after_s"])
        closed = [row["closed_after_s"] for row in own if row["closed_after_s"] is not None]
        found[cell] = {
            "num": len(own), "named": len(after), "within_2_s": sum(at <= 2.0 for at in after),
            "median_s": round(statistics.median(after), 2) if after else None, "worst_s": max(after, default=None),
            "closed_within_5_s": sum(at <= 5.0 for at in closed), "worst_closed_s": max(closed, default=None),
            "not_named": [f"{row['link']}/{row['traffic']}" for row in own if row["named_after_s"] is None],
        }  # fmt: skip
    said = [f"{row['link']}/{row['traffic']} {name}: {line}" for row in rows if "raised" in row
            for name, lines in row["raised"].items() for line in lines]  # fmt: skip
    other = [f"{row['link']}/{row['traffic']} {row['configuration']}, {row['fault']}: {each}" for row in rows
             for each in row.get("others", ()) if each.startswith("CRITICAL")]  # fmt: skip
    return {"by_fault": found, "clean": said, "other_criticals": other}


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1:]), indent=1))
