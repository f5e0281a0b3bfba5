"""Every rule tried on the example that its file carries."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from syncline.diagnose.diagnose import diagnose
from syncline.diagnose.rule import LogRule


def found_in(text: str, book: Mapping[str, LogRule]) -> list[str]:
    """Return the rules that hold on a text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "example.log"
        path.write_text(text, "utf-8")
        return [finding.rule for finding in diagnose([path], rules=book).findings]


def failing_examples(book: Mapping[str, LogRule]) -> dict[str, list[str]]:
    """Return the rules that do not hold on their own example, with what does."""
    found = {rule.id: found_in(rule.example, book) for rule in book.values() if rule.example and not rule.signal}
    return {id_: held for id_, held in found.items() if id_ not in held}
