"""Does the lab do what its description says: every link's rate and delay, and who reaches whom."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass

from syncline.describe.plain import JsonObject
from syncline.errors import LabError
from syncline.lab.inside.protocol import Message
from syncline.lab.lab import Lab

TOLERANCE = 0.05
DELAY_TOLERANCE_S = 0.002
_ATTEMPTS = 3


@dataclass(frozen=True)
class LinkCheck:
    """One directed link: what the cluster says, what the lab should do (scaled), and what was measured."""

    name: str
    described_Bps: float
    wanted_Bps: float
    measured_Bps: float
    delay_s: float
    measured_delay_s: float | None
    up: bool
    tolerance: float

    @property
    def gap(self) -> float:
        """Measured over wanted, less one."""
        return self.measured_Bps / self.wanted_Bps - 1

    @property
    def ok(self) -> bool:
        """Whether the link does what it should (a link that is down: nothing)."""
        if not self.up:
            return self.measured_Bps == 0
        late = self.measured_delay_s is None or abs(self.measured_delay_s - self.delay_s) > DELAY_TOLERANCE_S
        return abs(self.gap) <= self.tolerance and not (self.delay_s and late)

    def to_json(self) -> JsonObject:
        """Return the row as plain values."""
        return {
            "link": self.name,
            "described_Bps": self.described_Bps,
            "wanted_Bps": self.wanted_Bps,
            "measured_Bps": self.measured_Bps,
            "gap": self.gap,
            "delay_s": self.delay_s,
            "measured_delay_s": self.measured_delay_s,
            "up": self.up,
            "ok": self.ok,
        }


@dataclass(frozen=True)
class LabCheck:
    """All links of a lab, and the pairs of host and address that do not reach each other."""

    links: tuple[LinkCheck, ...]
    unreachable: tuple[tuple[str, str], ...]
    num_pairs: int

    @property
    def ok(self) -> bool:
        """Whether everything is as described."""
        return all(link.ok for link in self.links) and not self.unreachable

    def to_json(self) -> JsonObject:
        """Return the check as plain values."""
        return {
            "ok": self.ok,
            "num_pairs": self.num_pairs,
            "unreachable": [{"from": a, "to": b} for a, b in self.unreachable],
            "links": [link.to_json() for link in self.links],
        }


def check(
    lab: Lab,
    *,
    seconds: float = 0.25,
    tolerance: float = TOLERANCE,
    on_progress: Callable[[int, int], None] | None = None,
) -> LabCheck:
    """Measure every link of a lab, those that miss up to three times (a shared machine has its moments)."""
    blueprint = lab.blueprint
    todo = [(number, side) for number in range(len(blueprint.cables)) for side in (0, 1)]
    best: dict[tuple[int, int], LinkCheck] = {}
    failed: list[tuple[int, int, str]] = []
    for attempt in range(_ATTEMPTS):
        found, unreachable = _measure(lab, todo, seconds, attempt == 0, on_progress)
        if attempt == 0:
            failed = unreachable
        for direction in todo:
            row = _row(lab, direction, found, tolerance)
            if direction not in best or abs(row.gap) < abs(best[direction].gap):
                best[direction] = row
        todo = [direction for direction in todo if not best[direction].ok]
        if not todo:
            break
    names = lab.host_names
    num_addresses = sum(len(blueprint.addresses(host)) for host in blueprint.hosts)
    return LabCheck(
        tuple(best.values()),
        tuple((names[i], f"{names[j]} ({address})") for i, j, address in failed),
        (len(names) - 1) * num_addresses,
    )


def _row(lab: Lab, direction: tuple[int, int], found: dict[int, Message], tolerance: float) -> LinkCheck:
    cable = lab.blueprint.cables[direction[0]]
    _, _, link, wanted = cable.ends()[direction[1]]
    return LinkCheck(
        lab.blueprint.link_names[link],
        wanted / lab.blueprint.scale,
        wanted,
        found[link]["rate_Bps"],
        cable.delay_s,
        found[link]["delay_s"],
        cable.up,
        tolerance,
    )


def _measure(
    lab: Lab,
    directions: list[tuple[int, int]],
    seconds: float,
    pairs: bool,
    on_progress: Callable[[int, int], None] | None,
) -> tuple[dict[int, Message], list[tuple[int, int, str]]]:
    out = os.memfd_create("meter")
    try:
        _, ended = lab.helper("measure", files=(out,), directions=directions, seconds=seconds, pairs=pairs)
        while not ended.wait(0.1):
            if on_progress is not None:
                on_progress(os.pread(out, os.fstat(out).st_size, 0).count(b"\n"), len(directions))
        rows = [json.loads(line) for line in os.pread(out, os.fstat(out).st_size, 0).splitlines()]
    finally:
        os.close(out)
    if not rows or "unreachable" not in rows[-1]:
        raise LabError("the meter of the lab stopped before it was done.", hint=f"It got to {len(rows)} links.")
    return {row["link"]: row for row in rows[:-1]}, [tuple(row) for row in rows[-1]["unreachable"]]
