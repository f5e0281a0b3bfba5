"""The training example of the guide, started as the guide says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")

EXAMPLE = Path(__file__).parents[2] / "examples" / "training" / "diloco.py"


@pytest.mark.slow
def test_the_example_trains_and_its_replicas_are_equal() -> None:
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4", str(EXAMPLE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr
    losses = [float(text) for text in re.findall(r"^step \d+: loss (.*)$", done.stdout, re.MULTILINE)]
    assert len(losses) == 5
    assert losses[-1] < 0.5 * losses[0]
    last = re.search(r"replicas are equal; sent [\d,]+ bytes across, (\d+)x fewer", done.stdout)
    assert last, done.stdout
    assert int(last[1]) > 20
