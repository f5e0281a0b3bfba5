"""PNG from SVG, through resvg (a wheel without system libraries; extra `png`)."""

from __future__ import annotations

import importlib
import os
from pathlib import Path
from typing import Any

from syncline.errors import FileError, PictureError

_PROBE = '<svg xmlns="http://www.w3.org/2000/svg" width="40" height="20">{}</svg>'


def write_png(svg: str, path: str | os.PathLike[str], *, zoom: float = 2.0) -> None:
    """Write the SVG as a PNG of `zoom` pixels per unit."""
    target = Path(path)
    if target.is_dir():
        raise FileError(f'"{target}" is a directory.', hint="Name a file inside it.")
    families = _families()
    if families is None:
        raise PictureError(
            "no font is installed, so a PNG would have no text.",
            hint="Install one (Debian: apt install fonts-dejavu-core), or write SVG or HTML instead.",
        )
    try:
        target.write_bytes(bytes(_resvg().svg_to_bytes(svg_string=svg, zoom=zoom, **families)))
    except OSError as error:
        raise FileError(f'cannot write "{target}": {error.strerror}.') from None


def _families() -> dict[str, str] | None:
    """Return the settings under which text is drawn: none, or the font that the hint above installs, or None."""
    resvg = _resvg()

    def drawn(text: str, **families: str) -> bytes:
        return bytes(resvg.svg_to_bytes(svg_string=_PROBE.format(text), **families))

    empty = drawn("")
    # resvg knows "serif" and "sans-serif" by the names of two fonts that a bare machine does not have.
    for families in ({}, {"serif_family": "DejaVu Sans"}):
        if drawn('<text y="15" font-family="sans-serif">x</text>', **families) != empty:
            return families
    return None


def _resvg() -> Any:
    try:
        return importlib.import_module("resvg_py")
    except ImportError:
        raise PictureError(
            "writing a PNG needs resvg-py, which is not installed.",
            hint='Install it with `pip install "syncline[png]"`, or write SVG or HTML instead.',
        ) from None
