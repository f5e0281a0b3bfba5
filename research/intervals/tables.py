"""Write the intervals of the package and how often they hold: `python -m research.intervals.tables [--write]`.

Every published row is predicted anew (half a minute). `sim/data/uncertainty.yaml` gets the intervals,
`validate/data/coverage.yaml` what `syncline validate intervals` prints.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import yaml
from research.intervals.first import blind, first_scores, in_turn
from research.intervals.intervals import crossed, make_table
from research.intervals.residuals import all_residuals

from syncline.describe.files import write_text

PACKAGE = Path(__file__).parents[2] / "src" / "syncline"
UNCERTAINTY, COVERAGE = PACKAGE / "sim/data/uncertainty.yaml", PACKAGE / "validation/data/coverage.yaml"
HEAD = """# How far off predictions are: by subject the effects of what is known of a case on how far log(measured /
# predicted) reaches below and above 0 (`log`), with the measurements and publications that speak of each, and the
# quantiles at 5, 25, 75 and 95 % of errors over their reach (`standard`), publications left out. Sources of the last
# blind sets count as first scored. Written by `python -m research.intervals.tables --write` from research/data.
"""
COVERAGE_HEAD = """# How many published measurements lie inside intervals made without them, and how many rows of
# later blind sets lie inside intervals made before them. Written by `python -m research.intervals.tables --write`.
"""


def uncertainty() -> str:
    """Return the table of intervals."""
    made = make_table(blind(all_residuals(), first_scores()))
    return HEAD + yaml.safe_dump(made, sort_keys=False, width=120, default_flow_style=None)


def coverage() -> dict[str, Any]:
    """Return how often the intervals hold."""
    rows, firsts = all_residuals(), first_scores()
    return {"residuals": len(rows), "groups": crossed(blind(rows, firsts)), "unseen": in_turn()}


def write_tables() -> None:
    """Write both tables into the package."""
    write_text(UNCERTAINTY, uncertainty())
    write_text(COVERAGE, COVERAGE_HEAD + yaml.safe_dump(coverage(), sort_keys=False, width=120))


if __name__ == "__main__":
    if "--write" in sys.argv:
        write_tables()
    else:
        sys.stdout.write(yaml.safe_dump(coverage(), sort_keys=False, width=120))
