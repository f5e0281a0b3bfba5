"""Checkpoints of DiLoCo on four ranks taken over by three: state of the method, and what codecs owed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.cases.periodic_cases import resume_with_fewer, save_some
from tests.distributed.ranks import run_ranks


def test_another_number_of_ranks_takes_outer_state_and_residuals_over(tmp_path: Path) -> None:
    saved = run_ranks(4, partial(save_some, folder=str(tmp_path)))
    found = run_ranks(3, partial(resume_with_fewer, folder=str(tmp_path)))
    owed = [sum(column) / 4 for column in zip(*(one["owed"] for one in saved), strict=True)]
    assert any(owed)
    for one in found:
        assert one["step"] == 10
        assert one["weights"] == saved[0]["weights"], "the weights that all four agreed on"
        assert one["agreed"] == saved[0]["agreed"]
        assert one["momentum"] == saved[0]["momentum"]
        assert one["owed"] == pytest.approx(owed, abs=1e-7), "each owes the mean, so together they owe as much"
        assert one["same"]
