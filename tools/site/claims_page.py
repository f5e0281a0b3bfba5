"""The page of claims: what is stated, what syncline finds, under which conditions and by which command."""

from __future__ import annotations

import contextlib
import io
import json
import os
from collections import Counter
from functools import cache
from html import escape
from typing import Any

from blocks import ROOT, Kept

from syncline import __version__
from syncline.cli.shell.app import run
from syncline.validation.claims import ClaimFile, load_claims

COLOURS = {
    "reproduced": "#1b7f3b",
    "conditional": "#b06000",
    "refuted": "#b3261e",
    "undecided": "#666",
    "not here": "#666",
}
AREAS = "area"


def claims_page(kept: Kept) -> str:
    """Return the page. `SYNCLINE_SITE=full` judges every claim now; else the last kept run is shown with its date."""
    claims, when = _judged(kept) if os.environ.get("SYNCLINE_SITE") == "full" else _last()
    counted = Counter(claim["verdict"] for claim in claims)
    head = [
        "# Published claims, checked", "",
        f"{len(claims)} statements about networks for training, from papers, vendors and articles, and what syncline's models",
        "say about each. **Reproduced**: every case gives what is stated. **Conditional**: some do; the cases say when.",
        "**Refuted**: none does. **Undecided**: what is computed was fitted to such numbers and cannot judge it.", "",
        f"{', '.join(f'{counted[word]} {word}' for word in COLOURS if counted[word])}. {when}", "",
        "A verdict is as good as the model behind it: [errors against measurements](method/accuracy.md). To",
        "check a claim of your own, see [the guide](guides/claims.md). Below each claim are the files that its commands read;",
        "`syncline validate claims --files claims` writes all of them.", "",
    ]  # fmt: skip
    areas = list(dict.fromkeys(claim[AREAS] for claim in claims))
    jump = "Areas: " + " · ".join(f"[{area}](#{area})" for area in areas)
    body = [line for area in areas for line in _area(area, [c for c in claims if c[AREAS] == area])]
    return "\n".join([*head, jump, "", *body]) + "\n"


def _judged(kept: Kept) -> tuple[list[dict[str, Any]], str]:
    text = kept.get("claims")
    if text is None:
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            run(["validate", "claims", "--json"])
        text = kept.put(printed.getvalue(), "claims")
    return json.loads(text)[
        "claims"
    ], f"Computed when this site was built, by syncline {__version__}: `syncline validate claims`."


def _last() -> tuple[list[dict[str, Any]], str]:
    path = ROOT / "research" / "claims" / "verdicts.json"
    result = json.loads(path.read_text("utf-8"))
    return result["claims"], f"Run of {result['date'][:10]}; `make site` computes them anew."


def _area(area: str, claims: list[dict[str, Any]]) -> list[str]:
    return [f"## {area}", "", *(line for claim in claims for line in _claim(claim))]


def _claim(claim: dict[str, Any]) -> list[str]:
    word = claim["verdict"]
    badge = f'<span class="verdict" style="background:{COLOURS[word]}">{word}</span>'
    lines = [f"### {claim['id']} {claim['claim']} {{ #{claim['id']} }}", "", f"{badge} stated: {claim['stated']}", ""]
    lines += [_picture(claim), "", "| when | found | as stated | command |", "|---|---|---|---|"]
    for case in claim["cases"]:
        value = "not here" if case["value"] is None else f"{case['value']:,.4g} {case['unit']}".strip()
        sign = {True: "yes", False: "no", None: ""}[case["inside"]]
        lines.append(f"| {_cell(case['when']) or 'as stated'} | {_cell(value)} | {sign} | {_words(case['command'])} |")
    return [*lines, "", *([claim["note"], ""] if claim["note"] else []), *_given(claim["id"])]


@cache
def _shipped() -> ClaimFile:
    return load_claims(None)


def _given(claim: str) -> list[str]:
    """Return the descriptions that the commands of a claim read, folded up."""
    found = _shipped()
    one = next((one for one in found.claims if one.id == claim), None)
    texts = found.descriptions(one) if one is not None else {}
    shown = "".join(f"<pre><code># {name}\n{escape(text)}</code></pre>" for name, text in texts.items())
    return (
        [f"<details><summary>{', '.join(texts)}</summary>{shown}</details>".replace("\n\n", "\n"), ""] if texts else []
    )


def _words(command: str) -> str:
    """Return a command in a narrow cell: lines end between words, not after the hyphens of an option."""
    words = " ".join(f'<span class="word">{escape(word)}</span>' for word in _cell(command).split())
    return f"<code>{words}</code>"


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _picture(claim: dict[str, Any]) -> str:
    """Return the cases on one axis, with the stated range as a band; nothing where there is no scale to share."""
    cases = [c for c in claim["cases"] if c["value"] is not None and c["unit"] == claim["unit"]]
    if not cases:
        return ""
    bounds = [b for c in cases for b in (c["low"], c["high"]) if b is not None]
    values = [c["value"] for c in cases] + bounds
    low, high = min([0.0, *values]), max(values) * 1.05 or 1.0
    wide, row, left = 560, 22, 8
    at = [left + (wide - 2 * left) * (v - low) / ((high - low) or 1) for v in (c["value"] for c in cases)]
    first, last = cases[0]["low"], cases[0]["high"]
    x0 = left + (wide - 2 * left) * ((first if first is not None else low) - low) / (high - low)
    x1 = left + (wide - 2 * left) * ((last if last is not None else high) - low) / (high - low)
    tall = row * len(cases) + 8
    parts = [f'<rect x="{x0:.1f}" y="0" width="{max(x1 - x0, 2):.1f}" height="{tall}" class="band"/>']
    for number, (case, x) in enumerate(zip(cases, at, strict=True)):
        y = number * row + 15
        colour = COLOURS["reproduced" if case["inside"] else "refuted"]
        text = f"{case['value']:,.4g} {case['unit']}".strip()
        anchor = "end" if x > wide * 0.7 else "start"
        parts.append(f'<circle cx="{x:.1f}" cy="{y}" r="5" fill="{colour}"/>')
        shift = -10 if anchor == "end" else 10
        parts.append(f'<text x="{x + shift:.1f}" y="{y + 4}" text-anchor="{anchor}">{escape(text)}</text>')
    label = escape(f"{claim['id']}: cases on one axis, the stated range as a band", quote=True)
    body = "".join(parts)
    return f'<svg class="claim" viewBox="0 0 {wide} {tall}" role="img" aria-label="{label}">{body}</svg>'
