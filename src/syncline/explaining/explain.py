"""Recordings of one job, explained: accounts, collectives, lost overlap, stalls, late ranks and what to change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from syncline.describe.model import Handle, handle
from syncline.explaining.attribution import StepAttribution, attribute_all
from syncline.explaining.blocking import Stall
from syncline.explaining.changes import Replays, TraceChange, with_what_hid
from syncline.explaining.groups import CollectiveGroup, groups_of
from syncline.explaining.lost_overlap import LostOverlap, lost_overlap
from syncline.explaining.matching import Matches, match
from syncline.explaining.on_cluster import OnCluster
from syncline.explaining.replay import replay_graph
from syncline.explaining.steps import windows_of
from syncline.fabric.fabric import Fabric
from syncline.sim.profile import SystemProfile
from syncline.timeline.account import Account, AccountDifference, StepCause
from syncline.timeline.recording.recording import Recording


@dataclass(frozen=True)
class RankSteps:
    """One rank: its median and longest step, and the part of its time by cause."""

    rank: int
    file: str
    steps: int
    median_s: float
    worst_s: float
    worst_step: str
    causes: dict[str, float]
    """Share of all its recorded steps by cause."""
    late_s: float | None
    """What the other ranks waited for it in a step; None with one rank's trace."""


@dataclass(frozen=True)
class LateArrival:
    """A rank that others wait for in collectives, and what it does longer than they."""

    rank: int
    waited_s: float
    """A step, of the rank that waited longest."""
    share: float
    """Of the median step."""
    longer: str
    """The line of its account that is longest beyond the other ranks' median."""
    longer_s: float


@dataclass(frozen=True)
class Explanation:
    """What a job's traces say."""

    tool: str
    device: str
    ranks: int
    world: int
    steps: int
    recorded_s: float
    """All recorded steps of the rank that is shown."""
    account: Account
    """The median step of the rank that is shown."""
    worst: Account
    shown_rank: int
    """The rank whose median step is longest; of those alike the one that waits least for others."""
    by_rank: tuple[RankSteps, ...]
    late: tuple[LateArrival, ...]
    collectives: tuple[CollectiveGroup, ...]
    lost_overlap: tuple[LostOverlap, ...]
    stalls: tuple[Stall, ...]
    changes: tuple[TraceChange, ...]
    lacks: tuple[str, ...]
    on_cluster: OnCluster | None = None
    """The whole trace with the communication of a cluster; None without one."""
    predicted: AccountDifference | None = None
    """From the step that the model as shipped predicts of the job to the measured one; None without a job."""
    multipliers: dict[str, float] | None = None
    """How many times as long as that model says, by kind of work; None without a job."""
    attributions: Handle[tuple[StepAttribution, ...]] = handle()
    matches: Handle[Matches] = handle()
    shown: Handle[int] = handle()
    profile: Handle[SystemProfile | None] = handle()


def explain_recordings(recordings: Sequence[Recording], fabric: Fabric | None = None) -> Explanation:
    """Return what recordings of one job say, a rank each."""
    ordered = numbered(recordings)
    windows = tuple(windows_of(one) for one in ordered)
    matches = match(ordered, windows)
    every = attribute_all(ordered, windows, matches)
    shown = _shown(every)
    mine = every[shown]
    step = mine.windows.median
    account, changes = mine.account(step), ()  # type: tuple[Account, tuple[TraceChange, ...]]
    graph = replay_graph(mine, step)
    if graph is not None:
        replays = Replays(mine, step, graph, matches.transfer_s[shown])
        account, changes = with_what_hid(account, replays), replays.changes()
    first = ordered[0]
    return Explanation(
        tool=first.tool, device=first.device_name, ranks=len(ordered), world=max(one.world for one in ordered),
        steps=len(mine.windows), recorded_s=float(mine.windows.length_s.sum()), account=account,
        worst=mine.account(mine.windows.worst), shown_rank=mine.recording.rank,
        by_rank=tuple(_rank_steps(one, matches) for one in every), late=_late(every, matches),
        collectives=groups_of(mine, matches, shown, fabric), lost_overlap=lost_overlap(mine),
        stalls=_in_a_step(mine), changes=changes, lacks=_lacks(ordered, graph is None),
        attributions=every, matches=matches, shown=shown,
    )  # fmt: skip


