"""What a packet run says: when messages ended, what queues and links did, and how sure one can be of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from syncline.sim.packet.network import Floats, Longs, PacketNetwork
from syncline.sim.packet.options import PacketOptions

if TYPE_CHECKING:
    from syncline.sim.packet.graph import Load
    from syncline.sim.packet.options import LinkChange
    from syncline.sim.packet.posting import PostedColumns, RoundTransfers

IGNORES = (
    "packets inside hosts (PCIe and NVLink are delay and rate)",
    "host jitter and software",
    "reduction arithmetic",
)


@dataclass(frozen=True)
class Progress:
    """How far a run is, and how long it may still take."""

    share: float
    wall_s: float
    events: int
    packets: int
    """Data packets that were run; those counted while they are steady are left out."""

    @staticmethod
    def of(counters: Mapping[str, int], wall_s: float) -> Progress:
        """Return the progress that the counters show: bytes delivered of all."""
        total = counters["total_bytes"]
        packets = counters["data_packets"] - counters["skipped_packets"]
        return Progress(counters["delivered_bytes"] / total if total else 1.0, wall_s, counters["events"], packets)


@dataclass(frozen=True)
class Completion:
    """Completion times of messages, from the moment they could start to the arrival of the last byte."""

    count: int
    mean_s: float
    p50_s: float
    p99_s: float
    p999_s: float
    worst_s: float

    @staticmethod
    def of(times_s: Floats) -> Completion:
        """Return the figures of some completion times."""
        if len(times_s) == 0:
            return Completion(0, *(float("nan"),) * 5)
        p50, p99, p999 = (float(x) for x in np.quantile(times_s, (0.5, 0.99, 0.999), method="inverted_cdf"))
        return Completion(len(times_s), float(times_s.mean()), p50, p99, p999, float(times_s.max()))


@dataclass(frozen=True, eq=False)
class RunSamples:
    """What was written down in equal steps: rows are moments, columns the watched links and connections."""

    time_s: Floats
    links: tuple[int, ...]
    queue_bytes: Longs
    wire_bytes: Longs
    marks: Longs
    paused: Longs
    flows: tuple[int, ...]
    flow_window_bytes: Floats
    flow_bytes: Longs

    @staticmethod
    def of(table: Mapping[str, Longs], links: tuple[int, ...], ports: Longs, flows: tuple[int, ...]) -> RunSamples:
        """Return the engine's samples as tables."""
        rows = len(table["time_ps"])
        queue, wire, marks, paused = (
            table[name].reshape(rows, len(ports)) for name in ("queue_bytes", "wire_bytes", "marks", "paused")
        )
        window, moved = (table[name].reshape(rows, len(flows)) for name in ("flow_window_bytes", "flow_bytes"))
        time_s = table["time_ps"] / 1e12
        return RunSamples(time_s, links, queue, wire, marks, paused, flows, window.astype(float), moved)

    def goodput_Bps(self) -> Floats:
        """Return the delivered rate of each watched connection between rows."""
        step = np.diff(self.time_s)[:, None]
        return np.diff(self.flow_bytes, axis=0) / step


@dataclass(frozen=True, eq=False)
class Outcome:
    """The course of a run. Times in seconds; a task that has not ended has a negative time.

    `last_sent_s` is when the packet that completed a message was sent, `limited_s` how long the rate or the window of
    its connection had held it back.
    """

    network: PacketNetwork
    options: PacketOptions
    blocks: tuple[RoundTransfers, ...]
    jobs: tuple[Load, ...]
    state: str
    begin_s: Floats
    end_s: Floats
    now_s: float
    counters: Mapping[str, int]
    ports: Mapping[str, Longs]
    sampled: RunSamples | None
    cpu_s: float
    rtt_s: float
    cycle: tuple[str, ...]
    done_tasks: tuple[Longs, ...]
    num_flows: int
    posted: PostedColumns
    last_sent_s: Floats
    limited_s: Floats
    flows: Mapping[str, Longs]
    changes: tuple[LinkChange, ...]
    captured: Mapping[str, Longs]
    """What `Watching.capture` wrote down, a row a packet; empty: nothing was asked for."""

    @property
    def finished(self) -> bool:
        """Whether every message has arrived."""
        return self.state == "finished"

    @property
    def end_of_run_s(self) -> float:
        """The end of the last message."""
        return float(self.end_s.max(initial=0.0))

    def job_end_s(self, number: int) -> float:
        """Return when a job or a traffic had all arrived; infinite when it has not."""
        ends = self.end_s[self.done_tasks[number]]
        return float("inf") if (ends < 0).any() else float(ends.max(initial=0.0))

    def times_s(self, *numbers: int) -> Floats:
        """Return the completion time of each message that ended, of some jobs or of all."""
        return np.concatenate([
            np.zeros(0), *(self._block_times(b) for b in self.blocks if not numbers or b.job in numbers)
        ])  # fmt: skip

    def _block_times(self, block: RoundTransfers) -> Floats:
        rows = block.first + np.arange(block.parts * len(block.src))
        begin, end = (column[rows].reshape(block.parts, -1) for column in (self.begin_s, self.end_s))
        arrived = (end >= 0).all(axis=0)
        times: Floats = (end.max(axis=0) - begin.min(axis=0))[arrived]
        return times

    def tally(self, *numbers: int) -> dict[str, float]:
        """Return what befell the data packets of some loads, and the pauses that the NICs they send from were told."""
        first = self.posted.first_flow
        rows = np.concatenate([np.zeros(0, np.int64), *(np.arange(first[n], first[n + 1]) for n in numbers)])
        ports = np.unique(self.posted.columns["connections"]["port"][rows])
        return {name: int(column[rows].sum()) for name, column in self.flows.items()} | {
            "pauses": int(self.ports["pauses"][ports].sum()),
            "paused_s": float(self.ports["paused_ps"][ports].sum() / 1e12),
        }

    def done(self, *numbers: int) -> bool:
        """Say whether some loads have all arrived."""
        return all(np.isfinite(self.job_end_s(number)) for number in numbers)

    @cached_property
    def completion(self) -> Completion:
        """Completion times of all messages."""
        return Completion.of(self.times_s())

    @property
    def data_packets_per_cpu_s(self) -> float:
        """New data packets a second of processor time: the speed of the simulator."""
        return self.counters["data_packets"] / max(self.cpu_s, 1e-9)

    @property
    def events_per_cpu_s(self) -> float:
        """Events a second of processor time."""
        return self.counters["events"] / max(self.cpu_s, 1e-9)

    def utilisation(self) -> Floats:
        """Return the share of the time each port was sending, headers included."""
        # What has its place behind others is counted when it gets it, and may leave later than now. A packet lasts
        # whole picoseconds, rounded down, so a port that never rests comes out above 1 by less than a thousandth.
        later = self.ports["booked_ps"] / 1e12 * self.network.rate_Bps
        left = np.maximum(self.ports["wire_bytes"] - later, 0.0)
        used: Floats = np.minimum(left / self.network.rate_Bps / max(self.now_s, 1e-15), 1.0)
        return used

    @property
    def busiest(self) -> int:
        """The port that was sending for the largest share of the time."""
        return int(np.argmax(self.utilisation())) if self.network.num_ports else 0
