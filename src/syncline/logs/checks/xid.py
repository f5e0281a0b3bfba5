"""Xids of NVIDIA's driver: meaning and kind out of a table, the NVLink family by what the line itself says.

Xids 144 to 150 carry a word (Fatal or Nonfatal), a link, and six registers; the sub-code stands in bits 20 to 25 of
the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from importlib.resources import files
from typing import NamedTuple

from syncline.describe.document import read_document
from syncline.logs.tally import MatchRow, Tallies, rows_of
from syncline.logs.verdict import CheckVerdict, some

SIGNAL = "signal.xid"
KINDS = ("application", "lost", "memory", "remap", "nvlink", "nvlink-soft", "driver", "power", "other")
MAX_DEVICES = 8


class Xid(NamedTuple):
    """One number: the kind of rule it belongs to, what it says, and what NVIDIA asks for at once."""

    kind: str
    says: str
    action: str


UNKNOWN = Xid("other", "", "")


@cache
def xid_table() -> Mapping[int, Xid]:
    """Return what is known of each Xid."""
    text = (files("syncline.logs") / "xids.yaml").read_text(encoding="utf-8")
    data = read_document(text, "xids.yaml").data
    assert isinstance(data, dict)
    return {int(code): Xid(str(kind), *map(str, row)) for kind, rows in data.items() for code, row in rows.items()}


def _xid(row: MatchRow) -> Xid:
    return xid_table().get(int(row.get("code")), UNKNOWN)


def kind_of(row: MatchRow) -> str:
    """Return the kind of one Xid line; an NVLink error that calls itself nonfatal is of a kind of its own."""
    kind = _xid(row).kind
    soft = kind == "nvlink" and row.get("fatal").lower() in ("nonfatal", "non-fatal")
    return "nvlink-soft" if soft else kind


def _name(row: MatchRow) -> str:
    code = int(row.get("code"))
    sub = f".{int(row.get('info'), 16) >> 20 & 0x3F}" if row.get("info") and 144 <= code <= 150 else ""
    parts = [_xid(row).says, row.get("fatal").lower()]
    parts += [f"link {int(row.get('link'))}"] if row.get("link") else []
    parts += [row.get("recovery")] if row.get("recovery") else []
    return f"Xid {code}{sub} ({', '.join(part for part in parts if part) or 'not in the table'})"


def _verdicts(tallies: Tallies, kind: str) -> Iterator[CheckVerdict]:
    devices: dict[str, list[MatchRow]] = defaultdict(list)
    for row in _rows(tallies):
        if kind_of(row) == kind:
            devices[" ".join(part for part in (row.host, row.get("device")) if part)].append(row)
    if not devices:
        return
    names: dict[str, int] = defaultdict(int)
    actions: dict[str, None] = {}
    for found in devices.values():
        for row in found:
            names[_name(row)] += row.count
            actions[_xid(row).action] = None
    text = "; ".join(name + (f" x{count}" if count > 1 else "") for name, count in list(names.items())[:4])
    asked = [action for action in actions if action][:2]
    text += f". NVIDIA asks to: {', or '.join(asked)}" if asked else ""
    lines = tuple(found[0].evidence for found in list(devices.values())[:4])
    yield CheckVerdict(text, some(devices, MAX_DEVICES), lines)


def _rows(tallies: Tallies) -> Iterator[MatchRow]:
    """Yield the Xids; one "caused by previous Xid N" stands for N where the log does not hold N itself."""
    rows = rows_of(tallies, SIGNAL)
    codes = {row.get("code") for row in rows}
    for row in rows:
        before = row.get("previous")
        yield row if not before or before in codes else replace(row, groups={**row.groups, "code": before})


def _check(kind: str) -> Callable[[Tallies], list[CheckVerdict]]:
    def check(tallies: Tallies) -> list[CheckVerdict]:
        return list(_verdicts(tallies, kind))

    return check


XID_CHECKS = {f"xid-{kind}": _check(kind) for kind in KINDS}
