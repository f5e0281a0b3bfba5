"""Watch in the lab: faults under training, how soon each is named, whether it clears, and what watching costs.

Four hosts on two rails of 100 Mb/s, a rank on each: PyTorch trains a small GPT on real text with DDP and
`syncline.torch.synchronize`, over gloo on both interfaces. The ranks share this machine's processors, so each step
has a tenth of a second in which an accelerator would work; the straggler's runs at half its speed. The runtime tells
the agent of its steps by itself; the agent reads every host's interfaces every millisecond. Everything runs at the
priority every process has.

    python benchmarks/watch_lab.py [degraded loss straggler microburst dead-rail overhead phases clean]
"""

from __future__ import annotations

import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple

FOLDER = Path(__file__).resolve().parent
NUM_RANKS = 4
NUM_RAILS = 2
RATE = "100Mbps"
START_S = 240.0
WARM_UP_STEPS, REHEARSED_STEPS = 20, 40
WARM_S = 20.0
FAULT_S = 6.0
CLEAR_S = 15.0
CLEAN_S = float(os.environ.get("WATCH_CLEAN_S", "600"))
PHASES_S = float(os.environ.get("WATCH_PHASES_S", "120"))
CLUSTER = f"""
hosts: {NUM_RANKS}
host: {{gpu: A100-80GB, gpus: {NUM_RAILS}, nics: {NUM_RAILS}}}
network: {{topology: rail-optimized, link: 100GbE}}
"""
USD_PER_GPU_HOUR = 2.5
FOREIGN = r"""
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for _ in range(30):
        out.sendto(bytes(8900), (sys.argv[1], 9))
    time.sleep(0.1)
"""
"""Somebody else's bursts: 0.27 MB ten times a second, a fifth of a rail."""


class Step(NamedTuple):
    """One step of rank 0, as it saw it."""

    begin_s: float
    step_s: float
    exposed_s: float
    loss: float


# The lab, the job and the agent


class Scene:
    """A lab with the job running on it and an agent that watches."""

    def __init__(self, lab: Any, view: Any, folder: Path) -> None:
        self.lab, self.view, self.folder = lab, view, folder
        self.addresses = [[lab.address(host, f"eth{r}") for r in range(NUM_RAILS)] for host in lab.host_names]
        self.job: Any = None
        self.expected: list[Step] = []

    def train(self) -> None:
        """Start the job and wait until it trains; its first steps, which nobody watches, are what is expected of it."""
        rails = ",".join(f"eth{rail}" for rail in range(NUM_RAILS))
        env = {
            "GLOO_SOCKET_IFNAME": rails, "SYNCLINE_WATCH": str(self.folder / "spans.sock"), "PYTHONPATH": str(FOLDER),
        }  # fmt: skip
        command = [sys.executable, str(FOLDER / "rig" / "watch_rank.py"), str(self.folder)]
        self.job = self.lab.start(command, ranks_per_host=1, env=env)
        until = time.monotonic() + START_S
        while len(self.steps()) < WARM_UP_STEPS + REHEARSED_STEPS:
            failed = [process for process in self.job.processes if process.exit_code is not None]
            if failed or time.monotonic() > until:
                raise RuntimeError(f"the job does not train: {failed[0].stderr[-1000:] if failed else 'too slow'}")
            time.sleep(0.2)
        self.expected = self.steps()[WARM_UP_STEPS:]

    def steps(self, start_s: float = 0.0, end_s: float = float("inf")) -> list[Step]:
        """Return the steps that began in a time."""
        path = self.folder / "steps"
        rows = [line.split() for line in path.read_text().splitlines()[:-1]] if path.exists() else []
        found = [Step(*map(float, row)) for row in rows]
        return [step for step in found if start_s <= step.begin_s < end_s]

    def make_agent(self) -> Any:
        from syncline.watch.agent import AgentOptions
        from syncline.watch.clock import Clock
        from syncline.watch.history import History
        from syncline.watch.prediction import Prediction
        from syncline.watch.spans.unix_socket import SocketSpans

        clock = Clock()
        planned = Prediction(
            "this job's first steps, unwatched", step_s=statistics.median(step.step_s for step in self.expected),
            exposed_s=statistics.median(step.exposed_s for step in self.expected),
            num_gpus=NUM_RANKS * NUM_RAILS, usd_per_gpu_hour=USD_PER_GPU_HOUR,
        )  # fmt: skip
        spans = [SocketSpans(self.folder / "spans.sock", clock)]
        options = AgentOptions("lab", burst_pattern=".*", prediction=planned)
        return self.view.agent(options, spans, clock=clock, history=History(self.folder / "watch.db"))

    def close(self) -> None:
        """End the job."""
        if self.job is not None:
            self.job.end()

    @contextmanager
    def watching(self) -> Iterator[Log]:
        agent = self.make_agent()
        stop, log = threading.Event(), Log(agent)
        thread = threading.Thread(target=log.run, args=(stop,))
        thread.start()
        try:
            yield log
        finally:
            stop.set()
            thread.join()
            agent.close()


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
    from syncline.describe.units import rate
    from syncline.fabric import load
    from syncline.lab import Lab
    from syncline.lab.registry import find_lab
    from syncline.watch.lab_scene import LabScene

    with tempfile.TemporaryDirectory(prefix="watch-lab-") as name:
        folder = Path(name)
        (folder / "cluster.yaml").write_text(CLUSTER)
        fabric = load(folder / "cluster.yaml")
        access = [i for i in fabric.out_links(int(fabric.nics[0])) if fabric.devices.host[fabric.links.dst[i]] < 0]
        scale = rate(RATE) / float(fabric.links.rate_Bps[access[0]])
        with Lab(fabric, scale=scale) as lab, find_lab(lab.name) as visit, LabScene(visit) as view:
            made = Scene(lab, view, folder)
            try:
                made.train()
                yield made
            finally:
                made.close()


