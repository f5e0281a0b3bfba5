from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

from syncline.errors import TimelineError
from syncline.timeline import Source, SpanKind, Timeline, TimelineBuilder, chrome_read
from syncline.timeline.chrome import write_chrome
from syncline.timeline.chrome_read import read_chrome

HEADER, FIRST, SECOND, SAMPLES = 2, 8, 9, 10
Edit = Callable[[str], str]


@pytest.fixture
def path(source: Source, tmp_path: Path) -> Path:
    builder = TimelineBuilder(source)
    builder.add_span(0, 0.0, 1.0, SpanKind.SEND, "a", link=builder.link("l", 5.0))
    builder.add_span(0, 1.0, 2.0, SpanKind.RECV, "a", step=3)
    builder.add_samples(link=0, start_s=[0.0, 1.0], end_s=[1.0, 2.0], size_bytes=[1.0, 2.0])
    write_chrome(builder.build(), tmp_path / "t.json")
    return tmp_path / "t.json"


def edited(path: Path, line: int, old: str, new: str) -> str:
    lines = path.read_text().splitlines(keepends=True)
    assert old in lines[line - 1], lines[line - 1]
    lines[line - 1] = lines[line - 1].replace(old, new)
    path.write_text("".join(lines))
    with pytest.raises(TimelineError) as caught:
        read_chrome(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "old", "new", "text"),
    [
        (FIRST, '"rank":0', '"rank":"0"', "span \"rank\" is '0'; it must be a whole number."),
        (FIRST, '"rank":0', '"rank":true', 'span "rank" is True; it must be a whole number.'),
        (FIRST, '"rank":0', '"rank":0.0', 'span "rank" is 0.0; it must be a whole number.'),
        (FIRST, '"rank":0', '"rank":-1', 'spans column "rank", row 0: -1 is below 0.'),
        (FIRST, '"rank":0', f'"rank":{10**30}', f'span "rank" is {10**30}, too large.'),
        (FIRST, '"rank":0,', "", 'span "rank" is None; it must be a whole number.'),
        (FIRST, '"rank":0', '"rank":0,"rnak":1', 'span args has the unknown key "rnak".'),
        (FIRST, '"dur":', '"duration":', 'span has the unknown key "duration".'),
        (FIRST, '"args":{', '"args":[{', "is not JSON at character "),
        (FIRST, '"end_s":1.0', '"end_s":NaN', "is not JSON: NaN is not allowed."),
        (FIRST, '"end_s":1.0', '"end_s":1e999', 'spans column "end_s", row 0: inf is not a finite number.'),
        (FIRST, '"end_s":1.0', f'"end_s":{10**400}', f'span "end_s" is {10**400!r:.40}, too large.'),
        (FIRST, '"link":0', '"link":7', 'spans column "link", row 0: 7 is not in the table of 1 links.'),
        (FIRST, '"SEND"', '"SHOUT"', "span kind 'SHOUT' is unknown."),
        (FIRST, '"SEND"', "[1]", "span kind [1] is unknown."),
        (SECOND, '"name":"a"', '"name":"b"', "span name 'b' is unknown."),
        (SECOND, '"ph":"X"', '"ph":"B"', "has an event of unknown kind 'B'."),
        (SECOND, '"ts":1000000.0', '"ts":5.0', '"ts" says 5 us and "start_s" and "end_s" say 1000000 us.'),
        (SECOND, '"step":3', '"step":-3', 'spans column "step", row 1: -3 is below -1.'),
        (SECOND, '{"ph"', '{},{"ph"', "is not JSON at character "),
        (SECOND, '{"ph"', '"' + "[" * 10, "is not JSON at character "),
        (SAMPLES, "[1.0,2.0]", "[1.0]", "samples must be lists of one length."),
        (SAMPLES, '"link":[0,0]', '"link":[0,4]', 'samples column "link", row 1: 4 is not in the table of 1 links.'),
        (SAMPLES, '"link":[0,0]', '"link":[0,null]', 'sample "link" is None; it must be a whole number.'),
        (SAMPLES, '"syncline_samples"', '"mystery"', "has unknown metadata 'mystery'."),
        (HEADER, '"num_spans":2', '"num_spans":-2', "header num_spans is -2; it must be from 0 to 268435456."),
        (HEADER, '"num_spans":2', '"num_spans":1e9', "header num_spans is 1000000000.0; it must be"),
        (HEADER, '"version":1', '"version":2', "has timeline version 2.\n  This syncline reads version 1."),
        (HEADER, '"syncline-timeline"', '"other"', "is not a syncline timeline (format 'other')."),
        (HEADER, '"names":["a"]', '"names":["a","a"]', 'span name "a" stands twice in its table, at 0 and 1.'),
        (HEADER, '"names":["a"]', '"names":"a"', "header names is text; it must be a list."),
        (HEADER, '"links":[["l",5.0]]', '"links":[["l","x"]]', "header link 0 must be [name, capacity_Bps or null]."),
        (
            HEADER,
            '"links":[["l",5.0]]',
            '"links":[["l",-5.0]]',
            'links column "capacity_Bps", row 0: -5.0 is not a rate.',
        ),
        (HEADER, '"metadata":{}', '"metadata":[]', "metadata is a list; it must be an object."),
        (HEADER, '"kind":"simulated-flow"', '"kind":"dream"', "source kind 'dream' is unknown."),
        (HEADER, '"seed":7', '"sede":7', 'header source has the unknown key "sede".'),
        (HEADER, '"origin_s":0.0', '"origin_s":"x"', "header \"origin_s\" is 'x'; it must be a number."),
        (HEADER, '"ph":"M"', '"ph":"C"', "comes before the header."),
    ],
)
def test_what_is_wrong_is_named_with_its_line(path: Path, line: int, old: str, new: str, text: str) -> None:
    assert edited(path, line, old, new).startswith(f"{path} line {line}: {text}")


