"""The demo in a lab: four hosts, two rails, ranks that average gradients, and faults on a timetable.

with LabDemo() as demo:
    demo.run(stop)              # looks four times a second and lets faults happen, until told to stop
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

from syncline.describe import units
from syncline.errors import LabError
from syncline.fabric import load
from syncline.lab import Lab, LabJob
from syncline.lab.profile import DEFAULT
from syncline.lab.registry import RunningLab, Visit
from syncline.watch.agent import Agent, AgentOptions
from syncline.watch.clock import Clock
from syncline.watch.demonstration.rank import NUM_PARAMETERS
from syncline.watch.history import History
from syncline.watch.lab_scene import LabScene
from syncline.watch.prediction import Prediction
from syncline.watch.spans.unix_socket import SocketSpans

NUM_HOSTS, NUM_RAILS = 4, 2
RATE = "100Mbps"
COMPUTE_S = 0.15
CLUSTER = {
    "name": "demo",
    "hosts": NUM_HOSTS,
    "host": {"gpu": "T4", "gpus": NUM_RAILS, "nics": NUM_RAILS, "nic": "i350", "link": "1GbE"},
    "network": {"topology": "rail-optimized", "link": "1GbE"},
}
NUM_GPUS, USD_PER_GPU_HOUR = 8, 2.5
TIMETABLE = (
    (14, 8, "host-01:eth1 rate 20%"),
    (27, 8, "host-03:eth0 loss 3%"),
    (40, 8, "rank 2 slow"),
    (52, 7, "host-02:eth1 down"),
)
"""When in a round, for how long, and what."""
ROUND_S = 66.0


def prediction() -> Prediction:
    """Return what the demo's step should take: a ring of all hosts over both rails, at the rate of the links."""
    size = 4 * NUM_PARAMETERS
    sent = 2 * (NUM_HOSTS - 1) / NUM_HOSTS * size / NUM_RAILS
    comm_s = sent / (DEFAULT.goodput_share * units.rate(RATE))
    step_s, rate = COMPUTE_S + comm_s, sent / DEFAULT.goodput_share / (COMPUTE_S + comm_s)
    links = {"host-*/nic-* -> leaf-*": rate, "leaf-* -> host-*/nic-*": rate, "*": 0.0}
    name = f"all-reduce@data/{size}B"
    return Prediction(
        "a ring over both rails at full rate", step_s, comm_s, {name: comm_s}, links, NUM_GPUS, USD_PER_GPU_HOUR
    )


class LabDemo:
    """A lab with the training under way and an agent that reads it; LabError or WatchError where none can be made."""

    def __init__(self, cluster: Mapping[str, Any] = CLUSTER, expected: Prediction | None = None) -> None:
        self._opened = ExitStack()
        self._cluster, self._expected = cluster, prediction() if expected is None else expected
        try:
            self.agent = self._open()
        except BaseException:
            self._opened.close()
            raise

    def __enter__(self) -> LabDemo:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self._opened.close()

    def _open(self) -> Agent:
        self.folder = Path(self._opened.enter_context(tempfile.TemporaryDirectory(prefix="syncline-demo-")))
        self.lab = self._opened.enter_context(
            Lab(load(dict(self._cluster)), scale=units.rate(RATE) / units.rate("1Gbps"))
        )
        visit = self._opened.enter_context(Visit(RunningLab(self.lab.name, os.getpid())))
        scene = self._opened.enter_context(LabScene(visit))
        clock = Clock()
        spans = SocketSpans(self.folder / "spans.sock", clock)
        options = AgentOptions("demo: a lab on this machine", prediction=self._expected)
        agent = scene.agent(options, [spans], clock=clock, history=History(self.folder / "watch.db"))
        self._opened.callback(agent.close)
        self._job = self._train()
        self._opened.callback(self._job.end)
        return agent

    def _train(self) -> LabJob:
        own = (self.lab.blueprint.addresses(host) for host in self.lab.blueprint.hosts)
        addresses = [[found[name] for name in sorted(found)] for found in own]
        job = {"addresses": addresses, "compute_s": COMPUTE_S, "folder": str(self.folder)}
        command = [sys.executable, "-m", "syncline.watch.demonstration.rank", json.dumps(job)]
        return self.lab.start(command, ranks_per_host=1, env={"SYNCLINE_WATCH": str(self.folder / "spans.sock")})

    def run(self, stop: threading.Event) -> None:
        """Look, and let the faults happen, until told to stop."""
        faults = threading.Thread(target=self._misfortunes, args=(stop,), name="syncline-demo-faults", daemon=True)
        faults.start()
        self.agent.run(stop)
        faults.join(5.0)

    def _misfortunes(self, stop: threading.Event) -> None:
        begun = time.monotonic()
        while not stop.is_set():
            for at_s, for_s, what in TIMETABLE:
                if stop.wait(max(0.0, begun + at_s - time.monotonic())):
                    return
                self._happen(what, for_s, stop)
            begun += ROUND_S

    def _happen(self, what: str, for_s: float, stop: threading.Event) -> None:
        target, _, _ = what.rpartition(" slow")
        if target.startswith("rank "):
            mark = self.folder / f"slow-{target.removeprefix('rank ')}"
            mark.touch()
            stop.wait(for_s)
            mark.unlink(missing_ok=True)
            return
        try:
            self.lab.fault(f"{what} for {for_s}s")
        except LabError:
            return  # packets cannot be lost where nft is not installed; the others happen
