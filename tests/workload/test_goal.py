"""What a job is for: read, and refused in plain words."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest

from syncline.errors import DescriptionError
from syncline.workload.goal import Goal
from syncline.workload.read_job import load_job

BASE = {"model": "llama3-8b", "batch": {"global": 512}}


@pytest.mark.parametrize(
    ("text", "days"), [("60 days", 60), ("8 weeks", 56), ("36 hours", 1.5), ("2 months", 60.875), ("1 year", 365.25)]
)
def test_deadlines_as_people_write_them(text: str, days: float) -> None:
    job = load_job(BASE | {"tokens": "15T", "deadline": text, "budget": "$30M", "start": "2027-01-15"})
    assert (job.tokens, job.budget) == (15e12, 30e6)
    assert job.days_allowed == pytest.approx(days)


def test_a_deadline_may_be_a_date() -> None:
    job = load_job(BASE | {"tokens": 1e12, "start": date(2027, 1, 15), "deadline": date(2027, 3, 16)})
    assert (job.days_allowed, job.last_day) == (61.0, date(2027, 3, 16))  # the evening of that day is in time
    assert (job.day_after(0.3), job.day_after(60.2)) == (date(2027, 1, 15), date(2027, 3, 16))
    assert load_job(BASE).days_allowed is None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"tokens": "15X"}, 'cannot read number "15X". Write it as "15T"'),
        ({"tokens": 1e12, "deadline": "soon"}, '"soon" is not a date; write `deadline: 2027-01-15`, or `60 days`'),
        ({"deadline": "60 days"}, "`deadline` needs `tokens`"),
        ({"tokens": 1e12, "deadline": "2027-03-16"}, "is a date, so `start: 2027-01-15` must say when it begins"),
        ({"tokens": 1e12, "start": "2027-03-16", "deadline": "2027-03-15"}, "is before the start"),
        ({"tokens": -1}, "must be above 0"),
    ],
)
def test_what_is_wrong_is_said(given: dict[str, Any], words: str) -> None:
    with pytest.raises(DescriptionError) as caught:
        load_job(BASE | given)
    assert words in caught.value.message


def test_lora_is_told_its_key() -> None:
    with pytest.raises(DescriptionError) as caught:
        load_job(BASE | {"lora": 16})
    assert "LoRA is `frozen: true`" in str(caught.value.hint)


def test_a_start_that_is_past_is_told() -> None:
    today = date(2026, 11, 16)
    assert "2025-11-16 is 365 days past" in Goal(tokens=1e12, start="2025-11-16").began(today)
    assert "is 1 day past" in Goal(tokens=1e12, start="2026-11-15").began(today)
    assert Goal(tokens=1e12, start="2026-11-16").began(today) == "" == Goal(tokens=1e12).began(today)
