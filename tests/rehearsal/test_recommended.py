"""Which synchronisation a rehearsal recommends: the fastest of those that learn as plain DDP does."""

from __future__ import annotations

import pytest

from syncline.rehearsal.rehearse import StepRow, fastest


def row(name: str, seconds: float, loss: float) -> StepRow:
    return StepRow(name, seconds, seconds, seconds, seconds, 1e6, loss)


@pytest.mark.parametrize(("sign", "best"), [(3.97, "int8"), (3.92, "sign"), (3.93, "sign"), (3.95, "int8")])
def test_speed_that_costs_learning_is_not_recommended(sign: float, best: str) -> None:
    """Plain DDP came from 4.3 to 3.9; a tenth of that is 0.04."""
    rows = [row("ddp", 1.3, 3.9), row("int8", 0.4, 3.901), row("sign", 0.15, sign)]
    assert fastest(rows, 3.9, [4.3, 4.1, 3.9]).synchronisation == best


def test_where_nothing_was_learnt_only_the_same_loss_is_sound() -> None:
    rows = [row("ddp", 1.3, 4.0), row("int8", 0.4, 4.0), row("sign", 0.15, 4.1)]
    assert fastest(rows, 4.0, [4.0]).synchronisation == "int8"
    assert fastest(rows, None, []).synchronisation == "sign"  # plain DDP was not asked for
