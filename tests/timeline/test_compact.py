from __future__ import annotations

import json
import zipfile
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline.errors import TimelineError
from syncline.timeline import SpanKind, Timeline
from syncline.timeline.compact import read_compact, write_compact


@pytest.fixture
def path(of_rows: Callable[..., Timeline], tmp_path: Path) -> Path:
    write_compact(of_rows([(i, 0.5 * i, i + 1.0, SpanKind.SEND, "a") for i in range(4)]), tmp_path / "x.timeline")
    return tmp_path / "x.timeline"


def changed(path: Path, name: str, content: bytes) -> str:
    """Replace one entry of the archive and return what the reader says."""
    with zipfile.ZipFile(path) as archive:
        entries = {entry: archive.read(entry) for entry in archive.namelist()}
    assert name in entries
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in (entries | {name: content}).items():
            archive.writestr(entry, data)
    with pytest.raises(TimelineError) as caught:
        read_compact(path)
    path.unlink()
    return str(caught.value)


def array(values: Any, dtype: str) -> bytes:
    data = BytesIO()
    np.save(data, np.array(values, dtype))
    return data.getvalue()


def header(path: Path, **changes: Any) -> bytes:
    with zipfile.ZipFile(path) as archive:
        return json.dumps(json.loads(archive.read("header.json")) | changes).encode()


def test_constant_columns_take_no_space(path: Path) -> None:
    assert read_compact(path).spans.kind.strides == (0,)
    with zipfile.ZipFile(path) as archive:
        assert np.load(BytesIO(archive.read("spans/kind.npy"))).shape == ()


@pytest.mark.parametrize(
    ("column", "values", "dtype", "text"),
    [
        ("spans/rank.npy", [0, 1, -2, 3], "<i4", 'spans column "rank", row 2: -2 is below 0.'),
        (
            "spans/rank.npy",
            [0, 1],
            "<i4",
            "is cut off or damaged: spans rank has the shape (2,); the header says 4 rows.",
        ),
        ("spans/kind.npy", 99, "u1", 'spans column "kind", row 0: 99 is above 9.'),
        ("spans/kind.npy", 0.5, "f8", 'spans column "kind": holds float64; it needs whole numbers.'),
        (
            "spans/rank.npy",
            np.zeros(4000),
            "f8",
            "is cut off or damaged: spans/rank.npy has 32,128 bytes, more than 1,056.",
        ),
    ],
)
def test_values_are_checked_like_any_others(path: Path, column: str, values: Any, dtype: str, text: str) -> None:
    assert changed(path, column, array(values, dtype)) == f"{path}: {text}"


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"version": 9}, "has timeline version 9.\n  This syncline reads version 2."),
        ({"format": "other"}, "is not a syncline timeline (format 'other')."),
        ({"num_spans": -2}, "has a damaged header (ValueError: "),
        ({"num_spans": 2**40}, "has a damaged header (ValueError: "),
        ({"links": [["l", -5.0]]}, 'links column "capacity_Bps", row 0: -5.0 is not a rate.'),
        ({"links": "l"}, "has a damaged header (ValueError: "),
        ({"source": {"kind": "dream", "name": "x"}}, "source kind 'dream' is unknown."),
        ({"source": {"sede": 7}}, "has a damaged header (TypeError: "),
        ({"metadata": []}, "metadata is list; it must be an object with text keys."),
    ],
)
def test_a_header_is_checked(path: Path, changes: dict[str, Any], text: str) -> None:
    assert changed(path, "header.json", header(path, **changes)).startswith(f"{path}: {text}")
