"""The intervals that every prediction prints: how often they hold, and what widens or narrows them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest

from syncline.describe.guide import read_page
from syncline.questions.validate import WIDTHS, intervals
from syncline.sim.uncertainty import (
    ASSUMED,
    StepFacets,
    collective_spread,
    memory_spread,
    serve_spread,
    step_spread,
)

#: Too few to be held to 85 to 95 %: 18 peaks of one publication, 20 prices of six sellers, eight systems over TCP, 77
#: runs with experts of which another size was measured.
SMALL = ("memory", "price", "serve, default", "collective, cards without NVLink", "collective, up to 64 hosts over TCP",
         "step, experts, after the same job")  # fmt: skip


@pytest.fixture(scope="module")
def groups() -> dict[str, Any]:
    return intervals().to_json()["groups"]  # type: ignore[return-value]


def test_ninety_percent_intervals_hold_in_85_to_95_percent_of_what_was_kept_out(groups: dict[str, Any]) -> None:
    assert set(groups) >= {"step, dense", "step, experts", "collective, up to 64 hosts"}
    for name, group in groups.items():
        if name not in SMALL:
            assert group["rows"] >= 200, name
            assert 0.85 <= group["in_90"] <= 0.95, (name, group)
            assert 0.40 <= group["in_50"] <= 0.70, (name, group)


@pytest.mark.parametrize("reach", ["one", "few", "sockets", "many"])
@pytest.mark.parametrize("op", ["all_reduce", "alltoall"])
def test_no_size_is_much_less_sure_than_its_double(reach: str, op: str) -> None:
    wide = [collective_spread(False, reach, op, "Hopper", 16, 2.0**power) for power in range(3, 36)]
    widths = [math.log(one.high_90 / one.low_90) for one in wide]
    assert all(abs(math.log(a / b)) < 0.15 for a, b in itertools.pairwise(widths)), widths
    just = [collective_spread(False, reach, op, "Hopper", 16, size).high_90 for size in (2**28 - 1, 2**28)]
    assert just[0] == pytest.approx(just[1], rel=1e-6)


def test_what_nobody_measured_is_wider_and_says_so() -> None:
    known = step_spread(StepFacets("dense", "plain", "Hopper", "bf16", 512))
    assumed = step_spread(StepFacets("dense", "plain", ASSUMED, "bf16", 512))
    layers = step_spread(StepFacets("layers", "plain", "Hopper", "bf16", 512))
    huge = step_spread(StepFacets("dense", "plain", "Hopper", "bf16", 131_072))
    assert "what this part sustains is assumed" in assumed.basis and _width(assumed) > _width(known)
    assert "was ever measured" in layers.basis and _width(layers) > _width(known)
    assert "nothing larger than" in huge.basis and _width(huge) > _width(
        step_spread(StepFacets("dense", "plain", "Hopper", "bf16", 16_384))
    )
    assert not memory_spread("megatron").unmeasured and not memory_spread("pytorch").unmeasured
    assert memory_spread("deepspeed").unmeasured and serve_spread("rate", "dense", "other", True).unmeasured


def _width(spread: object) -> float:
    return math.log(getattr(spread, "high_90") / getattr(spread, "low_90"))  # noqa: B009


@pytest.mark.parametrize("kind", ["dense", "experts"])
@pytest.mark.parametrize("generation", ["Ampere", "Hopper", "Blackwell"])
@pytest.mark.parametrize("num_gpus", [32, 256, 2048])
def test_saying_more_of_a_job_does_not_cost_width(kind: str, generation: str, num_gpus: int) -> None:
    plain, described = (step_spread(StepFacets(kind, s, generation, "bf16", num_gpus)) for s in ("plain", "described"))
    assert _width(described) < 1.1 * _width(plain)


def test_the_answer_prints_rows_shares_and_widths() -> None:
    text = str(intervals())
    assert "in 90 %" in text and "step, dense" in text and "constants that never saw them" in text
    assert "width" in text and "wanted" in text


def test_widths_are_judged_where_coverage_is() -> None:
    """Blind sets in turn. Experts and collectives of several hosts are wider than wanted, and may not get worse."""
    found = intervals().unseen
    assert found["step, experts"].width <= 3.3 and found["step, experts"].in_90 >= 0.9
    assert round(found["step, dense"].width, 1) <= WIDTHS["step, dense"] and found["step, dense"].in_90 >= 0.9
    assert found["collective, few"].width <= 2.9 and found["collective, few"].in_90 >= 0.9


def test_the_page_has_the_figures_that_are_printed(groups: dict[str, Any]) -> None:
    page = read_page("method/accuracy").replace("| 100 % |", "| 100.0 % |")
    for name, group in groups.items():
        shares = f"{100 * group['in_90']:.1f} % | {100 * group['in_50']:.1f} %"
        error = f"{100 * group['median_error']:.1f} / {100 * group['p90_error']:.0f}"
        assert f"| {group['rows']:,} | {group['publications']} | {shares} | {error} |" in page, name


def test_serving_knows_engines_and_defaults_are_less_sure() -> None:
    tuned, plain = (serve_spread("rate", "experts", "vllm", one) for one in (True, False))
    assert "vLLM" in tuned.basis and "defaults" in plain.basis and _width(plain) > _width(tuned)
    times = serve_spread("token", "experts", "vllm", False)
    assert times.high_90 == pytest.approx(1 / plain.low_90) and times.low_50 == pytest.approx(1 / plain.high_50)
