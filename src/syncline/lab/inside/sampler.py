"""Reads the counters of all switches every millisecond into a shared file. `python -m syncline.lab.inside.sampler`.

Switches, not hosts: few reads cover every link in both directions, and the hosts are left alone. A counter ticks when
a packet has left the shaper, so sent bytes are bytes served and the backlog is what waits.
"""

from __future__ import annotations

import json
import os
import signal
import struct
import sys
import time
from collections.abc import Callable

from syncline.host.netlink import Netlink
from syncline.lab.inside import kernel
from syncline.lab.inside.protocol import Message

SAMPLE = struct.Struct("<iddQ")
"""link, start and end of the interval (monotonic seconds), bytes."""
QUEUE = struct.Struct("<idIII")
"""link, time, backlog in bytes, backlog in packets, drops so far."""
_FLUSH_S = 0.2
_HOST_QUEUES_S = 0.1
_READ_S = 0.0005
_MOST_READINGS = 4

SHAPERS = (b"tbf", b"htb")

Moved = dict[int, tuple[int, int]]
"""Bytes received and sent so far, by interface."""


class TimedReader:
    """Reads counters together with the moment they are of.

    A process that stands still between the kernel's answer and the clock would stamp old counters with a later time,
    and what moved meanwhile would seem to have moved after it. A reading that took much longer than the quickest one
    is therefore taken again.
    """

    def __init__(self, read: Callable[[], Moved], clock: Callable[[], float] = time.monotonic) -> None:
        self._read, self._clock = read, clock
        self._quickest_s = float("inf")

    def __call__(self) -> tuple[Moved, float]:
        """Return counters and their moment."""
        for _ in range(_MOST_READINGS):
            begun_s = self._clock()
            counters = self._read()
            now_s = self._clock()
            self._quickest_s = min(self._quickest_s, now_s - begun_s)
            if now_s - begun_s <= max(_READ_S, 4 * self._quickest_s):
                break
        return counters, now_s


class NamespaceProbe:
    """One namespace under observation: `links` maps interface numbers to the links received from and sent to."""

    def __init__(self, descriptor: int, links: dict[int, tuple[int, int]], *, is_switch: bool) -> None:
        kernel.setns(descriptor, kernel.NEWNET)
        self.counters = Netlink()
        self.moved = TimedReader(self.counters.moved)
        self.links = links
        self.is_switch = is_switch
        self.last: Moved = {}
        self.last_s = 0.0

    def sample(self, out: bytearray) -> None:
        """Append what moved since the last look, stamped with the time of the reading itself."""
        now, now_s = self.moved()
        for index, (received, sent) in self.links.items():
            before, after = self.last.get(index), now.get(index)
            if before is None or after is None or before == after:
                continue
            if received >= 0 and after[0] > before[0]:
                out += SAMPLE.pack(received, self.last_s, now_s, after[0] - before[0])
            if sent >= 0 and after[1] > before[1]:
                out += SAMPLE.pack(sent, self.last_s, now_s, after[1] - before[1])
        self.last, self.last_s = now, now_s

    def queue(self, out: bytearray, seen: dict[int, tuple[int, int, int]]) -> None:
        """Append the queues that changed."""
        for index, queue in self.counters.queues(SHAPERS).items():
            link, state = self.links.get(index, (-1, -1))[1], (queue.backlog_bytes, queue.backlog_packets, queue.drops)
            if link >= 0 and seen.get(link) != state:
                seen[link] = state
                out += QUEUE.pack(link, time.monotonic(), *state)


def main(order: Message) -> None:
    """Sample until told to stop."""
    kernel.die_with_parent()
    places = [
        NamespaceProbe(
            item["namespace"],
            {int(i): (received, sent) for i, (received, sent) in item["links"].items()},
            is_switch=item["is_switch"],
        )
        for item in order["places"]
    ]
    Sampler(places, order["samples"], order["queues"], order["interval_s"], order["queue_interval_s"]).run()


class Sampler:
    """The loop: switches at every tick, queues less often, hosts' queues (their drops) least."""

    def __init__(
        self, places: list[NamespaceProbe], samples: int, queues: int, interval_s: float, queue_interval_s: float
    ) -> None:
        self.switches = [place for place in places if place.is_switch]
        self.hosts = [place for place in places if not place.is_switch]
        self.samples, self.queues = samples, queues
        self.interval_s, self.queue_interval_s = interval_s, queue_interval_s
        self.sample_rows, self.queue_rows = bytearray(), bytearray()
        self.seen: dict[int, tuple[int, int, int]] = {}
        self.running = True

    def run(self) -> None:
        """Sample until SIGTERM."""
        signal.signal(signal.SIGTERM, self._stop)
        next_s = queue_s = host_s = flush_s = time.monotonic()
        while self.running:
            for place in self.switches:
                place.sample(self.sample_rows)
            now = time.monotonic()
            if now >= queue_s:
                self._look(self.switches)
                queue_s = now + self.queue_interval_s
            if now >= host_s:
                self._look(self.hosts)
                host_s = now + _HOST_QUEUES_S
            if now >= flush_s:
                self._flush()
                flush_s = now + _FLUSH_S
            next_s = max(next_s + self.interval_s, now)
            time.sleep(max(0.0, next_s - time.monotonic()))
        for place in self.switches:
            place.sample(self.sample_rows)
        self._look(self.switches + self.hosts)
        self._flush()

    def _look(self, places: list[NamespaceProbe]) -> None:
        for place in places:
            place.queue(self.queue_rows, self.seen)

    def _flush(self) -> None:
        for file, rows in ((self.samples, self.sample_rows), (self.queues, self.queue_rows)):
            if rows:
                os.write(file, rows)
                rows.clear()

    def _stop(self, *_: object) -> None:
        self.running = False


if __name__ == "__main__":
    main(json.load(sys.stdin))
