"""Lines that hold another line: JSON of journald, containers and loggers, and bars that overwrite themselves.

What is inside is what the rules know; its host, time and rank are put in front, where they are looked for.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from syncline.logs.tally import MAX_SHOWN

_MESSAGE = ("MESSAGE", "log", "msg", "message", "textPayload")
_HOST = ("_HOSTNAME", "hostname", "host", "node", "node_name")
_TIME = ("__REALTIME_TIMESTAMP", "time", "ts", "timestamp", "@timestamp")
_MORE = ("exc_info", "exception", "error", "err", "stack", "stack_trace", "traceback")
_GRAVE = ("error", "fatal", "critical", "panic")
_HEAD = 120
_BEFORE = 80


def unwrapped(line: str) -> str:
    """Return the message of a line that is one JSON object with one, as a line of its own; any other as it is."""
    if not line.startswith("{") or not line.endswith("}"):
        return line
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        return line
    message = _first(row, _MESSAGE)
    if not isinstance(message, str):
        return line
    parts = [message, *(row[name] for name in _MORE if isinstance(row.get(name), str))]
    text = " | ".join(part for one in parts for part in one.splitlines() if part.strip())
    if isinstance(rank := row.get("rank"), (int, str)) and str(rank).isdigit():
        text = f"[rank{rank}]: {text}"
    name = row.get("SYSLOG_IDENTIFIER")
    text = f"{name}: {text}" if isinstance(name, str) else text
    time, host = _time(_first(row, _TIME)), _first(row, _HOST)
    if time:
        text = f"{time} {host} {text}" if isinstance(host, str) and host else f"[{time}] {text}"
    grave = str(row.get("level") or row.get("severity") or "").lower() in _GRAVE
    return f'{text} "level":"error"' if grave else text


def piece(line: str, texts: Sequence[str]) -> str:
    """Return what of a line that overwrites itself (progress bars end in a carriage return) holds one of the texts."""
    if "\r" not in line:
        return line
    return " ".join(part for part in line.split("\r") if any(text in part for text in texts)) or line


def excerpt(line: str, texts: Sequence[str]) -> str:
    """Return the beginning of a line and what stands around the first of the texts, where that is far behind it."""
    at = min((found for text in texts if (found := line.find(text)) >= 0), default=0)
    return line if at + _BEFORE < MAX_SHOWN else f"{line[:_HEAD]} ... {line[at - _BEFORE :]}"


def _first(row: Mapping[str, object], names: Sequence[str]) -> object:
    return next((row[name] for name in names if row.get(name)), None)


def _time(value: object) -> str:
    """Return a moment as text, whether it was written as one or counted from 1970 in seconds or smaller units."""
    if isinstance(value, str) and value[:4].isdigit() and value[4:5] == "-":
        return value.replace(" ", "T")
    try:
        seconds = float(value) if isinstance(value, (int, float, str)) else 0.0
    except (ValueError, OverflowError):
        return ""
    if not 1e8 < seconds < 1e20:  # from 1973 in seconds to nanoseconds of our time
        return ""
    while seconds > 1e11:
        seconds /= 1000.0
    return datetime.fromtimestamp(seconds, tz=timezone.utc).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
