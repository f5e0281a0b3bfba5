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
    resvg = _resvg()
    empty, text = (bytes(resvg.svg_to_bytes(svg_string=_PROBE.format(t))) for t in ("", '<text y="15">x</text>'))
    if empty == text:
        raise PictureError(
            "no font is installed, so a PNG would have no text.",
            hint="Install one (Debian: apt install fonts-dejavu-core), or write SVG or HTML instead.",
        )
    try:
        target.write_bytes(bytes(resvg.svg_to_bytes(svg_string=svg, zoom=zoom)))
    except OSError as error:
        raise FileError(f'cannot write "{target}": {error.strerror}.') from None


def _resvg() -> Any:
    try:
        return importlib.import_module("resvg_py")
    except ImportError:
        raise PictureError(
            "writing a PNG needs resvg-py, which is not installed.",
            hint='Install it with `pip install "syncline[png]"`, or write SVG or HTML instead.',
        ) from None
