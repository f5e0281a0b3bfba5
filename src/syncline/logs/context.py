"""Who wrote a line and when: host, rank and time out of the prefixes of NCCL, PyTorch, the kernel and launchers.

Times have no year in glog and syslog, so all are put on one axis of seconds within a year; that is enough to order
what one incident left behind. A kernel's "[ 1843.308145]" counts from its boot and is left out.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

_ANSI = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NCCL = re.compile(r"(?:^|[\s\]:>])([A-Za-z0-9][\w.<>-]{0,80}):\d{1,8}:\d{1,8} \[(\d{1,3})\]")
_RANK = re.compile(r"\[(?:Global )?[Rr]ank ?(\d{1,6})\]|\bRank (\d{1,6})\]")
_MPI_RANK = re.compile(r"^\[\d+,(\d{1,6})\]<std(?:out|err)>")
_POD = re.compile(r"^\[pod/([\w.-]{1,80})/")
_SYSLOG = re.compile(
    r"^(?:<\d{1,3}>)?(?:\d{4} )?[A-Z][a-z]{2} [ \d]\d (?:\d{4} )?\d\d:\d\d:\d\d(?:\.\d+)? "
    r"(?!kernel:|[\w.-]+\[\d+\]:)([\w.-]+) "
)
_LEVEL = r"(?:std(?:out|err)|ERROR|ERR|WARN(?:ING)?|INFO|DEBUG|TRACE|FATAL|CRITICAL|NOTICE|[EWIF])"
_ISO_HOST = re.compile(rf"^\d{{4}}-\d\d-\d\dT\S+ (?!{_LEVEL}\s|[A-Za-z]+\s*\|)([\w.-]+) ", re.IGNORECASE)
_ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,6}))?")
_GLOG = re.compile(r"\[[EWIF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})")
_SYSLOG_TIME = re.compile(r"^(?:\[\w{3} |<\d{1,3}>)?(?:\d{4} )?([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)")
_MONTHS = {
    name: i + 1
    for i, name in enumerate(["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"])
}
_UPTIME = re.compile(r"(?:^|[ :])\[ *(\d{1,9}\.\d{3,6})\] ")
_LEAP_YEAR = 2000
_START = datetime(_LEAP_YEAR, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class LineContext:
    """Where a line comes from: names are empty and times None where the line does not say."""

    host: str = ""
    rank: str = ""
    time_s: float | None = None
    unix_s: float | None = None

    @property
    def place(self) -> str:
        """The host and rank for people to read."""
        return " ".join(part for part in (self.host, self.who) if part)

    @property
    def who(self) -> str:
        """The rank for people to read."""
        return f"rank {self.rank}" if self.rank else ""


def plain(text: str) -> str:
    """Return a line without colour codes."""
    return _ANSI.sub("", text) if "\x1b" in text else text


def context(line: str, host: str = "") -> LineContext:
    """Return who wrote a line and when; `host` is the log's own, where the line names none."""
    head = line[:300]
    time_s, unix_s = _time(head)
    return LineContext(host_of(head) or host, _rank(head), time_s, unix_s)


def host_of(line: str) -> str:
    """Return the host that a line names in front, or nothing."""
    for pattern in (_NCCL, _POD, _SYSLOG, _ISO_HOST):
        if found := pattern.search(line):
            return found[1]
    return ""


def uptime_s(line: str) -> float | None:
    """Return the seconds since boot on a kernel's line: good to tell how far two of its lines are apart."""
    found = _UPTIME.search(line[:120])
    return float(found[1]) if found else None


def _rank(head: str) -> str:
    if found := _RANK.search(head):
        return found[1] or found[2]
    return found[1] if (found := _MPI_RANK.search(head)) else ""


def _time(head: str) -> tuple[float | None, float | None]:
    try:
        if found := _ISO.search(head):
            year, month, day, hour, minute, second, _ = (int(x or 0) for x in found.groups())
            unix = datetime(year, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc).timestamp()
            return _in_year(month, day, hour, minute, second), unix
        if found := _GLOG.search(head):
            month, day, hour, minute, second, _ = (int(x) for x in found.groups())
            return _in_year(month, day, hour, minute, second), None
        if (found := _SYSLOG_TIME.search(head)) and found[1] in _MONTHS:
            return _in_year(_MONTHS[found[1]], *(int(x) for x in found.groups()[1:])), None
    except ValueError:  # a date such as 2026-99-99
        return None, None
    return None, None


def _in_year(month: int, day: int, hour: int, minute: int, second: int) -> float:
    moment = datetime(_LEAP_YEAR, month, day, hour, minute, min(second, 59), tzinfo=timezone.utc)
    return (moment - _START).total_seconds()
