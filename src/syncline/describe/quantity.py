"""Fields of descriptions that are quantities: `rate: 400Gbps`, `latency: 3us`, read into plain SI numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from syncline.describe import units
from syncline.errors import UnitError


def quantity(read: Callable[[str | float], float]) -> BeforeValidator:
    """Return what reads a field; a UnitError would leave pydantic without the field's name, a ValueError keeps it."""

    def parse(value: str | float | None) -> float | None:
        try:
            return None if value is None else read(value)
        except UnitError as error:
            raise ValueError(f"{error.message} {error.hint}".strip()) from None

    return BeforeValidator(parse)


Rate = Annotated[float, quantity(units.rate), Field(ge=0)]
PositiveRate = Annotated[float, quantity(units.rate), Field(gt=0)]
Seconds = Annotated[float, quantity(units.time), Field(ge=0)]
Size = Annotated[int, quantity(units.size), Field(ge=1)]
Metres = Annotated[float, quantity(units.length), Field(gt=0, le=50_000_000)]


class Strict(BaseModel):
    """A frozen description in which an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)
