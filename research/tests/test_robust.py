"""Robust least squares: outliers count little, priors hold."""

from __future__ import annotations

import numpy as np
import pytest
from research.robust import minimise


def test_minimise_ignores_an_outlier_and_respects_the_prior() -> None:
    x = np.linspace(0, 1, 20)
    data = 0.3 + 0.5 * x
    data[7] += 5
    found = minimise(lambda v: v[0] + v[1] * x - data, np.array([10.0, 10.0]))
    assert found.x == pytest.approx([0.3, 0.5], abs=0.05)
    assert found.wald.min() > 4  # both differ from 0 by more than two standard errors
    held = minimise(lambda v: v[0] - np.array([1.0]), np.array([1e-3]))
    assert abs(held.x[0]) < 0.01 and held.wald[0] < 4
