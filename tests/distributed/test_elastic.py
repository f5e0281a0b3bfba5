"""A rank killed under torchrun: the group forms again and the losses are those of a run that nobody disturbed."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from faults import losses, ranks_of, torchrun


@pytest.mark.slow
def test_a_killed_rank_leaves_the_losses_as_they_were(tmp_path: Path) -> None:
    calm = torchrun(tmp_path / "calm", 20, 0, 0.0)
    due, _ = losses((calm.communicate(timeout=200)[0] or "").splitlines())
    assert sorted(due) == list(range(20))
    struck = torchrun(tmp_path / "struck", 20, 2, 0.1)
    assert struck.stdout is not None
    lines = [next(struck.stdout) for _ in range(8)]
    ranks = ranks_of(struck.pid)
    assert len(ranks) == 4
    os.kill(ranks[2], signal.SIGKILL)
    time.sleep(0.1)
    lines += struck.communicate(timeout=200)[0].splitlines()
    got, differing = losses(lines)
    assert struck.returncode == 0
    assert len(lines) > 20, "some steps are done again"
    assert (got, differing) == (due, 0)
