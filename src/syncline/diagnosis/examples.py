"""Every rule tried on the example that its file carries."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from syncline.diagnosis.diagnose import diagnose
from syncline.logs.rule import LogRule


def found_in(text: str, book: Mapping[str, LogRule]) -> list[str]:
    """Return the rules that hold on a text."""
    with TemporaryDirectory() as folder:
        path = Path(folder) / "example.log"
        path.write_text(text, "utf-8")
        return [finding.rule for finding in diagnose([path], rules=book).findings]


def failing_examples(
    book: Mapping[str, LogRule], on_rule: Callable[[int, int], None] = lambda done, total: None
) -> dict[str, list[str]]:
    """Return the rules that do not hold on their own example, with what does; `on_rule` hears how many are done."""
    rules = [rule for rule in book.values() if rule.example and not rule.signal]
    failing = {}
    for done, rule in enumerate(rules):
        on_rule(done, len(rules))
        held = found_in(rule.example, book)
        if rule.id not in held:
            failing[rule.id] = held
    return failing
