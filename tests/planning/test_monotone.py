"""More memory, network or arithmetic never makes the best plan slower; a dearer host never a token cheaper."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from syncline.fabric import load
from syncline.planning.answer import ask
from syncline.planning.block import PlanQuestion
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.money import money_of
from syncline.planning.named_job import named_job
from syncline.planning.search import search
from syncline.planning.space import Axes

FABRIC = load("h100-64-rail")
LEAN = Axes(zero=("1",), schedule=("1f1b",), recompute=("none", "full"))


def question() -> PlanQuestion:
    job = named_job("llama3-70b")
    small = job.model_copy(update={"gpus": 64, "batch": job.batch.model_copy(update={"global_": 128})})
    return ask(FABRIC, small)[0]


def best_s(asked: PlanQuestion) -> float:
    found = search(asked, 64, axes=LEAN, keep=1).best
    return found[0].step_s if found else float("inf")


@settings(max_examples=6, deadline=None)
@given(
    what=st.sampled_from(["memory", "network", "oversubscription", "rate"]),
    low=st.floats(0.6, 1.0),
    more=st.floats(1.05, 3.0),
)
def test_more_of_anything_is_never_slower(what: str, low: float, more: float) -> None:
    def at(share: float) -> PlanQuestion:
        asked = question()
        machine, reach = asked.machine, asked.reach
        if what == "memory":
            size = int(machine.gpu.memory_bytes * share)
            machine = replace(machine, gpu=machine.gpu.model_copy(update={"memory_bytes": size}))
        elif what == "network":
            machine = replace(machine, nic_Bps=machine.nic_Bps * share)
        elif what == "oversubscription":
            reach = replace(reach, rack_gpus=32, rack_Bps=machine.nic_Bps * 32 * share / 4)
        else:
            machine = replace(machine, sustained={name: rate * share for name, rate in machine.sustained.items()})
        return replace(asked, machine=machine, reach=reach)

    assert best_s(at(low * more)) <= best_s(at(low)) * (1 + 1e-9)


@settings(max_examples=10, deadline=None)
@given(cheap=st.floats(10e3, 5e5), more=st.floats(1.0, 5.0))
def test_a_dearer_host_never_makes_a_token_cheaper(cheap: float, more: float) -> None:
    prices = []
    for usd in (cheap, cheap * more):
        money, _ = money_of(FABRIC, named_job("llama3-70b"), Assumptions(host_price_usd=usd), None)
        assert money is not None
        prices.append(money.cost(10.0, 10**6, 512).cost_per_token_usd)
    assert prices[0] <= prices[1]
