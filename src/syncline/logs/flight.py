"""PyTorch flight-recorder dumps: the last collectives of each rank, as rows the checks can compare.

JSON and the recorder's own files are read; those are pickles, of which only plain values are taken and nothing is run.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from syncline.describe.plain_pickle import read_plain_pickle
from syncline.errors import FileError
from syncline.logs.context import LineContext
from syncline.logs.tally import Evidence, MatchRow

MAX_BYTES = 256 << 20
KEPT = 4
"""The last collectives kept of each rank and process group."""
_RANK = re.compile(r"(?:rank|trace)_?(\d+)|(\d+)(?:\.json)?$", re.IGNORECASE)


def is_flight(head: bytes) -> bool:
    """Say whether a file begins like a dump in JSON."""
    start = head.lstrip()[:1] == b"{"
    return start and b'"entries"' in head[: 1 << 20] and (b'"pg_config"' in head or b"collective_seq_id" in head)


def is_pickle(head: bytes) -> bool:
    """Say whether a file begins like a pickled dump."""
    return head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05" and b"collective_seq_id" in head[: 1 << 20]


def plain_values(content: bytes) -> object:
    """Return what a pickle of plain values holds, or raise ValueError where it holds anything else."""
    try:
        return read_plain_pickle(content)
    except FileError as error:
        raise ValueError(str(error)) from None


def rows(path: str, order: int, content: bytes) -> Iterator[MatchRow]:
    """Yield the last collectives of each process group of one dump, or raise ValueError."""
    data = plain_values(content) if is_pickle(content) else json.loads(content)
    entries = data.get("entries") if isinstance(data, dict) else None
    if not isinstance(data, dict) or not isinstance(entries, list):
        raise ValueError('a flight-recorder dump has a list "entries"')
    rank = str(data["rank"]) if isinstance(data.get("rank"), int) else _rank_of(path)
    groups: dict[str, list[dict[str, Any]]] = {}
    for entry in entries:
        if isinstance(entry, dict) and isinstance(entry.get("collective_seq_id"), int):
            groups.setdefault(_group(entry), []).append(entry)
    for group, found in groups.items():
        for entry in sorted(found, key=lambda e: e["collective_seq_id"])[-KEPT:]:
            yield _row(path, order, rank, group, entry)


def _row(path: str, order: int, rank: str, group: str, entry: Mapping[str, Any]) -> MatchRow:
    op = str(entry.get("profiling_name", "")).rpartition(":")[2] or "?"
    values = {
        "rank": rank, "group": group, "seq": str(entry["collective_seq_id"]), "op": op,
        "sizes": _sizes(entry.get("input_sizes", [])), "state": str(entry.get("state", "")),
    }  # fmt: skip
    text = f"rank {rank} group {group}: #{values['seq']} {op} {values['sizes']} {values['state']}"
    return MatchRow(values, "", Evidence(path, 1, text, LineContext(rank=rank), order))


def _group(entry: Mapping[str, Any]) -> str:
    name = entry.get("process_group", entry.get("pg_name", entry.get("pg_id", "")))
    return " ".join(str(part) for part in name) if isinstance(name, (list, tuple)) else str(name)


def _sizes(shapes: object) -> str:
    """Return shapes as text; what is not a short list of lists of numbers is left out."""
    if not isinstance(shapes, (list, tuple)):
        return "[]"
    known = [list(shape) for shape in shapes[:64] if isinstance(shape, (list, tuple)) and _counts(shape)]
    return json.dumps(known)


def _counts(shape: Sequence[object]) -> bool:
    return len(shape) <= 64 and all(isinstance(size, int) for size in shape)


def _rank_of(path: str) -> str:
    name = path.rsplit("/", 1)[-1]
    found = _RANK.search(name)
    return (found[1] or found[2]) if found else name
