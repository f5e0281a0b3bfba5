"""The house: holes in the types are few and where foreign data comes in; a folder fits in one look."""

from __future__ import annotations

import re
from pathlib import Path

import syncline

ROOT = Path(syncline.__file__).parent
MOST_HOLES = 258


def test_untyped_mappings_are_few() -> None:
    found = {path: len(re.findall(r"(?:dict|Mapping)\[str, Any\]", path.read_text())) for path in ROOT.rglob("*.py")}
    worst = sorted(((count, str(path.relative_to(ROOT))) for path, count in found.items() if count), reverse=True)[:8]
    total = sum(found.values())
    assert total <= MOST_HOLES, f"untyped mappings stand {total} times in src; most in {worst}: type what is ours"


def test_no_alias_hides_an_untyped_mapping() -> None:
    alias = re.compile(
        r"^(?!(?:Message|Config|Event) = )\w+(?:: TypeAlias)? = (?:dict|Mapping)\[str, Any\]$", re.MULTILINE
    )
    found = [str(path.relative_to(ROOT)) for path in ROOT.rglob("*.py") if alias.search(path.read_text())]
    assert not found, f"an alias of dict[str, Any] is the same hole under another name: {found}"


def test_a_folder_fits_in_one_look() -> None:
    """At most 25 Python files: a noun with more parts than that is several nouns."""
    folders = {path.parent for path in ROOT.rglob("*.py")}
    crowded = {str(folder.relative_to(ROOT)): len(list(folder.glob("*.py"))) for folder in folders}
    assert not {name: count for name, count in crowded.items() if count > 25}


def test_one_class_name_means_one_thing() -> None:
    """A public class name stands once in src; a name with an underscore is its file's own."""
    classes = re.compile(r"^class ([A-Z]\w*)", re.MULTILINE)
    where: dict[str, list[str]] = {}
    for path in sorted(ROOT.rglob("*.py")):
        for name in classes.findall(path.read_text()):
            where.setdefault(name, []).append(str(path.relative_to(ROOT)))
    assert not {name: files for name, files in where.items() if len(files) > 1}
