"""Pages: a template with values. A page fetches nothing, escapes every value and prints as it looks."""

from __future__ import annotations

import re
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from syncline.describe import units
from syncline.version import __version__

#: A date, and a number with its unit: a line may not end inside one.
_WHOLE = re.compile(r"\d{4}-\d\d-\d\d|\$?\d[\d.,]* (?:%|[kMB]\b|days?\b|GPUs?\b|GiB\b)")
_CODE = re.compile(r"`([^`]+)`")


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
