"""The published rows in `research/data`, by blind set: 0 the constants were fitted to, 1 and 2 were there before the
first blind score, 3 and later were each scored once before anybody looked at their residuals.

    training_rows(0)          # rows of training-runs.csv, with their lines in that file
    collective_rows(3)        # rows of nccl-tests.csv
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from research.training.rows import PublishedRow, read_rows

from syncline.sim.nccl.measured import MeasuredRow
from syncline.sim.nccl.measured import read_rows as read_measured

DATA = Path(__file__).parent / "data"
TRAINING, COLLECTIVES = "training-runs.csv", "nccl-tests.csv"
BLIND_SETS = range(16)
#: The sets that the constants of the NCCL model were fitted to.
FITTED_COLLECTIVES = range(5)


@cache
def table(name: str) -> Any:
    """Return a YAML file of `research/data`."""
    return yaml.safe_load((DATA / name).read_text(encoding="utf-8"))


def training_rows(blind_set: int) -> list[PublishedRow]:
    """Return the training rows of a set."""
    text, before = _subset(TRAINING, blind_set)
    return [replace(row, line=row.line + before) for row in read_rows(text, TRAINING)] if text else []


def collective_rows(blind_set: int) -> list[MeasuredRow]:
    """Return the nccl-tests rows of a set."""
    text, before = _subset(COLLECTIVES, blind_set)
    return [replace(row, line=row.line + before) for row in read_measured(text, COLLECTIVES)]


def _subset(name: str, blind_set: int) -> tuple[str, int]:
    """Return the lines of a set without its column, and how many lines of other sets stand before them."""
    head, *lines = (DATA / name).read_text(encoding="utf-8").splitlines()
    mine = [number for number, line in enumerate(lines) if line.startswith(f"{blind_set},")]
    first = mine[0] if mine else 0
    assert mine == list(range(first, first + len(mine))), "rows of a set stand together, one a line"
    bare = [line.partition(",")[2] for line in (head, *(lines[number] for number in mine))]
    return ("\n".join(bare) + "\n" if mine else ""), first
