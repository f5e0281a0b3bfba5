"""How well faults are diagnosed: recall and precision, over all that the library can plant."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.drill.healthy import Logs, healthy_logs
from tests.drill.known_fault import KnownFault, known_faults

from syncline.diagnosis import Diagnosis, diagnose

# What any broken job leaves behind; a planted fault may show it without being asked to.
CONSEQUENCES = frozenset({"nccl.peer.closed", "nccl.abort", "rdma.flushed", "torch.watchdog.timeout"})


@dataclass(frozen=True)
class Score:
    """Counts over (case, rule): found as it should be, missed, and found without reason; and first causes right."""

    num_cases: int
    hits: int
    misses: tuple[str, ...]
    extras: tuple[str, ...]
    first_right: int

    @property
    def recall(self) -> float:
        return self.hits / max(1, self.hits + len(self.misses))

    @property
    def precision(self) -> float:
        return self.hits / max(1, self.hits + len(self.extras))


def diagnose_logs(logs: Logs) -> Diagnosis:
    """Diagnose logs held in memory."""
    with TemporaryDirectory() as folder:
        for name, lines in logs.items():
            (Path(folder) / name).write_text("\n".join(lines) + "\n", "utf-8")
        return diagnose([folder])


def measure_logs(pairs: bool = False) -> Score:
    """Plant every fault in healthy logs (with `pairs`, every two neighbours together) and count what is found."""
    return _score(_cases(pairs))


def _cases(pairs: bool) -> Iterator[tuple[str, tuple[KnownFault, ...]]]:
    faults = [f for f in known_faults().values() if f.log]
    if not pairs:
        for fault in faults:
            yield fault.id, (fault,)
        return
    for a, b in zip(faults, faults[7:] + faults[:7], strict=True):
        yield f"{a.id}+{b.id}", (a, b)


def _score(cases: Iterable[tuple[str, tuple[KnownFault, ...]]]) -> Score:
    hits, first, number = 0, 0, 0
    misses: list[str] = []
    extras: list[str] = []
    for name, faults in cases:
        logs = healthy_logs()
        for fault in faults:
            logs = fault.planted(logs)
        diagnosis = diagnose_logs(logs)
        found = {finding.rule for finding in diagnosis.findings}
        wanted = {rule for fault in faults for rule in fault.rules}
        number += 1
        hits += len(found & wanted)
        misses += [f"{name}: {rule}" for rule in sorted(wanted - found)]
        extras += [f"{name}: {rule}" for rule in sorted(found - wanted - CONSEQUENCES)]
        first += bool(diagnosis.causes) and diagnosis.causes[0].rule in {fault.first for fault in faults}
    return Score(number, hits, tuple(misses), tuple(extras), first)
