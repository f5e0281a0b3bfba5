"""What the site adds to the written pages: blocks that are run, and pages made from the code.

mkdocs build --strict                 the site in build/site
SYNCLINE_SITE=full mkdocs build       the same with every claim judged anew (`make site`)
"""

from __future__ import annotations

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
#: Links out of docs/ lead to files of the repository, which a site does not hold.
_OUTSIDE = re.compile(r"\[([^\]]+)\]\(\.\./\.\./([^)]+)\)")


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
    return _OUTSIDE.sub(r"\1 (`\2` in the repository)", str(_made.get(page.file.src_uri, markdown)))
