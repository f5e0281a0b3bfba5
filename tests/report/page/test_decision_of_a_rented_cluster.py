"""The pages and lines of a rented cluster with faults: what is shown, and what is not."""

from __future__ import annotations

from syncline.fabric import ClusterSpec, build
from syncline.planning.answer import make_plan
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.fix import read_fix
from syncline.questions.inputs import job_of
from syncline.report.page.decision import decision
from syncline.report.text.plan import plan_lines

CLUSTER = {"hosts": 2, "host": "dgx-h100", "network": "rail-optimized NDR", "faults": [{"device": "host-*/nic-0"}]}
JOB = {"model": "llama3-8b", "batch": {"global": 64, "sequence": 4096}, "tokens": 1e10}


def test_faults_a_fixed_price_and_a_short_run() -> None:
    fabric = build(ClusterSpec.model_validate(CLUSTER))
    fixed, rent = read_fix("tp=8,pp=1,micro=1"), Assumptions(gpu_hour_usd=2.4)
    answer = make_plan(fabric, job_of(JOB), assumptions=rent, workers=1, fix=fixed)
    text = " ".join(" ".join(plan_lines(answer)).split())
    assert "faults 2 NICs down" in text and "taken as fixed" in text and " a year" not in text
    shown = decision(answer)
    assert shown is not None
    assert shown.heads == ["<option", "days", "cost"] and "Bold:" not in shown.note
    assert "given, taken as fixed" in str(shown.confirm)
