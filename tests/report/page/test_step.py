"""The page and the text of a step: whole, self-contained, and true to the numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from syncline.fabric import build, load
from syncline.fabric.spec import ClusterSpec
from syncline.questions.step import prediction
from syncline.report.chart.lanes import timeline_lanes
from syncline.report.rendered import page as step_page
from syncline.report.text.step import split_words, step_lines
from syncline.sim.step.spans import step_timeline
from syncline.sim.step.step import step
from syncline.timeline import SpanKind
from syncline.workload.read_job import load_job

FABRIC = load("h100-64-rail")


def result(**fields: Any):
    base = {"model": "llama3-70b", "parallel": {"tp": 8, "pp": 8}, "batch": {"global": 128, "sequence": 8192}}
    return step(FABRIC, load_job({**base, **fields}))


def drawn(svg: str) -> list[tuple[float, float, float]]:
    """Return left edge, width and height of every span of a drawing."""
    spans = []
    for path, tall in re.findall(r'<path d="([^"]+)" stroke="[^"]+" stroke-width="([\d.]+)">', svg):
        start, *moves = path.removeprefix("M").split("m")
        at = float(start.split(" ")[0])
        for move in moves:
            across, wide = (float(number) for number in move.split(" 0h"))
            spans.append((at + across, wide, float(tall)))
            at += across + wide
    return spans


def test_the_page_draws_every_stage_and_loads_nothing() -> None:
    one = result()
    page = step_page(prediction(FABRIC, one))
    assert all(f"stage {i}<" in page for i in range(8))
    assert not re.search(r"(src|href)=", page)
    spans = step_timeline(one).spans
    assert len(drawn(page)) == len(spans)
    assert sum(tall == 11 for *_, tall in drawn(page)) == int((spans.kind == SpanKind.COMPUTE).sum())


def test_spans_are_where_and_as_long_as_the_timeline_has_them() -> None:
    timeline = step_timeline(result())
    spans, scale = timeline.spans, 770 / timeline.makespan_s
    expected = sorted(150 + (spans.start_s - timeline.start_s) * scale)
    assert sorted(left for left, *_ in drawn(timeline_lanes(timeline))) == pytest.approx(expected, abs=0.2)
    widths = sorted(wide for _, wide, _ in drawn(timeline_lanes(timeline)))
    assert widths == pytest.approx(sorted(np.maximum((spans.end_s - spans.start_s) * scale, 0.4)), abs=0.2)


def test_text_of_names_cannot_break_the_page() -> None:
    one = result(name="<script>alert(1)</script>")
    assert "<script>" not in step_page(prediction(FABRIC, one))


def test_long_timelines_are_thinned_and_small() -> None:
    timeline = step_timeline(result(batch={"global": 4096, "micro": 1, "sequence": 8192}))
    assert len(timeline.spans) > 6000
    svg = timeline_lanes(timeline)
    lefts = sorted(left for left, *_ in drawn(svg))
    assert 4000 < len(lefts) <= 6000
    assert max(np.diff(lefts)) < 3  # nowhere in the picture is a part without spans
    assert len(svg) < 20 * len(lefts)  # alike spans share an element


def test_the_page_says_what_colours_mean() -> None:
    one = result()
    page = step_page(prediction(FABRIC, one)).replace("\u200b", "")
    assert "</i>tensor-parallel exchange " in page and "</i>pipeline bubble " in page
    assert all(f"</i>{name}</li>" in page for name in step_timeline(one).names)


def test_shares_in_the_text_add_up() -> None:
    lines = step_lines(prediction(FABRIC, result()))
    shares = [float(found.group(1)) for line in lines if (found := re.match(r"    \w.*?([\d.]+)%(?:  \(|$)", line))]
    assert sum(shares) == pytest.approx(100, abs=0.6)


@pytest.mark.parametrize(
    ("parallel", "words"),
    [
        ({"tp": 8, "pp": 8}, "tp 8 x pp 8 x dp 8, ZeRO 1, 1f1b, 16 micro-batches"),
        ({"zero": "fsdp"}, "dp 128, FSDP, 1 micro-batch"),
    ],
)
def test_a_split_in_one_line(parallel: dict[str, Any], words: str) -> None:
    gpus = 512 if "tp" in parallel else 128
    assert split_words(prediction(FABRIC, result(parallel=parallel, gpus=gpus)).parallel) == words


def test_the_slowest_kind_of_host_sets_the_pace() -> None:
    groups = [{"count": 2, "host": "dgx-h100"}, {"count": 2, "host": "dgx-a100"}]
    mixed = build(ClusterSpec.model_validate({"hosts": groups, "network": "fat-tree HDR"}))
    fields = {"model": "llama3-8b", "parallel": {"tp": 8}, "batch": {"global": 32, "sequence": 4096}}
    assert step(mixed, load_job(fields)).machine.gpu.name == "A100-SXM4-80GB"
