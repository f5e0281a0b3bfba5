"""Intervals hold: on publications that no constant was fitted to, judged by intervals made without them."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from research.intervals.first import RECENT, FirstScore, blind, in_turn
from research.intervals.intervals import crossed, figures, judged, make_table
from research.intervals.residuals import (
    Residual,
    all_residuals,
    parts,
    stripped,
)
from research.intervals.tables import UNCERTAINTY, uncertainty

from syncline.describe.plain import plain
from syncline.sim.uncertainty import StepFacets, spread_in
from syncline.workload.read_job import load_job

#: Too few to be held to 85 to 95 %: 18 peaks of one publication, 20 prices of six sellers, 73 rows of 20 systems.
SMALL = ("memory", "price", "serve", "collective, cards without NVLink", "collective, up to 64 hosts over TCP")
AGAIN = "the model has moved: run `python -m research.intervals.tables --write`"


@pytest.fixture(scope="module")
def rows() -> list[Residual]:
    return list(all_residuals())


@pytest.fixture(scope="module")
def groups(rows: list[Residual]) -> dict[str, Any]:
    return {name: plain(group) for name, group in crossed(rows).items()}


def test_parts_are_by_publication_and_all_are_dealt(rows: list[Residual]) -> None:
    assert set(parts().values()) == {0, 1, 2}
    dealt = {(row.publication, row.part) for row in rows}
    assert len(dealt) == len({row.publication for row in rows}) and {part for _, part in dealt} == {0, 1, 2}


def _row(publication: str, residual: float, kind: str = "dense") -> Residual:
    facets = StepFacets(kind, "plain", "Hopper", "bf16", 64).as_dict()
    return Residual("step", publication, facets, 64, residual, "x.csv:2")


def _width(rows: list[Residual], facets: StepFacets) -> float:
    found = spread_in(plain(make_table(rows))["step"], "step", facets.as_dict(), 64)
    return math.log(found.high_90 / found.low_90)


def test_intervals_are_as_wide_as_the_residuals() -> None:
    dense = StepFacets("dense", "plain", "Hopper", "bf16", 64)

    def drawn(reach: float) -> list[Residual]:
        return [_row(f"p{n % 60}", float(e)) for n, e in enumerate(np.random.default_rng(1).laplace(0, reach, 600))]

    tight, loose = (_width(drawn(reach), dense) for reach in (0.02, 0.2))
    # nine tenths of exponential errors lie within ln 10 times their mean, on either side
    assert tight == pytest.approx(2 * 0.02 * math.log(10), rel=0.35) and loose == pytest.approx(10 * tight, rel=0.1)


def test_an_effect_is_found_and_drawn_to_none_where_few_publications_speak() -> None:
    errors = np.random.default_rng(2).laplace(0, 0.05, 600)

    def with_experts(num_sources: int) -> float:
        dense = [_row(f"p{n % 60}", float(error)) for n, error in enumerate(errors)]
        experts = [_row(f"e{n % num_sources}", 4 * float(error), "experts") for n, error in enumerate(errors)]
        known, other = (StepFacets(kind, "plain", "Hopper", "bf16", 64) for kind in ("dense", "experts"))
        return _width([*dense, *experts], other) / _width([*dense, *experts], known)

    assert 1 < with_experts(1) < with_experts(60) < 4.5 and with_experts(60) > 2.5


def test_a_stripped_job_states_no_software_but_its_date() -> None:
    job = load_job({"model": "llama2-7b", "batch": {"global": 64}, "attention": "fa2", "compiled": True,
                    "software": {"framework": "pytorch", "year": 2023}})  # fmt: skip
    bare, kept = stripped(job, software=False), stripped(job, software=True)
    assert (bare.software.framework, bare.software.year) == ("auto", 2023) and kept.software == job.software
    assert bare.attention == kept.attention == "auto" and bare.compiled is None


def _first(number: int, publication: str, residual: float, *, fault: bool = False) -> FirstScore:
    return FirstScore(number, fault, replace(_row(publication, residual), blind_set=6))


def test_recent_sources_count_as_they_were_first_scored_and_faults_do_not_count() -> None:
    known = [replace(_row(f"p{n}", 0.02 * (n % 3 - 1)), line=f"x.csv:{n}", blind_set=12) for n in range(36)]
    new = FirstScore(12, False, replace(known[3], residual=0.5))
    broken = FirstScore(12, True, replace(known[4], residual=3.0))
    old = FirstScore(12 - RECENT, False, replace(known[5], residual=0.5))
    found = {row.line: row.residual for row in blind(known, [new, broken, old])}
    assert found["x.csv:3"] == 0.5 and "x.csv:4" not in found and found["x.csv:5"] == known[5].residual
    measured = replace(known[3], facets={**known[3].facets, "stated": "calibrated"})
    assert blind([known[3], measured], [new])[1].residual == measured.residual, "a measured run is no new source"


def test_intervals_hold_on_blind_sets_by_what_was_known_before_them() -> None:
    found = plain(in_turn())
    for name, group in found.items():
        assert group["in_90"] >= (0.6 if name == "collective, sockets" else 0.8), (name, group)
    assert found["step, experts"]["in_90"] >= 0.88 and found["step, experts"]["width"] <= 3.3, found
    assert found["step, dense"]["in_90"] >= 0.88 and found["step, dense"]["width"] <= 2.2, found
    assert found["collective, few"]["in_90"] >= 0.9 and found["collective, few"]["width"] <= 2.9, found


def test_what_was_never_measured_is_held_by_what_was(rows: list[Residual]) -> None:
    """Every row of one part, kind of model or engine taken away: the intervals made of the rest hold it."""
    for subject, facet, value in (("step", "generation", "Volta"), ("step", "precision", "8"),
                                  ("collective", "generation", "Blackwell"), ("serve", "engine", "vllm")):  # fmt: skip
        mine = [row for row in rows if row.subject == subject]
        table = plain(make_table([row for row in mine if row.facets[facet] != value]))
        found = figures([(row, judged(row, table)) for row in mine if row.facets[facet] == value])
        assert found["in_90"] >= 0.88, (value, found)  # type: ignore[operator]


def test_the_tables_of_the_package_are_what_their_making_gives() -> None:
    assert UNCERTAINTY.read_text(encoding="utf-8") == uncertainty(), AGAIN