# Scenarios

EXPECTED = {
    "degraded": "link.degraded",
    "loss": "link.loss",
    "straggler": "job.straggler",
    "microburst": "link.microburst",
    "dead-rail": "rail.dead",
}


def inject(s: Scene, what: str) -> None:
    """Let the trouble begin; it ends by itself after `FAULT_S`."""
    host = s.lab.host_names[1]
    if what == "degraded":
        s.lab.fault(f"{host}:eth0 rate 40% for {FAULT_S}s")
    elif what == "loss":
        s.lab.fault(f"{host}:eth0 loss 3% for {FAULT_S}s")
    elif what == "straggler":
        (s.folder / "slow-2").touch()
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
        (s.folder / "slow-2").unlink(missing_ok=True)
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


def clean(seconds: float, *, phases: bool = False) -> dict[str, Any]:
    """Return every alert of a run without a fault; with phases it saves every 40 steps and evaluates every 100."""
    with scene() as s, s.watching() as log:
        begun = time.monotonic()
        if phases:
            (s.folder / "phases").touch()
        time.sleep(seconds)
        steps = s.steps(begun)
        return {
            "seconds": seconds,
            "alerts": [[round(row[0] - begun, 1), *row[1:]] for row in log.rows],
            "num_steps": len(steps),
            "step_s": round(statistics.median(step.step_s for step in steps), 4),
            "exposed_s": round(statistics.median(step.exposed_s for step in steps), 4),
            "loss": [round(statistics.fmean(step.loss for step in part), 3) for part in (steps[:20], steps[-20:])],
            "num_links": log.links_seen,
            "load_average": [round(each, 1) for each in os.getloadavg()],
            "phases": [row.split()[0] for row in (s.folder / "told").read_text().splitlines()] if phases else [],
            "agent_cpu_share": round(statistics.mean(log.cpu[2:]), 4),
            "agent_cpu_share_per_host": round(statistics.mean(log.cpu[2:]) / NUM_RANKS, 4),
        }


def overhead(rounds: int = 5, seconds: float = 10.0) -> dict[str, Any]:
    """Return the step time with and without the agent, in turns (off, on, on, off) within one run of the job."""
    found: dict[bool, list[float]] = {False: [], True: []}
    with scene() as s:
        for watched in (False, True, True, False) * rounds:
            begun = time.monotonic()
            with s.watching() if watched else nullcontext():
                time.sleep(seconds)
                ended = time.monotonic()
            # A step that began before its turn, or an agent that is just starting, is nobody's.
            found[watched] += [step.step_s for step in s.steps(begun + 1.0, ended - 1.0)]
    off, on = (statistics.median(found[watched]) for watched in (False, True))
    return {
        "step_off_s": round(off, 6), "step_on_s": round(on, 6), "overhead": round(on / off - 1, 5),
        "num_steps": [len(found[False]), len(found[True])],
        "spread_off": round(statistics.stdev(found[False]) / off, 4),
        "standard_error": round(sum(_median_error(times) ** 2 for times in found.values()) ** 0.5 / off, 5),
    }  # fmt: skip


def _median_error(times: list[float]) -> float:
    """Return the standard error of a median, from the middle half, which no rare long step moves."""
    first, _, third = statistics.quantiles(times, n=4)
    return float(1.2533 * (third - first) / 1.349 / len(times) ** 0.5)


def run(names: list[str] | None = None) -> dict[str, Any]:
    """Return what every scenario gave."""
    from syncline.watch.agent import TICK_S

    figures: dict[str, Any] = {"num_ranks": NUM_RANKS, "num_rails": NUM_RAILS, "rate": RATE, "tick_s": TICK_S}
    for name in names or [*EXPECTED, "overhead", "phases", "clean"]:
        key = name.replace("-", "_")
        if name in ("clean", "phases"):
            figures[key] = clean(CLEAN_S if name == "clean" else PHASES_S, phases=name == "phases")
        else:
            figures[key] = overhead() if name == "overhead" else faulty(name)
    return figures


if __name__ == "__main__":
    print(json.dumps(run(sys.argv[1:]), indent=2))
