"""What every record from outside has in common: bounds, no trust, unknown fields left out, one sentence of refusal."""

from __future__ import annotations

from typing import Annotated, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from syncline.describe.mistakes import plain_rule
from syncline.finding import Severity

MAX_RANK = 1 << 20
MAX_RATE_Bps = 1e16
MAX_TIME_S = 1e12
MAX_TEXT = 300


def _cut(value: object) -> object:
    return value[:MAX_TEXT] if isinstance(value, str) else value


_SEVERITY = {
    "critical": Severity.CRITICAL, "page": Severity.CRITICAL, "error": Severity.CRITICAL, "warning": Severity.WARNING,
    "info": Severity.OK, "ok": Severity.OK,
}  # fmt: skip


def severity_of(value: object) -> Severity:
    """Return the severity that others call so; UNKNOWN for a word this version does not know."""
    return _SEVERITY.get(str(value), Severity.UNKNOWN)


Text = Annotated[str, BeforeValidator(_cut)]
Rate = Annotated[float, Field(ge=0, le=MAX_RATE_Bps)]
Seconds = Annotated[float, Field(ge=0, le=MAX_TIME_S)]
Moment = Annotated[float, Field(ge=-MAX_TIME_S, le=MAX_TIME_S)]
Rank = Annotated[int, Field(ge=0, lt=MAX_RANK)]
StepNumber = Annotated[int, Field(ge=-1, lt=1 << 53)]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]


class Foreign(BaseModel):
    """A record of others: bounded, immutable; a field that this version does not know is left out."""

    model_config = ConfigDict(extra="ignore", frozen=True, allow_inf_nan=False, hide_input_in_errors=True)


Record = TypeVar("Record", bound=BaseModel)


def admit(kind: type[Record], data: bytes | str) -> Record:
    """Return a record out of JSON text; a ValueError with one sentence where it is none."""
    try:
        return kind.model_validate_json(data)
    except ValidationError as error:
        raise ValueError(complaint(error)) from None


def complaint(error: ValidationError) -> str:
    """Return the first thing wrong with a record in one sentence, without a word of what was sent."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part)[:40] for part in first["loc"][:6])
    rule = plain_rule(first["msg"])
    problem = (first["msg"] if rule == first["msg"] else f"must be {rule}")[:120]
    more = f" ({error.error_count() - 1} more)" if error.error_count() > 1 else ""
    return f"{where}: {problem}{more}" if where else f"{problem}{more}"
