from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import TimelineError
from syncline.timeline import Source, SpanKind, Timeline, TimelineBuilder, chrome, load
from syncline.timeline.chrome import read_chrome, write_chrome

SEND = SpanKind.SEND


def events(path: Path) -> list[dict[str, Any]]:
    """Read a trace as a viewer does: one JSON object with a list of events."""
    found: list[dict[str, Any]] = json.loads(path.read_text())["traceEvents"]
    return found


def named(found: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [event for event in found if event["name"] == name]


@pytest.fixture
def timeline(source: Source) -> Timeline:
    builder = TimelineBuilder(source, {"job": "demo"})
    link = builder.link('a "quoted" 100% -> b', 8.0)
    builder.add_span(4, 10.0, 10.5, SEND, "grad %s", stream=2, step=1, round=0, size_bytes=64, peer=5, link=link)
    builder.add_span(5, 10.5, 11.0, SpanKind.COMPUTE, "forward")
    builder.add_samples(link=[link, link], start_s=[10.0, 10.75], end_s=[10.5, 11.0], size_bytes=[4.0, 1.0])
    return builder.build()


def test_spans_are_what_a_viewer_wants(timeline: Timeline, tmp_path: Path) -> None:
    write_chrome(timeline, tmp_path / "t.json")
    found = events(tmp_path / "t.json")
    first, second = (event for event in found if event["ph"] == "X")
    assert (first["ts"], first["dur"], first["name"], first["cat"]) == (0.0, 5e5, "grad %s", "SEND")
    assert (second["ts"], second["dur"], second["name"], second["cat"]) == (5e5, 5e5, "forward", "COMPUTE")
    assert second["args"] == {"rank": 5, "start_s": 10.5, "end_s": 11.0}
    assert first["args"]["size_bytes"] == 64
    assert [event["args"]["name"] for event in named(found, "process_name")] == ["rank 4", "rank 5", "links"]
    assert [event["args"]["name"] for event in named(found, "thread_name")] == ["stream 2", "stream 0"]
    assert min(event["pid"] for event in found if event["ph"] != "M") > 0


def test_the_source_travels_with_the_picture(timeline: Timeline, tmp_path: Path) -> None:
    write_chrome(timeline, tmp_path / "t.json")
    other = json.loads((tmp_path / "t.json").read_text())["otherData"]
    assert other == {"source": timeline.source.label(), "metadata": {"job": "demo"}}


def test_counters_fall_to_zero_between_samples(timeline: Timeline, tmp_path: Path) -> None:
    write_chrome(timeline, tmp_path / "t.json")
    found = [event for event in events(tmp_path / "t.json") if event["ph"] == "C"]
    assert {event["name"] for event in found} == {'a "quoted" 100% -> b'}
    assert [(event["ts"], event["args"]["rate_Bps"]) for event in found] == [
        (0.0, 8.0),
        (5e5, 0.0),
        (7.5e5, 4.0),
        (1e6, 0.0),
    ]


def test_one_process_per_host_if_asked(timeline: Timeline, tmp_path: Path) -> None:
    write_chrome(timeline, tmp_path / "t.json", hosts={4: "host-0", 5: "host-0"})
    found = events(tmp_path / "t.json")
    assert [event["args"]["name"] for event in named(found, "process_name")] == ["host-0", "links"]
    assert [event["args"]["name"] for event in named(found, "thread_name")] == ["rank 4 stream 2", "rank 5 stream 0"]
    assert load(tmp_path / "t.json") == timeline


def test_crossing_spans_of_a_stream_get_a_second_row(of_rows: Callable[..., Timeline], tmp_path: Path) -> None:
    crossing = of_rows([(0, 0.0, 2.0, SEND, "a"), (0, 1.0, 3.0, SEND, "b")])
    write_chrome(crossing, tmp_path / "t.json")
    found = events(tmp_path / "t.json")
    assert [event["args"]["name"] for event in named(found, "thread_name")] == ["stream 0", "stream 0 (2)"]
    assert [event["tid"] for event in found if event["ph"] == "X"] == [1, 2]
    assert load(tmp_path / "t.json") == crossing


def test_gz_by_suffix(timeline: Timeline, tmp_path: Path) -> None:
    write_chrome(timeline, tmp_path / "t.json")
    write_chrome(timeline, tmp_path / "t.json.gz")
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == (tmp_path / "t.json").read_bytes()


def test_a_long_timeline_is_carried_in_pieces(
    of_rows: Callable[..., Timeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome, "PIECE_BYTES", 300)
    timeline = of_rows([(0, float(i), i + 0.5, SEND, "a") for i in range(20)])
    write_chrome(timeline, tmp_path / "t.json")
    assert len(named(events(tmp_path / "t.json"), "syncline")) > 3
    assert read_chrome(tmp_path / "t.json") == timeline


@pytest.mark.parametrize("text", ["[]", '{"traceEvents":[{"ph":"X"}]}', '{"other":1}\n', ""])
def test_other_tools_traces_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(TimelineError, match="is not a syncline trace"):
        read_chrome(tmp_path / "t.json")


def test_a_trace_that_lost_a_piece_is_refused(timeline: Timeline, tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    write_chrome(timeline, path)
    path.write_text("".join(line for line in path.read_text().splitlines(True) if '"timeline"' not in line))
    with pytest.raises(TimelineError, match="is cut off or damaged"):
        read_chrome(path)


def test_damaged_gzip_is_refused(timeline: Timeline, tmp_path: Path) -> None:
    write_chrome(timeline, tmp_path / "t.json.gz")
    packed = (tmp_path / "t.json.gz").read_bytes()
    for data in (packed[:-20], packed[:40] + b"\0\0\0\0" + packed[44:]):
        (tmp_path / "bad.json.gz").write_bytes(data)
        with pytest.raises(TimelineError, match="is cut off or damaged"):
            read_chrome(tmp_path / "bad.json.gz")
