"""One look at everything: links, job and alerts at one moment, as an object, as JSON and as packed bytes."""

from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, cast

import numpy as np

from syncline.describe.plain import JsonObject
from syncline.errors import WatchError
from syncline.watch.incident import Incident
from syncline.watch.job import JobState
from syncline.watch.links import LOAD_COLUMNS, LinkLoad, LinkTable

_HEAD = struct.Struct("<4sII")
_MAGIC = b"SLF1"
_DENSE = ("rate_Bps", "peak_Bps")
_SPARSE = tuple(name for name in LOAD_COLUMNS if name not in _DENSE)


class Health(TypedDict, total=False):
    """How the agent, the fleet or the replay that made a frame is doing."""

    host: str
    began_s: float
    cpu_share: float
    late_s: float
    num_counters: int
    num_resets: int
    num_clock_steps: int
    problems: dict[str, str]
    num_bad_spans: int
    spans_from: list[str]
    crowded: str
    sampled: list[str]
    sampler: str
    history: HistoryHealth
    num_hosts: int
    num_silent: int
    usd_per_day: float
    gpus: list[dict[str, float | str | None]]


class HistoryHealth(TypedDict):
    """Whether the history can be written."""

    problem: str
    num_dropped: int


@dataclass(frozen=True, eq=False)
class Frame:
    """What is known of one interval that ended at `wall_s` (a label) and `mono_s` (for arithmetic)."""

    seq: int
    wall_s: float
    mono_s: float
    interval_s: float
    table: LinkTable
    load: LinkLoad
    job: JobState = field(default_factory=JobState)
    alerts: tuple[Incident, ...] = ()
    health: Health = field(default_factory=Health)

    def to_json(self) -> JsonObject:
        """Return the frame as the page reads it: dense columns as base64 of float32, sparse ones as [link, value]."""
        dense = {name: _base64(getattr(self.load, name)) for name in _DENSE}
        return {**self._head(), **dense, **self._rest()}

    def pack(self) -> bytes:
        """Return the frame as the history keeps it; `unpack` needs the table it was made with."""
        text = json.dumps(self._head() | self._rest(), separators=(",", ":")).encode()
        columns = b"".join(getattr(self.load, name).astype("<f4").tobytes() for name in _DENSE)
        return _HEAD.pack(_MAGIC, len(text), len(self.load)) + zlib.compress(text + columns, 1)

    def health_json(self) -> JsonObject:
        """Return the health as plain values."""
        return cast(JsonObject, dict(self.health))

    def _head(self) -> JsonObject:
        return {
            "seq": self.seq,
            "wall_s": round(self.wall_s, 4),
            "mono_s": round(self.mono_s, 4),
            "interval_s": round(self.interval_s, 4),
            "layout": self.table.version,
            "num_links": len(self.table),
            "health": self.health_json(),
        }

    def _rest(self) -> JsonObject:
        found: JsonObject = {"job": self.job.to_json(), "alerts": [alert.to_json() for alert in self.alerts]}
        for name in _SPARSE:
            column = getattr(self.load, name)
            odd = np.flatnonzero(column != 1.0 if name == "up" else column)
            found[name] = [[int(i), float(f"{column[i]:.4g}")] for i in odd]
        return found


def unpack(data: bytes) -> dict[str, Any]:
    """Return a packed frame as `Frame.to_json` would give it."""
    try:
        magic, text_size, num_links = _HEAD.unpack_from(data)
        if magic != _MAGIC:
            raise ValueError("another kind of record")
        raw = zlib.decompress(data[_HEAD.size :])
        body: dict[str, Any] = json.loads(raw[:text_size])
        size = 4 * num_links
        if len(raw) != text_size + size * len(_DENSE):
            raise ValueError("a record of the wrong size")
    except (struct.error, ValueError, zlib.error) as error:
        raise WatchError(f"a frame of the history is damaged: {error}.") from None
    for i, name in enumerate(_DENSE):
        body[name] = base64.b64encode(raw[text_size + i * size : text_size + (i + 1) * size]).decode()
    return body


def column(body: Mapping[str, Any], name: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """Return a column of a frame in its JSON form, dense or sparse."""
    if name in _DENSE:
        return np.frombuffer(base64.b64decode(body[name]), "<f4").astype(np.float64)
    full = np.full(int(body["num_links"]), 1.0 if name == "up" else 0.0)
    for index, value in body.get(name, []):
        full[index] = value
    return full


def _base64(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    return base64.b64encode(values.astype("<f4").tobytes()).decode()
