"""Watch in the lab: faults under training-like traffic, how soon each is named, whether it clears, what watching costs.

Four hosts on two rails of 100 Mb/s. Each rank computes (sleeps), then all-reduces over both rails around a ring of TCP
connections, and reports its spans to the agent's socket. One agent reads every host's interfaces every millisecond.

    python benchmarks/watch_lab.py [SCENARIO ...]      degraded loss straggler microburst dead-rail clean overhead
"""

from __future__ import annotations

import json
import os
import selectors
import socket
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

NUM_RANKS = 4
NUM_RAILS = 2
RATE = "100Mbps"
COMPUTE_S = 0.15
BYTES_PER_RAIL = 800_000
PORT = 29400
WARM_S = 20.0
FAULT_S = 6.0
CLEAR_S = 15.0
CLEAN_S = float(os.environ.get("WATCH_CLEAN_S", "600"))
CLUSTER = f"""
hosts: {NUM_RANKS}
host: {{gpu: A100-80GB, gpus: {NUM_RAILS}, nics: {NUM_RAILS}}}
network: {{topology: rail-optimized, link: 100GbE}}
"""
FOREIGN = r"""
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    sent = time.monotonic()
    for _ in range(45):
        out.sendto(bytes(8900), (sys.argv[1], 9))
    time.sleep(max(0.0, 0.19 - (time.monotonic() - sent)))
"""


# One rank of the job


def rank_main() -> None:
    """Train, as far as the network can tell, until the stop file appears."""
    from syncline.runtime.span_writer import SpanWriter

    go_first()
    rank, folder = int(os.environ["RANK"]), Path(os.environ["WATCH_FOLDER"])
    addresses = json.loads(os.environ["WATCH_ADDRESSES"])
    rails = [Rail(rank, addresses, rail) for rail in range(NUM_RAILS)]
    spans = SpanWriter(folder / "spans.sock")
    step = 0
    while not (folder / "stop").exists():
        begun = time.monotonic()
        late = folder / f"late-{rank}"
        time.sleep(COMPUTE_S + (0.08 if late.exists() else 0.0))
        ready = time.monotonic()
        all_reduce(rails)
        done = time.monotonic()
        size, peer = BYTES_PER_RAIL * NUM_RAILS, (rank + 1) % NUM_RANKS
        row = {"rank": rank, "step": step}
        spans.send([
            {**row, "kind": "compute", "name": "forward-backward", "start_s": begun, "end_s": ready},
            {**row, "kind": "collective", "name": "all_reduce", "start_s": ready, "end_s": done, "size_bytes": size},
            {**row, "kind": "send", "name": "ring", "start_s": ready, "end_s": done, "size_bytes": size, "peer": peer},
        ])  # fmt: skip
        step += 1
        with (folder / f"steps-{rank}").open("a") as file:
            file.write(f"{begun} {done - ready} {done - begun}\n")


def go_first() -> None:
    """Ask to go before whatever else runs on this machine: other work here would be a fault nobody injected."""
    with suppress(OSError):
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(5))


class Rail:
    """The two connections of a rank on one rail: to the next rank and from the one before."""

    def __init__(self, rank: int, addresses: list[list[str]], rail: int) -> None:
        here, after = addresses[rank][rail], addresses[(rank + 1) % NUM_RANKS][rail]
        server = socket.create_server((here, PORT + rail))
        self.forward = self._connect(here, after, PORT + rail)
        self.back, _ = server.accept()
        for end in (self.forward, self.back):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            end.setblocking(False)

    def _connect(self, here: str, there: str, port: int) -> socket.socket:
        until = time.monotonic() + 30
        while True:
            try:
                return socket.create_connection((there, port), 5, source_address=(here, 0))
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)


