"""Every step over whoever is there: a rank killed in a step, a replica killed as a whole, both back; no restart."""

from __future__ import annotations

import multiprocessing
from collections.abc import Callable
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
import torch.distributed as dist
from tests.distributed.cases import elastic_cases as cases
from tests.distributed.cases.fsdp2 import HAS_FSDP2, WHY_NOT
from tests.distributed.ranks import PRELOAD, rank_process, take

import syncline.torch
from syncline.errors import SynchronizationError
from syncline.host.ports import meeting_port


def run(work: Callable[..., Any], num_ranks: int, killed: list[int], *more: Any) -> list[dict[str, Any]]:
    """Return what each rank returned; those that are killed are started again, and the second time counts."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([*PRELOAD, "syncline.runtime.elastic.start"])
    store: Any = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    ranks = [rank_process(context, work, rank, store.port, *more, False) for rank in range(num_ranks)]
    for rank in killed:
        ranks[rank][0].join(240)
        assert ranks[rank][0].exitcode == -9
    for rank in killed:
        ranks[rank] = rank_process(context, work, rank, store.port, *more, True)
    return [take(pipe, rank, 240.0) for rank, (_, pipe) in enumerate(ranks)]


def test_every_step_is_the_mean_of_its_whole_batch_through_a_loss_and_a_return() -> None:
    results = run(cases.train, cases.NUM_RANKS, [cases.KILLED])
    stayed, other, back = results
    assert stayed["start"] == other["start"], "the crew starts from one rank's weights"
    for got in (stayed, other):
        assert got["steps"] == list(range(cases.STEPS)), "no step is lost and none is made twice"
        members = [line.partition(": ranks ")[2] for line in got["history"]]
        assert members[:2] == ["0, 1, 2", "0, 1"]
        assert members[-1] == "0, 1, 2; let in: 2"
        assert got["counts"][0] == got["counts"][-1] == 3
        assert got["counts"][cases.KNOCK_AT - 1] == 2
    assert back["steps"] == list(range(back["steps"][0], cases.STEPS))
    assert back["steps"][0] % cases.DOOR == 0 and back["steps"][0] >= cases.KNOCK_AT
    assert back["start"] != stayed["start"]
    for got in results:
        assert got["weights"] == stayed["weights"], "all end with the same weights, to the bit"
        assert got["rate"] == stayed["rate"], "the scheduler is carried along"
        assert got["summary"].endswith("3 of 3 ranks")
    torch.testing.assert_close(torch.tensor(stayed["weights"]), torch.tensor(stayed["alone"]), rtol=1e-4, atol=1e-6)


@pytest.mark.skipif(not HAS_FSDP2, reason=WHY_NOT)
def test_a_replica_of_fsdp2_comes_and_goes_as_a_whole() -> None:
    ports = (meeting_port(), meeting_port(), meeting_port())
    results = run(cases.replicas, 4, [2, 3], ports)
    for shard in (0, 1):
        stayed, back = results[shard], results[2 + shard]
        assert stayed["steps"] == list(range(cases.STEPS))
        assert [line.partition(": ranks ")[2] for line in stayed["history"]] == ["0, 1", "0", "0, 1; let in: 1"]
        assert back["weights"] == stayed["weights"], "the same shard, to the bit"
        assert back["steps"][0] % cases.DOOR == 0


def test_what_cannot_go_on_without_a_rank_is_refused() -> None:
    store: Any = dist.HashStore()
    model = torch.nn.Linear(2, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    crew = syncline.torch.Crew(store, 0, 1)
    with pytest.raises(SynchronizationError, match="keeps factors that all ranks must share"):
        syncline.torch.elastic(model, optimizer, crew, "powersgd:rank=1")
    with pytest.raises(SynchronizationError, match="min_ranks=0 must be a whole number from 1"):
        syncline.torch.elastic(model, optimizer, crew, min_ranks=0)
    with pytest.raises(SynchronizationError, match=r"needs a torch optimizer; got Linear"):
        syncline.torch.elastic(optimizer, model, crew)  # type: ignore[arg-type]
    with pytest.raises(SynchronizationError, match="the environment does not name the crew's store"):
        syncline.torch.Crew.from_env()
