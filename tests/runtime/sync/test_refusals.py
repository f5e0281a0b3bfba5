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
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.ddp import DdpSynchronizer
from syncline.runtime.sync.fsdp import FsdpSynchronizer
from syncline.runtime.sync.synchronizer import Synchronizer


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


def test_a_state_of_another_version_is_refused() -> None:
    with pytest.raises(SynchronizationError, match=r"the saved state has version 0; this syncline reads 1\."):
        Synchronizer.load_state_dict(SimpleNamespace(), {"version": 0})  # type: ignore[arg-type]


def test_parts_that_are_sharded_over_different_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """One mesh is taken as it is; of two, both parts and their ranks are named."""
    ranks = {"near": [0, 1], "far": [0, 2]}

    def groups(module: str) -> list[Any]:
        return [SimpleNamespace(mesh_info=SimpleNamespace(shard_process_group=module.split("-")[0]))]

    monkeypatch.setattr(sharded, "param_groups", groups)
    monkeypatch.setattr(sharded.dist, "get_process_group_ranks", ranks.__getitem__)
    monkeypatch.setattr(sharded, "sharded_modules", lambda model: [("a", "near-1"), ("b", "near-2")])
    assert sharded.shard_mesh(torch.nn.Linear(1, 1)) == sharded.ShardMesh("near", None)  # type: ignore[arg-type]
    monkeypatch.setattr(sharded, "sharded_modules", lambda model: [("a", "near-1"), ("b", "far-1")])
    with pytest.raises(SynchronizationError, match='"a" is sharded over ranks 0, 1 and "b" over 0, 2'):
        sharded.shard_mesh(torch.nn.Linear(1, 1))


@pytest.mark.parametrize(("padded", "num_elements", "shapes"), [
    (((4, 3), (2,)), 28, ((4, 3), (2,), (4, 3), (2,))),  # two ranks' rows
    (((4, 3), (2,)), 27, ((27,),)),  # a parameter had no gradient
    ((), 5, ((5,),)),  # no parameter at all
])  # fmt: skip
def test_gradients_are_laid_out_as_each_ranks_rows(padded: Any, num_elements: int, shapes: Any) -> None:
    shardings = {f"p{k}": SimpleNamespace(padded=shape) for k, shape in enumerate(padded)}
    geometry = SimpleNamespace(held="rows", name=lambda name, k: f"{name} of {k}")
    part: Any = SimpleNamespace(shardings=shardings, name="layer")
    axes = SimpleNamespace(groups={}, cut=lambda name: ())
    assert sharded.ShardPart.layout(part, num_elements, geometry, axes).shapes == shapes  # type: ignore[arg-type]


def test_what_an_axis_cuts_is_laid_out_apart_from_what_is_whole_on_it() -> None:
    layout = Layout.apart("abcd", [(2,), (3,), (1,), (4,)], [("tp",), (), ("tp",), ()])
    assert (layout.names, layout.borders) == (("b", "d", "a", "c"), (7,))
    assert [part.tolist() for part in layout.parts(torch.arange(10))] == [[2, 3, 4], [6, 7, 8, 9], [0, 1], [5]]
    assert layout.runs == ((0, 2, 3), (3, 6, 4), (7, 0, 2), (9, 5, 1))
    assert Layout.apart("ab", [(2,), (3,)], [("tp",), ("tp",)]) == Layout(("a", "b"), ((2,), (3,)))
    axes: Any = SimpleNamespace(groups={"tp": None}, cut=lambda name: ())
    part: Any = SimpleNamespace(shardings={"p": SimpleNamespace(padded=(2,))}, name="layer")
    with pytest.raises(SynchronizationError, match=r'a parameter of "layer" got no gradient, and with the axis "tp"'):
        sharded.ShardPart.layout(part, 3, SimpleNamespace(), axes)  # type: ignore[arg-type]


def test_a_measured_rate_only_grows() -> None:
    measured: Any = SimpleNamespace(_rate_Bps=0.0)
    rates = [Synchronizer._rate(measured, SimpleNamespace(received_Bps=lambda r=r: r)) for r in (3e9, 2e9, 4e9)]  # type: ignore[arg-type]
    assert rates == [3e9, 3e9, 4e9]
