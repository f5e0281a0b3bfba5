"""PowerSGD's factors: columns become orthonormal, and one with nothing new becomes nothing."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.runtime.sync.low_rank import orthogonalise


@given(st.integers(1, 40), st.integers(1, 8), st.integers(0, 100), st.integers(-15, 15))
def test_columns_become_orthonormal_or_zero(rows: int, rank: int, seed: int, exponent: int) -> None:
    p = torch.randn(rows, rank, generator=torch.Generator().manual_seed(seed)) * 10.0**exponent
    if rank > 1:
        p[:, 1] = 2 * p[:, 0]
    orthogonalise(p)
    product = p.double().t() @ p.double()
    for column in range(rank):
        assert float(product[column, column]) == pytest.approx(1, abs=1e-5) or not p[:, column].any()
    assert float((product - product.diag().diag()).abs().max()) < 1e-5
    assert rank == 1 or not p[:, 1].any()