def test_a_span_that_ends_early_is_named(path: Path) -> None:
    found = edited(path, SECOND, '"dur":1000000.0', '"dur":-1000000.0').replace("\n", " ")
    assert found == f'{path} line {SECOND}: "dur" says -1000000 us and "start_s" and "end_s" say 1000000 us.'
    text = path.read_text().replace('"start_s":1.0,"end_s":2.0', '"start_s":1.0,"end_s":0.0')
    path.write_text(text)
    with pytest.raises(TimelineError, match=r'line 9: spans column "end_s", row 1: ends at 0.0 s, before'):
        read_chrome(path)


def test_lost_spans_are_noticed(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[: FIRST - 1] + lines[FIRST:]))
    with pytest.raises(TimelineError) as caught:
        read_chrome(path)
    assert str(caught.value) == f"{path}: has 1 spans; its header says 2."


def test_a_cut_trace_says_so(path: Path) -> None:
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:-2]))
    with pytest.raises(TimelineError, match=r"line \d+: is cut off\.\n  The file was not written to its end\."):
        read_chrome(path)


def test_nothing_may_follow_the_end(path: Path) -> None:
    path.write_text(path.read_text() + "x")
    with pytest.raises(TimelineError, match="goes on after its end"):
        read_chrome(path)


@pytest.mark.parametrize("text", ["[]", '{"traceEvents":[{"ph":"X"}]}', '{"other":1}\n', ""])
def test_other_tools_traces_are_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "t.json").write_text(text)
    with pytest.raises(TimelineError, match=r"line 1: is not a syncline trace\."):
        read_chrome(tmp_path / "t.json")


def test_deep_nesting_and_long_lines_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert edited(path, FIRST, '"rank":0', f'"rank":{"[" * 100_000}').startswith(f"{path} line {FIRST}: is n")
    monkeypatch.setattr(chrome_read, "MAX_LINE_BYTES", 1000)
    with pytest.raises(TimelineError, match=f"line {FIRST}: is longer than 1000 bytes"):
        read_chrome(path)


def test_text_that_is_not_utf8_is_refused(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b'"name":"a"', b'"name":"\xff"', 1))
    with pytest.raises(TimelineError, match=f"line {FIRST}: is not UTF-8 text at byte"):
        read_chrome(path)


def test_damaged_gzip_is_refused(path: Path, tmp_path: Path) -> None:
    packed = gzip.compress(path.read_bytes())
    for name, data in (("cut", packed[:-20]), ("bad", packed[:40] + b"\0\0\0\0" + packed[44:])):
        (tmp_path / name).write_bytes(data)
        with pytest.raises(TimelineError):
            read_chrome(tmp_path / name)


def test_many_batches_keep_order_and_line_numbers(
    of_rows: Callable[..., Timeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chrome_read, "BATCH_LINES", 3)
    timeline = of_rows([(0, float(i), i + 0.5, SpanKind.SEND, "a") for i in range(20)])
    write_chrome(timeline, tmp_path / "t.json")
    assert read_chrome(tmp_path / "t.json").equals(timeline)
    lines = (tmp_path / "t.json").read_text().splitlines(keepends=True)
    place = next(i for i, line in enumerate(lines) if '"start_s":15.0' in line)
    lines[place] = lines[place].replace('"rank":0', '"rank":-9')
    (tmp_path / "t.json").write_text("".join(lines))
    with pytest.raises(TimelineError, match=f'line {place + 1}: spans column "rank", row 15: -9 is below 0'):
        read_chrome(tmp_path / "t.json")
