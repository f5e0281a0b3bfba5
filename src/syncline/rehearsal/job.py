"""What is rehearsed: which collectives at which sizes, and a small model that stands in for the real one.

job = load_job("rehearsal.yaml")        # or Job() for the default
"""

from __future__ import annotations

import os

from pydantic import Field, field_validator, model_validator

from syncline.codec.names import scheme
from syncline.describe.guide import cite
from syncline.describe.mistakes import load_described
from syncline.describe.quantity import Size, Strict
from syncline.errors import SynclineError
from syncline.sim.emulate.host_fit import BOUNDS

GUIDE = cite("rehearse")
PLAIN = "ddp"


class Model(Strict):
    """A byte-level GPT: small enough for ranks that share a few cores, real enough to have a loss."""

    width: int = Field(default=256, ge=32, le=4096)
    depth: int = Field(default=4, ge=1, le=64)
    batch: int = Field(default=2, ge=1, le=1024)
    length: int = Field(default=64, ge=8, le=4096)


class RehearsalJob(Strict):
    """Everything a rehearsal runs; the sizes that are scored must not be those it was calibrated on."""

    algorithms: tuple[str, ...] = ("ring", "halving-doubling", "direct", "tree", "hierarchical")
    sizes: tuple[Size, ...] = (1 << 18, 1 << 20, 1 << 22)
    calibrate_on: tuple[Size, ...] = (1 << 19, 1 << 21)
    repeats: int = Field(default=5, ge=3, le=100)
    model: Model = Model()
    levels: tuple[int, ...] = ()
    """Hosts inside each level, innermost first, as `synchronize(levels=...)` takes ranks; plain DDP has none."""
    synchronisations: tuple[str, ...] = (PLAIN, "bf16", "int8", "sign")
    steps: int = Field(default=6, ge=2, le=10_000)
    train_steps: int = Field(default=20, ge=0, le=100_000)

    @field_validator("synchronisations")
    @classmethod
    def _known(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        try:
            return tuple(name if name == PLAIN else scheme(name).name for name in names)
        except SynclineError as error:
            raise ValueError(error.message) from None

    @field_validator("levels")
    @classmethod
    def _several(cls, levels: tuple[int, ...]) -> tuple[int, ...]:
        if any(size < 2 for size in levels):
            raise ValueError("a level has two hosts or more, innermost first: [4], or [2, 4]")
        return levels

    @model_validator(mode="after")
    def _apart(self) -> RehearsalJob:
        both = sorted(set(self.sizes) & set(self.calibrate_on))
        if both:
            raise ValueError(f"{both[0]} bytes is calibrated on and scored; score another size")
        return self

    @model_validator(mode="after")
    def _enough(self) -> RehearsalJob:
        num_points = len(self.algorithms) * len(self.calibrate_on)
        if num_points < len(BOUNDS):
            raise ValueError(
                f"{len(self.algorithms)} algorithms at {len(self.calibrate_on)} calibrate_on sizes are {num_points} "
                f"measurements, and calibration fits {len(BOUNDS)} costs; add sizes to calibrate_on, or algorithms"
            )
        return self


def load_job(source: str | os.PathLike[str] | None) -> RehearsalJob:
    """Return the job of a file, or the default."""
    return RehearsalJob() if source is None else load_described(source, RehearsalJob, GUIDE, "rehearsal")
