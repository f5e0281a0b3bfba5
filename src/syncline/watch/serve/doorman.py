"""Connections that say nothing: closed after a few seconds, and the oldest of them first when there are many.

uvicorn waits for a request as long as its sender likes, and counts such connections against everyone. Here a connection
has `IDLE_S` to send a whole request head, however it drips, and one that is being answered is never closed for the sake
of others.
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

IDLE_S = 10.0
MAX_IDLE = 256
MAX_CONNECTIONS = 768


class Doorman:
    """Knows the connections of one server: those that are answered, and those that are waited for."""

    def __init__(self, idle_s: float = IDLE_S, max_idle: int = MAX_IDLE) -> None:
        self._idle_s, self._max_idle = idle_s, max_idle
        self._idle: dict[PatientProtocol, asyncio.TimerHandle] = {}
        self.num_open = 0
        self.num_closed = 0

    def protocol(self, *arguments: Any, **named: Any) -> PatientProtocol:
        """Return the protocol of one new connection, as uvicorn asks for it."""
        return PatientProtocol(self, *arguments, **named)

    def wait(self, connection: PatientProtocol) -> None:
        """Begin to wait for a request; what has waited longest goes when too many do."""
        self.leave(connection)
        self._idle[connection] = connection.loop.call_later(self._idle_s, self._close, connection)
        while len(self._idle) > self._max_idle:
            self._close(next(iter(self._idle)))

    def leave(self, connection: PatientProtocol) -> None:
        """Stop waiting: a request has come, or the connection has gone."""
        timer = self._idle.pop(connection, None)
        if timer is not None:
            timer.cancel()

    def _close(self, connection: PatientProtocol) -> None:
        self.leave(connection)
        self.num_closed += 1
        connection.transport.abort()


class PatientProtocol(H11Protocol):
    """HTTP with an end to patience; everything else is uvicorn's own."""

    def __init__(self, doorman: Doorman, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._doorman = doorman

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take a connection, unless there are more than a process can hold."""
        super().connection_made(transport)
        self._doorman.num_open += 1
        if self._doorman.num_open > MAX_CONNECTIONS:
            transport.abort()
            return
        self._doorman.wait(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget a connection."""
        self._doorman.num_open -= 1
        self._doorman.leave(self)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Take bytes; only a whole request head ends the wait."""
        super().data_received(data)
        if self._is_answering():
            self._doorman.leave(self)

    def on_response_complete(self) -> None:
        """Wait for the next request, or find it there already."""
        super().on_response_complete()
        if not self.transport.is_closing() and not self._is_answering():
            self._doorman.wait(self)

    def _is_answering(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle  # uvicorn leaves it None before the first request
        return cycle is not None and not cycle.response_complete
