"""A piece walks the stages of its program: change the program and both what runs and what is priced change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch

from syncline.codec.names import scheme
from syncline.program import overlap, stages
from syncline.program.stages import DECODE, StagePhase
from syncline.runtime.sync.averagers import Averagers
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.memory_wire import wires

SHAPES = ((40, 30), (30,), (8, 4, 3, 3), (2, 2), (100, 7))
LAYOUT = Layout(tuple(f"p{k}" for k in range(len(SHAPES))), SHAPES)
SIZE = sum(LAYOUT.sizes)


class Ranks:
    """Several ranks of one process, whose stages are run one after the other."""

    def __init__(self, size: int, codec: str) -> None:
        team: Any = SimpleNamespace(names=tuple(range(size)), sources=None)
        self.values = [torch.zeros(SIZE) for _ in range(size)]
        self.averagers = []
        self.buckets = []
        for rank, wire in enumerate(wires(size)):
            links: Any = SimpleNamespace(wires=[wire], rank=rank, num_ranks=size, device=torch.device("cpu"), team=team)
            self.averagers.append(Averagers(Settings(codec=codec, nan="skip"), links))
            self.buckets.append(self.averagers[-1].bucket(0, LAYOUT, self.values[rank], codec))

    def step(self, gradients: list[torch.Tensor], number: int = 0) -> list[torch.Tensor]:
        for bucket, value, gradient in zip(self.buckets, self.values, gradients, strict=True):
            value.copy_(gradient)
            bucket.begin(value, Step(number, 0, "", 0.0))
        (pieces,) = zip(*[bucket.pieces for bucket in self.buckets], strict=True)
        for call in ("prepare", "send", "sum_up", "post"):
            for piece in pieces:
                getattr(piece, call)()
        for stage in pieces[0]._program.stages:  # type: ignore[attr-defined]
            for piece in pieces:
                if stage.phase is StagePhase.COLLECT and piece._trouble is None:  # type: ignore[attr-defined]
                    piece._run[stage.name](stage)  # type: ignore[attr-defined]
        return [value.clone() for value in self.values]

    def owed(self) -> torch.Tensor:
        rows = [averager.residuals.parts() for averager in self.averagers]
        return torch.stack([torch.cat([row[name].flatten() for name in LAYOUT.names]) for row in rows])


def gradients(size: int, seed: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(SIZE, generator=random) for _ in range(size)]


@pytest.mark.parametrize("codec", ["int4", "sign", "topk:keep=0.1", "powersgd:rank=2"])
@pytest.mark.parametrize("size", [1, 3])
def test_what_was_delivered_and_what_is_owed_is_what_went_in(codec: str, size: int) -> None:
    ranks, went_in, delivered = Ranks(size, codec), torch.zeros(SIZE), torch.zeros(SIZE)
    for number in range(4):
        given = gradients(size, number)
        went_in += torch.stack(given).mean(0)
        results = ranks.step(given, number)
        assert all(torch.equal(result, results[0]) for result in results), "replicas stay equal to the bit"
        delivered += results[0]
    torch.testing.assert_close(delivered + ranks.owed().mean(0), went_in, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("codec", ["int4", "powersgd:rank=2"])
def test_a_step_with_a_gradient_that_is_not_finite_is_left_out_and_nothing_more_is_owed(codec: str) -> None:
    ranks = Ranks(3, codec)
    ranks.step(gradients(3, 0))
    before, bad = ranks.owed(), gradients(3, 1)
    bad[1][57] = float("nan")
    assert all(result.isnan().all() for result in ranks.step(bad, 1))
    assert all(bucket.step.skipped for bucket in ranks.buckets)
    torch.testing.assert_close(ranks.owed(), before, rtol=1e-4, atol=1e-5)
    assert all(result.isfinite().all() for result in ranks.step(gradients(3, 2), 2))


def test_a_stage_that_is_left_out_of_the_program_is_neither_run_nor_priced(monkeypatch: pytest.MonkeyPatch) -> None:
    def price() -> float:
        costs = overlap.ExchangeCosts("int8", scheme("int8"), 1e-8, 1e-8)
        work = overlap.Work(0.0, (0.0,), (SIZE,), 0.0)
        machine = overlap.SharedMachine(8.0, 0.0, 0.0)
        return overlap.step_s(work, [costs], 3, overlap.RankLink(1e12, 0.0), machine)

    given = gradients(3, 0)
    whole_s, (whole, *_) = price(), Ranks(3, "int8").step(given)
    usual = stages.exchange_stages
    monkeypatch.setattr(
        stages, "exchange_stages", lambda *args, **named: tuple(s for s in usual(*args, **named) if s.name != DECODE)
    )
    shorter_s, (own, *_) = price(), Ranks(3, "int8").step(given)
    low, high = 0, 768  # of rank 0: its own shard is summed, and the sums of others are never taken
    assert torch.equal(own[low:high], whole[low:high])
    assert torch.equal(own[high:], given[0][high:])
    assert not torch.equal(own[high:], whole[high:])
    assert shorter_s < 0.9 * whole_s