def all_reduce(rails: list[Rail]) -> None:
    """Move the bytes of a ring all-reduce, round by round, over every rail at once."""
    chunk = BYTES_PER_RAIL // NUM_RANKS
    data = memoryview(bytes(chunk))
    scratch = memoryview(bytearray(1 << 18))
    for _ in range(2 * (NUM_RANKS - 1)):
        with selectors.DefaultSelector() as selector:
            left = {}
            for rail in rails:
                left[rail.forward] = left[rail.back] = chunk
                selector.register(rail.forward, selectors.EVENT_WRITE)
                selector.register(rail.back, selectors.EVENT_READ)
            while left:
                for key, event in selector.select():
                    end: Any = key.fileobj
                    if event & selectors.EVENT_WRITE:
                        left[end] -= end.send(data[chunk - left[end] :])
                    else:
                        left[end] -= end.recv_into(scratch[: min(len(scratch), left[end])])
                    if left[end] <= 0:
                        selector.unregister(end)
                        del left[end]


# The lab, the job and the agent


class Scene:
    """A lab with the job running on it and an agent that watches."""

    def __init__(self, lab: Any, folder: Path) -> None:
        self.lab, self.folder = lab, folder
        self.addresses = [[lab.address(host, f"eth{r}") for r in range(NUM_RAILS)] for host in lab.host_names]
        for host in lab.host_names:
            lab.spawn(host, ["sleep", "100000"], env={"WATCH_KEEPER": f"{os.getpid()}:{host}"})
        self.keepers = [_keeper(host) for host in lab.host_names]
        self.job: Any = None
        self.agent: Any = None

    def start_job(self) -> None:
        (self.folder / "stop").unlink(missing_ok=True)
        for rank in range(NUM_RANKS):
            (self.folder / f"steps-{rank}").unlink(missing_ok=True)
        env = {"WATCH_FOLDER": str(self.folder), "WATCH_ADDRESSES": json.dumps(self.addresses)}
        self.job = self.lab.start([sys.executable, __file__, "--rank"], ranks_per_host=1, env=env)

    def stop_job(self) -> None:
        (self.folder / "stop").touch()
        self.job.wait(30)

    def make_agent(self) -> Any:
        from syncline.watch.agent import Agent, Options
        from syncline.watch.clock import Clock
        from syncline.watch.history import History
        from syncline.watch.prediction import Prediction
        from syncline.watch.sources.netdev import NetdevSource
        from syncline.watch.sources.source import Root
        from syncline.watch.sources.tcp_paths import TcpPathSource
        from syncline.watch.spans.unix_socket import SocketSpans

        sources = [
            NetdevSource(Root(), pattern=r"eth\d+", netns=f"/proc/{keeper}/ns/net", prefix=host)
            for host, keeper in zip(self.lab.host_names, self.keepers, strict=True)
        ]
        clock = Clock()
        wire_s = 2 * (NUM_RANKS - 1) / NUM_RANKS * BYTES_PER_RAIL / self.rate_Bps
        # What the job should take: the wire's time and a tenth for TCP, beside computing.
        planned = Prediction(
            "wire rate", step_s=COMPUTE_S + 1.15 * wire_s, exposed_s=1.15 * wire_s,
            collectives_s={"all_reduce": 1.15 * wire_s}, num_gpus=NUM_RANKS * 8, usd_per_gpu_hour=2.5,
        )  # fmt: skip
        options = Options("lab", burst_pattern=".*", links=self.links(), prediction=planned)
        spans = [SocketSpans(self.folder / "spans.sock", clock)]
        paths = [
            TcpPathSource(f"/proc/{keeper}/ns/net", host)
            for host, keeper in zip(self.lab.host_names, self.keepers, strict=True)
        ]
        return Agent(options, sources, paths, spans, clock=clock, history=History(self.folder / "watch.db"))

    @property
    def rate_Bps(self) -> float:
        return float(self.lab.blueprint.cables[0].rate_Bps)

    def links(self) -> Any:
        """Return what each interface is in the fabric."""
        from syncline.watch.link_map import LinkMap, Wire

        blueprint, wires = self.lab.blueprint, {}
        for cable in blueprint.cables:
            for end, _, link, rate in cable.ends():
                box = blueprint.boxes[end.box]
                if box.kind == "host":
                    rail = int(end.interface.removeprefix("eth"))
                    for direction, number in (("tx", link), ("rx", link ^ 1)):
                        name = blueprint.link_names[number]
                        src, _, dst = name.partition(" -> ")
                        wires[f"{box.name}/{end.interface}", direction] = Wire(name, rate, rail, src, dst)
        return LinkMap(wires, blueprint.name)

    @contextmanager
    def watching(self) -> Iterator[Log]:
        self.agent = self.make_agent()
        stop, log = threading.Event(), Log(self.agent)
        thread = threading.Thread(target=log.run, args=(stop,))
        thread.start()
        try:
            yield log
        finally:
            stop.set()
            thread.join()
            self.agent.close()


