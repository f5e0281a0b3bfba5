"""One self-contained page around a picture: pan, zoom, hover, filters, search, and a table of facts beside it."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from importlib import resources

from syncline.report.picture.facts_table import facts_table
from syncline.report.picture.frame import Filter
from syncline.report.picture.palette import page_colours, themed_sheet

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'"
_KEYS = (
    (("+", "−", "0"), "zoom, fit"),
    (("arrows",), "pan"),
    (("n", "p"), "next, previous device"),
    (("Esc",), "let go"),
)


def page(svg: str, title: str, filters: tuple[Filter, ...], facts: Mapping[str, object]) -> str:
    """Return the page as HTML. Nothing is loaded from elsewhere, and the page may not load anything."""
    return "\n".join(
        (
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>",
            f"<style>{_style()}</style></head><body>",
            f'<main><h1 class="sr">{escape(title)}</h1>{svg.strip()}{_BUTTONS}</main>',
            f"<aside>{_tools(filters)}{facts_table(facts)}{_help()}</aside>",
            '<div id="tip" role="tooltip" hidden></div>',
            f"<script>{_asset('page.js')}</script>",
            "</body></html>\n",
        )
    )


_BUTTONS = (
    '<div class="bar"><button id="in" aria-label="Zoom in">+</button><button id="out" aria-label="Zoom out">−</button>'
    '<button id="fit">Fit</button><button id="theme" aria-label="Light or dark">◐</button></div>'
)


def _asset(name: str) -> str:
    return (resources.files("syncline.report.picture") / name).read_text("utf-8")


def _style() -> str:
    def variables(theme: str) -> str:
        focus = "#8fb8ff" if theme == "dark" else "#1f5fd0"
        return "".join(f"--{k}:{v};" for k, v in page_colours(theme).items()) + f"--focus:{focus};color-scheme:{theme};"

    chosen = "".join(
        f':root[data-theme="{theme}"]{{{variables(theme)}}}'
        + themed_sheet(f':root[data-theme="{theme}"] .fabric', theme)
        for theme in ("light", "dark")
    )
    media = f"@media (prefers-color-scheme:dark){{:root{{{variables('dark')}}}}}"
    return f":root{{{variables('light')}}}{media}{chosen}{_asset('page.css')}"


def _tools(filters: tuple[Filter, ...]) -> str:
    tools = (
        '<div class="tools"><h2>Find</h2><input id="search" type="search" placeholder="Name of a device" '
        'aria-label="Find a device by name"></div><div id="details" role="status"></div>'
    )
    for kind, heading in (("tier", "Links"), ("lane", "Lanes")):
        chosen = [one for one in filters if one.kind == kind]
        if len(chosen) > 1:
            rows = "".join(_checkbox(one) for one in chosen)
            heading = chosen[0].heading or heading
            tools += f'<div class="tools"><h2>{escape(heading)}</h2><div class="filters {kind}s">{rows}</div></div>'
    return tools


def _checkbox(one: Filter) -> str:
    sample = f'<svg class="fabric" aria-hidden="true"><path class="w {one.look}" d="M1 5h24" stroke-width="3"/></svg>'
    box = f'<input type="checkbox" checked data-kind="{one.kind}" value="{one.value}">'
    return f"<label>{box}{sample}{escape(one.label)}</label>"


def _help() -> str:
    items = (" ".join(f"<kbd>{key}</kbd>" for key in keys) + f" {words}" for keys, words in _KEYS)
    return f'<div class="tools"><h2>Keys</h2><p class="keys">{"<br>".join(items)}</p></div>'
