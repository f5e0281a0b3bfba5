"""Reproduce published results by command: `python examples/published/run.py [--html page.html] [NAME ...]`.

Every figure is printed beside the published one with the difference; a formula or an abstract's statement is named so.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from html import escape
from pathlib import Path

from figure import Figure

NAMES = ("dctcp", "cubic", "recovery", "hpcc", "fairness")


def page(found: list[Figure]) -> str:
    """Return the figures as bars, published and ours side by side."""
    parts = []
    for figure in found:
        top = max(max(p.published, p.ours) for p in figure.points) or 1.0
        rows = []
        for i, p in enumerate(figure.points):
            y = 10 + 44 * i
            for j, (who, value, colour) in enumerate(
                (("published", p.published, "#94a3b8"), ("ours", p.ours, "#2563eb"))
            ):
                width = 380 * max(value, 0) / top
                rows.append(
                    f'<rect x="260" y="{y + 16 * j}" width="{width:.1f}" height="13" fill="{colour}"/>'
                    f'<text x="{266 + width:.1f}" y="{y + 11 + 16 * j}">{value:.4g} {who if i == 0 else ""}</text>'
                )
            rows.append(
                f'<text x="252" y="{y + 18}" text-anchor="end">{escape(p.at)}</text>'
                f'<text x="760" y="{y + 18}">{escape(p.bound)} {p.difference:+.1%}</text>'
            )
        parts.append(
            f"<h2>{escape(figure.title)} [{escape(figure.unit)}]</h2>"
            f"<p>{escape(figure.source)}. {escape(figure.remark)} <em>{escape(figure.origin)}</em></p>"
            f'<svg viewBox="0 0 900 {20 + 44 * len(figure.points)}" width="100%" font-size="12">{"".join(rows)}</svg>'
        )
    return ('<!doctype html><html lang="en"><meta charset="utf-8"><title>Published results, reproduced</title>'
            '<body style="font:14px system-ui;max-width:940px;margin:24px auto">'
            + "".join(parts) + "</body></html>\n")  # fmt: skip


def main(words: list[str]) -> int:
    parser = argparse.ArgumentParser(description="Reproduce published results.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join(NAMES)}; default: all")
    parser.add_argument("--html", type=Path, help="write a page with the figures")
    asked = parser.parse_args(words)
    if unknown := [name for name in asked.names if name not in NAMES]:
        parser.error(f"there is no result {unknown[0]!r}: one of {', '.join(NAMES)}")
    target: Path | None = asked.html
    found: list[Figure] = []
    for name in asked.names or NAMES:
        for figure in importlib.import_module(name).figures():
            found.append(figure)
            print("\n".join(figure.lines()), flush=True)
    if target is not None:
        target.write_text(page(found))
        print(f"wrote {target}")
    return 0 if all(point.holds for figure in found for point in figure.points) else 1


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    sys.exit(main(sys.argv[1:]))