def _keeper(host: str) -> int:
    """Return the process that holds a host's namespace open; the lab's own numbers are those of its PID namespace."""
    mark = f"WATCH_KEEPER={os.getpid()}:{host}".encode()
    until = time.monotonic() + 10
    while time.monotonic() < until:
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                if (
                    mark in (folder / "environ").read_bytes().split(b"\0")
                    and (folder / "comm").read_text() == "sleep\n"
                ):
                    return int(folder.name)
            except OSError:
                continue
        time.sleep(0.05)
    raise RuntimeError(f"no process of {host} was found")


class Log:
    """Every alert the agent raised and cleared, at monotonic times."""

    def __init__(self, agent: Any) -> None:
        self.agent = agent
        self.rows: list[tuple[float, str, str, str]] = []
        self.cpu: list[float] = []
        self.links_seen = 0

    def run(self, stop: threading.Event) -> None:
        known: set[tuple[str, str]] = set()
        next_s = time.monotonic()
        while not stop.is_set():
            frame = self.agent.tick()
            now = {(a["rule"], a["place"]) for a in frame.alerts}
            self.rows += [(frame.mono_s, "raised", *key) for key in sorted(now - known)]
            self.rows += [(frame.mono_s, "cleared", *key) for key in sorted(known - now)]
            known, self.links_seen = now, len(frame.table)
            self.cpu.append(frame.health["cpu_share"])
            next_s = max(next_s + self.agent.options.tick_s, time.monotonic())
            stop.wait(max(0.0, next_s - time.monotonic()))


@contextmanager
def scene() -> Iterator[Scene]:
    """Give a lab with the job running on it."""
    from syncline.fabric import load
    from syncline.lab import Lab
    from syncline.units import rate

    go_first()
    with tempfile.TemporaryDirectory(prefix="watch-lab-") as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(CLUSTER)
        fabric = load(folder / "cluster.yaml")
        access = [i for i in fabric.out_links(int(fabric.nics[0])) if fabric.devices.host[fabric.links.dst[i]] < 0]
        scale = rate(RATE) / float(fabric.links.rate_Bps[access[0]])
        with Lab(fabric, scale=scale) as lab:
            made = Scene(lab, folder)
            made.start_job()
            yield made
            made.stop_job()


# Scenarios

EXPECTED = {
    "degraded": "link.degraded",
    "loss": "link.loss",
    "straggler": "job.straggler",
    "microburst": "link.microburst",
    "dead-rail": "rail.dead",
}


def inject(s: Scene, what: str) -> None:
    """Let the trouble begin; it ends by itself after `FAULT_S`, or with `mend`."""
    host = s.lab.host_names[1]
    if what == "degraded":
        s.lab.fault(f"{host}:eth0 rate 40% for {FAULT_S}s")
    elif what == "loss":
        s.lab.fault(f"{host}:eth0 loss 1% for {FAULT_S}s")
    elif what == "straggler":
        (s.folder / "late-2").touch()
    elif what == "microburst":
        s.lab.spawn(s.lab.host_names[0], [sys.executable, "-c", FOREIGN, s.addresses[2][1], str(FAULT_S)])
    elif what == "dead-rail":
        for each in s.lab.host_names:
            s.lab.fault(f"{each}:eth1 down for {FAULT_S}s")


