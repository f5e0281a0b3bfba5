"""PowerSGD: where its factors lie, and what they carry."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncline.codec.low_rank import LowRank, as_matrix, orthogonalise

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


def test_a_matrix_of_low_rank_arrives_whole() -> None:
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((50, 3)) @ rng.standard_normal((3, 50))).astype(np.float32).ravel()
    codec = LowRank(3)
    payload, out = np.empty(codec.wire_bytes(matrix.size), np.uint8), np.zeros_like(matrix)
    codec.encode(matrix, payload)
    codec.decode(payload, out)
    np.testing.assert_allclose(out, matrix, atol=1e-4)


def test_every_direction_has_its_turn() -> None:
    codec, n = LowRank(1), 3000
    numbers = np.random.default_rng(4).standard_normal(n).astype(np.float32)
    residual, total = np.zeros((2, n), np.float32)
    payload, sizes = np.empty(codec.wire_bytes(n), np.uint8), []
    for _ in range(300):
        codec.encode(numbers, payload, residual)
        codec.decode(payload, total, add=True)
        sizes.append(float(np.linalg.norm(residual)))
    assert max(sizes[150:]) < 1.2 * max(sizes[:150])
    assert float(np.linalg.norm(total / 300 - numbers)) < 0.2 * float(np.linalg.norm(numbers))


def test_zero_gradients_do_not_kill_the_start() -> None:
    codec, n = LowRank(2), 400
    payload, out = np.empty(codec.wire_bytes(n), np.uint8), np.zeros(n, np.float32)
    codec.encode(np.zeros(n, np.float32), payload)
    numbers = np.random.default_rng(3).standard_normal(n).astype(np.float32)
    codec.encode(numbers, payload)
    codec.decode(payload, out)
    assert float(np.linalg.norm(out)) > 0.1 * float(np.linalg.norm(numbers))


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 100), st.integers(-20, 15))
def test_columns_become_orthonormal_or_zero(rows: int, rank: int, seed: int, exponent: int) -> None:
    p = (np.random.default_rng(seed).standard_normal((rows, rank)) * 10.0**exponent).astype(np.float32)
    if rank > 1:
        p[:, 1] = 2 * p[:, 0]
    orthogonalise(p)
    product = p.T.astype(np.float64) @ p
    for column in range(rank):
        assert product[column, column] == pytest.approx(1, abs=1e-5) or not p[:, column].any()
    np.testing.assert_allclose(product - np.diag(np.diag(product)), 0, atol=1e-5)
    assert rank == 1 or not p[:, 1].any()
