"""The tournament: every pair of hosts tested, the slow results pinned on a host, a link, a leaf or a spine.

    result = run(Crossings(fabric, devices), play)           # play(round) measures the flows of one round
    result.attribution.suspects[0].part.name                 # "leaf-0 -> spine-1"

First pass: a round-robin in which all hosts are busy. Second pass: every suspect again, alone on the network, with
hosts that did well at the other end, and the same hosts around the suspect, so that a neighbour is not blamed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from syncline.bench.attribute import LEAST_SLOWNESS, Attribution, Suspect, attribute
from syncline.bench.incidence import Crossings, Incidence
from syncline.bench.loss import LossSuspect, losses
from syncline.bench.pairing import Match, Round, apart, one_by_one, tournament
from syncline.describe.plain import JsonObject
from syncline.fabric.fabric import DeviceKind
from syncline.host.resent import Resent
from syncline.sim.flow.engine import Paths
from syncline.sim.flow.maxmin import max_min_rates

Floats = NDArray[np.float64]
Play = Callable[[Round], Sequence[float]]
"""Measures the flows of one round together and returns the rate of each, in bytes per second."""

SECOND_WEIGHT = 2.0
MAX_CELLS = 20_000_000
"""Flows times parts of one attribution: 128 hosts play every pair, a thousand ten pairings each way or so."""
MOST_ODD = 12
PER_SUSPECT = 4
"""Flows of the second pass that cross a suspect, and as many that avoid it."""


@dataclass(frozen=True, eq=False)
class Result:
    """Every measurement, what was expected of it, and what explains the slow ones."""

    matches: tuple[Match, ...]
    round: NDArray[np.int64]
    measured_Bps: Floats
    expected_Bps: Floats
    second: NDArray[np.bool_]
    first: Attribution
    attribution: Attribution
    num_rounds: int
    paths_known: bool
    resent: tuple[Resent, ...] = ()
    """What the sender of each match sent and sent again; empty where nobody counted."""
    losses: tuple[LossSuspect, ...] = ()
    uneven: Attribution | None = None
    """What explains flows whose repetitions differ, where nobody counted packets."""

    def judged(self, crossings: Crossings, resent: Sequence[Resent], seconds: Sequence[Floats]) -> Result:
        """Return the result with what counters say of lost packets or, without counters, the spread of repetitions."""
        incidence = crossings.incidence(self.matches)
        if any(one.sent for one in resent):
            return replace(self, resent=tuple(resent), losses=losses(resent, incidence))
        mean = np.array([row.mean() / row.min() for rows in seconds for row in rows])
        return replace(self, uneven=attribute(self.measured_Bps / mean, self.expected_Bps, incidence))

    def relative(self) -> Result:
        """Return the result with healthy flows at 100 %: for hosts whose links nobody described."""
        attribution = replace(self.attribution, offset=0.0)
        return replace(self, expected_Bps=self.expected_Bps * self.attribution.typical_factor, attribution=attribution)

    def to_json(self, names: Sequence[str]) -> JsonObject:
        """Return the table and its attribution as plain values; `names` are those of the hosts or ranks."""
        rows = zip(self.matches, self.round.tolist(), self.measured_Bps.tolist(), self.expected_Bps.tolist(),
                   self.second.tolist(), strict=True)  # fmt: skip
        return {
            "rounds": self.num_rounds,
            "paths_known": self.paths_known,
            "typical_factor": self.attribution.typical_factor,
            "noise": self.attribution.noise,
            "matches": [
                {
                    "src": names[m.src],
                    "dst": names[m.dst],
                    "round": r,
                    "rate_Bps": got,
                    "expected_Bps": want,
                    "second": again,
                    "resent_share": self.resent[row].share if self.resent else None,
                }
                for row, (m, r, got, want, again) in enumerate(rows)
            ],
            "suspects": [suspect_json(suspect) for suspect in self.attribution.suspects],
            "losses": [loss.to_json() for loss in self.losses],
        }


def suspect_json(suspect: Suspect) -> JsonObject:
    """Return a suspect as plain values."""
    return {
        "part": suspect.part.name, "kind": suspect.part.kind.value, "owner": suspect.part.owner,
        "factor": suspect.factor, "confidence": suspect.confidence, "flows": len(suspect.flows),
        "among": [part.name for part in suspect.among],
    }  # fmt: skip


def run(
    crossings: Crossings, play: Play, *, lanes: Sequence[Sequence[int]] | None = None, max_rounds: int = 0,
    second_pass: bool = True, tell: Callable[[str], None] = lambda text: None,
) -> Result:  # fmt: skip
    """Play the tournament and return its result.

    `lanes` gives the ranks of each host, one a rail: rank k of a host meets rank k of the other, all rails at once.
    """
    rails = [list(ranks) for ranks in lanes] if lanes is not None else [[rank] for rank in range(len(crossings.device))]
    most = max_rounds or _affordable_rounds(crossings, sum(map(len, rails)))
    rounds = [_on_rails(round_, rails) for round_ in tournament(len(rails), max_rounds=most)]
    leaf = crossings.leaf
    if not crossings.known:
        rounds = apart(rounds, leaf)
    crossings.of([match for round_ in rounds for match in round_])  # routed together, once
    table = _Table(crossings, play, tell)
    table.play(rounds, again=False)
    first = table.attribution()
    if second_pass:
        table.play(one_by_one([*_retests(first, table), *_unexplained(first, table)]), again=True)
    final = table.attribution()
    return Result(
        tuple(table.matches), np.array(table.round), np.array(table.measured), np.array(table.expected),
        np.array(table.again), first, final, table.num_rounds, crossings.known,
    )  # fmt: skip


def _affordable_rounds(crossings: Crossings, num_ranks: int) -> int:
    """Return how many rounds keep the table of flows and parts small enough; few hosts play them all."""
    between = np.isin(crossings.fabric.devices.kind[crossings.fabric.links.src], (DeviceKind.SWITCH,))
    num_parts = 2 * num_ranks + int(between.sum()) + 3 * len(crossings.fabric.switches)
    return max(2, MAX_CELLS // num_parts // max(1, num_ranks // 2))


def _on_rails(round_: Round, rails: list[list[int]]) -> Round:
    return tuple(
        Match(a, b) for match in round_ for a, b in zip(rails[match.src], rails[match.dst], strict=False)
    )  # fmt: skip


class _Table:
    """Measurements as they come in."""

    def __init__(self, crossings: Crossings, play: Play, tell: Callable[[str], None]) -> None:
        self.crossings, self._play, self._tell = crossings, play, tell
        self.matches: list[Match] = []
        self.round: list[int] = []
        self.measured: list[float] = []
        self.expected: list[float] = []
        self.again: list[bool] = []
        self.num_rounds = 0

    def play(self, rounds: Sequence[Round], *, again: bool) -> None:
        for number, round_ in enumerate(rounds):
            self._tell(f"{'second pass, ' if again else ''}round {number + 1} of {len(rounds)}")
            self.expected += expected_rates(self.crossings, round_).tolist()
            self.measured += [float(rate) for rate in self._play(round_)]
            self.matches += round_
            self.round += [self.num_rounds] * len(round_)
            self.again += [again] * len(round_)
            self.num_rounds += 1

    def incidence(self) -> Incidence:
        return self.crossings.incidence(self.matches)

    def attribution(self) -> Attribution:
        weight = np.where(np.array(self.again), SECOND_WEIGHT, 1.0)
        return attribute(np.array(self.measured), np.array(self.expected), self.incidence(), weight=weight)


def expected_rates(crossings: Crossings, round_: Round) -> Floats:
    """Return the rate of each flow of a round on a healthy fabric: shared fairly where the paths are known."""
    rows = crossings.of(round_)
    if not crossings.known:
        return crossings.line_Bps(round_)
    return max_min_rates(crossings.fabric.links.rate_Bps, Paths.of([sorted(row) for row in rows])).rate_Bps


def _retests(first: Attribution, table: _Table) -> list[Match]:
    """Return flows that settle each suspect: some that cross it and some that do not, between hosts that did well."""
    good = _known_good(first, table)
    pairs = list(dict.fromkeys(table.matches))
    incidence = table.crossings.incidence(pairs)
    column = {part.name: c for c, part in enumerate(incidence.parts)}
    chosen: list[Match] = []
    for suspect in first.suspects:
        chance = incidence.chance[:, column[suspect.part.name]]
        worth = np.array([(m.src in good) + (m.dst in good) for m in pairs], dtype=np.float64)
        through = np.lexsort((np.arange(len(pairs)), -worth, -chance))
        chosen += _spread([pairs[i] for i in through if chance[i] > 0], PER_SUSPECT)
        owners = {m.src for m in chosen} | {m.dst for m in chosen}
        near = np.array([(m.src in owners) + (m.dst in owners) for m in pairs], dtype=np.float64)
        around = np.lexsort((np.arange(len(pairs)), -near, -worth))
        chosen += _spread([pairs[i] for i in around if chance[i] == 0], PER_SUSPECT)
    return list(dict.fromkeys(chosen))


def _unexplained(first: Attribution, table: _Table) -> list[Match]:
    """Return flows that were slow without a suspect: measured again, they are noise or the only ones over a link."""
    limit = max(LEAST_SLOWNESS, 3 * first.noise)
    known = {row for suspect in first.suspects for row in suspect.flows}
    odd = [row for row in np.argsort(-first.slowness).tolist() if first.slowness[row] > limit and row not in known]
    return list(dict.fromkeys(table.matches[row] for row in odd[:MOST_ODD]))


def _spread(ordered: list[Match], count: int) -> list[Match]:
    """Return the first so many that do not all have the same ends: each end at most half of them, where possible."""
    found: list[Match] = []
    for match in ordered:
        same = sum(m.src == match.src for m in found), sum(m.dst == match.dst for m in found)
        if min(same) < max(1, count // 2) and len(found) < count:
            found.append(match)
    return found


def _known_good(first: Attribution, table: _Table) -> set[int]:
    """Return the hosts none of whose flows was slow, or else the better half."""
    worst: dict[int, list[float]] = {}
    for match, slow in zip(table.matches, first.slowness.tolist(), strict=True):
        worst.setdefault(match.src, []).append(slow)
        worst.setdefault(match.dst, []).append(slow)
    level = {host: float(np.quantile(values, 0.75)) for host, values in worst.items()}
    limit = max(0.1, 3 * first.noise)
    good = {host for host, slow in level.items() if slow < limit}
    return good if len(good) >= 2 else set(sorted(level, key=level.__getitem__)[: max(2, len(level) // 2)])
