"""Who is dead, silent, hung or cut off, from what ranks say of themselves and of each other; no clock, no socket.

A process that its host disowns, or that reported why it ends, is lost at once. A rank that is silent or stands still is
first named and waited for, since a switch may restart or a disk be slow, and is lost only after `patience_s`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from syncline.runtime.alive.heartbeat import BUSY, CLOSED, COMPUTING, WAITING, Beat

SILENCE_SHARE = 0.6
"""Of `watch_s`: how long silence or standing still must last to be named, so that it is within `watch_s`."""
PATIENCE_STEPS = 3.0
"""Standing still is judged after so many usual steps, where that is longer: a slow wire is not a broken one."""
REFUSALS = 2


@dataclass(frozen=True)
class Member:
    """One of those who are watched, as people know it: its rank in the run, and its host."""

    rank: int
    host: str

    def __str__(self) -> str:
        return f"rank {self.rank} on {self.host}"


@dataclass(frozen=True)
class BeatRecord:
    """What is known of another rank: its last beat, its age, and how often its host answered that it is gone."""

    beat: Beat
    age_s: float
    refused: int = 0


@dataclass(frozen=True)
class RankVerdict:
    """What is wrong ("dead", "silent", "hung", "network", "stuck", "closed", or "reported" by another) with which rank.

    `lasted_s` is for how long that has been so; `is_final`: it is waited for no longer; `is_loss`: the rank is lost,
    and has not only reported a failure that others may meet as well.
    """

    kind: str
    rank: int
    text: str
    hint: str = ""
    lasted_s: float = 0.0
    is_final: bool = True
    is_loss: bool = True


def judge(
    own: Beat, heard: Mapping[int, BeatRecord], members: Sequence[Member], watch_s: float, patience_s: float = 0.0
) -> RankVerdict | None:
    """Return what is wrong, or None; every rank that hears the others reaches the same verdict, or is notified.

    What has lasted for less than `patience_s` is not final: it is logged and waited for.
    """
    limit = SILENCE_SHARE * watch_s
    reported = next((h.beat for h in heard.values() if h.beat.cause), None)
    if reported is not None:
        is_loss = reported.lost >= 0
        return RankVerdict("reported", reported.lost if is_loss else reported.rank, reported.cause, is_loss=is_loss)
    found = _gone(heard, members) or _silent(own, heard, members, limit) or _still(own, heard, members, limit)
    if found is None or found.kind in ("dead", "closed"):
        return found
    return replace(found, is_final=found.lasted_s >= max(limit, patience_s))


def _gone(heard: Mapping[int, BeatRecord], members: Sequence[Member]) -> RankVerdict | None:
    for rank, h in heard.items():
        if h.beat.state != CLOSED and h.refused >= REFUSALS:
            text = f"{members[rank]} is dead: its host answers that the process is gone."
            return RankVerdict("dead", rank, text, "Look for its last words, an OOM kill or a signal, on that host.")
    return None


def _silent(
    own: Beat, heard: Mapping[int, BeatRecord], members: Sequence[Member], limit_s: float
) -> RankVerdict | None:
    open_ranks = {rank: h for rank, h in heard.items() if h.beat.state != CLOSED}
    silent = [rank for rank, h in open_ranks.items() if h.age_s > limit_s]
    if not silent:
        return None
    if len(silent) == len(open_ranks) >= 2:
        lasted_s = min(h.age_s for h in open_ranks.values())
        text = f"{members[own.rank]} hears from no other rank: it is cut off, or all others are gone."
        return RankVerdict("network", own.rank, text, f"Check the link of {members[own.rank].host}.", lasted_s)
    rank = silent[0]
    age = heard[rank].age_s
    hearing = [
        r for r, h in heard.items() if r not in silent and h.age_s <= limit_s / 2 and _hears(h.beat, rank, limit_s)
    ]
    if hearing:
        text = (
            f"ranks do not agree who is silent: {members[own.rank]} has not heard {members[rank]} for {age:.1f} s, and "
            f"{members[hearing[0]]} has."
        )
        hint = f"Check the path between {members[own.rank].host} and {members[rank].host}."
        return RankVerdict("network", rank, text, hint, age)
    text = f"{members[rank]} is lost: no rank has heard from it for {age:.1f} s."
    return RankVerdict("silent", rank, text, "Its process is gone or stopped, or its host is down or cut off.", age)


def _hears(beat: Beat, rank: int, limit_s: float) -> bool:
    return 0 <= beat.ages.get(rank, limit_s) <= limit_s / 2


def _still(own: Beat, heard: Mapping[int, BeatRecord], members: Sequence[Member], limit_s: float) -> RankVerdict | None:
    beats = {own.rank: own, **{rank: h.beat for rank, h in heard.items()}}
    steps = [beat.step_s for beat in beats.values() if beat.step_s > 0]
    if not steps or any(beat.state == BUSY for beat in beats.values()):
        return None  # the first step compiles and connects: how long it takes says nothing
    patience_s = max(limit_s, PATIENCE_STEPS * median(steps))
    waiting = [beat for beat in beats.values() if beat.state == WAITING and beat.still_s > patience_s]
    if not waiting:
        return None
    first = min(waiting, key=lambda beat: beat.step)
    for beat in sorted(beats.values(), key=lambda beat: beat.step):
        who = members[beat.rank]
        if beat.state == CLOSED and beat.step < first.step:
            text = f"{who} has ended at step {beat.step} while rank {members[waiting[0].rank].rank} still waits for it."
            return RankVerdict(
                "closed", beat.rank, text, "Give every rank the same number of steps, or use model.join()."
            )
        if beat.state == COMPUTING and beat.still_s > patience_s:
            where = f", in {beat.at}" if beat.at else ""
            text = f"{who} hangs: alive, but without progress for {beat.still_s:.1f} s at step {beat.step}{where}."
            hint = "Wrap what takes long on purpose in handle.busy()."
            return RankVerdict("hung", beat.rank, text, hint, beat.still_s)
    closed = [beat for beat in beats.values() if beat.state == CLOSED]
    if closed:
        # They have made the step that others still wait in: what they sent is on its way, or lost with a link.
        who = members[closed[0].rank]
        text = f"{who} has ended, and what it sent has not arrived: no progress for {first.still_s:.1f} s."
        return RankVerdict("stuck", closed[0].rank, text, "Check the links of these ranks.", first.still_s)
    if len(waiting) == len(beats):
        lasted_s = min(beat.still_s for beat in waiting)
        text = f"every rank waits and nothing arrives: no progress for {lasted_s:.1f} s."
        hint = "All ranks are alive: the connections that carry gradients are stuck."
        return RankVerdict("stuck", own.rank, text, hint, lasted_s)
    return None
