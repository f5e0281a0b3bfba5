"""Answers as text, as whole pages and as what a notebook shows."""

from __future__ import annotations

from syncline.questions.answer import Answer
from syncline.report.answers import html, text
from syncline.report.page.shell import document

__all__ = ["inset", "page", "text"]

_PLAIN = (
    "body{font:14px/1.45 system-ui,sans-serif;margin:24px auto;max-width:1180px;padding:0 16px} "
    "pre{font-size:12.5px;overflow-x:auto}"
)


def page(answer: Answer) -> str:
    """Return an answer as one whole page."""
    found = html(answer)
    title = text(answer).strip().partition("\n")[0]
    return found if found.startswith("<!doctype") else document(title, _PLAIN, found)


def inset(answer: Answer) -> str:
    """Return an answer for a notebook: a page stands in a frame, so that its style stays its own."""
    found = html(answer)
    if not found.startswith("<!doctype"):
        return found
    inside = found.replace("&", "&amp;").replace('"', "&quot;")
    return f'<iframe srcdoc="{inside}" sandbox="allow-scripts" style="width:100%;height:640px;border:0"></iframe>'
