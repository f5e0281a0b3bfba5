"""Checkpoints are whole or not there: killed in the middle, torn, pruned, taken over by another number of ranks."""

from __future__ import annotations

import errno
import os
import random
import signal
import subprocess
import sys
import threading
import time
from functools import partial
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from tests.distributed.ranks import run_ranks

from syncline.errors import CheckpointError
from syncline.runtime.alive.checkpoint import Checkpoints
from syncline.runtime.alive.checkpoint_folder import write
from syncline.runtime.alive.checkpoint_loss import group_of_all
from syncline.runtime.alive.checkpoint_resume import merged

WRITER = """
import os, sys, torch
from syncline.runtime.alive.checkpoint import Checkpoints
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


def flip_a_bit(path: Path) -> None:
    (tensors,) = path.glob("*.distcp")
    data = bytearray(tensors.read_bytes())
    data[len(data) // 2] ^= 1
    tensors.write_bytes(data)


def test_a_damaged_checkpoint_is_passed_over_and_old_ones_go(tmp_path: Path) -> None:
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
    assert path is not None
    flip_a_bit(path)
    assert checkpoints.restore(model, optimizer) == (2, {"epoch": 2})
    assert bool((model.weight == 2).all())
    with pytest.raises(CheckpointError, match="keep=0 would keep no checkpoint"):
        Checkpoints(tmp_path, keep=0)


DAMAGES = {
    "a bit": (flip_a_bit, r"__0_0\.distcp is not as it was written\."),
    "a file gone": (lambda path: (path / "rank-00000.pt").unlink(), r"rank-00000\.pt: No such file or directory\."),
    "half a manifest": (
        lambda path: (path / "manifest.json").write_text('{"version": 2, '),
        r"manifest\.json is not as it was written\.",
    ),
    "a later version": (
        lambda path: (path / "manifest.json").write_text('{"version": 9}'),
        r"it is of version 9, and this syncline reads version 2\.",
    ),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_where_the_only_checkpoint_is_damaged_a_run_starts_afresh_only_when_told(kind: str, tmp_path: Path) -> None:
    strike, said = DAMAGES[kind]
    model, optimizer = parts()
    checkpoints = Checkpoints(tmp_path, keep=1)
    path = checkpoints.save(300, model, optimizer)
    assert path is not None
    strike(path)
    with pytest.raises(CheckpointError, match=rf"the only checkpoint is damaged\.\s+step-0000000300: {said}") as got:
        checkpoints.restore(model, optimizer)
    assert "pass start_afresh=True" in str(got.value)
    assert checkpoints.restore(model, optimizer, start_afresh=True) == (0, {})
    for step in (10, 20):
        checkpoints.save(step, model, optimizer)
    assert checkpoints.restore(model, optimizer) == (20, {}), "a damaged one of a later step takes no one's place"
    assert not (tmp_path / "step-0000000010").exists()


def test_another_number_of_ranks_takes_the_mean_of_what_all_owed() -> None:
    states = [
        {"version": 1, "num_owing": 4, "residuals": {"w": torch.full((3,), float(rank))}, "local_to": rank}
        for rank in range(4)
    ]
    state = merged(states)
    assert state["local_to"] == -1
    assert state["residuals"]["w"].tolist() == [1.5, 1.5, 1.5]


def test_another_model_is_refused_by_the_name_that_differs(tmp_path: Path) -> None:
    model, optimizer = parts()
    Checkpoints(tmp_path).save(1, model, optimizer)
    wide = torch.nn.Linear(256, 128)
    with pytest.raises(CheckpointError, match=r'"weight" has shape \[256, 256\] in the checkpoint and \[128, 256\]'):
        Checkpoints(tmp_path).restore(wide, torch.optim.AdamW(wide.parameters()))
    bare = torch.nn.Linear(256, 256, bias=False)
    with pytest.raises(CheckpointError, match='the checkpoint has "bias", which this model does not have'):
        Checkpoints(tmp_path).restore(bare, torch.optim.AdamW(bare.parameters()))


def test_in_the_background_what_was_copied_is_what_is_written(tmp_path: Path) -> None:
    model, optimizer = parts()
    model(torch.ones(1, 256)).sum().backward()
    optimizer.step()
    checkpoints = Checkpoints(tmp_path, background=True)
    saved = model.weight.detach().clone()
    checkpoints.save(1, model, optimizer, data=Loader(5))
    with torch.no_grad():
        model.weight.zero_()
    checkpoints.wait()
    loader = Loader(0)
    assert checkpoints.restore(model, optimizer, data=loader) == (1, {})
    assert torch.equal(model.weight, saved)
    assert loader.at == 5
    assert float(optimizer.state[model.weight]["step"]) == 1.0


def save_and_end(rank: int, port: int, folder: Path) -> None:
    Checkpoints(folder, background=True).save(1, *parts())


def test_a_process_ends_when_what_it_writes_in_the_background_is_there(tmp_path: Path) -> None:
    run_ranks(1, partial(save_and_end, folder=tmp_path))
    assert [path.name for path in tmp_path.iterdir()] == ["step-0000000001"]


def test_a_write_in_the_background_that_fails_is_logged_and_raised_by_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    checkpoints = Checkpoints(tmp_path, background=True)
    monkeypatch.setattr(checkpoints, "_write", lambda content: 1 / 0)
    assert checkpoints.save(1, *parts()) is None
    with pytest.raises(ZeroDivisionError):
        checkpoints.wait()
    assert "The checkpoint of step 1 was not written: division by zero" in caplog.text
    assert checkpoints.wait() is None, "it is told once"


class Loader:
    """Data that knows where it is."""

    def __init__(self, at: int) -> None:
        self.at = at

    def state_dict(self) -> dict[str, int]:
        return {"at": self.at}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self.at = state_dict["at"]


def test_a_disk_that_fills_up_while_tensors_are_written_is_survived(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = parts()
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(1, model, optimizer)

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("torch.distributed.checkpoint.filesystem._write_item", full)  # torch wraps it: no Exception
    assert checkpoints.save(2, model, optimizer) is None
    assert "step 2 was not written" in caplog.text
    assert checkpoints.restore(model, optimizer) == (1, {})


def test_a_full_disk_costs_the_oldest_and_then_the_new_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    model, optimizer = parts()
    checkpoints = Checkpoints(tmp_path, keep=3)
    for step in (1, 2):
        checkpoints.save(step, model, optimizer)
    left = [0]

    def full(path: Path, content: object) -> None:
        if left[0] == 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        left[0] -= 1
        write(path, content)  # type: ignore[arg-type]

    monkeypatch.setattr("syncline.runtime.alive.checkpoint.write", full)
    assert checkpoints.save(3, model, optimizer) is None
    assert "step 3 was not written" in caplog.text
    assert [path.name for path in sorted(tmp_path.iterdir())] == ["step-0000000002"], "the newest stays"
    left[0] = 100
    assert checkpoints.save(4, model, optimizer) == tmp_path / "step-0000000004"
    assert checkpoints.restore(model, optimizer) == (4, {})


def test_without_a_handle_a_rank_that_does_not_come_is_named_and_not_waited_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    import torch.distributed as dist

    never = threading.Event()
    monkeypatch.setattr(dist, "new_group", lambda backend: never.wait())
    monkeypatch.setattr(dist, "get_rank", lambda: 0)
    monkeypatch.setattr(dist, "get_world_size", lambda: 3)
    store = dist.HashStore()
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_store", lambda: store)
    with pytest.raises(CheckpointError, match=r"rank 1, 2 did not come to the checkpoint within 0\.05 s\."):
        group_of_all(None, 0.05)
    never.set()
