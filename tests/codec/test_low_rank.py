"""PowerSGD's two exchanges among several ranks, without a network."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.codec import EncodeState
from syncline.codec.low_rank import FactorLayout, LowRank, as_matrix, orthogonalise
from syncline.errors import CodecError

SHAPES = [(40, 30), (30,), (8, 4, 3, 3), (), (2, 2), (100, 7)]


class Ranks:
    """Several ranks that run one exchange in step, their means taken here."""

    def __init__(self, exchange: FactorLayout, num_ranks: int, seed: int = 0) -> None:
        self.exchange = exchange
        self.states: list[EncodeState] = [exchange.new_state(seed=seed) for _ in range(num_ranks)]
        self.residuals = np.zeros((num_ranks, exchange.num_elements), np.float32)

    def step(self, gradients: np.ndarray) -> np.ndarray:
        exchange, num_ranks = self.exchange, len(self.states)
        first = np.zeros((num_ranks, exchange.num_first), np.float32)
        second = np.zeros((num_ranks, exchange.num_second), np.float32)
        out = np.full((num_ranks, exchange.num_elements), 77, np.float32)
        with np.errstate(invalid="ignore"):
            for rank, state in enumerate(self.states):
                exchange.begin(gradients[rank], self.residuals[rank], state, first[rank])
            first[:] = first.mean(axis=0)
            for rank, state in enumerate(self.states):
                exchange.middle(first[rank], self.residuals[rank], state, second[rank])
            second[:] = second.mean(axis=0)
        for rank, state in enumerate(self.states):
            exchange.finish(first[rank], second[rank], self.residuals[rank], state, out[rank])
        np.testing.assert_array_equal(out, np.broadcast_to(out[0], out.shape))
        arrived: np.ndarray = out[0]
        return arrived


def gradients(num_ranks: int, n: int, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((num_ranks, n)).astype(np.float32)


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


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 9), st.integers(1, 6), st.integers(0, 1000))
def test_what_was_delivered_and_what_is_owed_is_what_went_in(num_ranks: int, rank: int, steps: int, seed: int) -> None:
    ranks = Ranks(LowRank(rank).exchange(SHAPES), num_ranks, seed)
    went_in, delivered = np.zeros(2223), np.zeros(2223)
    for step in range(steps):
        numbers = gradients(num_ranks, 2223, seed + step)
        went_in += numbers.mean(axis=0)
        delivered += ranks.step(numbers)
    owed = ranks.residuals.astype(np.float64).mean(axis=0)
    np.testing.assert_allclose(delivered + owed, went_in, atol=1e-4)
    dense = np.concatenate([np.arange(1200, 1230), np.arange(1518, 1523)])
    np.testing.assert_allclose(delivered[dense], went_in[dense], atol=1e-4)
    assert not ranks.residuals[:, dense].any()


def test_a_matrix_of_low_rank_arrives_whole() -> None:
    rng = np.random.default_rng(0)
    matrix = (rng.standard_normal((50, 3)) @ rng.standard_normal((3, 40))).astype(np.float32)
    exchange = LowRank(3).exchange([(50, 40)])
    out = Ranks(exchange, 2).step(np.stack([matrix.ravel(), matrix.ravel()]))
    np.testing.assert_allclose(out.reshape(50, 40), matrix, atol=1e-4)


def test_every_direction_has_its_turn() -> None:
    ranks = Ranks(LowRank(1).exchange([(60, 50)]), 2)
    numbers = np.repeat(gradients(1, 3000, 4), 2, axis=0)
    sizes, total = [], np.zeros(3000)
    for _ in range(300):
        total += ranks.step(numbers)
        sizes.append(float(np.linalg.norm(ranks.residuals)))
    assert max(sizes[150:]) < 1.2 * max(sizes[:150])
    assert float(np.linalg.norm(total / 300 - numbers[0])) < 0.2 * float(np.linalg.norm(numbers[0]))


def test_what_a_rank_owes_lies_outside_what_was_sent() -> None:
    ranks = Ranks(LowRank(2).exchange([(30, 25)]), 3)
    for step in range(5):
        out = ranks.step(gradients(3, 750, step))
    # Of every rank's own residual nothing is left in the columns of P, which what arrived spans.
    basis = np.linalg.svd(out.reshape(30, 25))[0][:, :2]
    for residual in ranks.residuals:
        np.testing.assert_allclose(basis.T @ residual.reshape(30, 25), 0, atol=1e-4)


def test_zero_gradients_do_not_kill_the_start() -> None:
    ranks = Ranks(LowRank(2).exchange([(20, 20)]), 2)
    assert not ranks.step(np.zeros((2, 400), np.float32)).any()
    numbers = gradients(2, 400, 3)
    out = ranks.step(numbers)
    assert float(np.linalg.norm(out)) > 0.1 * float(np.linalg.norm(numbers.mean(axis=0)))


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_what_is_not_finite_is_seen_by_all_and_forgotten(bad: float) -> None:
    ranks = Ranks(LowRank(2).exchange([(20, 20), (30, 10)]), 2)
    ranks.step(gradients(2, 700, 0))
    numbers = gradients(2, 700, 1)
    numbers[1, 57] = bad
    out = ranks.step(numbers)
    assert np.isnan(out[:400]).all()
    assert np.isfinite(out[400:]).all()
    assert np.isfinite(ranks.residuals).all()
    assert np.isfinite(ranks.step(gradients(2, 700, 2))).all()


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


def test_wrong_sizes_are_refused() -> None:
    exchange = LowRank(2).exchange([(20, 20)])
    state, flat = exchange.new_state(), np.zeros(400, np.float32)
    with pytest.raises(CodecError, match="first of a low-rank exchange has 40 elements; got 41"):
        exchange.begin(flat, flat.copy(), state, np.zeros(41, np.float32))
    with pytest.raises(CodecError, match="the saved low-rank state has no Q for these parameters"):
        state.from_arrays({"q": np.zeros(3, np.float32)})
