"""Traffic from files: a CSV of our own, htsim's connection matrices, and the flow lists of HPCC's and SimAI's ns-3.

traffic = read_flows("flows.csv", load("fat-tree-1024"))

* CSV: a header with `start`, `source`, `destination`, `bytes` and, if wanted, `class` (0 to 6, each behind those before
  it); a time without a unit is seconds
* `.cm` (htsim): `0->1 id 1 start 0 size 2000000`, picoseconds; triggers make flows wait, a oneshot for one other, a
  barrier for `count` of them. What fires is the arrival of a flow's last byte, for `send_done_trigger` too, which htsim
  fires an acknowledgement later
* `flow.txt` (HPCC, SimAI): a count, then so many of `source destination priority port bytes seconds`; what follows them
  is not read, as by its authors
* SimAI's list of a collective's flows (a count, then `id source destination bytes channel chunk chunks RING ...`), each
  of which waits for its parents; all are read, whatever the count says

An end is a number (the n-th NIC of the cluster, in order; in SimAI's list of flows the n-th GPU) or the name of a NIC
or GPU.
"""

from __future__ import annotations

import csv
import io
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from syncline.describe import units
from syncline.describe.document import read_text
from syncline.errors import SimulationError, SynclineError
from syncline.fabric import Fabric
from syncline.sim.packet.traffic import Connections, Traffic, messages, senders

MAX_BYTES = 256 << 20
MOST_CLASSES = 6
MOST_WAITS = 20_000_000
_COLUMNS = ("start", "source", "destination", "bytes")
_CM_FLOW = re.compile(r"(\d+)->(\d+)((?:\s+\w+\s+\d+(?:\.\d*)?)*)\s*\Z")


@dataclass(frozen=True)
class FlowRow:
    """One flow of a file: ends as written, bytes, seconds, class, and the earlier rows it waits for."""

    source: str
    destination: str
    size_bytes: float
    start_s: float
    traffic_class: int = 0
    after: tuple[int, ...] = ()
    ranks: bool = False
    """Numbers are GPUs, not NICs."""


def read_flows(path: str | os.PathLike[str], fabric: Fabric, *, connections: Connections = "own") -> Traffic:
    """Read a file of flows as traffic of a cluster; the format is told by its content."""
    where = str(path)
    rows = parse_flows(read_text(Path(path), limit=MAX_BYTES), where)
    if not rows:
        raise SimulationError("the file has no flows.", where=where)
    ends = senders(fabric)
    names = {fabric.device_name(int(device)): int(device) for device in (*fabric.nics, *fabric.gpus)}
    numbered = _numbered(fabric, ends)

    def device(text: str, row: int) -> int:
        if rows[row].ranks:
            if int(text) < fabric.num_gpus:
                return int(fabric.gpus[int(text)])
            raise SimulationError(
                f"flow {row + 1} names GPU {text}, and {fabric.name} has {fabric.num_gpus:,}.", where=where
            )
        if text.isdecimal() and numbered is not None:
            if int(text) in numbered:
                return numbered[int(text)]
        elif text.isdecimal() and int(text) < len(ends):
            return int(ends[int(text)])
        if text in names:
            return names[text]
        how = f"Number the {len(ends):,} NICs from 0" if numbered is None else "Take the number in a host's name"
        raise SimulationError(
            f'flow {row + 1} names "{text}", and {fabric.name} has no such endpoint.', where=where,
            hint=f"{how}, or write a name such as {next(iter(names))}.",
        )  # fmt: skip

    found = messages(
        [device(each.source, i) for i, each in enumerate(rows)],
        [device(each.destination, i) for i, each in enumerate(rows)],
        [each.size_bytes for each in rows],
        [each.start_s for each in rows],
        after=[each.after for each in rows],
        name=Path(path).name,
        connections=connections,
    )
    return replace(found, traffic_class=np.array([each.traffic_class for each in rows], np.int64))


def parse_flows(text: str, where: str = "the file") -> list[FlowRow]:
    """Return the flows of a text, in the order of the file."""
    lines = [(number, line.strip()) for number, line in enumerate(text.splitlines(), 1)]
    lines = [(number, line) for number, line in lines if line and not line.startswith("#")]
    if not lines:
        return []
    first = lines[0][1]
    if re.match(r"Nodes\s+\d+", first, re.IGNORECASE):
        return _parse_cm(lines, where)
    if first.isdecimal():
        second = lines[1][1].split() if len(lines) > 1 else []
        named = len(second) > 13 and not second[7][:1].isdecimal()
        return (_parse_simai if named else _parse_flow_txt)(lines, where)
    if "," in first:
        return _parse_csv(text, where)
    raise SimulationError(
        f'line {lines[0][0]} reads "{first[:60]}": neither CSV, nor htsim\'s .cm, nor HPCC\'s flow.txt.', where=where,
        hint=f"A CSV begins with {','.join(_COLUMNS)}.",
    )  # fmt: skip


