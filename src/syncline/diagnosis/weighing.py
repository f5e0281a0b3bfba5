"""How likely each suspect is: its price as a fault of the cluster beside what was measured."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations

from syncline.diagnosis.incident import IncidentFolder, NicNames
from syncline.diagnosis.suspect import IncidentSuspect
from syncline.errors import SynclineError
from syncline.fabric import Fabric
from syncline.fabric.faults import FailedPart, apply_faults
from syncline.program import place
from syncline.schedule import Kind
from syncline.sim.collective.price import LibraryTime, price

MOST = 6
"""Suspects that are priced together, two at a time."""
FEWEST_SIGMA = 0.08
"""A prediction is never held to be surer than this, in the logarithm."""
NOTHING = 0.2
"""The odds that nothing is wrong, before anything was seen."""


@dataclass(frozen=True)
class Measured:
    """The collective that was measured, and what the healthy cluster would give."""

    path: str
    collective: str
    size_bytes: int
    num_ranks: int
    busbw_GBps: float
    hosts: tuple[str, ...]
    healthy_GBps: float | None = None
    low_GBps: float | None = None
    high_GBps: float | None = None

    @property
    def is_slow(self) -> bool:
        """Say whether it lies below what the healthy cluster gives."""
        return self.low_GBps is not None and self.busbw_GBps < self.low_GBps


def measured_in(folder: IncidentFolder) -> Measured | None:
    """Return the largest row of the run with the most ranks."""
    runs = [(name, run) for name, run in folder.runs if run.rows]
    if not runs:
        return None
    name, run = max(runs, key=lambda item: (item[1].num_ranks, len(item[1].rows)))
    row = max(run.rows, key=lambda one: (one.size_bytes, not one.in_place))
    hosts = tuple(dict.fromkeys(device.host for device in run.devices if device.host))
    return Measured(name, run.kind.value, row.size_bytes, run.num_ranks, row.busbw_Bps / 1e9, hosts)


def _price(fabric: Fabric, measured: Measured, faults: Sequence[FailedPart]) -> LibraryTime | None:
    try:
        faulty = apply_faults(fabric, tuple(faults))
        return price(Kind(measured.collective), measured.size_bytes, place("packed", faulty, measured.num_ranks)).nccl
    except SynclineError:
        return None


def with_healthy(measured: Measured | None, fabric: Fabric | None) -> Measured | None:
    """Return what was measured beside what the healthy cluster would give."""
    if measured is None or fabric is None or (found := _price(fabric, measured, ())) is None:
        return measured
    scale = found.busbw_Bps * found.time_s / 1e9
    return replace(
        measured, healthy_GBps=found.busbw_Bps / 1e9, low_GBps=scale / found.high_s, high_GBps=scale / found.low_s
    )


def _likelihood(found: LibraryTime | None, measured: Measured) -> float:
    """Return how well a prediction fits what was measured, 1 where they agree."""
    if found is None:
        return 0.05
    sigma = max(math.log(found.high_s / found.low_s) / 2.56, FEWEST_SIGMA)
    off = math.log(max(found.busbw_Bps / 1e9, 1e-9) / max(measured.busbw_GBps, 1e-9)) / sigma
    return math.exp(-0.5 * min(off * off, 40.0)) + 1e-4


def ranked(
    suspects: Sequence[IncidentSuspect], measured: Measured | None, fabric: Fabric | None, nics: NicNames
) -> tuple[IncidentSuspect, ...]:
    """Return the suspects, the likeliest and costliest first.

    Those that are faults of the cluster are weighed together: every one alone, every two at once, and none, each by its
    evidence and by how well its price fits what was measured. Faults that the cluster file has already come last.
    """
    suspects = [
        replace(one, is_described=one.failed is not None and one.failed.device in nics.described) for one in suspects
    ]
    priced = [one for one in suspects if one.failed is not None and not one.is_described]
    if fabric is not None and measured is not None and priced:
        weighed = sorted(priced, key=lambda one: -one.probability)[:MOST]
        suspects = [*_weighed(weighed, fabric, measured), *(one for one in suspects if one not in weighed)]
    return tuple(sorted(suspects, key=lambda one: (one.is_described, -one.probability * _weight(one))))


def _weight(one: IncidentSuspect) -> float:
    if one.stops:
        return 1.0
    return 0.5 if one.loss is None else 0.4 + 0.6 * min(max(one.loss, 0.0) * 1.5, 1.0)


def _weighed(suspects: Sequence[IncidentSuspect], fabric: Fabric, measured: Measured) -> list[IncidentSuspect]:
    odds = {number: one.probability / (1 - one.probability) for number, one in enumerate(suspects)}
    sets = [(), *((number,) for number in odds), *combinations(odds, 2)]
    prices = {
        chosen: _price(fabric, measured, [failed for number in chosen if (failed := suspects[number].failed)])
        for chosen in sets
    }
    weights = {
        chosen: (NOTHING if not chosen else math.prod(odds[number] for number in chosen))
        * _likelihood(prices[chosen], measured)
        for chosen in sets
    }
    total = sum(weights.values())
    healthy = prices[()]
    result = []
    for number, one in enumerate(suspects):
        share = sum(weight for chosen, weight in weights.items() if number in chosen) / total
        alone = prices[(number,)]
        if alone is None or healthy is None:
            result.append(one)
            continue
        loss = 1 - alone.busbw_Bps / healthy.busbw_Bps
        # What the measurement cannot tell apart keeps what its evidence says.
        sure = share if loss > FEWEST_SIGMA else one.probability
        result.append(one.priced(alone.busbw_Bps / 1e9, loss, round(min(sure, 0.99), 3)))
    return result
