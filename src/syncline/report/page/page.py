"""Pages: the answer's text, its drawings below, or a template of its own. A page fetches nothing and escapes all."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import NamedTuple

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from rich.table import Table

from syncline.describe import units
from syncline.version import __version__

#: A date, and a number with its unit: a line may not end inside one.
_WHOLE = re.compile(r"\d{4}-\d\d-\d\d|\$?\d[\d.,]* (?:%|[kMB]\b|days?\b|GPUs?\b|GiB\b)")
_CODE = re.compile(r"`([^`]+)`")


class Drawing(NamedTuple):
    """What a page draws next to its text, under a heading; the note says how to read it."""

    heading: str
    drawn: Markup | Table
    note: str = ""


def answer_page(text: Iterable[str | Table], drawings: Iterable[Drawing] = ()) -> str:
    """Return the page of an answer: its first line as the title, the rest of its text, then what is drawn."""
    given = list(text)
    title = next((part for part in given if isinstance(part, str) and part.strip()), "")
    parts: list[str | Table] = []
    for part in (each for each in given if each is not title):
        if isinstance(part, str) and parts and isinstance(parts[-1], str):
            parts[-1] += f"\n{part}"
        else:
            parts.append(part)
    return render("answer", title=title.strip(), drawings=list(drawings), parts=parts)


def _cells(table: Table) -> tuple[list[str], list[tuple[object, ...]]]:
    """Return heads and rows as templates have them."""
    heads = [("" if column.justify == "right" else "<") + str(column.header) for column in table.columns]
    return heads, list(zip(*(column.cells for column in table.columns), strict=True))


def render(template: str, **values: object) -> str:
    """Return a page: `render("plan", answer=answer)` fills `plan.html.j2`."""
    return _environment().get_template(f"{template}.html.j2").render(values)


def unbroken(text: str) -> Markup:
    """Return text whose dates and numbers with units stay on one line, with `keys` as code."""
    marked = _CODE.sub(r"<code>\1</code>", str(escape(text)))
    whole = _WHOLE.sub(lambda match: f'<span class="whole">{match.group()}</span>', marked)
    return Markup(whole)  # noqa: S704 escaped above


@cache
def _environment() -> Environment:
    made = Environment(
        loader=PackageLoader("syncline.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "unbroken": unbroken,
        "cells": _cells,
        "time": units.show_time,
        "size": units.show_size,
        "money": units.show_money,
        "bandwidth": units.show_bandwidth,
        "share": lambda value, digits=1: f"{value:.{digits}%}",
        "change": lambda value: f"{value:+z.1%}",
        "commas": lambda value: f"{value:,}",
    }
    made.globals["version"] = __version__
    return made
