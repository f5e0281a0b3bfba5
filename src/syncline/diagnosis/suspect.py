"""A suspect: what may be wrong, where, why one thinks so, and the fault of a cluster description that it amounts to."""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncline.describe.model import Handle, handle
from syncline.fabric.faults import FailedPart


@dataclass(frozen=True)
class IncidentSuspect:
    """One hypothesis. `part` is a NIC (`nic-5`), a GPU, a switch's port or nothing; `rate_Bps` what is left of it."""

    rule: str
    host: str
    part: str
    cause: str
    probability: float
    evidence: tuple[str, ...]
    next: str
    fault: str = ""
    """The line of a cluster file that says the same."""
    predicted_GBps: float | None = None
    """Bus bandwidth that the cluster gives with this fault, of the collective that was measured."""
    loss: float | None = None
    """The share of the healthy cluster's bandwidth that this fault costs, by prediction."""
    stops: bool = False
    """Whether it ends jobs rather than slowing them."""
    is_described: bool = False
    """Whether the cluster file has this fault already."""
    failed: Handle[FailedPart | None] = handle()

    @property
    def place(self) -> str:
        return "/".join(part for part in (self.host, self.part) if part)

    def priced(self, predicted_GBps: float, loss: float, probability: float) -> IncidentSuspect:
        """Return the suspect with what it would cost and how well that fits what was measured."""
        return replace(self, predicted_GBps=predicted_GBps, loss=loss, probability=probability)


def fault_line(failed: FailedPart) -> str:
    """Return a fault as a cluster file has it."""
    rate = f", rate: {failed.rate * 8 / 1e9:.4g}Gbps" if failed.rate else ""
    return f"{{{'device' if failed.device else 'link'}: {failed.device or failed.link}{rate}}}"
