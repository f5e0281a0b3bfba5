"""How a low precision is scaled: what its casts move and what its products lose (`data/recipes.yaml`)."""

from __future__ import annotations

from functools import cache

from syncline.describe.own_data import own_data
from syncline.workload.job import Job
from syncline.workload.software import Facts

LOW = ("fp8", "fp4")


@cache
def recipes() -> dict[str, dict[str, float | str]]:
    """Return every recipe: `casts`, `fused_casts`, `rate` and its source."""
    found: dict[str, dict[str, float | str]] = own_data("sim", "data/recipes.yaml")["recipes"]
    return found


def recipe_of(job: Job) -> str:
    """Return the recipe of a job in a low precision: what it says, or the usual one of its precision."""
    return job.recipe or ("nvfp4" if job.precision == "fp4" else "tensorwise")


def casts_of(job: Job, facts: Facts) -> float:
    """Return the passes over memory that casts cost, one fused pass for the input of each product = 1."""
    if job.precision not in LOW:
        return 0.0
    found = recipes()[recipe_of(job)]
    return float(found["fused_casts" if facts.fused_casts else "casts"])


def recipe_rate(job: Job, architecture: str) -> float:
    """Return the speed of a recipe's products against the part's best of that precision."""
    if job.precision not in LOW:
        return 1.0
    found = recipes()[recipe_of(job)]
    return float(found.get(f"rate_{architecture.split()[0].lower()}", found["rate"]))
