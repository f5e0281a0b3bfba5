"""How well the costs of two clusters for one job can be told apart: the part of their errors that they do not share.

A plan's interval is wide because a new team's software and way of counting are not known. Both clusters would run the
same job by the same team, so that part of the error is the same on both. What is left was measured on published runs:
how far log(measured / predicted) of two runs of one model, one precision and one publication lie apart
(`validate.training.pairs`, held by a test).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from syncline.planning.decide.uncertain import Uncertain
from syncline.sim.uncertainty import Z_90

#: Standard deviation of the logarithm of the ratio of two steps, on one GPU and on two: eight of ten pairs lie within
#: 1.28 of them. With experts on one GPU nine of ten ask for more (0.21) than eight do (0.16). All pairs with experts on
#: two GPUs are of one framework (Megatron-Bridge, five releases).
RATIO = {"dense": (0.13, 0.13), "experts": (0.21, 0.35)}
#: Prices that two clusters do not share, unless it is the same host or the same quote.
OWN_PRICES = ("rent", "host_price")


@dataclass(frozen=True)
class Doubt:
    """What one cluster's cost of a token is uncertain by."""

    kind: str  # of the model: dense, experts, layers
    gpu: str
    split: str  # the plan in words, with its step: the same plan has the same error
    step_sigma: float  # of the logarithm, by itself
    prices: Mapping[str, Uncertain]


def doubt(kind: str, gpu: str, split: str, p90: tuple[float, float], prices: list[Uncertain]) -> Doubt:
    """Return a cluster's doubt from the 90 % interval of its step and what its price depends on."""
    return Doubt(kind, gpu, split, math.log(p90[1] / p90[0]) / 2 / Z_90, {price.name: price for price in prices})


def ratio_sigma(a: Doubt, b: Doubt) -> float:
    """Return the standard deviation of the logarithm of the ratio of two costs."""
    return math.hypot(step_sigma(a, b), *_price_sigmas(a, b))


def step_sigma(a: Doubt, b: Doubt) -> float:
    """Return the part of it that the step model makes: nothing where both run the same plan on the same GPU."""
    same = a.gpu == b.gpu
    if same and a.split == b.split:
        return 0.0
    alone = math.hypot(a.step_sigma, b.step_sigma)
    if a.kind not in RATIO:
        return alone
    return min(RATIO[a.kind][0 if same else 1], alone)


def _price_sigmas(a: Doubt, b: Doubt) -> list[float]:
    """Return what each input of the prices adds: an assumption that both share acts on both."""
    found = []
    for name in {*a.prices, *b.prices}:
        one, other = (_slope(each.prices.get(name)) for each in (a, b))
        shared = name not in OWN_PRICES or _same(a.prices.get(name), b.prices.get(name))
        found.append(abs(one - other) if shared else math.hypot(one, other))
    return found


def _slope(price: Uncertain | None) -> float:
    """Return by how much one standard deviation of an input moves the logarithm of the price."""
    return 0.0 if price is None else math.log(float(price.factor(1.0)) / float(price.factor(-1.0))) / 2


def _same(a: Uncertain | None, b: Uncertain | None) -> bool:
    return a is not None and b is not None and (a.words, a.value) == (b.words, b.value)
