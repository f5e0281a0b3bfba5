"""How far are predictions from published measurements?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from syncline.describe.own_data import own_data
from syncline.describe.plain import JsonObject
from syncline.questions.answer import Answer
from syncline.validate.collectives import Validation, validate_collectives
from syncline.validate.training import TrainingValidation, validate_training


@dataclass(frozen=True)
class GroupCoverage:
    """How many rows of a group lie inside their intervals, and how far off their predictions are."""

    rows: int
    publications: int
    in_90: float
    in_50: float
    by_part: Mapping[str, float]
    median_error: float
    p90_error: float


@dataclass(frozen=True)
class UnseenCoverage:
    """The same of blind sets, with and without what the sets before them add to an interval."""

    rows: int
    publications: int
    in_90: float
    in_50: float
    in_90_without: float
    factor: float
    factor_without: float


SUBJECTS = ("collectives", "training", "intervals")


@dataclass(frozen=True, eq=False)
class CollectiveErrors(Answer):
    """Errors of predicted collectives by system and size band."""

    schema_name: ClassVar[str] = "validate-collectives"

    validation: Validation = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.validation.to_json()


@dataclass(frozen=True)
class TrainingErrors(Answer):
    """Errors of predicted training steps by source."""

    schema_name: ClassVar[str] = "validate-training"
    content: ClassVar[str] = "validation"

    validation: TrainingValidation


@dataclass(frozen=True)
class IntervalErrors(Answer):
    """How many published measurements lie inside intervals that were made without them, by group."""

    schema_name: ClassVar[str] = "validate-intervals"

    residuals: int
    groups: Mapping[str, GroupCoverage]
    #: Rows of the later blind sets, as they were first scored, in intervals made from what was known before them.
    unseen: Mapping[str, UnseenCoverage]
    judged: str = (
        "each third of the publications by intervals made from the other two, predicted by constants "
        "that never saw them"
    )


def intervals() -> IntervalErrors:
    """Return how often intervals hold, as `research/intervals` last computed it from every published row."""
    kept = own_data("validate", "data/coverage.yaml")
    groups = {name: GroupCoverage(**row) for name, row in kept["groups"].items()}
    return IntervalErrors(
        kept["residuals"], groups, {name: UnseenCoverage(**row) for name, row in kept["unseen"].items()}
    )


def validate(
    subject: str, data: str | Path | None = None, systems: str | Path | None = None
) -> CollectiveErrors | TrainingErrors | IntervalErrors:
    """Predict every row of a file of published measurements ("collectives" or "training") and say how far off it is.

    "intervals" says how many of all of them lie inside intervals that were made without them.
    """
    from syncline.errors import UsageError

    if subject not in SUBJECTS:
        raise UsageError(f'nothing is published here about "{subject}".', hint=f"One of: {', '.join(SUBJECTS)}.")
    rows, described = (Path(path) if path else None for path in (data, systems))
    if subject == "intervals":
        return intervals()
    if subject == "collectives":
        return CollectiveErrors(validate_collectives(rows, described))
    return TrainingErrors(validate_training(rows, described))
