"""Traces are read in blocks: the same events, however the file is laid out and wherever a block ends."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import DescriptionError, FileError
from syncline.timeline.recording import events as module
from syncline.timeline.recording.events import EventFile

EVENTS: list[dict[str, Any]] = [
    {"ph": "X", "name": f'quote " brace }}, {{ {i}', "ts": i, "args": {"nested": [{"a": 1}, {"b": [{}, {}]}]}}
    for i in range(60)
]


@pytest.mark.parametrize("indent", [None, 2])
@pytest.mark.parametrize("block", [97, 8 << 20])
@pytest.mark.parametrize("packed", [True, False])
def test_blocks_hold_all_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, indent: int | None, block: int, packed: bool
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", block)
    text = json.dumps({"schemaVersion": 1, "traceEvents": EVENTS, "traceName": "x"}, indent=indent).encode()
    path = tmp_path / "t.json"
    path.write_bytes(gzip.compress(text) if packed else text)
    file = EventFile(path)
    assert [event for some in file.blocks() for event in some] == EVENTS
    assert file.facts == {"schemaVersion": 1, "traceName": "x"}


def test_a_list_alone_is_a_trace_too(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps(EVENTS[:2]))
    assert [event for some in EventFile(path).blocks() for event in some] == EVENTS[:2]


def test_a_trace_that_was_cut_off_says_so(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"traceEvents": EVENTS})[:2000])
    with pytest.raises(DescriptionError, match="list of events does not end"):
        list(EventFile(path).blocks())
    path.write_text('{"nodes": []}')
    with pytest.raises(DescriptionError, match='no list "traceEvents"'):
        list(EventFile(path).blocks())
    with pytest.raises(FileError, match="cannot read"):
        list(EventFile(tmp_path / "none.json").blocks())
