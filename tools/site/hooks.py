"""What the site adds to the written pages: blocks that are run, and pages made from the code.

mkdocs build --strict                 the site in build/site
SYNCLINE_SITE=full mkdocs build       the same with every claim judged anew (`make site`)
"""

from __future__ import annotations

import posixpath
import re
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from blocks import ROOT, Kept, opened
from made import made_pages
from mkdocs.structure.files import File, Files
from navigation import filled

KEPT = ROOT / "build" / "site-kept"
_made: dict[str, Any] = {}
_LINK = re.compile(r"\[([^\]]+)\]\((\.\./[^)#\s]+)\)")
#: Folders of the repository that the site shows as a page.
_SHOWN = {"deploy": "reference/deploy.md", "examples": "gallery/index.md"}


def on_config(config: Any) -> Any:
    """Fill in the parts of the navigation that are folders."""
    config.nav = filled(config.nav, Path(config.docs_dir))
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made, and run the blocks of those that are written."""
    kept = Kept(KEPT)
    for path, content in made_pages(kept).items():
        files.append(File.generated(config, path, content=content))
    pictures: dict[str, str] = {}
    for file in list(files.documentation_pages()):
        text = file.content_string
        if not text.startswith("---\n") or "run: true" not in text.split("---\n", 2)[1]:
            continue
        with opened(file.src_uri, kept) as page:
            _made[file.src_uri] = page.rewritten(text.split("---\n", 2)[2])
        pictures |= page.pictures
    for name, svg in pictures.items():
        files.append(File.generated(config, f"pictures/{name}", content=svg))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Give a page with its blocks run."""
    place = page.file.src_uri
    return _LINK.sub(lambda found: _inside(found, place), str(_made.get(place, markdown)))


def _inside(found: re.Match[str], place: str) -> str:
    """Give a link out of docs/ as the page that shows its folder, or as text: a site does not hold the repository."""
    words, link = found.groups()
    target = posixpath.normpath(posixpath.join("docs", posixpath.dirname(place), link))
    if target.startswith("docs/"):
        return found[0]
    folder, _, name = target.partition("/")
    if folder in _SHOWN and "." not in name:
        shown = posixpath.relpath(_SHOWN[folder], posixpath.dirname(place))
        return f"[{words}]({shown}{'#' + name if name else ''})"
    return f"{words} (`{target}` in the repository)"