def faulty(what: str) -> dict[str, Any]:
    """Return how soon the right alert came and went, and which others were up."""
    with scene() as s, s.watching() as log:
        time.sleep(WARM_S)
        early = list(log.rows)
        onset = time.monotonic()
        inject(s, what)
        time.sleep(FAULT_S)
        (s.folder / "late-2").unlink(missing_ok=True)
        mended = time.monotonic()
        time.sleep(CLEAR_S)
        rows, rule = log.rows[len(early) :], EXPECTED[what]
        raised = [(t - onset, place) for t, event, r, place in rows if event == "raised" and r == rule]
        cleared = [t - mended for t, event, r, _ in rows if event == "cleared" and r == rule]
        return {
            "rule": rule,
            "raised_after_s": round(min(t for t, _ in raised), 2) if raised else None,
            "places": sorted({place for _, place in raised}),
            "cleared_after_s": round(max(cleared), 2) if cleared and len(cleared) == len(raised) else None,
            "others": sorted({r for _, event, r, _ in rows if event == "raised"} - {rule}),
            "before_onset": [list(row[1:]) for row in early],
        }


def clean(seconds: float) -> dict[str, Any]:
    """Return every alert of a run without a fault."""
    with scene() as s, s.watching() as log:
        time.sleep(seconds)
        return {
            "seconds": seconds,
            "alerts": [[round(row[0] - log.rows[0][0], 1), *row[1:]] for row in log.rows],
            "num_links": log.links_seen,
            "agent_cpu_share": round(statistics.mean(log.cpu[2:]), 4),
        }


def overhead(pairs: int = 4, seconds: float = 12.0) -> dict[str, Any]:
    """Return the step time with and without the agent, in turns within one run of the job."""
    off: list[float] = []
    on: list[float] = []
    with scene() as s:
        time.sleep(3)
        for _ in range(pairs):
            for steps, watched in ((off, False), (on, True)):
                begun = time.monotonic()
                if watched:
                    with s.watching():
                        time.sleep(seconds)
                else:
                    time.sleep(seconds)
                steps += _steps(s.folder, begun + 1.0, time.monotonic())
    a, b = statistics.median(off), statistics.median(on)
    return {
        "step_off_s": round(a, 6), "step_on_s": round(b, 6), "overhead": round(b / a - 1, 5),
        "num_steps": [len(off), len(on)], "spread_off": round(statistics.stdev(off) / a, 4),
        "standard_error": round(1.2533 * statistics.stdev(off) / a / len(off) ** 0.5, 5),
    }  # fmt: skip


def _steps(folder: Path, start_s: float, end_s: float) -> list[float]:
    rows = [line.split() for line in (folder / "steps-0").read_text().splitlines()]
    return [float(row[2]) for row in rows if len(row) == 3 and start_s <= float(row[0]) <= end_s]


def run(names: list[str] | None = None) -> dict[str, Any]:
    """Return what every scenario gave."""
    from syncline.watch.agent import TICK_S

    figures: dict[str, Any] = {"num_ranks": NUM_RANKS, "num_rails": NUM_RAILS, "rate": RATE, "tick_s": TICK_S}
    for name in names or [*EXPECTED, "overhead", "clean"]:
        key = name.replace("-", "_")
        figures[key] = clean(CLEAN_S) if name == "clean" else overhead() if name == "overhead" else faulty(name)
    return figures


if __name__ == "__main__":
    if sys.argv[1:] == ["--rank"]:
        rank_main()
    else:
        print(json.dumps(run(sys.argv[1:]), indent=2))
