"""Where a rehearsal's ranks run: the hosts of a lab, or processes over loopback that the runtime itself slows down.

with open_lab("cluster.yaml") as stage:                  # or open_loopback
    answer = stage.run("operations", {"operations": [...]}, timeout_s=900, tell=print)
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from syncline.bench.local import RankFailure, run_ranks
from syncline.describe import units
from syncline.errors import BenchError
from syncline.fabric import Fabric, load
from syncline.lab import Lab, LabRecording, draft
from syncline.lab.profile import DEFAULT
from syncline.program import Placement, place
from syncline.rehearsal.order import PROGRESS
from syncline.rehearsal.wiring import rates_out, wiring_of, wiring_of_rates
from syncline.sim.emulate.emulation import HostLinks

LOOK_S = 0.5
LOOPBACK_IGNORES = "only what each rank sends is limited: switches, the receiving side and latency are not emulated"


@dataclass(frozen=True, eq=False)
class RankStage(ABC):
    """Ranks that can be given orders, with what is needed to predict what they do."""

    cluster: str
    placement: Placement
    wiring: HostLinks
    scale: float
    notes: tuple[str, ...]
    folder: Path

    is_loopback = False

    def run(self, task: str, order: Mapping[str, Any], timeout_s: float, tell: Callable[[str], None]) -> Any:
        """Give every rank an order for a task of `worker.py` and return what rank 0 wrote; `tell` hears how far."""
        paper, answer = self.folder / "order.json", self.folder / "answer.json"
        given = {"cluster": self.cluster, "ranks": self.placement.num_ranks, "send_Bps": self.send_Bps(), **order}
        paper.write_text(json.dumps(given), "utf-8")
        answer.unlink(missing_ok=True)
        command = [sys.executable, "-m", "syncline.rehearsal.worker", task, str(paper), str(answer)]
        try:
            with followed(answer.with_suffix(PROGRESS), tell):
                failed = self._start(command, timeout_s)
        except TimeoutError:
            raise BenchError(f"the ranks of the rehearsal were not done after {timeout_s:.0f} s.") from None
        if failed is None and not answer.exists():
            failed = RankFailure(0, 0, "It wrote no answer.")
        if failed is not None:
            raise BenchError(f"rank {failed.rank} of the rehearsal failed with status {failed.exit_code}.",
                             detail=failed.stderr[-1500:])  # fmt: skip
        return json.loads(answer.read_text("utf-8"))

    def send_Bps(self) -> list[float] | None:
        """Return the rate to which each rank must hold itself; None where the network does it."""
        return None

    def counters(self) -> AbstractContextManager[LabRecording | None]:
        """Return a recording of what links carry; nothing is recorded where nobody counts."""
        return nullcontext()

    @abstractmethod
    def _start(self, command: Sequence[str], timeout_s: float) -> RankFailure | None:
        """Run a command once a rank and wait; returns the rank that failed first, if any did."""


@dataclass(frozen=True, eq=False)
class LabStage(RankStage):
    """The hosts of an open lab, one rank each."""

    lab: Lab

    def counters(self) -> AbstractContextManager[LabRecording | None]:
        """Return a recording of every link of the lab."""
        return self.lab.counters()

    def _start(self, command: Sequence[str], timeout_s: float) -> RankFailure | None:
        result = self.lab.run(command, timeout_s=timeout_s, ranks_per_host=1)
        if not result.exit_code:
            return None
        rank = next((rank for rank in result.ranks if rank.exit_code), result.ranks[0])
        return RankFailure(rank.rank or 0, rank.exit_code, rank.stderr)


@dataclass(frozen=True, eq=False)
class LoopbackStage(RankStage):
    """Processes of this machine over loopback; each holds what it sends to the rate of its host's NIC."""

    is_loopback = True

    def send_Bps(self) -> list[float] | None:
        """Return the rate of every rank."""
        return [float(rate) for rate in self.wiring.rate_Bps]

    def _start(self, command: Sequence[str], timeout_s: float) -> RankFailure | None:
        return run_ranks(command, self.placement.num_ranks, timeout_s=timeout_s)


@contextmanager
def followed(progress: Path, tell: Callable[[str], None]) -> Iterator[None]:
    """Hand on what rank 0 writes of its progress while the block runs."""
    ended = threading.Event()

    def follow() -> None:
        last = ""
        while not ended.wait(LOOK_S):
            text = progress.read_text("utf-8") if progress.is_file() else ""
            if text and text != last:
                tell(text)
            last = text

    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        progress.unlink(missing_ok=True)


@contextmanager
def open_lab(cluster: str, *, scale: float | None = None, hosts: int | None = None) -> Iterator[LabStage]:
    """Build the lab of a cluster, with a folder for orders and answers; both are gone afterwards."""
    fabric = load(cluster)
    with _folder() as folder, Lab(fabric, scale=scale, hosts=hosts, profile=DEFAULT) as lab:
        seats = _seats(fabric, len(lab.host_names))
        yield LabStage(_absolute(cluster), seats, wiring_of(lab), lab.blueprint.scale, lab.notes, Path(folder), lab)


@contextmanager
def open_loopback(
    cluster: str, *, scale: float | None = None, hosts: int | None = None, why: str = ""
) -> Iterator[RankStage]:
    """Make ready what ranks over loopback need; `why` says why there is no lab, where one was wanted."""
    fabric = load(cluster)
    blueprint = draft(fabric, scale=scale, hosts=hosts)
    rates = rates_out(blueprint)
    limit = units.show_rate(min(rates.values()))
    notes = (*([f"no lab can be made here: {why.rstrip('.')}"] if why else []),
             f"ranks talk over loopback, each held to {limit} by the runtime itself; {LOOPBACK_IGNORES}")  # fmt: skip
    with _folder() as folder:
        seats = _seats(fabric, len(rates))
        yield LoopbackStage(
            _absolute(cluster), seats, wiring_of_rates(rates), blueprint.scale, notes, Path(folder)
        )  # fmt: skip


@contextmanager
def _folder() -> Iterator[str]:
    """Make a folder that is gone afterwards, also where this process is killed: a shell waits for its end to do so."""
    with tempfile.TemporaryDirectory(prefix="syncline-rehearsal-") as folder:
        guard = subprocess.Popen(  # noqa: S603  (the words are ours)
            ["/bin/sh", "-c", 'read _; rm -rf -- "$0"', folder], stdin=subprocess.PIPE, start_new_session=True
        )
        try:
            yield folder
        finally:
            guard.communicate()


def _absolute(cluster: str) -> str:
    path = Path(cluster)
    return str(path.resolve()) if path.exists() else cluster


def _seats(fabric: Fabric, num_hosts: int) -> Placement:
    """Return one rank a host, in the order of hosts."""
    return place("spread", fabric, num_hosts)
