"""The account of a predicted step: over random jobs its parts add up, and a free network saves what it says."""

from __future__ import annotations

import random

import pytest

from syncline.errors import SynclineError
from syncline.fabric import load
from syncline.sim.step.account import executed_account
from syncline.sim.step.step import StepResult, step
from syncline.timeline.account import StepCause
from syncline.workload.read_job import load_job

MODELS = ("llama3-8b", "llama3-70b", "mixtral-8x7b", "gpt3-175b", "llama2-7b")


def random_steps(count: int, seed: int) -> list[StepResult]:
    """Return priced steps of random jobs on three clusters; splits that a model does not allow are drawn again."""
    draw = random.Random(seed)
    fabrics = [load(name) for name in ("h100-64-rail", "old-10gbe", "dgx-h100-superpod")]
    found: list[StepResult] = []
    while len(found) < count:
        model = draw.choice(MODELS)
        split = {
            "tp": draw.choice([1, 2, 4, 8]),
            "pp": draw.choice([1, 2, 4]),
            "zero": draw.choice(["none", 1, "fsdp"]),
        }
        if model.startswith("mixtral"):
            split["ep"] = draw.choice([1, 2, 4, 8])
        if draw.random() < 0.2:
            split["cp"] = 2
        batch = {"global": draw.choice([64, 128, 256, 512, 1024]), "sequence": draw.choice([2048, 4096, 8192])}
        try:
            found.append(step(draw.choice(fabrics), load_job({"model": model, "batch": batch, "parallel": split})))
        except SynclineError:
            continue
    return found


def test_parts_add_up_and_a_free_network_saves_its_part_less_what_hid_behind_it() -> None:
    for result in random_steps(15, seed=7):
        account = result.account
        assert sum(line.seconds for line in account.lines) == pytest.approx(result.step_time_s, rel=1e-9)
        removal = account.removal(StepCause.NETWORK)
        assert removal is not None
        assert removal.saves_s + removal.behind_s == pytest.approx(account.seconds(StepCause.NETWORK), abs=1e-12)
        # Nothing hides behind exchanges in closed forms; bubbles and stragglers grow with them.
        assert -0.2 * result.step_time_s < removal.behind_s < 1e-6 * result.step_time_s
        assert result.exposed_comm_s == account.seconds(StepCause.NETWORK)


@pytest.mark.parametrize("factor", [0.8, 1.0, 1.3])
def test_an_executed_step_has_an_account_of_its_own_length(factor: float) -> None:
    account = random_steps(1, seed=3)[0].account
    executed = executed_account(account, account.step_s * factor)
    assert sum(line.seconds for line in executed.lines) == pytest.approx(executed.step_s)
    assert executed.source == "executed"
    free, priced = executed.removal(StepCause.NETWORK), account.removal(StepCause.NETWORK)
    assert free is not None and priced is not None and free.step_s == min(priced.step_s, executed.step_s)


@pytest.mark.parametrize("faster", [0.8, 1.2])
def test_shares_of_a_limit_never_exceed_the_executed_step(faster: float) -> None:
    limit = random_steps(1, seed=3)[0].limit.executed(faster)
    assert 0 < limit.then_share <= limit.share and limit.share + limit.then_share <= 1
