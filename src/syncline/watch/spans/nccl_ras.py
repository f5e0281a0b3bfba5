"""Who holds up an NCCL job, from NCCL's own RAS service (2.24 and newer), asked over TCP now and then.

RAS tells how many collectives each rank of a communicator has launched, and which processes do not answer. Ranks are
hardly ever at the same number while a job runs; a rank that stays at one number while others are ahead of it is stuck.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from syncline.describe.names import few
from syncline.errors import WatchError
from syncline.watch.spans.event import Hang, SpanSource, StuckEvent

PORT = 28028
EVERY_S = 10.0
PATIENCE_S = 8.0
MAX_BYTES = 4 << 20
LOOKS = 3
"""Answers in a row with the same ranks at the same number that make a hang."""
_HEAD = re.compile(r"#(\d+-\d+) \(([0-9a-f]+)\) ([A-Z]+)")
_KIND = re.compile(r"different (\w+) operation counts")
_GROUP = re.compile(r"(\d+) ranks have (?:launched up to operation (\d+)|not launched any operations)")
_ALONE = re.compile(r"Rank (\d+) has (?:launched up to operation (\d+)|not launched any operations)(?: -- (.*))?")
_MEMBER = re.compile(r"Rank (\d+) -- (.*)")
_PROCESS = re.compile(r"Process (\d+) on node (\S+) managing GPU (\S+)")


@dataclass(frozen=True)
class RasVerdict:
    """What one answer says: ranks behind the others (communicator, operation, number, ranks), processes gone."""

    behind: frozenset[tuple[str, str, int, int, tuple[int, ...]]] = frozenset()
    gone: frozenset[str] = frozenset()


def read_status(text: str) -> RasVerdict:
    """Return what RAS's status says is not as it should be; sections and lines it does not know are passed over."""
    behind, gone = set(), set()
    for head, lines in _sections(text):
        if head in ("DEAD", "INCOMPLETE") or head.endswith(" INCOMPLETE"):
            gone |= {f"process {p[1]} on {p[2]} (GPU {p[3]})" for p in map(_PROCESS.search, lines) if p}
        elif head.endswith(" MISMATCH"):
            found = _counts(lines)
            numbers = [number for number, _ in found]
            if len(set(numbers)) > 1:
                most = max(numbers)
                kind = next((k[1] for k in map(_KIND.search, lines) if k), "collective")
                late = min((each for each in found if each[1]), default=None, key=lambda each: each[0])
                if late is not None and late[0] < most:
                    behind.add((head.split()[0], kind, late[0], most, tuple(sorted(late[1]))))
    return RasVerdict(frozenset(behind), frozenset(gone))


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    """Give each titled paragraph: `#0-0 HASH MISMATCH`, `DEAD`, `INCOMPLETE`, with its lines."""
    head, lines = "", []  # type: str, list[str]
    for line in [*text.splitlines(), "END"]:
        plain = line.strip()
        found = _HEAD.fullmatch(plain)
        if found or plain in ("DEAD", "INCOMPLETE", "END") or set(plain) == {"="}:
            if head:
                yield head, lines
            head, lines = (f"#{found[1]} {found[3]}" if found else plain.strip("=")), []
        elif plain:
            lines.append(plain)


def _counts(lines: list[str]) -> list[tuple[int, set[int]]]:
    """Return how many operations were launched, and by which ranks as far as they are named."""
    found: list[tuple[int, set[int]]] = []
    for line in lines:
        if group := _GROUP.search(line):
            found.append((int(group[2] or 0), set()))
        elif alone := _ALONE.search(line):
            found.append((int(alone[2] or 0), {int(alone[1])}))
        elif (member := _MEMBER.search(line)) and found:
            found[-1][1].add(int(member[1]))
    return found


class RasJudge:
    """Makes hangs out of answers that follow each other: what stays the same for some of them does not move."""

    def __init__(self) -> None:
        self._seen: dict[object, int] = {}

    def take(self, verdict: RasVerdict) -> tuple[Hang, ...]:
        """Return what is stuck by now."""
        now = {("behind", *row): row for row in verdict.behind}
        gone = {("gone", name): name for name in verdict.gone}
        # The others may run a little further before they wait: what counts is who is behind, and at which number.
        keys = {key[:4] + key[5:]: key for key in now}
        self._seen = {key: self._seen.get(key, 0) + 1 for key in (*keys, *gone)}
        hangs = [_behind(now[full]) for short, full in keys.items() if self._seen[short] >= LOOKS]
        hangs += [_gone(name) for key, name in gone.items() if self._seen[key] >= 2]
        return tuple(sorted(hangs, key=lambda hang: hang.text))


def _behind(row: tuple[str, str, int, int, tuple[int, ...]]) -> Hang:
    comm, kind, number, most, ranks = row
    who = f"{'rank' if len(ranks) == 1 else 'ranks'} {few(ranks)}"
    text = f"{who} of communicator {comm} stopped after {kind} {number}, others went on to {most} (NCCL RAS)"
    return Hang(ranks, f"{kind} number {number + 1} of {comm}", (), text)


def _gone(name: str) -> Hang:
    return Hang((), "", (), f"{name} does not answer NCCL RAS: it crashed, hangs outside NCCL, or its host is gone")


class RasSpans(SpanSource):
    """Asks the RAS service of a job's process on a thread of its own."""

    name = "nccl-ras"

    def __init__(self, address: str = "") -> None:
        host, _, port = (address or f"localhost:{PORT}").rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise WatchError(f'"{address}" is not a RAS address.', hint=f"Write --ras localhost:{PORT}.")
        self._at, self._judge, self._news = (host, int(port)), RasJudge(), list[StuckEvent]()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="syncline-ras", daemon=True)
        self._thread.start()

    def read(self) -> list[StuckEvent]:
        """Return the last answers, newest last."""
        news, self._news = self._news, []
        return news

    def close(self) -> None:
        """Stop asking; a question under way ends by itself."""
        self._stop.set()

    def _run(self) -> None:
        while True:
            try:
                hangs = self._judge.take(read_status(ask(self._at)))
                self.problem = ""
            except OSError as error:
                why = "NCCL 2.24 and newer listen there while a job runs"
                self.problem, hangs = f"{self._at[0]}:{self._at[1]}: {error.strerror or error}; {why}", ()
            self._news.append(StuckEvent(self.name, hangs))
            if self._stop.wait(EVERY_S):
                return


def ask(at: tuple[str, int], patience_s: float = PATIENCE_S) -> str:
    """Return the status that a RAS service gives, within a time for the whole of it."""
    until, parts = time.monotonic() + patience_s, list[bytes]()
    with socket.create_connection(at, timeout=patience_s) as line:
        line.sendall(b"VERBOSE STATUS\n")
        while sum(map(len, parts)) < MAX_BYTES:
            line.settimeout(max(0.01, until - time.monotonic()))
            part = line.recv(65536)
            if not part:
                break
            parts.append(part)
            if time.monotonic() > until:
                raise TimeoutError("no whole answer in time")
    return b"".join(parts).decode("utf-8", "replace")
