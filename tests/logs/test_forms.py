"""Lines that differ in their digits alone are shown to fewer patterns, and told as if they were shown to all."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest

from syncline.describe.own_data import parsed
from syncline.diagnosis import shipped_rules
from syncline.logs import emitter
from syncline.logs.guard import is_digit_blind
from syncline.logs.reading import Reading

BLIND = Path(__file__).parent / "blind"


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        (r"failed with \d{1,3} of \w+", True),
        (r"[0-9a-f]+: (?:a|b\d)", True),
        (r"(?P<rank>\d+)\s[^:]+", True),
        (r"status=12\b", False),
        (r"[1-9]\d*", False),
        (r"[^0]", False),
        (r"(?:a|code 7)", False),
        (r"(?<!1)x", False),
        (r"(\d) \1", False),
    ],
)
def test_a_pattern_is_blind_to_digits_where_it_names_none(pattern: str, expected: bool) -> None:
    assert is_digit_blind(re.compile(pattern)) is expected


def test_whether_a_rule_heeds_a_line_does_not_hang_on_its_digits() -> None:
    patterns = (emitter._CALM, emitter._GRAVE, emitter._KERNEL, emitter._CONCERNS, emitter._DAEMONS)
    assert [pattern.pattern for pattern in patterns if not is_digit_blind(pattern)] == []


def _counts(lines: bytes) -> dict[str, tuple[int, list[str]]]:
    reading = Reading(shipped_rules())
    reading.read("log", iter([lines]), [])
    return {
        name: (tally.count, sorted(str(e) for e in tally.evidence))
        for name, tally in reading.tallies.items()
        if tally.count
    }


def test_remembered_forms_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sets = [parsed((BLIND / f"{name}.yaml").read_text("utf-8")) for name in ("fourteenth", "twentieth")]
    logs = [log["log"] for logs in sets for log in logs]
    turn = str.maketrans("0123456789", "3450129786")
    text = "".join(log + log.translate(turn) + log for log in logs).encode()
    remembered = _counts(text)
    module = importlib.import_module("syncline.logs.reading")
    monkeypatch.setattr(module, "is_digit_blind", lambda _: False)
    monkeypatch.setattr(module, "MAX_FORMS", 1)
    assert len(remembered) > 50
    assert _counts(text) == remembered
