"""Answers as text, as whole pages and as what a notebook shows.

The text of an answer of `questions/place.py` is made by `report/text/place.py`, its page by `report/page/place.py`;
folders of `questions/` are mirrored in both.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from html import escape
from importlib import import_module
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from syncline.describe.rendering import WIDTH
from syncline.questions.answer import Answer

if TYPE_CHECKING:
    from rich.table import Table

PAGE_WIDTH = 400
"""Columns of text for which a page has room: no column of a table is left out."""


def parts(answer: Answer, width: int) -> Iterable[str | Table]:
    """Return the lines and tables of an answer, for so many columns."""
    return cast("Iterable[str | Table]", _maker("text", answer)(answer, width))


def text(answer: Answer) -> str:
    """Return what the command prints."""
    from rich.console import Console

    out = StringIO()
    console = Console(file=out, width=WIDTH, markup=False, highlight=False, emoji=False)
    for part in parts(answer, WIDTH):
        console.print(part, soft_wrap=isinstance(part, str))
    return out.getvalue().rstrip("\n")


def page(answer: Answer) -> str:
    """Return an answer as one whole page: its own, or its text and what is drawn of it."""
    from syncline.report.page.page import answer_page

    own, draw = (_maker("page", answer, name) if "html" in answer.outputs else None for name in ("page", "drawings"))
    if own is not None:
        return str(own(answer))
    whole = replace(answer, more=True) if hasattr(answer, "more") else answer  # type: ignore[type-var]
    return answer_page(parts(whole, PAGE_WIDTH), draw(answer) if draw is not None else ())


def pictures(answer: Answer) -> dict[str, str]:
    """Return the pictures of an answer as SVG, by file name."""
    found: dict[str, str] = _maker("page", answer, "pictures")(answer)
    return found


def inset(answer: Answer) -> str:
    """Return an answer for a notebook: a page stands in a frame, so that its style stays its own."""
    if "html" not in answer.outputs:
        return f"<pre>{escape(text(answer))}</pre>"
    inside = page(answer).replace("&", "&amp;").replace('"', "&quot;")
    return f'<iframe srcdoc="{inside}" sandbox="allow-scripts" style="width:100%;height:640px;border:0"></iframe>'


def _maker(form: str, answer: Answer, name: str = "") -> Any:
    """Return the function `form` of the module that renders what the answer's own module asks; None without one."""
    home = type(answer).__module__.removeprefix("syncline.questions.")
    if not (Path(__file__).parent / form / f"{home.replace('.', '/')}.py").is_file():
        return None
    return getattr(import_module(f"syncline.report.{form}.{home}"), name or form, None)
