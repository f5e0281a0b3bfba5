"""Where frames go: the newest one for who asks, and a short queue for each who listens; a slow listener loses frames.

One thread publishes. Listeners are coroutines of any event loop; none of them can hold the publisher up.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from syncline.describe.plain import JsonObject
from syncline.watch.frame import Frame
from syncline.watch.incident import Incident, IncidentKey

QUEUE = 3
MAX_LISTENERS = 64
MAX_WAIT_S = 10.0
MAX_LOST = 240
"""Messages lost without one taken, after which a listener is given up: two minutes of frames."""


class HubMessage(NamedTuple):
    """One thing to tell: `event` is its kind, `data` its JSON text."""

    event: str
    data: str


class Listener:
    """One who listens: the newest few messages, and how many were lost."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._queue: deque[HubMessage] = deque(maxlen=QUEUE)
        self._ready = asyncio.Event()
        self.num_lost = 0
        self._lost_since = 0
        self.is_open = True

    @property
    def is_stuck(self) -> bool:
        return self.num_lost - self._lost_since > MAX_LOST

    def offer(self, message: HubMessage) -> None:
        """Put a message in the queue, from any thread; the oldest goes when it is full."""
        if len(self._queue) == QUEUE:
            self.num_lost += 1
        self._queue.append(message)
        try:
            self._loop.call_soon_threadsafe(self._ready.set)
        except RuntimeError:  # the loop has ended; its listener is about to be taken away
            return

    async def next(self, timeout_s: float) -> HubMessage | None:
        """Return the next message; None when there was none for so long."""
        self._lost_since = self.num_lost
        if not self._queue:
            self._ready.clear()
            try:
                await asyncio.wait_for(self._ready.wait(), timeout_s)
            except TimeoutError:
                return None
        return self._queue.popleft() if self._queue else None


class Hub:
    """Keeps the newest frame and tells listeners of each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: set[Listener] = set()
        self._frame: Frame | None = None
        self._text: tuple[int, str] = (-1, "")
        self._changed_seq = -1
        """The newest frame whose incidents were others than before."""
        self._keys: frozenset[IncidentKey] = frozenset()
        self._waiting: set[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = set()
        self.others: Callable[[], tuple[Incident, ...]] = tuple
        """Gives alerts that others sent, to be shown beside the frame's own."""

    @property
    def frame(self) -> Frame | None:
        return self._frame

    @property
    def num_listeners(self) -> int:
        return len(self._listeners)

    def publish(self, frame: Frame, events: list[JsonObject] | None = None) -> None:
        """Make a frame the newest and tell everyone; alert events go ahead of it."""
        self._frame, before = frame, self._keys
        self._keys = frozenset(incident.key for incident in frame.alerts)
        with self._lock:
            listeners, waiting = list(self._listeners), list(self._waiting)
        if before != self._keys:
            self._changed_seq = frame.seq
            for loop, ready in waiting:
                with contextlib.suppress(RuntimeError):  # a loop that has ended
                    loop.call_soon_threadsafe(ready.set)
        if not listeners:
            return
        messages = [HubMessage("alert", json.dumps(event)) for event in events or []]
        messages.append(HubMessage("frame", self.text()))
        for listener in listeners:
            for message in messages:
                listener.offer(message)
            if listener.is_stuck:
                self.leave(listener)

    def text(self) -> str:
        """Return the newest frame as JSON, made once however many ask."""
        frame = self._frame
        if frame is None:
            return "null"
        number, text = self._text
        if number != frame.seq:
            body = replace(frame, alerts=(*frame.alerts, *self.others())).to_json()
            text = json.dumps(body, separators=(",", ":"))
            self._text = (frame.seq, text)
        return text

    async def news(self, since: int, wait_s: float) -> None:
        """Return when incidents are others than in the frame of that number, or after the time."""
        if self._frame is None or self._changed_seq > since or since > self._frame.seq:
            return
        here = (asyncio.get_running_loop(), asyncio.Event())
        with self._lock:
            self._waiting.add(here)
        try:
            async with asyncio.timeout(min(wait_s, MAX_WAIT_S)):
                await here[1].wait()
        except TimeoutError:
            return
        finally:
            with self._lock:
                self._waiting.discard(here)

    def announce(self, event: str, data: object) -> None:
        """Tell everyone something that is no frame."""
        message = HubMessage(event, json.dumps(data))
        with self._lock:
            listeners = list(self._listeners)
        for listener in listeners:
            listener.offer(message)

    def listen(self) -> Listener | None:
        """Return a new listener of the running event loop; None when there are as many as there may be."""
        with self._lock:
            if len(self._listeners) >= MAX_LISTENERS:
                return None
            listener = Listener(asyncio.get_running_loop())
            self._listeners.add(listener)
        return listener

    def leave(self, listener: Listener) -> None:
        listener.is_open = False
        with self._lock:
            self._listeners.discard(listener)
