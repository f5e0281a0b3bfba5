from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from syncline.errors import TimelineError
from syncline.timeline import SpanKind, Timeline
from syncline.timeline.compact import MAGIC, read_compact, write_compact


@pytest.fixture
def path(of_rows: Callable[..., Timeline], tmp_path: Path) -> Path:
    write_compact(of_rows([(i, 0.5 * i, i + 1.0, SpanKind.SEND, "a") for i in range(4)]), tmp_path / "x.timeline")
    return tmp_path / "x.timeline"


def parts(path: Path) -> tuple[bytes, dict[str, Any]]:
    data = path.read_bytes()
    length = int.from_bytes(data[-8 - len(MAGIC) : -len(MAGIC)], "little")
    begin = len(data) - 8 - len(MAGIC) - length
    return data[:begin], json.loads(data[begin : begin + length])


def problem(path: Path, body: bytes, footer: Any) -> str:
    text = json.dumps(footer).encode()
    path.write_bytes(body + text + len(text).to_bytes(8, "little") + MAGIC)
    with pytest.raises(TimelineError) as caught:
        read_compact(path)
    return str(caught.value)


def test_constant_columns_take_no_space(path: Path) -> None:
    columns = {column["name"]: column for column in parts(path)[1]["columns"]}
    assert columns["spans.kind"] == {"name": "spans.kind", "value": int(SpanKind.SEND)}
    assert read_compact(path).spans.kind.strides == (0,)


def test_what_is_wrong_is_named(path: Path) -> None:
    body, footer = parts(path)

    def entry(column: str, **change: Any) -> dict[str, Any]:
        columns = [{**c, **change} if c["name"] == column else c for c in footer["columns"]]
        return {**footer, "columns": columns}

    assert problem(path, body, entry("spans.kind", value=99)) == f'{path}: column "spans.kind" cannot hold 99.'
    assert problem(path, body, entry("spans.kind", value=True)) == f'{path}: column "spans.kind" cannot hold True.'
    assert problem(path, body, entry("spans.rank", size_bytes=10**9)).endswith("says it has 1000000000 bytes.")
    assert problem(path, body, entry("spans.rank", size_bytes=-1)).endswith("says it has -1 bytes.")
    assert problem(path, body, entry("spans.rank", extra=1)) == f'{path}: column has the unknown key "extra".'
    assert problem(path, body, entry("spans.rank", name="x")).endswith('"spans.rank" is missing or out of order.')
    assert problem(path, body, {**footer, "columns": footer["columns"] * 2}).endswith("holds more than its columns.")
    assert problem(path, body + b"x", footer).endswith(f"byte {len(body)}: holds more than its columns.")
    assert problem(path, body, {**footer, "more": 1}) == f'{path}: footer has the unknown key "more".'
    more_rows = {**footer, "header": {**footer["header"], "num_spans": 5}}
    assert problem(path, body, more_rows) == f'{path} byte {len(MAGIC)}: column "spans.rank" does not hold 5 rows.'


def test_values_are_checked_like_any_others(path: Path) -> None:
    body, footer = parts(path)
    rank = np.array([0, 1, -2, 3], "<i4")
    block = zlib.compress(rank.view(np.uint8).reshape(4, 4).T.tobytes(), 1)
    first = footer["columns"][0]
    rest = body[len(MAGIC) + first["size_bytes"] :]
    first["size_bytes"] = len(block)
    assert problem(path, MAGIC + block + rest, footer) == f'{path}: spans column "rank", row 2: -2 is below 0.'


def test_a_block_that_unpacks_to_gigabytes_is_stopped(path: Path) -> None:
    body, footer = parts(path)
    bomb = zlib.compress(bytes(50_000_000), 9)
    first = footer["columns"][0]
    rest = body[len(MAGIC) + first["size_bytes"] :]
    first["size_bytes"] = len(bomb)
    assert problem(path, MAGIC + bomb + rest, footer).endswith('column "spans.rank" does not hold 4 rows.')


def test_a_false_footer_length_is_refused(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: -8 - len(MAGIC)] + (2**63).to_bytes(8, "little") + MAGIC)
    with pytest.raises(TimelineError, match="says its footer has 9223372036854775808 bytes, which is impossible"):
        read_compact(path)
