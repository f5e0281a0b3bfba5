"""The search: the same answer as one by one, nothing lost, nothing counted twice."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import numpy as np
import pytest
from tests.planning.one_configuration import evaluate

from syncline.describe.progress import Meter
from syncline.planning.block import PlanQuestion, RowBlock, possible, price
from syncline.planning.decision import decision_of
from syncline.planning.search import search
from syncline.planning.space import FULL, LOSSY_CODECS, LOSSY_WIDTHS, USUAL, Axes, rows_for, rows_of, switches_of
from syncline.sim.step.step import step
from syncline.workload.job import Job

EVERYTHING = replace(FULL, gradient_bytes=LOSSY_WIDTHS, codec=LOSSY_CODECS)
SMALL = Axes(zero=("1", "3"), schedule=("1f1b",), recompute=("none", "full"), reshard=(True,))


@pytest.mark.parametrize(
    ("cluster", "model", "sequence"),
    [
        ("h100-64-rail", "llama3-70b", 8192),
        ("h100-64-rail", "mixtral-8x7b", 4096),
        ("h100-64-rail", "deepseek-v3", 4096),
        ("two-sites-wan", "gpt3-175b", 2048),
    ],
)
def test_a_block_gives_the_answers_of_one_by_one(asked, cluster: str, model: str, sequence: int) -> None:
    question, num_gpus = asked(cluster, model, 1024, sequence)
    rows, words = rows_of(question.job, num_gpus, question.machine.domain), switches_of(question.job, EVERYTHING)
    dice = random.Random(model)
    blocks = [
        RowBlock(chosen, possible(rows_for(rows, chosen), chosen, question.machine.domain))
        for chosen in dice.sample(words, 20)
    ]
    compared = 0
    for batch in ([blocks[0]], blocks[:7], blocks):  # one, few and many together
        priced = price(question, batch)
        for i in dice.sample(range(len(priced.kept)), min(20, len(priced.kept))):
            row = int(priced.kept[i])
            alone = evaluate(question, decision_of(batch[priced.block[row]].words, priced.rows, row))
            assert alone.cost is not None
            assert float(alone.cost.total) == priced.step_s[i], "bit for bit"
            assert alone.memory_bytes["total"] == priced.memory_bytes[i]
            assert alone.fits
            compared += 1
    assert compared >= 20


def brute_force(question: PlanQuestion, num_gpus: int, axes: Axes) -> tuple[float, int, int]:
    """Return best time, configurations and how many are likely to fit, with plain loops over whole jobs."""
    rows, best, count, fitting = rows_of(question.job, num_gpus, question.machine.domain), np.inf, 0, 0
    for words in switches_of(question.job, axes):
        mine = possible(rows_for(rows, words), words, question.machine.domain)
        for i in range(len(mine)):
            result = evaluate(question, decision_of(words, mine, i))
            count += 1
            likely = result.fits and result.fit_chance >= question.least_chance
            fitting += likely
            if likely:
                best = min(best, result.step_time_s)
    return best, count, fitting


def test_the_best_is_the_best_of_all_one_by_one(asked) -> None:
    question, _ = asked(model="llama3-8b", total=64, sequence=4096)
    found = search(question, 8, axes=SMALL, workers=1)
    best, count, fitting = brute_force(question, 8, SMALL)
    assert (found.best[0].step_s, found.num_considered, found.num_fitting) == (best, count, fitting)


def test_no_configuration_counts_twice(asked) -> None:
    question, _ = asked(model="llama3-8b", total=64, sequence=4096)
    rows = rows_of(question.job, 8)
    seen = set()
    for words in switches_of(question.job, FULL):
        mine = rows_for(rows, words)
        for i in range(len(mine)):
            decision = decision_of(words, mine, i)
            assert decision not in seen
            seen.add(decision)
    assert len(seen) > 1000


def test_every_row_divides_and_uses_nearly_all_gpus(asked) -> None:
    question, _ = asked(model="deepseek-v3", total=960, sequence=4096)
    rows = rows_of(question.job, 512)
    used = rows.tp * rows.pp * rows.dp * rows.cp
    assert ((used <= 512) & (used >= 0.9 * 512)).all()
    assert (rows.dp * rows.micro * rows.num_micro == 960).all()
    assert (question.job.model.heads % rows.tp == 0).all()  # type: ignore[union-attr]
    assert (256 % rows.ep == 0).all()
    assert ((rows.tp * rows.cp * rows.dp) % rows.ep == 0).all()
    chunked = rows.virtual > 1
    assert (rows.num_micro[chunked] % rows.pp[chunked] == 0).all()
    assert set(np.unique(rows.ep)) > {1, 8, 64}


def test_the_full_space_holds_the_usual_one_and_never_loses(asked) -> None:
    question, _ = asked(model="llama3-8b", total=64, sequence=4096)
    usual = search(question, 16, axes=USUAL, workers=1)
    full = search(question, 16, axes=FULL, workers=1)
    assert full.num_considered > 4 * usual.num_considered
    assert full.best[0].step_s <= usual.best[0].step_s


def test_two_processes_find_what_one_finds(asked) -> None:
    question, _ = asked(model="llama3-8b", total=64, sequence=4096)
    one = search(question, 16, axes=USUAL, workers=1)
    two = search(question, 16, axes=USUAL, workers=2)
    assert one.best == two.best
    assert (one.num_considered, one.num_fitting) == (two.num_considered, two.num_fitting)


def test_an_interrupted_search_keeps_the_best_so_far(asked) -> None:
    question, num_gpus = asked()
    calls = itertools.count()

    def stop(done: int, total: int) -> None:
        assert 0 < done <= total
        if next(calls) == 3:
            raise KeyboardInterrupt

    found = search(question, num_gpus, workers=1, meter=Meter(stop))
    whole = search(question, num_gpus, workers=1)
    assert not found.complete
    assert 0 < found.num_considered < whole.num_considered
    assert found.best
    assert whole.complete
    assert whole.best[0].step_s <= found.best[0].step_s


def test_the_plan_is_what_step_says_of_its_job(asked) -> None:
    from syncline.fabric import load

    question, num_gpus = asked()
    best = search(question, num_gpus, workers=1).best[0]
    job: Job = best.decision.job(question.job, question.machine.domain)
    assert step(load("h100-64-rail"), job).step_time_s == best.step_s
