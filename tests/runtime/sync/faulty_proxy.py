"""A relay between ranks that does to bytes what networks do: flips, cuts, delays, swaps, resets.

Faults strike whatever passes, headers, payloads and handshakes alike; what strikes next, and after how many bytes, is
drawn from a seed.
"""

from __future__ import annotations

import contextlib
import random
import selectors
import socket
import struct
import threading
import time
from dataclasses import dataclass, field

KINDS = ("flip", "truncate", "swap", "delay", "reset")
DELAY_S = 0.02
ROOM_BYTES = 32768
"""Before a relay: little, so that a sender soon notices one that holds."""


@dataclass
class Faults:
    """Which faults strike, how many at most, and those that did."""

    seed: int
    most: int
    mean_bytes: float = 20_000.0
    kinds: tuple[str, ...] = KINDS
    struck: dict[str, int] = field(default_factory=dict)
    is_on: bool = True
    is_held: bool = False
    """Whether nothing is relayed at all: bytes pile up before the relay, and connections stay open."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._left = self._random.expovariate(1 / self.mean_bytes)

    @property
    def num_struck(self) -> int:
        """All that struck so far."""
        return sum(self.struck.values())

    def strike(self, data: bytes) -> tuple[str, bytes]:
        """Return the fault that strikes these bytes ("": none) and what becomes of them."""
        with self._lock:
            self._left -= len(data)
            if self._left > 0 or not self.is_on or self.num_struck >= self.most:
                return "", data
            self._left = self._random.expovariate(1 / self.mean_bytes)
            kind = self._random.choice(self.kinds)
            self.struck[kind] = self.struck.get(kind, 0) + 1
            at = self._random.randrange(len(data))
            if kind == "flip":
                flipped = bytearray(data)
                flipped[at] ^= 1 << self._random.randrange(8)
                return kind, bytes(flipped)
            if kind == "truncate":
                return kind, data[:at]
            if kind == "swap":
                return kind, data[at:] + data[:at]
            return kind, data


class Proxy:
    """Listens on `port` and relays every connection to `target`, with faults."""

    def __init__(self, target: tuple[str, int], faults: Faults) -> None:
        self._target, self._faults = target, faults
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM_BYTES)
        self.port = int(self._listener.getsockname()[1])
        self._is_over = False
        self._pairs: dict[socket.socket, socket.socket] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the relay."""
        self._is_over = True
        self._thread.join()

    def cut(self) -> None:
        """Reset what passes now."""
        for one in list(self._pairs):
            self._reset(one)

    def _run(self) -> None:
        while not self._is_over:
            if self._faults.is_held:
                time.sleep(0.01)
                continue
            for key, _ in self._selector.select(0.05):
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket) and key.fileobj in self._pairs:
                    self._relay(key.fileobj)
        for one in [*self._pairs, self._listener]:
            one.close()

    def _accept(self) -> None:
        one, _ = self._listener.accept()
        try:
            other = socket.create_connection(self._target)
        except OSError:
            one.close()
            return
        for end, far in ((one, other), (other, one)):
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._pairs[end] = far
            self._selector.register(end, selectors.EVENT_READ)

    def _relay(self, one: socket.socket) -> None:
        try:
            data = one.recv(1 << 16)
        except OSError:
            data = b""
        if not data:
            return self._end(one)
        kind, sent = self._faults.strike(data)
        if kind == "reset":
            return self._reset(one)
        if kind == "delay":
            time.sleep(DELAY_S)
        try:
            self._pairs[one].sendall(sent)
        except OSError:
            return self._end(one)
        return self._end(one) if kind == "truncate" else None

    def _end(self, one: socket.socket) -> None:
        other = self._pairs.pop(one, None)
        for end in (one, other):
            if end is None:
                continue
            self._pairs.pop(end, None)
            with contextlib.suppress(KeyError, ValueError):
                self._selector.unregister(end)
            end.close()

    def _reset(self, one: socket.socket) -> None:
        for end in (one, self._pairs.get(one)):
            if end is not None:
                with contextlib.suppress(OSError):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self._end(one)
