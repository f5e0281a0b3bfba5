from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from syncline.errors import TimelineError
from syncline.timeline import SpanKind, Spans


def make(**columns: Any) -> Spans:
    return Spans(**{"rank": [0, 1], "start_s": [0.0, 1.0], "end_s": [1.0, 2.0], **columns})


def test_columns_have_their_dtypes_and_defaults() -> None:
    spans = make()
    assert spans.rank.dtype == np.int32
    assert spans.kind.tolist() == [SpanKind.OTHER] * 2
    assert (spans.step.tolist(), spans.peer.tolist(), spans.size_bytes.tolist()) == ([-1, -1], [-1, -1], [0, 0])


def test_a_column_left_out_costs_no_memory() -> None:
    assert make().link.strides == (0,)


def test_one_value_stands_for_all_rows() -> None:
    assert make(kind=SpanKind.SEND).kind.tolist() == [SpanKind.SEND] * 2


def test_columns_cannot_be_written() -> None:
    with pytest.raises(ValueError, match="read-only"):
        make().start_s[0] = 5.0


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"end_s": [1.0, 0.5]}, 'spans column "end_s", row 1: ends at 0.5 s, before its start at 1.0 s.'),
        ({"end_s": [1.0, np.nan]}, 'spans column "end_s", row 1: nan is not a finite number.'),
        ({"start_s": [-np.inf, 0.0]}, 'spans column "start_s", row 0: -inf is not a finite number.'),
        ({"start_s": [-1e300, 0.0]}, 'spans column "start_s", row 0: -1e+300 is below -1000000000000.'),
        ({"rank": [0, -3]}, 'spans column "rank", row 1: -3 is below 0.'),
        ({"rank": [0, 2**31]}, 'spans column "rank", row 1: 2147483648 is above 2147483647.'),
        ({"rank": [0]}, 'spans column "rank": has 1 rows; the table has 2.'),
        ({"rank": [[0, 1]]}, 'spans column "rank": has 2 dimensions; a column has 1.'),
        ({"rank": [0.0, 1.0]}, 'spans column "rank": holds float64; it needs whole numbers.'),
        ({"rank": [True, False]}, 'spans column "rank": holds bool; it needs whole numbers.'),
        ({"rank": ["a", "b"]}, 'spans column "rank": holds <U1; it needs whole numbers.'),
        ({"rank": None}, 'spans column "rank": is missing and has no default.'),
        ({"kind": [0, 10]}, 'spans column "kind", row 1: 10 is above 9.'),
        ({"kind": 300}, 'spans column "kind", row 0: 300 is above 9.'),
        ({"size_bytes": [0, -1]}, 'spans column "size_bytes", row 1: -1 is below 0.'),
        (
            {"size_bytes": [0, 2**53 + 1]},
            'spans column "size_bytes", row 1: 9007199254740993 is above 9007199254740992.',
        ),
        ({"step": [-2, 0]}, 'spans column "step", row 0: -2 is below -1.'),
        ({"stream": [0, 40000]}, 'spans column "stream", row 1: 40000 is above 32767.'),
        ({"start_s": [object(), 1]}, 'spans column "start_s": holds object; it needs numbers.'),
    ],
)
def test_a_bad_column_is_named_with_its_row(columns: dict[str, Any], text: str) -> None:
    with pytest.raises(TimelineError) as caught:
        make(**columns)
    assert str(caught.value).startswith(text)


def test_take_keeps_rows_by_mask() -> None:
    taken = make(step=[3, 4]).take(np.array([False, True]))
    assert (len(taken), taken.step.tolist(), taken.start_s.tolist()) == (1, [4], [1.0])
