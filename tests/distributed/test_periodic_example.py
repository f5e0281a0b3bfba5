"""The training example of the guide, told who its ranks are as torchrun tells it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
from tests.distributed.ranks import run_script

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "diloco.py"


@pytest.mark.slow
def test_the_example_trains_and_its_replicas_are_equal(tmp_path: Path) -> None:
    printed = run_script(EXAMPLE, 4, tmp_path)
    losses = [float(text) for text in re.findall(r"^step \d+: loss (.*)$", printed, re.MULTILINE)]
    assert len(losses) == 5
    assert losses[-1] < 0.5 * losses[0]
    last = re.search(r"replicas are equal; sent [\d,]+ bytes across, (\d+)x fewer", printed)
    assert last, printed
    assert int(last[1]) > 20
