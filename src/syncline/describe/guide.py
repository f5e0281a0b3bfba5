"""The pages that errors, findings and manuals send a reader to. A wheel brings them; `syncline guide` prints them.

    hint=f"See {cite('share')} for an example."     # See `syncline guide share` for an example.

Guides go by their name, pages on how a number comes about by `method/NAME`.
"""

from __future__ import annotations

import difflib
from pathlib import Path

from syncline.errors import UsageError

_GUIDES = "guides/"


def cite(page: str) -> str:
    """Return what to type to read a page."""
    return f"`syncline guide {page}`"


def pages() -> dict[str, Path]:
    """Return the pages that are installed, by name; guides first."""
    folder = _folder()
    paths = [path for part in ("guides", "method") for path in sorted((folder / part).glob("*.md"))]
    names = [str(path.relative_to(folder).with_suffix("")) for path in paths]
    return {name.removeprefix(_GUIDES): path for name, path in zip(names, paths, strict=True) if path.stem != "index"}


def read_page(name: str) -> str:
    """Return the text of a page, in Markdown."""
    known = pages()
    page = name.removesuffix(".md").removeprefix("docs/").removeprefix(_GUIDES)
    if page not in known:
        close = difflib.get_close_matches(page, known, n=3)
        detail = f"Close: {', '.join(close)}." if close else ""
        raise UsageError(f'there is no page "{name}".', detail=detail, hint="`syncline guide` lists them.")
    return known[page].read_text("utf-8")


def title(text: str) -> str:
    """Return the first heading of a page."""
    return next((line.removeprefix("# ") for line in text.splitlines() if line.startswith("# ")), "")


def _folder() -> Path:
    """Return where the pages lie: with the package, or in the checkout it is imported from."""
    installed = Path(__file__).parents[1] / "pages"
    return installed if installed.is_dir() else Path(__file__).parents[3] / "docs"
