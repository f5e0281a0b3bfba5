"""The newest look of one host, in this program's own types."""

from __future__ import annotations

from dataclasses import dataclass, field

from syncline.watch.incident import Incident
from syncline.watch.job import JobState
from syncline.watch.links import LinkLoad, LinkTable


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
