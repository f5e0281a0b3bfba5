"""Predicted against published nccl-tests rows: errors by system and size band, plain, calibrated and left out.

python benchmarks/validate_collectives.py     # writes the figures of docs/appendix/collectives.md anew
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from syncline.describe.plain import plain
from syncline.validate.collectives import SHIPPED, validate_collectives

#: What is wanted of collectives.csv: (where in the result, median, 90th percentile).
TARGETS = {"large": (0.025, 0.12), "all": (0.08, 0.35), "calibrated": (0.045, 0.20)}
PAGE = Path(__file__).parent.parent / "docs" / "appendix" / "collectives.md"
MARKS = ("<!-- figures:begin -->\n", "<!-- figures:end -->")


def run() -> dict[str, Any]:
    """Return the errors of both shipped files and the CPU seconds to predict and calibrate all their rows."""
    began = time.process_time()
    results = {name: plain(validate_collectives(name).to_json()) for name in SHIPPED}
    cpu_s = time.process_time() - began
    overall = results[SHIPPED[0]]["overall"]
    found = {"large": overall["large"], "all": overall, "calibrated": overall["calibrated"]}
    return {
        "cpu_s": cpu_s,
        "targets": {
            name: {
                "median_error": found[name]["median_error"],
                "p90_error": found[name]["p90_error"],
                "wanted_median_error": median,
                "wanted_p90_error": p90,
                "reached": found[name]["median_error"] <= median and found[name]["p90_error"] <= p90,
            }
            for name, (median, p90) in TARGETS.items()
        },
        "results": results,
    }


def _pair(row: dict[str, Any]) -> str:
    return "-" if row["median_error"] is None else f"{100 * row['median_error']:.1f} / {100 * row['p90_error']:.0f}"


def _overall(name: str, row: dict[str, Any], wanted: dict[str, tuple[float, float]]) -> list[str]:
    out = row["left_out"]
    cells = (
        (">= 256 MiB, uncalibrated", row["large"], wanted.get("large"), out["large"]),
        ("all sizes, uncalibrated", row, wanted.get("all"), out),
        ("after six sizes", row["calibrated"], wanted.get("calibrated"), out["calibrated"]),
        ("interpolation of the same six", row["interpolated"], None, None),
    )
    lines = [f"| rows of `{name}` up to 64 hosts (%) | scored | error | wanted | left out |", "|---|---|---|---|---|"]
    for label, own, goal, left in cells:
        goal_text = f"{100 * goal[0]:g} / {100 * goal[1]:.0f}" if goal else ""
        error = _pair(own) if left is None else f"**{_pair(own)}**"
        lines.append(f"| {label} | {own['scored']} | {error} | {goal_text} | {_pair(left) if left else ''} |")
    return lines


def figures(results: dict[str, Any]) -> str:
    """Return the tables of the method page."""
    lines = []
    for name, wanted in zip(SHIPPED, (TARGETS, {}, {}), strict=True):
        lines += [*_overall(name, results[name]["overall"], wanted), ""]
    first = results[SHIPPED[0]]
    far, lost = first["overall"]["beyond_64_hosts"], sum(u["rows"] for u in first["unmodelled"])
    held = " and ".join(f"{100 * results[name]['overall']['coverage']:.0f}" for name in SHIPPED)
    beyond = f"the point is off by {_pair(far)} % and the interval holds {100 * far['coverage']:.0f} %"
    lines += [
        f"The 90 % interval holds {held} % of these rows.",
        f"Beyond 64 hosts ({far['scored']} rows of 128, 256 and 540 hosts) {beyond}.",
        f"Not modelled: {lost} rows of size 0.",
        "",
        "| system | rows | XS | S | M | L | all | six sizes | left out |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name in SHIPPED:
        lines.append(f"| **{name}** | | | | | | | | |")
        for system, row in results[name]["systems"].items():
            bands = " | ".join(_pair(row["by_band"][b]) for b in ("XS", "S", "M", "L"))
            cells = f"{bands} | {_pair(row)} | {_pair(row['calibrated'])} | {_pair(row['left_out'])}"
            lines.append(f"| {system[:70]} | {row['rows']} | {cells} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the figures into the method page."""
    text = PAGE.read_text(encoding="utf-8")
    head, _, rest = text.partition(MARKS[0])
    _, _, tail = rest.partition(MARKS[1])
    PAGE.write_text(head + MARKS[0] + figures(run()["results"]) + MARKS[1] + tail, encoding="utf-8")


if __name__ == "__main__":
    main()
