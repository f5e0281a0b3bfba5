from __future__ import annotations

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.errors import FileError, TimelineError
from syncline.timeline import SpanKind, Timeline, load, save

# Whole timelines are slow to draw; the profile still decides how deep the search goes.
FEWER = settings(max_examples=settings().max_examples // 4)

FORMS = [".timeline", ".json", ".json.gz"]
if importlib.util.find_spec("pyarrow"):
    FORMS.append(".parquet")


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(FEWER)
def test_every_form_reads_back_without_loss(
    tmp_path_factory: pytest.TempPathFactory,
    timelines: st.SearchStrategy[Timeline],
    form: str,
    data: st.DataObject,
) -> None:
    timeline = data.draw(timelines)
    path = tmp_path_factory.getbasetemp() / f"round-trip{form}"
    save(timeline, path)
    assert load(path) == timeline


@pytest.mark.parametrize("form", FORMS)
def test_forms_are_recognised_by_content(tmp_path: Path, of_rows: Callable[..., Timeline], form: str) -> None:
    timeline = of_rows([(0, 0.1, 0.3, SpanKind.SEND, "a")])
    save(timeline, tmp_path / f"x{form}")
    os.rename(tmp_path / f"x{form}", tmp_path / "nameless")
    assert load(tmp_path / "nameless") == timeline


@pytest.mark.parametrize("form", FORMS)
def test_the_same_timeline_makes_the_same_bytes(tmp_path: Path, of_rows: Callable[..., Timeline], form: str) -> None:
    timeline = of_rows([(0, 0.1, 0.3, SpanKind.SEND, "a")])
    for name in ("x", "y"):
        save(timeline, tmp_path / f"{name}{form}")
    assert (tmp_path / f"x{form}").read_bytes() == (tmp_path / f"y{form}").read_bytes()


@pytest.mark.parametrize("form", FORMS)
def test_a_cut_file_is_never_read_as_a_shorter_timeline(
    tmp_path: Path, of_rows: Callable[..., Timeline], form: str
) -> None:
    path = tmp_path / f"x{form}"
    save(of_rows([(i, 0.1, 0.3, SpanKind.SEND, "a") for i in range(20)]), path)
    whole = path.read_bytes()
    for size in range(0, len(whole) - 1, max(1, len(whole) // 150)):
        path.write_bytes(whole[:size])
        with pytest.raises(TimelineError) as caught:
            load(path)
        assert str(path) in str(caught.value)


@pytest.mark.parametrize("form", FORMS)
@given(data=st.data())
@settings(FEWER)
def test_a_damaged_file_is_one_clear_error_or_a_valid_timeline(
    tmp_path_factory: pytest.TempPathFactory, of_rows: Callable[..., Timeline], form: str, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / f"damaged{form}"
    save(of_rows([(i, 0.1 * i, 9.0, SpanKind.SEND, "a") for i in range(9)]), path)
    whole = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 3))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(bytes(whole))
    try:
        assert isinstance(load(path), Timeline)
    except TimelineError as error:
        assert str(path) in str(error)


def test_unknown_forms_are_refused(tmp_path: Path, of_rows: Callable[..., Timeline]) -> None:
    timeline = of_rows([(0, 0.1, 0.3, SpanKind.SEND, "a")])
    with pytest.raises(TimelineError) as caught:
        save(timeline, tmp_path / "x.csv")
    assert str(caught.value) == (
        f"{tmp_path}/x.csv: does not end in a form syncline knows.\n"
        "  Known forms: .timeline, .json, .json.gz, .parquet."
    )
    (tmp_path / "empty").touch()
    (tmp_path / "text").write_text("hello")
    for name, text in (("empty", "is empty."), ("text", "is not a timeline.")):
        with pytest.raises(TimelineError) as caught:
            load(tmp_path / name)
        assert str(caught.value).startswith(f"{tmp_path}/{name}: {text}\n  Timelines end in .timeline,")
    with pytest.raises(FileError, match="No such file"):
        load(tmp_path / "missing")
    (tmp_path / "d.json").mkdir()
    with pytest.raises(FileError, match="is a directory"):
        save(timeline, tmp_path / "d.json")
