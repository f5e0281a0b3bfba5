"""How far off predictions are, in words."""

from __future__ import annotations

from collections.abc import Iterable
from functools import singledispatch
from typing import Any

from rich.table import Table

from syncline.questions.validate import CollectiveErrors, IntervalErrors, TrainingErrors
from syncline.report.text.collective_errors import collective_errors
from syncline.report.text.coverage import coverage_lines
from syncline.report.text.training import training_lines


@singledispatch
def text(answer: Any, width: int) -> Iterable[str | Table]:
    """Return errors against published measurements."""
    raise TypeError(type(answer))


@text.register
def _collectives(answer: CollectiveErrors, width: int) -> Iterable[str | Table]:
    return collective_errors(answer.to_json())


@text.register
def _training(answer: TrainingErrors, width: int) -> Iterable[str]:
    return training_lines(answer.to_json())


@text.register
def _intervals(answer: IntervalErrors, width: int) -> Iterable[str]:
    return coverage_lines(answer)
