"""Which part loses packets: attribution from what the senders of flows had to send again, a pure function.

    losses(resent, incidence)              # (LossSuspect(part="host-04 TX ...", share=0.011, ...),)

A rate hides loss: TCP fills the gap within one repetition, and the best of three is at full rate. Counters do not. Each
flow crosses parts; a part that loses a share of all packets makes every flow over it send that share again. For each
part the likelihood of the counts with it losing is compared with that of flows that do not cross it (Poisson, damped,
since losses come in bursts); the best is taken, what it explains is taken out, and so on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from syncline.bench.incidence import Incidence, SuspectPart
from syncline.describe.plain import JsonObject
from syncline.host.resent import Resent

Floats = NDArray[np.float64]
USUAL_SHARE = 2e-5
"""What a sound network loses at least: below it nothing is told apart from chance."""
BURST = 3.0
"""Packets that are lost together count as so many fewer observations."""
LEAST_GAIN = 6.0
LEAST_AGAIN = 4
"""Fewer packets sent again over a part are chance, whatever their share."""
LEAST_FLOWS = 2
OF_WORST = 0.1
"""A host that exchanged a few packets with one that loses many sends some again as well: no second fault."""


@dataclass(frozen=True)
class LossSuspect:
    """A part that loses packets: the share of what crossed it that was sent again, and the flows that show it."""

    part: SuspectPart
    share: float
    again: int
    gain: float
    flows: tuple[int, ...]
    among: tuple[SuspectPart, ...] = ()

    def to_json(self) -> JsonObject:
        return {
            "part": self.part.name, "kind": self.part.kind.value, "owner": self.part.owner, "share": self.share,
            "again": self.again, "flows": len(self.flows), "among": [part.name for part in self.among],
        }  # fmt: skip


def losses(resent: Sequence[Resent], incidence: Incidence, most: int = 8) -> tuple[LossSuspect, ...]:
    """Return the parts that lose packets, the worst first; `resent` has one entry a flow."""
    sent = np.array([float(one.sent) for one in resent])
    again = np.array([float(one.again) for one in resent])
    if not len(sent) or sent.sum() <= 0:
        return ()
    other_way = _other_way(incidence.parts)
    left = again.copy()
    found: dict[int, LossSuspect] = {}
    for _ in range(most):
        gain, share, shown = _gains(sent, left, incidence.chance, other_way)
        # A cable that loses both ways is convincing where neither way is alone; and a switch that all flows cross
        # explains the counts of one bad cable too, but few of its flows show them.
        backs = [found[back].gain if back in found else gain[back] if back >= 0 else 0.0 for back in other_way]
        both = gain + np.minimum(gain, backs)
        worth = np.where(both >= LEAST_GAIN, gain * shown, 0.0)
        worth[list(found)] = 0.0
        best = int(np.argmax(worth))
        if worth[best] <= 0:
            break
        rows = np.flatnonzero(incidence.chance[:, best] > 0)
        alike = tuple(part for c, part in enumerate(incidence.parts) if c != best and worth[c] > 0.9 * worth[best])
        flows = tuple(int(row) for row in rows if left[row] > 0)
        again_here, how_sure = int(left[rows].sum()), float(gain[best])
        found[best] = LossSuspect(incidence.parts[best], float(share[best]), again_here, how_sure, flows, alike)
        others = incidence.chance[:, best] <= 0
        left[rows] = np.minimum(left[rows], sent[rows] * left[others].sum() / max(1.0, sent[others].sum()))
    worst = max((one.share for one in found.values()), default=0.0)
    return tuple(sorted((one for one in found.values() if one.share >= OF_WORST * worst), key=lambda one: -one.share))


def _other_way(parts: Sequence[SuspectPart]) -> list[int]:
    """Return for each part the one that is the other direction of its cable, -1 where it is no single link."""
    column = {next(iter(part.links)): c for c, part in enumerate(parts) if len(part.links) == 1}
    return [column.get(next(iter(part.links)) ^ 1, -1) if len(part.links) == 1 else -1 for part in parts]


def _gains(sent: Floats, again: Floats, chance: Floats, other_way: Sequence[int]) -> tuple[Floats, Floats, Floats]:
    """Return for each part how much likelier the counts are if it loses packets, its loss, and how many flows show it.

    The last is the share of the flows over it that had something to send again. Flows that cross neither direction of
    its cable say what is usual.
    """
    gain = np.zeros(chance.shape[1])
    share, shown = np.zeros(chance.shape[1]), np.zeros(chance.shape[1])
    for column in range(chance.shape[1]):
        weight = chance[:, column]
        rows = weight > 0
        if again[rows].sum() < LEAST_AGAIN or (again[rows] > 0).sum() < LEAST_FLOWS or rows.all():
            continue  # a part that every flow crosses has none to be compared with
        rest = ~rows & (chance[:, other_way[column]] <= 0) if other_way[column] >= 0 else ~rows
        rest = rest if rest.any() else ~rows
        usual = max(USUAL_SHARE, float(again[rest].sum() / max(1.0, sent[rest].sum())))
        through = float((sent[rows] * weight[rows]).sum())
        lost = float(again[rows].sum()) / max(1.0, through) - usual
        if lost <= 0:
            continue
        with_it = sent[rows] * (usual + lost * weight[rows])
        without = sent[rows] * usual
        likelier = again[rows] * np.log(with_it / without) - (with_it - without)
        gain[column], share[column] = float(likelier.sum()) / BURST, lost + usual
        shown[column] = float((weight[rows] * (again[rows] > 0)).sum() / weight[rows].sum())
    return gain, share, shown
