"""What is refused by name before anything is sent, and what `syncline calibrate tune` is told on each host."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.errors import SynchronizationError
from syncline.runtime.auto.auto import AutoSynchronizer
from syncline.runtime.sync import sharded
from syncline.runtime.sync.ddp import DdpSynchronizer
from syncline.runtime.sync.fsdp import FsdpSynchronizer


@pytest.mark.parametrize("refuse", [
    lambda: DdpSynchronizer.bucket(SimpleNamespace(_closed=False), SimpleNamespace()),  # type: ignore[arg-type]
    lambda: DdpSynchronizer._forward(SimpleNamespace(), None, None),  # type: ignore[arg-type]
    lambda: FsdpSynchronizer._forward(SimpleNamespace(), None, None),  # type: ignore[arg-type]
], ids=["a bucket of DDP", "DDP", "FSDP2"])  # fmt: skip
def test_a_step_that_a_cuda_graph_captures_is_refused(refuse: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    with pytest.raises(
        SynchronizationError, match="captured in a CUDA graph, and gradients that syncline sends"
    ) as got:
        refuse()
    assert "or close() the handle first" in str(got.value)


def test_fsdp2_of_an_older_torch_is_refused_with_the_first_that_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """Groups as torch 2.8 makes them: with a hook for replicas, and without one for the reduce-scatter."""
    group = SimpleNamespace(_all_reduce_hook=None)
    monkeypatch.setattr(sharded, "is_sharded", lambda module: True)
    monkeypatch.setattr(sharded, "param_groups", lambda module: [group])
    with pytest.raises(SynchronizationError, match="does not let its collectives be replaced") as got:
        sharded.check_replaceable(torch.nn.Linear(1, 1))
    assert got.value.hint == "Use torch 2.9 or newer, or DDP."
    group._reduce_scatter_comm = None
    sharded.check_replaceable(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(
    ("rank", "local_rank", "writes"), [(0, "0", True), (8, "0", True), (9, "1", False), (0, None, True)]
)
def test_the_first_rank_of_each_host_tells_tune(
    rank: int, local_rank: str | None, writes: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "learned.json"
    monkeypatch.setenv("SYNCLINE_TUNE", str(path))
    monkeypatch.delenv("LOCAL_RANK", raising=False)
    if local_rank is not None:
        monkeypatch.setenv("LOCAL_RANK", local_rank)
    pilot = SimpleNamespace(to_json=lambda: {"phase": "hold"})
    handle: Any = SimpleNamespace(_pilot=pilot, num_ranks=16, _num_steps=30, rank=rank)
    AutoSynchronizer._tell(handle)
    assert path.exists() == writes
    if writes:
        assert json.loads(path.read_text()) == {"phase": "hold", "num_ranks": 16, "steps": 30}
