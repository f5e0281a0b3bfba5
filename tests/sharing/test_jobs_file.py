"""The file of a shared cluster: which forms of traffic and of jobs it takes, and what it says of the others."""

from __future__ import annotations

from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.sharing.jobs_file import load_jobs

STEP = {"compute": "60ms", "exchange": "125MB"}


def _file(traffic: dict[str, Any]) -> dict[str, Any]:
    return {"jobs": [{"name": "a", "step": STEP, "hosts": 2}], "traffic": [{"from": "0", "to": "1"} | traffic]}


@pytest.mark.parametrize(
    ("traffic", "rate", "size", "every"),
    [({"rate": "1GB/s"}, 1e9, None, None), ({"size": "2MB", "every": "3s"}, None, 2e6, 3.0)],
)
def test_traffic_is_steady_or_comes_in_bursts(
    traffic: dict[str, str], rate: float | None, size: float | None, every: float | None
) -> None:
    (one,) = load_jobs(_file(traffic)).traffic
    assert (one.rate, one.size, one.every) == (rate, size, every)


@pytest.mark.parametrize(
    "traffic",
    [
        {},
        {"every": "3s"},
        {"size": "2MB"},
        {"rate": "1GB/s", "size": "2MB"},
        {"rate": "1GB/s", "every": "3s"},
        {"rate": "1GB/s", "size": "2MB", "every": "3s"},
    ],
    ids=lambda traffic: "+".join(traffic) or "nothing",
)
def test_every_other_form_of_traffic_is_refused(traffic: dict[str, str]) -> None:
    with pytest.raises(DescriptionError, match="traffic has either a `rate`, or a `size` and how often"):
        load_jobs(_file(traffic))


def test_bursts_need_time_between_them() -> None:
    with pytest.raises(DescriptionError, match="`every` must be longer than 0 s"):
        load_jobs(_file({"size": "2MB", "every": "0s"}))


@pytest.mark.parametrize(
    ("job", "words"),
    [
        ({}, "needs either `job` or `step`"),
        ({"step": STEP, "job": "llama3-8b"}, "needs either `job` or `step`"),
        ({"step": STEP, "arrives": "5s", "leaves": "5s"}, "leaves before it arrives"),
        ({"step": STEP, "hosts": 0}, "needs a host at least"),
    ],
)
def test_a_job_that_contradicts_itself_is_refused(job: dict[str, Any], words: str) -> None:
    with pytest.raises(DescriptionError, match=words):
        load_jobs({"jobs": [{"name": "a", "hosts": 2} | job]})


def test_guarantees_are_at_most_a_whole_link() -> None:
    jobs = [{"name": "a", "step": STEP, "hosts": 2}]
    assert load_jobs({"jobs": jobs, "tenants": {"x": 0.4, "y": 0.6}}).tenants == {"x": 0.4, "y": 0.6}
    with pytest.raises(DescriptionError, match=r"guarantees add up to 1\.10 of a link; at most 1"):
        load_jobs({"jobs": jobs, "tenants": {"x": 0.5, "y": 0.6}})
