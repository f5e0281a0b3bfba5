"""How far are predictions from published measurements?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar

from syncline.describe.own_data import own_data
from syncline.errors import UsageError
from syncline.questions.answer import Answer, Parameter, question
from syncline.validation.collectives import CollectiveFigures, Validation, validate_collectives
from syncline.validation.training import TrainingValidation, validate_training


@dataclass(frozen=True)
class GroupCoverage:
    """How many rows of a group lie inside their intervals, and how far off their predictions are."""

    rows: int
    publications: int
    in_90: float
    in_50: float
    by_part: Mapping[str, float]
    width: float
    """The high end of a 90 % interval over its low end: the median over the rows."""
    median_error: float
    p90_error: float


@dataclass(frozen=True)
class UnseenCoverage:
    """The same of blind sets, each in intervals made from what was known before it."""

    rows: int
    publications: int
    in_90: float
    in_50: float
    width: float
    median_error: float
    p90_error: float


#: How wide a 90 % interval may be where its coverage is judged: high end over low end.
WIDTHS: Mapping[str, float] = {
    "step, dense": 2.2, "step, experts": 3.0, "collective, few": 2.5, "step, dense, after the same job": 1.3,
    "step, experts, after the same job": 1.6, "collective, calibrated by a measurement": 1.4,
}  # fmt: skip


SUBJECTS = ("collectives", "training", "intervals")


@dataclass(frozen=True)
class CollectiveErrors(Answer):
    """Errors of predicted collectives by system and size band."""

    schema_name: ClassVar[str] = "validate-collectives"
    content: ClassVar[str] = "figures"

    validation: Validation = field(repr=False)

    @property
    def figures(self) -> CollectiveFigures:
        """What `--json` prints."""
        return self.validation.errors


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


@question("syncline validate intervals", "syncline validate intervals --json")
def intervals() -> IntervalErrors:
    """Count how often the printed intervals hold: the share of published measurements inside the 50 and 90 % intervals.

    Publications are dealt into three parts; each is judged by intervals made from the other two, and predicted by
    constants that never saw it. `research/intervals` computes the table from every published row.
    """
    kept = own_data("validation", "data/coverage.yaml")
    groups = {name: GroupCoverage(**row) for name, row in kept["groups"].items()}
    return IntervalErrors(
        kept["residuals"], groups, {name: UnseenCoverage(**row) for name, row in kept["unseen"].items()}
    )


DataOption = Annotated[Path | None, Parameter("CSV of measured rows; default: the published rows that ship.")]
SystemsOption = Annotated[Path | None, Parameter("YAML that maps the system column to cluster descriptions.")]


@question("syncline validate collectives", "syncline validate collectives --data mine.csv --systems mine.yaml --json")
def collectives(*, data: DataOption = None, systems: SystemsOption = None) -> CollectiveErrors:
    """Score predictions against nccl-tests results, by system and size band.

    Errors are |predicted time / measured time - 1| as median / 90th percentile, in percent, of jobs up to 64 hosts:
    plain, after calibration on six sizes, by interpolation of the same six, and with the system left out of the fit.
    """
    return CollectiveErrors(validate_collectives(data, systems))


@question("syncline validate training", "syncline validate training --data mine.csv --systems mine.yaml --json")
def training(*, data: DataOption = None, systems: SystemsOption = None) -> TrainingErrors:
    """Score predictions against published training runs, by source.

    Metrics are converted to step times by each source's own FLOP convention. Errors are |predicted / measured - 1|
    over distinct runs; beside them the error of each source when it is left out of the fit, of scaling ratios inside a
    series, and the rank correlation inside sweeps. Rows that cannot be modelled are listed with the reason.
    """
    return TrainingErrors(validate_training(data, systems))


def validate(
    subject: str, data: str | Path | None = None, systems: str | Path | None = None
) -> CollectiveErrors | TrainingErrors | IntervalErrors:
    """Predict every row of a file of published measurements ("collectives" or "training") and count how far off it is.

    "intervals" counts how many of all of them lie inside intervals that were made without them.
    """
    if subject not in SUBJECTS:
        raise UsageError(f'nothing is published here about "{subject}".', hint=f"One of: {', '.join(SUBJECTS)}.")
    if subject == "intervals":
        return intervals()
    rows, described = (Path(path) if path else None for path in (data, systems))
    return (collectives if subject == "collectives" else training)(data=rows, systems=described)


COMMANDS = {"collectives": collectives, "training": training, "intervals": intervals}
HELP = "Compare predictions with published measurements."
EXAMPLES = ("syncline validate intervals", "syncline validate claims", "syncline validate training --json")
