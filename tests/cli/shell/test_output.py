from __future__ import annotations

import json
import math
from enum import Enum
from pathlib import Path

import numpy as np
import pytest

from syncline.cli.shell import output
from syncline.describe.plain import json_text
from syncline.describe.rendering import WIDTH


class Color(Enum):
    RED = "red"


def test_json_is_strict_and_plain() -> None:
    payload = {
        "rate_Bps": np.float64(5e10),
        "num": np.int32(3),
        "up": np.bool_(True),
        "rates": np.array([1.0, np.inf, np.nan]),
        "none": math.nan,
        "tuple": (1, "µ"),
        "kind": Color.RED,
        "path": Path("a/b"),
        "nested": {3: {"x": None}},
    }
    text = json_text(payload)
    assert json.loads(text, parse_constant=pytest.fail) == {
        "rate_Bps": 5e10,
        "num": 3,
        "up": True,
        "rates": [1.0, None, None],
        "none": None,
        "tuple": [1, "µ"],
        "kind": "red",
        "path": "a/b",
        "nested": {"3": {"x": None}},
    }


def test_what_has_no_json_form_is_a_type_error() -> None:
    with pytest.raises(TypeError, match="object has no JSON form"):
        json_text({"x": object()})
    with pytest.raises(TypeError, match="a JSON key must be a string"):
        json_text({"x": {1.5: 1}})


def test_text_is_not_taken_for_markup_and_has_one_width_when_piped(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    output.emit({}, False, [f"gpu[0-7] :smile: {output.out().width}"])
    assert capsys.readouterr().out == f"gpu[0-7] :smile: {WIDTH}\n"


def test_progress_is_silent_when_stderr_is_not_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with output.progress() as bar:
        for _ in bar.track(range(3), description="building"):
            pass
    assert capsys.readouterr().err == ""


def test_examples_keep_their_lines() -> None:
    assert output.examples("a --json", "b") == "\b\nExamples:\n  a --json\n  b"


def test_a_table_on_a_narrow_terminal_keeps_its_words_whole(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from rich.table import Table

    monkeypatch.setenv("COLUMNS", "12")
    table = Table("algorithm", "bandwidth", "limiting", box=None)
    table.add_row("ring", "fastest", "spine-00")
    output.emit({}, False, [table])
    assert capsys.readouterr().out.split() == ["algorithm", "bandwidth", "limiting", "ring", "fastest", "spine-00"]
