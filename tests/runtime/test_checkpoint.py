"""Checkpoints are whole or not there: killed in the middle, torn, pruned, taken over by another number of ranks."""

from __future__ import annotations

import os
import random
import signal
import subprocess
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
torch.set_num_threads(1)  # a fork keeps one thread: a pool of them would be waited for
torch.optim.AdamW([torch.nn.Parameter(torch.ones(1))]).step()  # what this imports is imported once
def write(folder):
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    checkpoints = Checkpoints(folder, keep=2)
    first, _ = checkpoints.restore(model, optimizer)
    for step in range(first + 1, 100000):
        torch.nn.init.constant_(model.weight, step)
        checkpoints.save(step, model, optimizer)
        os.write(1, b"saved %d\\n" % step)
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        try:
            write(line.strip())
        finally:
            os._exit(1)
    os.write(1, b"writer %d\\n" % child)
    os.waitpid(child, 0)
    os.write(1, b"ended\\n")
"""


def parts() -> tuple[torch.nn.Linear, torch.optim.Optimizer]:
    model = torch.nn.Linear(256, 256)
    return model, torch.optim.AdamW(model.parameters())


def test_kill_9_in_the_middle_loses_nothing_before_it(tmp_path: Path) -> None:
    """One process that has imported torch and nothing else forks the writers: twelve deaths cost one import."""
    draws = random.Random(1)
    folder = tmp_path / "kept"
    with subprocess.Popen(
        [sys.executable, "-c", WRITER], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as nursery:
        assert nursery.stdin is not None
        assert nursery.stdout is not None
        for _ in range(12):
            print(folder, file=nursery.stdin, flush=True)
            said: list[str] = []
            while {line.split()[0] for line in said} != {"writer", "saved"}:
                said.append(nursery.stdout.readline())
                assert said[-1], "the writers' parent ended"
            time.sleep(draws.uniform(0.0, 0.05))
            os.kill(next(int(line.split()[1]) for line in said if line.startswith("writer")), signal.SIGKILL)
            while said[-1] != "ended\n":
                said.append(nursery.stdout.readline())
                assert said[-1], "the writers' parent ended"
            acknowledged = max(int(line.split()[1]) for line in said if line.startswith("saved"))
            model, optimizer = parts()
            step, _ = Checkpoints(folder).restore(model, optimizer)
            assert step >= acknowledged
            assert bool((model.weight == step).all())
        nursery.stdin.close()


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
