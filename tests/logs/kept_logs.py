"""The kept logs, as tests and the benchmark read them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from syncline.describe.own_data import parsed

FILE = Path(__file__).with_name("logs.yaml")


@dataclass(frozen=True)
class KeptLog:
    name: str
    source: str
    expect: frozenset[str]
    log: str
    held_out: bool = False
    adapted: bool = False


@cache
def kept_logs() -> tuple[KeptLog, ...]:
    rows = parsed(FILE.read_text("utf-8"))
    return tuple(KeptLog(**{**row, "expect": frozenset(row["expect"])}) for row in rows)
