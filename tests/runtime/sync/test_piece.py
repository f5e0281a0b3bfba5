"""A piece walks the stages of its program: change the program and both what runs and what is priced change."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("torch", reason="the runtime needs torch")
import torch
from tests.program.test_overlap import step_s
from tests.runtime.wire.test_native_wire import team as native_team

from syncline.codec.names import scheme
from syncline.program import overlap, stages
from syncline.program.stages import ADD, DECODE, StagePhase
from syncline.runtime.sync.averagers import Averagers
from syncline.runtime.sync.bucket import Layout
from syncline.runtime.sync.native_exchange import runs_natively
from syncline.runtime.sync.settings import Settings
from syncline.runtime.sync.step import Step
from syncline.runtime.wire.levels import members
from syncline.runtime.wire.memory_wire import wires

SHAPES = ((40, 30), (30,), (8, 4, 3, 3), (2, 2), (100, 7))
LAYOUT = Layout(tuple(f"p{k}" for k in range(len(SHAPES))), SHAPES)
SIZE = sum(LAYOUT.sizes)


class Ranks:
    """Several ranks of one process, whose stages are run one after the other; `shape` as in programs."""

    def __init__(
        self, shape: tuple[int, ...], codec: str, dtype: torch.dtype = torch.float32, *, scatter_only: bool = False
    ) -> None:
        size = math.prod(shape)
        team: Any = SimpleNamespace(names=tuple(range(size)), behind=None)
        self.values = [torch.zeros(SIZE, dtype=dtype) for _ in range(size)]
        self.averagers = []
        self.buckets = []
        for rank, own in enumerate(level_wires(shape)):
            links: Any = SimpleNamespace(wires=own, rank=rank, num_ranks=size, device=torch.device("cpu"), team=team)
            self.averagers.append(Averagers(Settings(codec=codec, nan="skip"), links))
            bucket = self.averagers[-1].bucket(0, LAYOUT, self.values[rank], codec, scatter_only=scatter_only)
            self.buckets.append(bucket)

    def step(self, gradients: list[torch.Tensor], number: int = 0, scale: float | None = None) -> list[torch.Tensor]:
        for bucket, value, gradient in zip(self.buckets, self.values, gradients, strict=True):
            value.copy_(gradient)
            bucket.begin(value, Step(number, 0, "", 0.0), scale)
        (columns,) = zip(*[bucket.pieces for bucket in self.buckets], strict=True)
        pieces: list[Any] = list(columns)
        for piece in pieces:
            piece.prepare()
        for phase in StagePhase:
            for stage in (stage for stage in pieces[0].program.stages if stage.phase is phase):
                for piece in pieces if phase < StagePhase.COLLECT or pieces[0]._trouble is None else []:
                    piece.carry_out(stage)
            for piece in pieces if phase is StagePhase.REDUCE else []:
                if piece._trouble is not None:
                    piece._leave_out(piece._trouble)
                piece.post()
        for piece in pieces:  # what is left of a collect: nothing is under way, and the average is in the user's memory
            piece._walk = lambda phase: None
            piece.collect()
            del piece._walk
        return [value.clone() for value in self.values]

    def owed(self) -> torch.Tensor:
        rows = [averager.residuals.parts() for averager in self.averagers]
        return torch.stack([torch.cat([row[name].flatten() for name in LAYOUT.names]) for row in rows])


def level_wires(shape: tuple[int, ...]) -> list[list[Any]]:
    """Return each rank's wires, innermost first."""
    num_ranks = math.prod(shape)
    made: list[list[Any]] = [[] for _ in range(num_ranks)]
    for level in range(len(shape)):
        groups = {tuple(members(rank, num_ranks, shape[:-1])[level]) for rank in range(num_ranks)}
        for group in sorted(groups):
            for rank, wire in zip(group, wires(len(group)), strict=True):
                made[rank].append(wire)
    return made


def gradients(size: int, seed: int) -> list[torch.Tensor]:
    random = torch.Generator().manual_seed(seed)
    return [torch.randn(SIZE, generator=random) for _ in range(size)]


