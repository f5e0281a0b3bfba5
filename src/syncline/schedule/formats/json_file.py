"""Schedules as JSON: lossless, readable, and safe to read from anybody.

A round repeats in the file as it does in memory, so a 4,096-rank ring is a few hundred kilobytes. A column that is one
number all the way down is written as that number.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray

from syncline.describe.plain import JsonObject
from syncline.errors import ScheduleError
from syncline.schedule.collective import MAX_CHUNKS, MAX_RANKS, Collective, Ints
from syncline.schedule.formats.reader import Reader
from syncline.schedule.kernel import Axes, Kernel, Stage
from syncline.schedule.moves import Round, moves_round
from syncline.schedule.schedule import Schedule, Strand

T = TypeVar("T")

FORMAT = "syncline-schedule"
VERSION = 1
MAX_BYTES = 1 << 27
_STEPS = ("src_step", "dst_step", "chunk_step")
_COLUMNS = ("src", "dst", "chunk", "count", "op", "block")


def to_json(schedule: Schedule) -> JsonObject:
    """Return a schedule as a JSON object; kernels that strands share are written once."""
    kernels: dict[int, int] = {}
    listed: list[Kernel] = []
    for strand in schedule.strands:
        for stage in strand.stages:
            if id(stage.kernel) not in kernels:
                kernels[id(stage.kernel)] = len(listed)
                listed.append(stage.kernel)
    return {
        "format": FORMAT,
        "version": VERSION,
        "name": schedule.name,
        "family": schedule.family,
        "collective": schedule.collective.to_json(),
        "num_helpers": schedule.num_helpers,
        "homes": list(schedule.homes),
        "kernels": [_kernel_out(kernel) for kernel in listed],
        "strands": [_strand_out(strand, kernels) for strand in schedule.strands],
    }


def dumps(schedule: Schedule) -> str:
    """Return a schedule as JSON text."""
    return json.dumps(to_json(schedule), separators=(",", ":")) + "\n"


def _kernel_out(kernel: Kernel) -> JsonObject:
    return {
        "name": kernel.name,
        "goal": kernel.goal.to_json(),
        "num_chunks": kernel.num_chunks,
        "num_helpers": kernel.num_helpers,
        "rounds": [_round_out(entry) for entry in kernel.rounds],
    }


def _round_out(entry: Round) -> JsonObject:
    out: JsonObject = {"src": entry.src.tolist()}
    out |= {name: _column_out(getattr(entry, name)) for name in _COLUMNS[1:]}
    out |= {"repeat": entry.repeat, "at_once": entry.at_once, "wrap": entry.wrap, "window": entry.window}
    out |= {name: getattr(entry, name) for name in _STEPS}
    return out | {
        "src_circle": [entry.src_base, entry.src_size],
        "dst_circle": [entry.dst_base, entry.dst_size],
    }


def _column_out(column: NDArray[Any]) -> int | list[int]:
    values: list[int] = column.tolist()
    return values[0] if len(set(values)) == 1 and len(values) > 1 else values


def _strand_out(strand: Strand, kernels: dict[int, int]) -> JsonObject:
    pieces = {"pieces": strand.pieces} if strand.pieces > 1 else {}
    return {
        "share": str(strand.share),
        "channel": strand.channel,
        "rail": strand.rail,
        "num_chunks": strand.num_chunks,
        "weights": list(strand.weights),
        **pieces,
        "stages": [_stage_out(stage, kernels[id(stage.kernel)]) for stage in strand.stages],
    }


def _stage_out(stage: Stage, kernel: int) -> JsonObject:
    return {
        "kernel": kernel,
        "members": stage.members.tolist(),
        "base": _column_out(stage.base),
        "index": [list(axis) for axis in stage.index],
        "spans": [list(axis) for axis in stage.spans],
    }


def loads(text: str | bytes, name: str = "schedule") -> Schedule:
    """Read a schedule from JSON text; anything wrong is a `ScheduleError` that says where."""
    if len(text) > MAX_BYTES:
        raise ScheduleError(f"{len(text):,} bytes are more than the {MAX_BYTES:,} a schedule may have.", where=name)
    try:
        value = json.loads(text, parse_constant=_no_constant)
    except json.JSONDecodeError as error:
        where = f"{name} line {error.lineno} column {error.colno}"
        raise ScheduleError(f"this is not JSON: {error.msg}.", where=where) from None
    except (UnicodeDecodeError, RecursionError, ValueError) as error:
        raise ScheduleError(f"this is not JSON that can be read: {type(error).__name__}.", where=name) from None
    return from_json(value, name)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


def from_json(value: Any, name: str = "schedule") -> Schedule:
    """Read a schedule from a JSON object."""
    top = Reader(value, name)
    top.only("format", "version", "name", "family", "collective", "num_helpers", "homes", "kernels", "strands")
    if top.field("format").value != FORMAT or top.field("version").value != VERSION:
        raise ScheduleError(f"this is not a {FORMAT} file of version {VERSION}.", where=name)
    kernels = [_kernel_in(item) for item in top.field("kernels").items()]
    return _placed(
        name,
        lambda: Schedule(
            top.field("name").text(),
            _collective_in(top.field("collective")),
            tuple(_strand_in(item, kernels) for item in top.field("strands").items()),
            top.field("num_helpers").integer(0, MAX_RANKS),
            tuple(top.field("homes").integers(-1, MAX_RANKS).tolist()),
            family=top.field("family").text() if top.has("family") else "",
        ),
    )


def _placed(place: str, make: Callable[[], T]) -> T:
    """Say where a rule was broken that only the whole object knows."""
    try:
        return make()
    except ScheduleError as error:
        if error.where.startswith(place):
            raise
        where = f"{place}: {error.where}" if error.where else place
        raise ScheduleError(error.message, where=where, detail=error.detail, hint=error.hint) from None


def _collective_in(at: Reader) -> Collective:
    at.only("kind", "num_ranks", "root", "peer", "sizes")
    root = at.field("root").integer() if at.has("root") else 0
    peer = at.field("peer").integer() if at.has("peer") else -1
    sizes = tuple(at.field("sizes").integers(0).tolist()) if at.has("sizes") else ()
    kind: Any = at.field("kind").text()
    ranks = at.field("num_ranks").integer()
    return _placed(at.place, lambda: Collective(kind, ranks, root, peer, sizes))


def _kernel_in(at: Reader) -> Kernel:
    at.only("name", "goal", "num_chunks", "num_helpers", "rounds")
    goal, rounds = _collective_in(at.field("goal")), tuple(_round_in(item) for item in at.field("rounds").items())
    chunks = at.field("num_chunks").integer(1, MAX_CHUNKS)
    helpers = at.field("num_helpers").integer(0, MAX_RANKS)
    return _placed(at.place, lambda: Kernel(at.field("name").text(), goal, chunks, rounds, helpers))


def _round_in(at: Reader) -> Round:
    at.only(*_COLUMNS, *_STEPS, "repeat", "at_once", "wrap", "window", "src_circle", "dst_circle")
    columns = {name: at.field(name).integers() for name in _COLUMNS}
    if columns["op"].size and not np.isin(columns["op"], (0, 1)).all():
        raise ScheduleError("an op is 0 (copy) or 1 (reduce).", where=f"{at.place}.op")
    steps = {name: at.field(name).integer() for name in _STEPS}
    return _placed(
        at.place,
        lambda: moves_round(
            columns["src"],
            columns["dst"],
            columns["chunk"],
            columns["op"],
            count=columns["count"],
            block=columns["block"],
            src_step=steps["src_step"],
            dst_step=steps["dst_step"],
            chunk_step=steps["chunk_step"],
            repeat=at.field("repeat").integer(0, 1 << 31),
            at_once=at.field("at_once").flag(),
            wrap=at.field("wrap").flag(),
            window=at.field("window").integer(0, MAX_CHUNKS),
            src_circle=_circle_in(at.field("src_circle")),
            dst_circle=_circle_in(at.field("dst_circle")),
        ),
    )


def _circle_in(at: Reader) -> tuple[int, int]:
    values = at.integers(0, MAX_RANKS * 2)
    if len(values) != 2:
        at.wrong("two numbers: the first vertex and how many")
    return int(values[0]), int(values[1])


def _strand_in(at: Reader, kernels: list[Kernel]) -> Strand:
    at.only("share", "channel", "rail", "num_chunks", "weights", "pieces", "stages")
    return Strand(
        tuple(_stage_in(item, kernels) for item in at.field("stages").items()),
        at.field("num_chunks").integer(1, MAX_CHUNKS),
        at.field("share").fraction(),
        at.field("channel").integer(0, 1 << 20),
        None if at.field("rail").value is None else at.field("rail").integer(0, 1 << 20),
        tuple(at.field("weights").integers(0).tolist()),
        at.field("pieces").integer(1, MAX_CHUNKS) if at.has("pieces") else 1,
    )


def _stage_in(at: Reader, kernels: list[Kernel]) -> Stage:
    at.only("kernel", "members", "base", "index", "spans")
    kernel = kernels[at.field("kernel").integer(0, len(kernels) - 1)]
    rows = [item.integers(0, 2 * MAX_RANKS) for item in at.field("members").items()]
    if any(len(row) != kernel.num_vertices for row in rows):
        raise ScheduleError(f"every group needs {kernel.num_vertices} members.", where=f"{at.place}.members")
    members: Ints = np.stack(rows) if rows else np.zeros((0, kernel.num_vertices), dtype=np.int64)
    base = np.broadcast_to(at.field("base").integers(0, MAX_CHUNKS), len(rows)) if rows else members[:, 0]
    axes = (_axes_in(at.field("index")), _axes_in(at.field("spans")))
    return _placed(at.place, lambda: Stage(kernel, members, base, *axes))


def _axes_in(at: Reader) -> Axes:
    pairs = [item.integers(0, MAX_CHUNKS) for item in at.items()]
    if any(len(pair) != 2 for pair in pairs):
        at.wrong("pairs of count and stride")
    return tuple((int(count), int(stride)) for count, stride in pairs)