def _parse_csv(text: str, where: str) -> list[FlowRow]:
    table = csv.DictReader(line for line in io.StringIO(text) if not line.lstrip().startswith("#"))
    head = [name.strip().lower() for name in table.fieldnames or ()]
    table.fieldnames = head
    missing = [name for name in _COLUMNS if name not in head]
    if missing:
        raise SimulationError(
            f"the CSV has no column {missing[0]}.", where=where, hint=f"Its columns: {', '.join((*_COLUMNS, 'class'))}."
        )
    found = []
    for number, row in enumerate(table, 1):
        try:
            if None in row or None in row.values():
                raise SimulationError(f"it has {_num_fields(row)} columns, and the header {len(head)}.")
            start, size = _seconds(row["start"]), float(units.size(row["bytes"].strip()))
            kind = int(row.get("class") or 0)
            if not 0 <= kind <= MOST_CLASSES:
                raise SimulationError(f"class {kind} is not one of 0 to {MOST_CLASSES}.")
        except (SynclineError, ValueError) as error:
            raise SimulationError(f"flow {number} cannot be read: {_first_line(error)}", where=where) from None
        found.append(FlowRow(row["source"].strip(), row["destination"].strip(), size, start, kind))
    return found


def _num_fields(row: dict[str | Any, str | Any]) -> int:
    return sum(len(value) if key is None else value is not None for key, value in row.items())


