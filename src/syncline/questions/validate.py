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

SUBJECTS = ("collectives", "training", "intervals")


@dataclass(frozen=True, eq=False)
class CollectiveErrors(Answer):
    """Errors of predicted collectives by system and size band."""

    schema_name: ClassVar[str] = "validate-collectives"

    validation: Validation = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.validation.to_json()


@dataclass(frozen=True, eq=False)
class TrainingErrors(Answer):
    """Errors of predicted training steps by source."""

    schema_name: ClassVar[str] = "validate-training"

    validation: TrainingValidation = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.validation.to_json()


@dataclass(frozen=True, eq=False)
class IntervalErrors(Answer):
    """How many published measurements lie inside intervals that were made without them, by group."""

    schema_name: ClassVar[str] = "validate-intervals"

    coverage: Mapping[str, JsonObject]
    num_residuals: int
    #: Rows of the later blind sets, as they were first scored, in intervals made from what was known before them.
    unseen: Mapping[str, JsonObject] = field(default_factory=dict)

    def to_json(self) -> JsonObject:
        return {
            "judged": "each third of the publications by intervals made from the other two, predicted by constants "
            "that never saw them",
            "residuals": self.num_residuals, "groups": dict(self.coverage), "unseen": dict(self.unseen),
        }  # fmt: skip


def intervals() -> IntervalErrors:
    """Return how often intervals hold, as `research/intervals` last computed it from every published row."""
    kept = own_data("validate", "data/coverage.yaml")
    return IntervalErrors(kept["groups"], kept["residuals"], kept["unseen"])


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
