"""What a job is for: how many tokens, by when, for how much money.

    tokens: 15T
    start: 2027-01-15
    deadline: 60 days          # or a date
    budget: $30M

A job without them is planned for speed alone.
"""

from __future__ import annotations

import math
import re
from datetime import date, timedelta
from typing import Any

from pydantic import Field, field_validator, model_validator

from syncline.describe import units
from syncline.describe.quantity import Strict
from syncline.errors import UnitError

_DAYS = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*(hours?|h|days?|d|weeks?|w|months?|years?)\s*\Z")
_DAYS_PER = {"h": 1 / 24, "d": 1.0, "w": 7.0, "m": 365.25 / 12, "y": 365.25}


class Goal(Strict):
    """Tokens, start, deadline and budget; each may be left out."""

    tokens: float | None = Field(default=None, gt=0, le=1e18, description="tokens to train on: 15T")
    start: str | None = Field(default=None, description="first day of the run: 2027-01-15")
    deadline: str | None = Field(default=None, description="`60 days` from the start, or a date")
    budget: float | None = Field(default=None, gt=0, le=1e15, description="dollars for the whole run: $30M")

    @field_validator("tokens", "budget", mode="before")
    @classmethod
    def _counted(cls, value: Any) -> Any:
        return _plain(units.count, value) if isinstance(value, str) else value

    @field_validator("start", "deadline", mode="before")
    @classmethod
    def _as_text(cls, value: Any) -> Any:
        return value.isoformat() if isinstance(value, date) else value

    @field_validator("start")
    @classmethod
    def _a_day(cls, value: str | None) -> str | None:
        return value if value is None else _day("start", value).isoformat()

    @field_validator("deadline")
    @classmethod
    def _a_time(cls, value: str | None) -> str | None:
        if value is not None and not _DAYS.match(value):
            _day("deadline", value)
        return value

    @model_validator(mode="after")
    def _in_order(self) -> Goal:
        asked = [name for name in ("start", "deadline", "budget") if getattr(self, name) is not None]
        if asked and self.tokens is None:
            raise ValueError(f"`{asked[0]}` needs `tokens`: without them the end of the run is unknown")
        if self.deadline is None or _DAYS.match(self.deadline):
            return self
        if self.start is None:
            raise ValueError(f"the deadline {self.deadline} is a date, so `start: 2027-01-15` must say when it begins")
        if _day("deadline", self.deadline) < _day("start", self.start):
            raise ValueError(f"the deadline {self.deadline} is before the start {self.start}")
        return self

    @property
    def first_day(self) -> date | None:
        return date.fromisoformat(self.start) if self.start else None

    def began(self, today: date) -> str:
        """Return a note about a start in the past; empty where it is to come or not given."""
        if self.first_day is None or self.first_day >= today:
            return ""
        ago = (today - self.first_day).days
        return f"the start {self.start} is {ago:,} day{'s' * (ago != 1)} past: dates are of a run that began then"

    @property
    def days_allowed(self) -> float | None:
        """Days from the morning of the start to the evening of the deadline; None: there is no deadline."""
        if self.deadline is None:
            return None
        match = _DAYS.match(self.deadline)
        if match:
            return float(match.group(1)) * _DAYS_PER[match.group(2)[0]]
        assert self.first_day is not None
        return float((date.fromisoformat(self.deadline) - self.first_day).days + 1)

    @property
    def last_day(self) -> date | None:
        """The deadline as a date; None where there is none or the start is not given."""
        return None if self.days_allowed is None else self.day_after(self.days_allowed)

    def day_after(self, days: float) -> date | None:
        """Return the day on which a run of so many days ends: the start itself for one that takes a day or less."""
        first = self.first_day
        return None if first is None else first + timedelta(days=max(math.ceil(days - 1e-9), 1) - 1)


def _day(name: str, value: str) -> date:
    try:
        return date.fromisoformat(value.strip())
    except ValueError:
        also = ", or `60 days`" if name == "deadline" else ""
        raise ValueError(f'"{value}" is not a date; write `{name}: 2027-01-15`{also}') from None


def _plain(read: Any, value: str) -> float:
    try:
        return float(read(value))
    except UnitError as error:
        raise ValueError(f"{error.message} {error.hint}") from None
