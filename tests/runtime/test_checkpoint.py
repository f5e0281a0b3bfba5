"""Checkpoints are whole or not there: killed in the middle, torn, pruned, taken over by another number of ranks."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.errors import CheckpointError
from syncline.runtime.checkpoint import Checkpoints, merged

WRITER = """
import os, sys, torch
from syncline.runtime.checkpoint import Checkpoints
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(1, 256)).sum().backward()
optimizer.step()
checkpoints = Checkpoints(sys.argv[1], keep=2)
first, _ = checkpoints.restore(model, optimizer)
for step in range(first + 1, 100000):
    torch.nn.init.constant_(model.weight, step)
    checkpoints.save(step, model, optimizer)
    os.write(1, b"%d\\n" % step)
"""


def parts() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    model = torch.nn.Linear(256, 256)
    return model, torch.optim.AdamW(model.parameters())


def test_kill_9_in_the_middle_loses_nothing_before_it(tmp_path: Path) -> None:
    """The writer is forked, so that being killed ten times costs one import."""
    draws = random.Random(1)
    folder = tmp_path / "kept"
    for _ in range(12):
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            os.dup2(write, 1)
            sys.argv = ["writer", str(folder)]
            try:
                exec(compile(WRITER, "writer", "exec"), {})
            finally:
                os._exit(1)
        os.close(write)
        said = os.read(read, 4096)
        time.sleep(draws.uniform(0.0, 0.05))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        while more := os.read(read, 65536):
            said += more
        os.close(read)
        acknowledged = int(said.split()[-1])
        model, optimizer = parts()
        step, _ = Checkpoints(folder).restore(model, optimizer)
        assert step >= acknowledged
        assert bool((model.weight == step).all())


def test_a_torn_checkpoint_is_passed_over_and_old_ones_go(tmp_path: Path) -> None:
    model, optimizer = parts()
    checkpoints = Checkpoints(tmp_path, keep=2)
    assert checkpoints.restore(model, optimizer) == (0, {})
    for step in (1, 2, 3):
        torch.nn.init.constant_(model.weight, step)
        path = checkpoints.save(step, model, optimizer, extra={"epoch": step})
    assert [p.name for p in sorted(tmp_path.iterdir())] == ["step-0000000002", "step-0000000003"]
    torch.rand(3)
    drawn = torch.get_rng_state()
    assert checkpoints.restore(model, optimizer) == (3, {"epoch": 3})
    assert not torch.equal(torch.get_rng_state(), drawn)
    data = bytearray((path / "shared.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "shared.pt").write_bytes(data)
    assert checkpoints.restore(model, optimizer) == (2, {"epoch": 2})
    assert bool((model.weight == 2).all())
    with pytest.raises(CheckpointError, match="keep=0 would keep no checkpoint"):
        Checkpoints(tmp_path, keep=0)


def test_another_number_of_ranks_takes_the_mean_of_what_all_owed() -> None:
    states = [
        {"version": 1, "num_owing": 4, "residuals": {"w": torch.full((3,), float(rank))}, "local_to": rank}
        for rank in range(4)
    ]
    state = merged(states)
    assert state["local_to"] == -1
    assert state["residuals"]["w"].tolist() == [1.5, 1.5, 1.5]
