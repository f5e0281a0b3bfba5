"""Two fabrics compared cable by cable: what one describes, and what was found.

Hosts are known by their names, NICs by their number, switches by name or, where a discovery calls them otherwise, by
what hangs on them: the leaf that most of the same NICs lead to, then the spine that most of the same leaves lead to.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from syncline.describe import units
from syncline.errors import FabricError
from syncline.fabric.fabric import DeviceKind, Fabric

DifferenceKind = Literal["host missing", "host extra", "missing", "extra", "moved", "rate"]
_ALIKE = 0.5
_SAME_RATE = 0.01


@dataclass(frozen=True)
class CableDifference:
    """One thing that is not as described."""

    kind: DifferenceKind
    where: str
    described: str
    found: str


@dataclass(frozen=True)
class CableDiff:
    """Differences in order, and which switch of what was found was taken for which described one."""

    cables_described: int
    cables_found: int
    switches_taken_for: dict[str, str]
    differences: tuple[CableDifference, ...]


def compare_cables(described: Fabric, found: Fabric) -> CableDiff:
    """Return how the cables of `found` differ from those of `described`."""
    planned, there = _Cables(described), _Cables(found)
    common = set(described.host_names) & set(found.host_names)
    if not common:
        raise FabricError(
            f'no host is called the same: "{described.host_names[0]}" is described, "{found.host_names[0]}" was found.',
            hint="Name the hosts in the cluster file as they are called: hosts: [{names: ['gpu[1-64]'], host: ...}].",
        )
    alias = _matched(planned, there)
    there = there.renamed(alias)
    differences = [
        *(CableDifference("host missing", host, "there", "-") for host in described.host_names if host not in common),
        *(CableDifference("host extra", host, "-", "there") for host in found.host_names if host not in common),
        *_of_nics(planned, there, common),
        *_of_switches(planned, there),
        *_of_rates(planned, there),
    ]
    named = {mine: theirs for theirs, mine in alias.items() if mine != theirs}
    return CableDiff(planned.total, there.total, named, tuple(differences))


class _Cables:
    """How many cables join two devices, and what each carries."""

    def __init__(self, fabric: Fabric | None = None) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.rates: dict[tuple[str, str], float] = {}
        self.near: dict[str, Counter[str]] = defaultdict(Counter)
        self.switches: set[str] = set()
        self.host_of: dict[str, str] = {}
        if fabric is not None:
            self._read(fabric)

    @property
    def total(self) -> int:
        return self.counts.total()

    def _read(self, fabric: Fabric) -> None:
        links, devices = fabric.links, fabric.devices
        kinds = (DeviceKind.SWITCH, DeviceKind.OCS)
        for link in range(0, len(links), 2):
            a, b = int(links.src[link]), int(links.dst[link])
            joins = devices.kind[a] in kinds or devices.kind[b] in kinds
            if joins and links.up[link]:
                self.add(fabric.device_name(a), fabric.device_name(b), float(links.rate_Bps[link]), 1)
        for device in range(len(devices)):
            if devices.kind[device] in kinds:
                self.switches.add(fabric.device_name(device))
            elif devices.host[device] >= 0:
                self.host_of[fabric.device_name(device)] = fabric.host_names[int(devices.host[device])]

    def add(self, a: str, b: str, rate_Bps: float, count: int) -> None:
        ends = (a, b) if a <= b else (b, a)
        self.counts[ends] += count
        self.rates[ends] = min(rate_Bps, self.rates.get(ends, rate_Bps))
        self.near[a][b] += count
        self.near[b][a] += count

    def renamed(self, alias: Mapping[str, str]) -> _Cables:
        """Return the same cables with other names for switches."""
        new = _Cables()
        new.switches, new.host_of = {alias.get(name, name) for name in self.switches}, self.host_of
        for (a, b), count in self.counts.items():
            new.add(alias.get(a, a), alias.get(b, b), self.rates[a, b], count)
        return new


def _matched(planned: _Cables, there: _Cables) -> dict[str, str]:
    """Return what each found switch is called in the description; a switch that is like no other keeps its name."""
    alias = {name: name for name in there.switches & planned.switches}
    while True:
        taken = set(alias.values())
        pairs = sorted(
            (
                (-_likeness(planned.near[mine], there.near[theirs], alias), mine, theirs)
                for theirs in there.switches - set(alias)
                for mine in planned.switches - taken
            ),
        )
        before = len(alias)
        for score, mine, theirs in pairs:
            if -score > _ALIKE and theirs not in alias and mine not in taken:
                alias[theirs] = mine
                taken.add(mine)
        if len(alias) == before:
            return alias


def _likeness(mine: Counter[str], theirs: Counter[str], alias: Mapping[str, str]) -> float:
    """Return the share of cables of two switches that lead to the same devices, as far as those are known."""
    known: Counter[str] = Counter()
    for name, count in theirs.items():
        known[alias.get(name, name)] += count
    union = (mine | known).total()
    return (mine & known).total() / union if union else 0.0


def _of_nics(planned: _Cables, there: _Cables, common: set[str]) -> Iterable[CableDifference]:
    nics = sorted(n for n in {*planned.near, *there.near} if planned.host_of.get(n, there.host_of.get(n)) in common)
    for nic in nics:
        wanted, got = planned.near[nic] - there.near[nic], there.near[nic] - planned.near[nic]
        for mine, theirs in zip(sorted(wanted.elements()), sorted(got.elements()), strict=False):
            yield CableDifference("moved", nic, mine, theirs)
        both = min(wanted.total(), got.total())
        for mine in sorted(wanted.elements())[both:]:
            yield CableDifference("missing", nic, mine, "-")
        for theirs in sorted(got.elements())[both:]:
            yield CableDifference("extra", nic, "-", theirs)


def _of_switches(planned: _Cables, there: _Cables) -> Iterable[CableDifference]:
    boxes = planned.switches | there.switches
    for ends in sorted({*planned.counts, *there.counts}):
        if not boxes.issuperset(ends):
            continue
        wanted, got = planned.counts[ends], there.counts[ends]
        if wanted != got:
            kind: DifferenceKind = "missing" if got < wanted else "extra"
            yield CableDifference(kind, f"{ends[0]} <-> {ends[1]}", _cables(wanted), _cables(got))


def _of_rates(planned: _Cables, there: _Cables) -> Iterable[CableDifference]:
    for ends in sorted(planned.counts.keys() & there.counts.keys()):
        wanted, got = planned.rates[ends], there.rates[ends]
        if abs(got / wanted - 1) > _SAME_RATE:
            where = f"{ends[0]} <-> {ends[1]}"
            yield CableDifference("rate", where, units.show_rate(wanted), units.show_rate(got))


def _cables(count: int) -> str:
    return "-" if count == 0 else f"{count} cable{'s' if count > 1 else ''}"
