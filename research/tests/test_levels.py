"""What one measurement says of others: no published sweep loses to multiplying by measured / predicted."""

from __future__ import annotations

import pytest
from research.levels import across, of_model, step_errors, won

from syncline.sim.shared import levels_of


@pytest.mark.parametrize("kind", ["step", "experts"])
def test_no_published_sweep_loses_to_the_plain_ratio(kind: str) -> None:
    found = won(step_errors()[kind], levels_of(kind), of_model)
    assert found["sweeps"] > 40 and found["lost"] == 0, found
    assert found["levels"][0] <= found["ratio"][0] + 0.001 and found["levels"][1] <= found["ratio"][1], found
    assert found["levels"][0] < found["ships"][0] and found["levels"][1] < found["ships"][1], found


def test_one_log_moves_other_operations_and_three_sizes_are_never_worse_than_one() -> None:
    found = across()
    for after in ("others", "after one", "after three"):
        assert all(now < before for now, before in zip(found[after], found[f"{after}, ships"], strict=True)), found
    assert all(three < one for three, one in zip(found["after three"], found["after one"], strict=True)), found