def numbered(recordings: Sequence[Recording]) -> tuple[Recording, ...]:
    """Return recordings in the order of their ranks; those that do not say which rank they are get the free numbers."""
    taken = [one.rank for one in recordings]
    if len(set(taken)) < len(taken) or min(taken) < 0:
        return tuple(one.with_rank(place) for place, one in enumerate(recordings))
    return tuple(sorted(recordings, key=lambda one: one.rank))


def _shown(every: Sequence[StepAttribution]) -> int:
    """Return the rank to show: of the slowest ones (within 2 %) the one that waits least for others."""
    medians = np.array([one.windows.median_s for one in every])
    near = np.flatnonzero(medians >= 0.98 * medians.max())
    waits = [every[place].total.share(StepCause.LATE) for place in near.tolist()]
    return int(near[int(np.argmin(waits))])


def _rank_steps(mine: StepAttribution, matches: Matches) -> RankSteps:
    windows, total = mine.windows, mine.total
    late = matches.late_s.get(mine.recording.rank, 0.0) / len(windows) if matches.matched else None
    return RankSteps(
        mine.recording.rank, mine.recording.where, len(windows), windows.median_s,
        float(windows.length_s.max()), windows.names[windows.worst],
        {cause: seconds / max(total.step_s, 1e-12) for cause, seconds in total.causes_s.items()}, late,
    )  # fmt: skip


def _late(every: Sequence[StepAttribution], matches: Matches) -> tuple[LateArrival, ...]:
    if not matches.matched:
        return ()
    steps = len(every[0].windows)
    median_s = float(np.median([one.windows.median_s for one in every]))
    found = []
    for mine in every:
        waited = matches.late_s.get(mine.recording.rank, 0.0) / steps
        if waited < 0.01 * median_s:
            continue
        longer, seconds = _longer(mine, every)
        found.append(LateArrival(mine.recording.rank, waited, waited / median_s, longer, seconds))
    return tuple(sorted(found, key=lambda one: -one.waited_s))


def _longer(mine: StepAttribution, every: Sequence[StepAttribution]) -> tuple[str, float]:
    """Return the line of a rank's account, waits for others apart, that exceeds the others' median most."""

    def lines(one: StepAttribution) -> dict[str, float]:
        kept = (
            line for line in one.total.lines if line.cause not in (StepCause.LATE, StepCause.NETWORK, StepCause.STAGE)
        )
        return {f"{line.cause}: {line.what}": line.seconds / len(one.windows) for line in kept}

    others = [lines(one) for one in every if one is not mine]
    own = lines(mine)
    beyond = {what: seconds - float(np.median([other.get(what, 0.0) for other in others]))
              for what, seconds in own.items()}  # fmt: skip
    what = max(beyond, key=lambda key: beyond[key], default="")
    return what, beyond.get(what, 0.0)


def _in_a_step(mine: StepAttribution) -> tuple[Stall, ...]:
    steps = len(mine.windows)
    rows = [Stall(one.what, one.where, one.times, one.seconds / steps) for one in mine.stalls]
    return tuple(one for one in rows if one.seconds > 0.002 * mine.windows.median_s)


def _lacks(ordered: Sequence[Recording], no_replay: bool) -> tuple[str, ...]:
    found = list(dict.fromkeys(text for one in ordered for text in one.lacks))
    if len(ordered) == 1 and ordered[0].collectives:
        found.append(
            "other ranks: one trace cannot separate late arrival from slow transfer (name the traces of several ranks)"
        )
    if no_replay:
        why = "a CPU has none" if ordered[0].device_name == "CPU" else "ProfilerActivity.CPU and CUDA record them"
        found.append(f"launches: changes cannot be replayed ({why})")
    return tuple(found)
