"""What people say about alerts: acknowledged by somebody, or silenced for a time, each with a reason."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from syncline.describe.plain import JsonObject
from syncline.watch.foreign import Foreign, Text
from syncline.watch.incident import Incident, IncidentKey

MAX_NOTES = 2000
MAX_SILENCE_S = 30 * 86400.0


def _stripped(value: object) -> object:
    return value.strip()[:300] if isinstance(value, str) else value


class NoteRequest(Foreign):
    """What the page sends: about which alert, what, why, by whom, and for how long."""

    kind: Literal["acknowledged", "silenced", "none"]
    rule: Text
    place: Text
    host: Text = ""
    reason: Annotated[str, BeforeValidator(_stripped)] = ""
    by: Annotated[str, Field(max_length=60)] = ""
    for_s: Annotated[float, Field(gt=0, le=MAX_SILENCE_S)] = 3600.0


class Note(Foreign):
    """One note as it is kept."""

    kind: Literal["acknowledged", "silenced"]
    rule: Text
    place: Text
    host: Text = ""
    reason: Text
    by: Text = ""
    at_s: float
    until_s: float | None = None

    @property
    def key(self) -> IncidentKey:
        return (self.host, self.rule, self.place)


class NoteBook:
    """All notes. An acknowledgement ends with its alert; a silence ends at its time."""

    def __init__(self, notes: Iterable[Note] = ()) -> None:
        self._lock = threading.Lock()
        self._notes = {note.key: note for note in notes}

    def write(self, asked: NoteRequest) -> Note | None:
        """Keep a note, or take one away (None); a ValueError where no reason is given or there are too many."""
        key = (asked.host, asked.rule, asked.place)
        with self._lock:
            if asked.kind == "none":
                self._notes.pop(key, None)
                return None
            if not asked.reason:
                raise ValueError("give a reason: a note needs one")
            if len(self._notes) >= MAX_NOTES and key not in self._notes:
                raise ValueError(f"there are {MAX_NOTES} notes already")
            now_s = time.time()
            until_s = now_s + asked.for_s if asked.kind == "silenced" else None
            note = Note(
                kind=asked.kind, rule=asked.rule, place=asked.place, host=asked.host, reason=asked.reason, by=asked.by,
                at_s=now_s, until_s=until_s,
            )  # fmt: skip
            self._notes[key] = note
            return note

    def prune(self, alerts: Iterable[Incident], now_s: float) -> None:
        """Drop acknowledgements of alerts that are no longer up, and silences whose time is over."""
        up = {alert.key for alert in alerts}
        with self._lock:
            for key, note in list(self._notes.items()):
                gone = key not in up and now_s - note.at_s > 10.0 if note.until_s is None else now_s > note.until_s
                if gone:
                    del self._notes[key]

    def to_json(self) -> list[JsonObject]:
        """Return all notes as the page reads them."""
        with self._lock:
            return [note.model_dump() for note in self._notes.values()]
