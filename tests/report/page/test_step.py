"""The page and the text of a step: whole, self-contained, and true to the numbers."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from syncline.fabric import build, load
from syncline.fabric.spec import ClusterSpec
from syncline.report.page.step import step_page, timeline_svg
from syncline.report.text.step import split_words, step_lines
from syncline.sim.step import step
from syncline.sim.step.spans import step_timeline
from syncline.workload.read_job import load_job

FABRIC = load("h100-64-rail")


def result(**fields: Any):
    base = {"model": "llama3-70b", "parallel": {"tp": 8, "pp": 8}, "batch": {"global": 128, "sequence": 8192}}
    return step(FABRIC, load_job({**base, **fields}))


def test_the_page_draws_every_stage_and_loads_nothing() -> None:
    one = result()
    page = step_page(one.to_json(), step_timeline(one))
    assert all(f"stage {i}<" in page for i in range(8))
    assert not re.search(r"(src|href)=", page)
    assert page.count("<rect") == len(step_timeline(one).spans)


def test_text_of_names_cannot_break_the_page() -> None:
    one = result(name="<script>alert(1)</script>")
    assert "<script>" not in step_page(one.to_json(), step_timeline(one))


def test_long_timelines_are_thinned() -> None:
    one = result(batch={"global": 4096, "micro": 1, "sequence": 8192})
    assert len(step_timeline(one).spans) > 6000
    drawn = [float(x) for x in re.findall(r'<rect x="([\d.]+)"', timeline_svg(step_timeline(one)))]
    assert 4000 < len(drawn) <= 6000
    assert max(np.diff(sorted(drawn))) < 3  # nowhere in the picture is a part without spans


def test_the_page_says_what_colours_mean() -> None:
    one = result()
    page = step_page(one.to_json(), step_timeline(one))
    assert "</span>tensor-parallel exchange " in page and "</span>pipeline bubble " in page
    assert all(f"</span>{name}</i>" in page for name in step_timeline(one).names)


def test_shares_in_the_text_add_up() -> None:
    lines = step_lines(result().to_json())
    shares = [float(found.group(1)) for line in lines if (found := re.match(r"    \w.*?([\d.]+)%$", line))]
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
    assert split_words(result(parallel=parallel, gpus=gpus).to_json()["parallel"]) == words


def test_the_slowest_kind_of_host_sets_the_pace() -> None:
    groups = [{"count": 2, "host": "dgx-h100"}, {"count": 2, "host": "dgx-a100"}]
    mixed = build(ClusterSpec.model_validate({"hosts": groups, "network": "fat-tree HDR"}))
    fields = {"model": "llama3-8b", "parallel": {"tp": 8}, "batch": {"global": 32, "sequence": 4096}}
    assert step(mixed, load_job(fields)).machine.gpu.name == "A100-SXM4-80GB"