@pytest.mark.parametrize("codec", ["int4", "sign", "powersgd:rank=2"])
@pytest.mark.parametrize("size", [1, 3])
def test_what_was_delivered_and_what_is_owed_is_what_went_in(codec: str, size: int) -> None:
    ranks, went_in, delivered = Ranks((size,), codec), torch.zeros(SIZE), torch.zeros(SIZE)
    for number in range(4):
        given = gradients(size, number)
        went_in += torch.stack(given).mean(0)
        results = ranks.step(given, number)
        assert all(torch.equal(result, results[0]) for result in results), "replicas stay equal to the bit"
        delivered += results[0]
    torch.testing.assert_close(delivered + ranks.owed().mean(0), went_in, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("codec", ["int4", "powersgd:rank=2"])
def test_a_step_with_a_gradient_that_is_not_finite_is_left_out_and_nothing_more_is_owed(codec: str) -> None:
    ranks = Ranks((3,), codec)
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
        return step_s(work, costs, 3, 1e12)

    given = gradients(3, 0)
    whole_s, (whole, *_) = price(), Ranks((3,), "int8").step(given)
    usual = stages.exchange_stages
    monkeypatch.setattr(
        stages, "exchange_stages", lambda *args, **named: tuple(s for s in usual(*args, **named) if s.name != DECODE)
    )
    shorter_s, (own, *_) = price(), Ranks((3,), "int8").step(given)
    low, high = 0, 768  # of rank 0: its own shard is summed, and the sums of others are never taken
    assert torch.equal(own[low:high], whole[low:high])
    assert torch.equal(own[high:], given[0][high:])
    assert not torch.equal(own[high:], whole[high:])
    assert shorter_s < 0.9 * whole_s


@pytest.mark.parametrize("left_out", [stages.FIRST, stages.MIDDLE, stages.LAST])
def test_a_stage_of_a_bucket_in_factors_that_is_left_out_is_neither_run_nor_priced(
    monkeypatch: pytest.MonkeyPatch, left_out: str
) -> None:
    def price() -> float:
        seconds = overlap.StageCosts(SIZE * 1e-8, SIZE * 1e-8, SIZE * 1e-8)
        costs = overlap.ExchangeCosts("powersgd", scheme("powersgd:rank=2"), 0.0, 0.0, measured={SIZE: seconds})
        return step_s(overlap.Work(0.0, (0.0,), (SIZE,), 0.0), costs, 3, 1e15)

    def without(*args: Any, **named: Any) -> tuple[Any, ...]:
        gone = next(k for k, stage in enumerate(usual(*args, **named)) if stage.name == left_out)
        return tuple(
            replace(stage, awaits=stage.awaits - (stage.awaits > gone))
            for stage in usual(*args, **named) if stage.name != left_out
        )  # fmt: skip

    given, usual = gradients(3, 0), stages.low_rank_stages
    whole_s, made = price(), Ranks((3,), "powersgd:rank=2")
    whole = made.step(given)
    monkeypatch.setattr(stages, "low_rank_stages", without)
    shorter_s, parted = price(), Ranks((3,), "powersgd:rank=2")
    results = parted.step(given)
    ran = [{span[4] for span in ranks.buckets[0].step.spans} for ranks in (made, parted)]
    assert ran[0] - ran[1] == {left_out}
    assert not torch.equal(results[0], whole[0])
    assert shorter_s == pytest.approx(whole_s - SIZE * 1e-8, rel=0.05)


@pytest.mark.parametrize("codec", ["int8", "int4"])
def test_a_sum_in_two_stages_runs_to_the_same_bits_and_the_price_follows(
    monkeypatch: pytest.MonkeyPatch, codec: str
) -> None:
    def priced() -> float:
        costs = overlap.ExchangeCosts(codec, scheme(codec), 1e-8, 1e-8)
        return step_s(overlap.Work(0.0, (0.0,), (SIZE,), 0.0), costs, 3, 1e12)

    def split(*args: Any, **named: Any) -> tuple[Any, ...]:
        encode, total, decode = usual(*args, **named)
        add = replace(total, name=ADD, posts=stages.Posts.NOTHING)
        return encode, add, replace(total, awaits=-1), replace(decode, awaits=2)

    given, usual = gradients(3, 0), stages.exchange_stages
    before, whole = priced(), Ranks((3,), codec)
    together = whole.step(given)
    monkeypatch.setattr(stages, "exchange_stages", split)
    after, parted = priced(), Ranks((3,), codec)
    assert all(torch.equal(*pair) for pair in zip(together, parted.step(given), strict=True))
    ran = [[span[4] for span in ranks.buckets[0].step.spans] for ranks in (whole, parted)]
    assert ADD not in ran[0] and ran[1].index(ADD) < ran[1].index(stages.SUM)
    assert after == pytest.approx(before), "the same work in two stages"

    def unheard(*args: Any, **named: Any) -> tuple[Any, ...]:
        return tuple(replace(s, awaits=-1) if s.name == stages.SUM else s for s in usual(*args, **named))

    monkeypatch.setattr(stages, "exchange_stages", unheard)
    heard_nobody = Ranks((3,), codec).step(given)
    assert not torch.equal(heard_nobody[0], together[0]), "each rank sums its own shard alone"
    assert priced() < 0.95 * before, "nothing is decoded"


@pytest.mark.parametrize("codec", ["fp32", "int8", "int4", "powersgd:rank=4"])
@pytest.mark.parametrize("shape", [(2, 2), (3, 2), (2, 2, 2)])
def test_levels_average_over_all_ranks_and_keep_the_error_at_the_outermost(shape: tuple[int, ...], codec: str) -> None:
    size, worst = math.prod(shape), {"fp32": 1e-6, "int8": 0.01, "int4": 0.2, "powersgd:rank=4": 2.0}[codec]
    ranks, given = Ranks(shape, codec), gradients(math.prod(shape), 0)
    mean = torch.stack(given).mean(0)
    results = ranks.step(given)
    assert all(torch.equal(result, results[0]) for result in results)
    assert float((results[0] - mean).norm() / mean.norm()) < worst
    if codec == "int4":
        torch.testing.assert_close(results[0] + ranks.owed().sum(0) / shape[-1], mean, rtol=1e-4, atol=1e-5)
    bad = gradients(size, 1)
    bad[-1][5] = float("inf")
    assert all(result.isnan().all() for result in ranks.step(bad, 1)), "ranks of every level hear of it"
    assert all(result.isfinite().all() for result in ranks.step(given, 2))


def test_gradients_of_half_precision_are_averaged_in_float32_and_go_back_in_their_type() -> None:
    given = [gradient.bfloat16() for gradient in gradients(3, 0)]
    results = Ranks((3,), "fp32", torch.bfloat16).step(given)
    assert results[0].dtype == torch.bfloat16
    assert torch.equal(results[0], torch.stack([gradient.float() for gradient in given]).mean(0).bfloat16())
    assert all(torch.equal(result, results[0]) for result in results)


@pytest.mark.parametrize("scale", [1.0, 1 / 3])
def test_a_bucket_that_is_only_scattered_leaves_each_rank_the_scaled_sum_of_its_shard(scale: float) -> None:
    ranks, given = Ranks((3,), "fp32", scatter_only=True), gradients(3, 0)
    results, total = ranks.step(given, 0, scale), torch.stack(given).sum(0) * scale
    share = SIZE // 3
    for rank, result in enumerate(results):
        own = slice(rank * share, (rank + 1) * share)
        torch.testing.assert_close(result[own], total[own], rtol=1e-5, atol=1e-6)
    sent = [bucket.step.wire_bytes for bucket in ranks.buckets]
    assert sent == [sent[0]] * 3


@pytest.mark.parametrize(
    ("shape", "codec", "ordered"),
    [((3,), "int8", False), ((2, 2), "int8", False), ((3,), "powersgd", False), ((2, 2), "powersgd", True)],
)
def test_a_piece_is_collected_at_once_only_where_reducing_and_collecting_both_wait_for_peers(
    shape: tuple[int, ...], codec: str, ordered: bool
) -> None:
    ranks = Ranks(shape, codec)
    assert [bucket.pieces[0].ordered for bucket in ranks.buckets] == [ordered] * math.prod(shape)
    ranks.step(gradients(math.prod(shape), 0))
    assert {span[-1] for span in ranks.buckets[0].step.spans} == {0}, "every span names its piece"


def test_a_lane_of_the_native_wire_walks_the_usual_stages_and_python_any_other() -> None:
    usual = stages.BucketProgram(SIZE, scheme("int8"), (2,)).stages
    encode, total, decode = usual
    split = (encode, replace(total, name=ADD, posts=stages.Posts.NOTHING), replace(total, awaits=-1),
             replace(decode, awaits=2))  # fmt: skip
    unheard = (encode, replace(total, awaits=-1), decode)
    with native_team(2) as made:
        for walked, native in ((usual, True), (split, False), (unheard, False)):
            course = tuple((stage.name, stages.awaited(walked, stage)) for stage in walked)
            assert runs_natively(course, made[0], torch.device("cpu")) is native
