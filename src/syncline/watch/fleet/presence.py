"""Who of a fleet is there: which agents report something new, whose clock is off, who restarted, who fell silent.

The fleet keeps its own time. An answer counts when it is a new look: an agent that repeats its last one is as silent as
one that does not answer, and neither is live.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from syncline.describe.units import show_time
from syncline.finding import Action, Finding, Severity
from syncline.watch.incident import Incident
from syncline.watch.job import JobState
from syncline.watch.links import LinkLoad, LinkTable

STALE_S, QUIET_S, GAPS = 5.0, 1.5, 3.0
"""An agent is silent after three times its longest usual gap, within these bounds: a crowded one often comes late."""
FADE = 0.9
"""Share of the longest gap that is left after a look that came sooner."""
CLOCK_S = 2.0
"""A clock that is further off than this is reported; times of that host are then shown by the fleet's clock."""
LEARNING_S = 15.0
"""After so long an agent that restarted knows again what is usual on its host."""


@dataclass(frozen=True, eq=False)
class HostFrame:
    """A host's newest look. `seq` counts an agent's looks (0: nobody counts), `began_s` says when it began.

    Hosts that only exporters speak for have one look together; their alerts name the host themselves.
    """

    host: str
    wall_s: float
    table: LinkTable
    load: LinkLoad
    job: JobState = field(default_factory=JobState)
    alerts: tuple[Incident, ...] = ()
    gpus: tuple[dict[str, float | str | None], ...] = ()
    seq: int = 0
    began_s: float | None = None
    num_hosts: int = 1
    usd_per_day: float | None = None
    """What the job costs, as this agent was told."""
    agent: str = ""
    """Address of the agent that gave the frame: its host's name is only what it says."""

    def is_same_look(self, before: HostFrame | None) -> bool:
        """Tell whether it is the look that was given before."""
        return before is not None and self.seq > 0 and (self.seq, self.began_s) == (before.seq, before.began_s)

    def is_later_life(self, before: HostFrame | None) -> bool:
        """Tell whether the agent has begun anew since."""
        return before is not None and (self.began_s != before.began_s or self.seq < before.seq)


@dataclass
class _Known:
    """What is known of one reader, by the fleet's own clocks."""

    since_s: float
    frames: list[HostFrame] = field(default_factory=list)
    new_s: float | None = None
    gap_s: float = STALE_S
    """The longest time between new looks lately."""
    ahead_s: float = 0.0
    again_s: float | None = None
    problem: str = ""


class Presence:
    """Takes answers and failures as they come; says who is live, and what is wrong with the rest."""

    def __init__(self, names: Sequence[str], now_s: float) -> None:
        self._known = {name: _Known(now_s) for name in names}

    def answered(self, name: str, frames: list[HostFrame], now_s: float, wall_s: float) -> bool:
        """Take an answer, and tell whether its incidents are new; one that is no newer than the last says nothing."""
        known = self._known.setdefault(name, _Known(now_s))
        known.problem = "" if frames else "it answers, but has no host to show yet"
        if not frames:
            return False
        before = {frame.host: frame for frame in known.frames}
        if all(frame.is_same_look(before.get(frame.host)) for frame in frames):
            return False
        if any(frame.is_later_life(before.get(frame.host)) for frame in frames):
            known.again_s = now_s
        if known.new_s is not None:
            known.gap_s = max(FADE * known.gap_s, now_s - known.new_s)
        known.frames, known.new_s, old = frames, now_s, known.frames
        known.ahead_s = max((frame.wall_s - wall_s for frame in frames), key=abs, default=0.0)
        keys, old_keys = ({(f.host, alert.key) for f in each for alert in f.alerts} for each in (frames, old))
        return keys != old_keys

    def failed(self, name: str, problem: str) -> None:
        """Take what went wrong with a reader."""
        self._known[name].problem = problem

    def live(self, now_s: float) -> list[HostFrame]:
        """Return the newest frames of all that are live, their times by the fleet's clock."""
        return [
            frame if abs(known.ahead_s) < CLOCK_S else _set_back(frame, known.ahead_s)
            for _, known in sorted(self._known.items())
            if self._is_live(known, now_s)
            for frame in known.frames
        ]

    def silent(self, now_s: float) -> dict[str, Finding]:
        """Return who is not live, by the name of its host or its address."""
        found = {}
        for name, known in sorted(self._known.items()):
            if self._is_live(known, now_s) or now_s - known.since_s < STALE_S:
                continue
            for place in [frame.host or name for frame in known.frames] or [name]:
                found[place] = _finding(name, place, known, now_s)
        return found

    def problems(self, now_s: float) -> dict[str, str]:
        """Return what the foot of the page says of each reader."""
        found = {}
        for name, known in self._known.items():
            notes = [known.problem] if known.problem else []
            if self._is_live(known, now_s):
                if abs(known.ahead_s) >= CLOCK_S:
                    way = "ahead of" if known.ahead_s > 0 else "behind"
                    notes.append(f"its clock is {show_time(abs(known.ahead_s))} {way} this one")
                if known.again_s is not None and now_s - known.again_s < LEARNING_S:
                    ago = show_time(max(0.0, now_s - known.again_s))
                    notes.append(f"the agent restarted {ago} ago and is still learning what is usual")
            elif known.new_s is not None and not known.problem:
                notes.append(f"it answers, but with nothing new for {show_time(now_s - known.new_s)}")
            if notes:
                found[name] = "; ".join(notes)
        return found

    def _is_live(self, known: _Known, now_s: float) -> bool:
        return known.new_s is not None and now_s - known.new_s < min(STALE_S, max(QUIET_S, GAPS * known.gap_s))


def silent_alerts(silent: Mapping[str, Finding], now_s: float, wall_s: float) -> list[Incident]:
    """Return incidents of those who are silent, since when by the wall's clock."""
    return [Incident.of(finding, host=place).moved(wall_s - now_s) for place, finding in silent.items()]


def _finding(name: str, place: str, known: _Known, now_s: float) -> Finding:
    since_s = known.new_s if known.new_s is not None else known.since_s
    never = known.new_s is None
    num = sum(len(frame.alerts) for frame in known.frames)
    last = f"{num} alert{'' if num == 1 else 's'} when it last spoke" if not never else "it never answered"
    return Finding(
        "host.silent",
        Severity.WARNING if never else Severity.CRITICAL,
        place,
        f"nothing new for {show_time(now_s - since_s)}",
        "a frame every second",
        since_s=since_s,
        evidence=(f"{name}: {known.problem or 'the same frame again and again'}", last),
        meaning="The agent, its host or the network to it is down; this page shows nothing current of that host.",
        fix="Is the host up (ping, its console)? Then `systemctl status` of the agent there, and its log.",
        action=Action.INSPECT,
    )


def _set_back(frame: HostFrame, ahead_s: float) -> HostFrame:
    alerts = tuple(alert.moved(-ahead_s) for alert in frame.alerts)
    return replace(frame, wall_s=frame.wall_s - ahead_s, alerts=alerts)
