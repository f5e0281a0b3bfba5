"""What a packet run is told about in an answer: counts, completion times, the busiest link."""

from __future__ import annotations

from dataclasses import dataclass

from syncline.sim.packet import Completion, Outcome
from syncline.sim.packet.outcome import IGNORES


@dataclass(frozen=True)
class LoadFigures:
    """The messages of one load: how long they took, and what befell their packets."""

    completion: Completion
    tally: dict[str, float]

    @classmethod
    def of(cls, outcome: Outcome, number: int) -> LoadFigures:
        """Return the figures of the load with this number."""
        return cls(Completion.of(outcome.times_s(number)), outcome.tally(number))


@dataclass(frozen=True)
class PacketFigures:
    """A packet run: its state, the load that was asked about, the background beside it, and the whole network."""

    state: str
    time_s: float
    """When the last message of the load arrived, or when the run ended without it."""
    load: LoadFigures
    background: LoadFigures | None
    counters: dict[str, int]
    base_rtt_s: float
    busiest_link: str
    busiest_utilisation: float
    peak_queue_bytes: int
    paused_s: float
    deadlock: tuple[str, ...]
    cpu_s: float
    packets_per_cpu_s: float
    events_per_cpu_s: float
    ignores: tuple[str, ...] = IGNORES

    @classmethod
    def of(cls, outcome: Outcome) -> PacketFigures:
        """Return the figures of a run whose first load was asked about."""
        done, busiest = outcome.done(0), outcome.busiest
        return cls(
            state="finished" if done else outcome.state,
            time_s=outcome.job_end_s(0) if done else outcome.now_s,
            load=LoadFigures.of(outcome, 0),
            background=LoadFigures.of(outcome, 1) if len(outcome.jobs) > 1 else None,
            counters={name: int(count) for name, count in outcome.counters.items()},
            base_rtt_s=outcome.rtt_s,
            busiest_link=outcome.network.port_name(busiest),
            busiest_utilisation=float(outcome.utilisation()[busiest]),
            peak_queue_bytes=int(outcome.ports["peak_bytes"].max(initial=0)),
            paused_s=float(outcome.ports["paused_ps"].sum() / 1e12),
            deadlock=tuple(outcome.cycle),
            cpu_s=outcome.cpu_s,
            packets_per_cpu_s=outcome.data_packets_per_cpu_s,
            events_per_cpu_s=outcome.events_per_cpu_s,
        )
