from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from syncline.errors import TimelineError
from syncline.timeline import Source, SpanKind, Timeline, TimelineBuilder, load, parquet, save


def test_without_pyarrow_the_error_says_what_to_install(
    of_rows: Callable[..., Timeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(TimelineError) as caught:
        save(of_rows([(0, 0.0, 1.0, SpanKind.SEND, "a")]), tmp_path / "x.parquet")
    assert str(caught.value) == (
        "Parquet files need pyarrow, which is not installed.\n"
        "  Install it with: pip install 'syncline[parquet]'. Or use the form .timeline or .json.gz."
    )
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def pa() -> Any:
    return pytest.importorskip("pyarrow")


@pytest.fixture
def pq(pa: Any) -> Any:
    return pytest.importorskip("pyarrow.parquet")


@pytest.fixture
def path(pa: Any, source: Source, tmp_path: Path) -> Path:
    builder = TimelineBuilder(source)
    builder.add_span(0, 0.0, 1.0, SpanKind.SEND, "b")
    builder.add_span(1, 0.0, 1.0, SpanKind.RECV, "a", link=builder.link("l", 5.0))
    builder.add_samples(link="l", start_s=[0.0], end_s=[1.0], size_bytes=[2.5])
    save(builder.build(), tmp_path / "x.parquet")
    return tmp_path / "x.parquet"


def test_rows_read_well_in_a_data_frame(path: Path, pq: Any) -> None:
    first, second, third = pq.read_table(path).to_pylist()
    assert (first["what"], first["kind"], first["name"], first["link"]) == ("span", "SEND", "b", None)
    assert (second["link"], second["rate_Bps"]) == ("l", None)
    assert (third["what"], third["link"], third["carried_bytes"], third["rank"]) == ("sample", "l", 2.5, None)


def test_many_row_groups_read_back(
    pa: Any, of_rows: Callable[..., Timeline], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parquet, "ROW_GROUP_ROWS", 3)
    timeline = of_rows([(i, 0.0, 1.0, SpanKind(i % 10), f"n{i % 4}") for i in range(11)])
    save(timeline, tmp_path / "x.parquet")
    assert load(tmp_path / "x.parquet") == timeline


def rewritten(path: Path, pa: Any, pq: Any, column: str, values: list[Any], kind: Any = None) -> str:
    table = pq.read_table(path)
    place = table.schema.get_field_index(column)
    field = pa.field(column, kind or table.schema.field(column).type)
    pq.write_table(table.set_column(place, field, pa.array(values, field.type)), path)
    with pytest.raises(TimelineError) as caught:
        load(path)
    return str(caught.value)


@pytest.mark.parametrize(
    ("column", "values", "text"),
    [
        ("end_s", [1.0, -1.0, 1.0], 'spans column "end_s", row 1: ends at -1.0 s, before its start at 0.0 s.'),
        ("end_s", [1.0, float("nan"), 1.0], 'spans column "end_s", row 1: nan is not a finite number.'),
        ("rank", [0, None, None], 'column "rank" has 1 empty rows.'),
        ("rank", [-1, 0, None], 'spans column "rank", row 0: -1 is below 0.'),
        ("name", ["a", "zz", None], "column \"name\" holds 'zz', which its table does not."),
        ("kind", ["SEND", None, None], 'column "kind" has 1 empty rows.'),
        ("what", ["span", "sample", "sample"], "row 1 of the spans is not a span."),
        ("link", [None, None, None], 'samples column "link", row 0: -1 is below 0.'),
    ],
)
def test_bad_values_are_refused(path: Path, pa: Any, pq: Any, column: str, values: list[Any], text: str) -> None:
    assert rewritten(path, pa, pq, column, values) == f"{path}: {text}"


def test_bad_shapes_are_refused(path: Path, pa: Any, pq: Any) -> None:
    whole = path.read_bytes()
    assert rewritten(path, pa, pq, "rank", [0.5, 1.0, None], pa.float64()).startswith(
        f"{path}: has other columns than a timeline.\n  Wanted: what, rank, start_s"
    )
    path.write_bytes(whole)
    pq.write_table(pq.read_table(path).slice(0, 2), path)
    with pytest.raises(TimelineError, match="has 2 rows; its header says 3"):
        load(path)
    path.write_bytes(whole)
    pq.write_table(pq.read_table(path).drop_columns(["peer"]), path)
    with pytest.raises(TimelineError, match="has other columns than a timeline"):
        load(path)
    pq.write_table(pa.table({"x": [1]}), path)
    with pytest.raises(TimelineError, match="is a Parquet file, but not a syncline timeline"):
        load(path)
