"""PowerSGD: where its factors lie."""

from __future__ import annotations

import pytest

from syncline.codec.low_rank import LowRank, as_matrix
from syncline.codec.names import dense
from syncline.errors import CodecError

SHAPES = [(40, 30), (30,), (8, 4, 3, 3), (), (2, 2), (100, 7)]


def test_layout_of_the_two_exchanges() -> None:
    exchange = LowRank(2).exchange(SHAPES)
    assert [(m.rows, m.cols, m.rank, m.start) for m in exchange.matrices] == [
        (40, 30, 2, 0),
        (8, 36, 2, 1230),
        (100, 7, 2, 1523),
    ]
    # The vector, the scalar, and the matrix too small to gain go dense, after P of the others.
    assert [(v.start, v.num_elements) for v in exchange.vectors] == [(1200, 30), (1518, 1), (1519, 4)]
    assert exchange.num_elements == 2223
    assert exchange.num_first == 2 * (40 + 8 + 100) + 35
    assert exchange.num_second == 2 * (30 + 36 + 7)
    assert exchange.wire_bytes == 4 * (exchange.num_first + exchange.num_second)
    assert as_matrix((64, 3, 7, 7)) == (64, 147)


def test_an_elementwise_use_is_refused_by_name() -> None:
    with pytest.raises(CodecError, match=r"powersgd:rank=2.* averages whole buckets in factors"):
        dense("powersgd:2")
    assert dense("int8").name == "int8"
