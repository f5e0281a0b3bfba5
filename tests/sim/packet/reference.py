"""A slow plain-Python twin of the packet engine for tiny cases: line-rate senders, one path, acknowledgements first.

It knows nothing of windows, marks or losses; it proves the clock: what queues where, and when each message ends.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True)
class PortHop:
    """One port on a path: its number, ps a byte, and its latency."""

    port: int
    cost_ps: int
    latency_ps: int


@dataclass(frozen=True)
class MessageStream:
    """A message: when it is posted, how many bytes, over which ports there and back."""

    start_ps: int
    size_bytes: int
    there: tuple[PortHop, ...]
    back: tuple[PortHop, ...]


@dataclass
class _Packet:
    stream: int
    number: int
    wire_bytes: int
    hops: tuple[PortHop, ...]
    at: int = 0
    is_ack: bool = False


class _Port:
    def __init__(self) -> None:
        self.busy_until = 0
        self.acks: deque[_Packet] = deque()
        self.data: deque[_Packet] = deque()
        self.turns: deque[int] = deque()


def reference_ends(
    streams: Sequence[MessageStream], *, payload_bytes: int, header_bytes: int, ack_bytes: int, ack_every: int
) -> list[int]:
    """Return when the last byte of each message arrives, in ps."""
    return _Twin(streams, payload_bytes, header_bytes, ack_bytes, ack_every).run()


class _Twin:
    def __init__(self, streams: Sequence[MessageStream], payload: int, header: int, ack: int, every: int) -> None:
        self.streams, self.payload, self.header, self.ack, self.every = streams, payload, header, ack, every
        self.ports: dict[int, _Port] = {}
        self.sent = [0] * len(streams)
        self.arrived = [0] * len(streams)
        self.unacked = [0] * len(streams)
        self.ends = [-1] * len(streams)
        self.order = count()
        self.events: list[tuple[int, int, str, object]] = []
        for number, stream in enumerate(streams):
            self._at(stream.start_ps, "post", number)

    def run(self) -> list[int]:
        while self.events:
            now, _, kind, what = heapq.heappop(self.events)
            if kind == "post":
                assert isinstance(what, int)
                first = self.streams[what].there[0]
                self._port(first.port).turns.append(what)
                self._serve(now, first)
            elif kind == "free":
                assert isinstance(what, PortHop)
                self._serve(now, what)
            else:
                assert isinstance(what, _Packet)
                self._arrive(now, what)
        return self.ends

    def _at(self, time: int, kind: str, what: object) -> None:
        heapq.heappush(self.events, (time, next(self.order), kind, what))

    def _port(self, number: int) -> _Port:
        return self.ports.setdefault(number, _Port())

    def _packets(self, stream: int) -> int:
        return -(-self.streams[stream].size_bytes // self.payload)

    def _serve(self, now: int, hop: PortHop) -> None:
        port = self._port(hop.port)
        if now < port.busy_until:
            return
        if port.acks:
            packet = port.acks.popleft()
        elif port.data:
            packet = port.data.popleft()
        elif port.turns:
            packet = self._make(port)
        else:
            return
        port.busy_until = now + packet.wire_bytes * hop.cost_ps
        self._at(port.busy_until, "free", hop)
        self._at(port.busy_until + hop.latency_ps, "arrive", packet)

    def _make(self, port: _Port) -> _Packet:
        stream = port.turns.popleft()
        number, last = self.sent[stream], self._packets(stream) - 1
        self.sent[stream] += 1
        if number < last:
            port.turns.append(stream)
        rest = self.streams[stream].size_bytes - last * self.payload
        return _Packet(
            stream, number, (self.payload if number < last else rest) + self.header, self.streams[stream].there
        )

    def _arrive(self, now: int, packet: _Packet) -> None:
        packet.at += 1
        if packet.at < len(packet.hops):
            hop = packet.hops[packet.at]
            (self._port(hop.port).acks if packet.is_ack else self._port(hop.port).data).append(packet)
            self._serve(now, hop)
        elif not packet.is_ack:
            self._receive(now, packet.stream)

    def _receive(self, now: int, stream: int) -> None:
        self.arrived[stream] += 1
        self.unacked[stream] += 1
        done = self.arrived[stream] == self._packets(stream)
        if done:
            self.ends[stream] = now
        if done or self.unacked[stream] >= self.every:
            self.unacked[stream] = 0
            back = self.streams[stream].back
            self._port(back[0].port).acks.append(_Packet(stream, 0, self.ack, back, is_ack=True))
            self._serve(now, back[0])
