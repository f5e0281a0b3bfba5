"""The report of a plan: whole, self-contained, and its numbers are the plan's."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from typing import Any

import pytest

from syncline.fabric import load
from syncline.planning.answer import PlanResult, make_plan
from syncline.planning.sizes import SizePlan, scaling
from syncline.planning.space import USUAL
from syncline.report.page.page import unbroken
from syncline.report.page.plan import between, plan_page
from syncline.sim.step.spans import step_timeline
from syncline.workload.read_job import load_job

VOID = {"meta", "line", "circle", "rect", "path", "polyline", "polygon", "use", "br", "stop", "image", "ellipse"}


class Balance(HTMLParser):
    """Counts tags that are opened and not closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.headings: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag in VOID:
            return
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-1:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "h2":
            self.headings.append(data)


@pytest.fixture(scope="module")
def answer() -> PlanResult:
    job = load_job({"model": "llama3-8b", "batch": {"global": 256, "sequence": 8192}, "gpus": 64, "name": "<b>mine"})
    return make_plan(load("h100-64-rail"), job, objective="pareto")


@pytest.fixture(scope="module")
def curve(answer: PlanResult) -> tuple[SizePlan, ...]:
    return scaling(answer.evaluator, answer.best, USUAL)


@pytest.fixture(scope="module")
def page(answer: PlanResult, curve: tuple[SizePlan, ...]) -> str:
    return plan_page(answer, curve)


def test_every_section_is_there_and_every_tag_closed(page: str) -> None:
    reader = Balance()
    reader.feed(page)
    assert reader.open == []
    assert reader.headings == [
        "What to change first", "One step, as it would run", "Where the time goes", "Memory of the fullest GPU",
        "What is sent, by kind and tier", "More or fewer GPUs", "Cost", "Other ways to split it",
        "How far to trust this",
    ]  # fmt: skip


def test_nothing_is_fetched_and_names_are_escaped(page: str) -> None:
    assert not re.search(r"""(src|href)=["']?(https?:)?//""", page)
    assert "<script" not in page
    assert "@import" not in page
    assert "<b>mine" not in page
    assert "&lt;b&gt;mine" in page


def test_its_numbers_are_the_plans(page: str, answer: PlanResult) -> None:
    predicted = answer.best.predicted
    assert f"{predicted.mfu:.1%}" in page
    assert f"{predicted.tokens_per_s:,.0f}" in page
    assert answer.best.decision.label in page
    assert answer.actions[0].words in page
    for text in answer.report().ignores:
        assert text in page


def test_keys_of_a_job_file_are_code_and_everything_else_is_text() -> None:
    assert unbroken("write `overlap: {tp: true}` <b> by 2027-01-15") == (
        'write <code>overlap: {tp: true}</code> &lt;b&gt; by <span class="whole">2027-01-15</span>'
    )


def test_a_cut_of_a_timeline_stays_inside(answer: PlanResult) -> None:
    timeline = step_timeline(answer.result)
    part = between(timeline, 0.1, 0.2)
    assert len(part.spans) > 0
    assert part.spans.start_s.min() >= timeline.start_s + 0.1
    assert part.spans.end_s.max() <= timeline.start_s + 0.2


def test_one_point_is_no_curve(answer: PlanResult) -> None:
    assert "one number of GPUs only" in plan_page(answer)


def test_it_is_light_enough_for_mail(page: str) -> None:
    assert len(page) < 300_000


def test_the_curve_is_planned_anew(answer: PlanResult, curve: tuple[SizePlan, ...]) -> None:
    assert [p.num_gpus for p in curve] == sorted(p.num_gpus for p in curve)
    here = next(p for p in curve if p.num_gpus == 64)
    assert here.step_time_s == answer.best.predicted.step_time_s
    assert curve[-1].step_time_s < curve[0].step_time_s