def _seconds(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return units.time(text.strip())


def _numbered(fabric: Fabric, ends: NDArray[np.integer[Any]]) -> dict[int, int] | None:
    """Return the ends by the numbers in their hosts' names, where a simulator numbered its switches among the hosts."""
    found = [name.removeprefix("host-") for name in fabric.host_names]
    if len(ends) != fabric.num_hosts or not all(number.isdecimal() for number in found):
        return None
    numbers = [int(number) for number in found]
    return None if numbers == list(range(len(numbers))) else dict(zip(numbers, map(int, ends), strict=True))


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _parse_flow_txt(lines: list[tuple[int, str]], where: str) -> list[FlowRow]:
    count, found = int(lines[0][1]), []
    for number, line in lines[1 : count + 1]:
        parts = line.split()
        try:
            source, destination, _, _, size, start = parts[:6]
            found.append(FlowRow(str(int(source)), str(int(destination)), float(size), float(start)))
        except ValueError:
            raise SimulationError(
                f'line {number} reads "{line[:60]}".', where=where,
                hint="A line of flow.txt is: source destination priority port bytes seconds.",
            ) from None  # fmt: skip
    if len(found) != count:
        raise SimulationError(f"line 1 declares {count:,} flows, but {len(found):,} follow.", where=where)
    return found


def _parse_simai(lines: list[tuple[int, str]], where: str) -> list[FlowRow]:
    ends: list[tuple[str, str]] = []
    flows: list[dict[str, int]] = []
    parents: list[list[int]] = []
    place: dict[int, int] = {}
    for number, line in lines[1:]:
        words = line.split()
        try:
            # The last of the fixed columns counts the ranks before this one; behind them come its parents, counted too.
            at = 14 + int(words[13])
            found = [int(word) for word in words[at + 1 : at + 1 + int(words[at])]]
            late = at + 1 + len(found)
            rest = [int(word) for word in words[late + 1 + int(words[late]) :]]
            place[int(words[0])] = len(ends)
            ends.append((str(int(words[1])), str(int(words[2]))))
            flows.append({"size": int(words[3])})
            timed = float(words[8]) != 0 or any(rest[4:])
        except (ValueError, IndexError):
            raise SimulationError(
                f'line {number} reads "{line[:60]}", which is no flow of SimAI.', where=where
            ) from None
        if timed:
            raise SimulationError(f"line {number} sets its own start or delay, which is not read.", where=where)
        parents.append(found)
    missing = next((parent for each in parents for parent in each if parent not in place), None)
    if missing is not None:
        raise SimulationError(f"a flow waits for flow {missing}, which is not there.", where=where)
    rows = _in_order(ends, flows, [[place[parent] for parent in each] for each in parents], where)
    return [replace(row, ranks=True) for row in rows]


def _parse_cm(lines: list[tuple[int, str]], where: str) -> list[FlowRow]:
    flows: list[dict[str, int]] = []
    ends: list[tuple[str, str]] = []
    barriers: dict[int, int] = {}
    promised = -1
    for number, line in lines:
        word = line.split()[0].lower()
        if word in ("nodes", "triggers"):
            continue
        if re.fullmatch(r"connections\s+\d+", line, re.IGNORECASE):
            promised = int(line.split()[1])
        elif word == "trigger":
            barriers.update(_barrier(line, number, where))
        elif (match := _CM_FLOW.match(line)) is not None:
            parts = match.group(3).split()
            flows.append({key: int(float(value)) for key, value in zip(parts[::2], parts[1::2], strict=True)})
            if flows[-1].get("size", 0) == 0:
                raise SimulationError(
                    f"line {number}: the flow has no size, which htsim reads as one that never ends.", where=where,
                    hint="Give it a size in bytes: 0->1 start 0 size 2000000.",
                )  # fmt: skip
            ends.append((match.group(1), match.group(2)))
        else:
            raise SimulationError(f'line {number} reads "{line[:60]}".', where=where,
                                  hint="A line of a .cm file is: 0->1 id 1 start 0 size 2000000.")  # fmt: skip
    if promised >= 0 and promised != len(flows):
        raise SimulationError(f"the file declares {promised:,} connections and has {len(flows):,}.", where=where)
    return _in_order(ends, flows, _waits(flows, barriers, where), where)


def _barrier(line: str, number: int, where: str) -> dict[int, int]:
    """Return how often a barrier must be fired, by its number; nothing for a oneshot trigger."""
    words = line.lower().split()
    if "oneshot" in words:
        return {}
    named = {key: re.search(rf"\b{key}\s+(\d+)", line, re.IGNORECASE) for key in ("id", "count")}
    name, count = named["id"], named["count"]
    if "barrier" not in words or name is None or count is None:
        raise SimulationError(
            f'line {number} reads "{line[:60]}".', where=where,
            hint="Triggers are `trigger id 1 oneshot` or `trigger id 1 barrier count 8`; which flow a multishot one "
            "starts depends on the course of the run, and is not read.",
        )  # fmt: skip
    return {int(name.group(1)): int(count.group(1))}


def _waits(flows: Sequence[Mapping[str, int]], barriers: Mapping[int, int], where: str) -> list[list[int]]:
    """Return for each flow those that fire what it waits for: one for a oneshot, as many as it counts for a barrier."""
    fired_by: dict[int, list[int]] = {}
    for i, flow in enumerate(flows):
        for key in ("send_done_trigger", "recv_done_trigger"):
            if flow.get(key):
                fired_by.setdefault(flow[key], []).append(i)
    waiting = Counter(flow["trigger"] for flow in flows if flow.get("trigger"))
    for trigger in waiting:
        fired, needed = len(fired_by.get(trigger, ())), barriers.get(trigger, 1)
        if fired == 0:
            raise SimulationError(f"no connection fires trigger {trigger}.", where=where)
        if fired != needed:
            raise SimulationError(
                f"trigger {trigger} counts {needed:,}, but {fired:,} fire it.", where=where,
                hint="htsim would hang or stop.",
            )  # fmt: skip
    total = sum(count * len(fired_by[trigger]) for trigger, count in waiting.items())
    if total > MOST_WAITS:
        raise SimulationError(f"flows wait {total:,} times for others; {MOST_WAITS:,} are the most.", where=where)
    return [fired_by[flow["trigger"]] if flow.get("trigger") else [] for flow in flows]


def _in_order(
    ends: Sequence[tuple[str, str]], flows: Sequence[Mapping[str, int]], waits: Sequence[Sequence[int]], where: str
) -> list[FlowRow]:
    """Return the flows so that each comes after those it waits for."""
    depth: dict[int, int] = {}
    try:
        for i in TopologicalSorter(dict(enumerate(waits))).static_order():
            depth[i] = max((depth[other] + 1 for other in waits[i]), default=0)
    except CycleError:
        raise SimulationError("triggers wait for each other in a ring.", where=where) from None
    order = sorted(range(len(flows)), key=lambda i: (depth[i], i))
    place = {flow: at for at, flow in enumerate(order)}
    return [
        FlowRow(
            *ends[i], flows[i]["size"], flows[i].get("start", 0) * 1e-12, 0, tuple(place[other] for other in waits[i])
        )
        for i in order
    ]
