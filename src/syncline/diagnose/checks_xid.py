"""Xids of NVIDIA's driver: meaning and kind out of a table, the NVLink family by what the line itself says.

Xids 144 to 150 carry a word (Fatal or Nonfatal), a link, and six registers; the sub-code stands in bits 20 to 25 of
the first.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from importlib.resources import files

from syncline.describe.document import read_document
from syncline.diagnose.tally import MatchRow, Tally
from syncline.diagnose.verdict import CheckVerdict, some

SIGNAL = "signal.xid"
KINDS = ("application", "lost", "memory", "remap", "nvlink", "nvlink-soft", "driver", "power", "other")
MAX_DEVICES = 8


@cache
def xid_table() -> Mapping[int, tuple[str, str]]:
    """Return (kind, what it says) of each Xid."""
    text = (files("syncline.diagnose") / "xids.yaml").read_text(encoding="utf-8")
    data = read_document(text, "xids.yaml").data
    assert isinstance(data, dict)
    return {int(code): (str(kind), str(said)) for kind, rows in data.items() for code, said in rows.items()}


def kind_of(row: MatchRow) -> str:
    """Return the kind of one Xid line; an NVLink error that calls itself nonfatal is of a kind of its own."""
    kind, _ = xid_table().get(int(row.get("code")), ("other", ""))
    soft = kind == "nvlink" and row.get("fatal").lower() in ("nonfatal", "non-fatal")
    return "nvlink-soft" if soft else kind


def _name(row: MatchRow) -> str:
    code = int(row.get("code"))
    sub = f".{int(row.get('info'), 16) >> 20 & 0x3F}" if row.get("info") and 144 <= code <= 150 else ""
    parts = [xid_table().get(code, ("", ""))[1], row.get("fatal").lower()]
    parts += [f"link {int(row.get('link'))}"] if row.get("link") else []
    parts += [row.get("recovery")] if row.get("recovery") else []
    return f"Xid {code}{sub} ({', '.join(part for part in parts if part) or 'not in the table'})"


def _verdicts(tallies: Mapping[str, Tally], kind: str) -> Iterator[CheckVerdict]:
    rows = tallies[SIGNAL].rows.values() if SIGNAL in tallies else ()
    devices: dict[str, list[MatchRow]] = defaultdict(list)
    for row in rows:
        if kind_of(row) == kind:
            devices[" ".join(part for part in (row.host, row.get("device")) if part)].append(row)
    if not devices:
        return
    names: dict[str, int] = defaultdict(int)
    for found in devices.values():
        for row in found:
            names[_name(row)] += row.count
    text = "; ".join(name + (f" x{count}" if count > 1 else "") for name, count in list(names.items())[:4])
    lines = tuple(found[0].evidence for found in list(devices.values())[:4])
    yield CheckVerdict(text, some(devices, MAX_DEVICES), lines)


def _check(kind: str) -> Callable[[Mapping[str, Tally]], list[CheckVerdict]]:
    def check(tallies: Mapping[str, Tally]) -> list[CheckVerdict]:
        return list(_verdicts(tallies, kind))

    return check


XID_CHECKS = {f"xid-{kind}": _check(kind) for kind in KINDS}
