"""How should a load be served on a cluster, how long do users wait, and what does a token cost?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from syncline.describe.plain import JsonObject
from syncline.describe.progress import Meter, Progress
from syncline.errors import UsageError
from syncline.planning.cost.assumptions import load_assumptions
from syncline.planning.cost.prices import load_prices
from syncline.planning.serve import Serving, plan_serving
from syncline.planning.serving_comparison import ServingComparison
from syncline.questions.answer import PDF, Answer, Output, page_output
from syncline.questions.inputs import Cluster, JobSource, built, job_of


@dataclass(frozen=True, eq=False)
class ServeAnswer(Answer):
    """The cheapest way to serve a load within its limits, and the runners-up."""

    schema_name: ClassVar[str] = "plan-serve"
    outputs: ClassVar[Mapping[str, Output]] = {
        **page_output("Write the report: one page to forward."),
        "pdf": PDF,
    }

    result: Serving = field(repr=False)
    more: bool = False
    """Whether the text shows everything, not the answer alone."""

    @property
    def exit_status(self) -> int:
        """1 where the limits cannot be kept, or the cluster is too small for the load."""
        return 0 if self.result.best.serves else 1

    def to_json(self) -> JsonObject:
        return self.result.to_json()


@dataclass(frozen=True)
class ServingComparisonAnswer(Answer):
    """What serves a load on each of several clusters, owned and rented, or along a sweep of one setting."""

    schema_name: ClassVar[str] = "plan-compare-serve"
    content: ClassVar[str] = "result"
    outputs: ClassVar[Mapping[str, Output]] = page_output("Write the comparison as a page.")

    result: ServingComparison

    @property
    def exit_status(self) -> int:
        """1 where none serves the load within its limits."""
        return 0 if self.result.cheapest is not None else 1


def is_serving(job: str) -> bool:
    """Say whether a job file is of kind serve."""
    return Path(job).is_file() and job_of(job, served=True).kind == "serve"


def serve(
    cluster: Cluster,
    job: JobSource,
    *,
    assumptions: str | Path | None = None,
    assume: Mapping[str, object] | None = None,
    prices: str | Path | None = None,
    more: bool = False,
    progress: Progress | None = None,
) -> ServeAnswer:
    """Plan a serving job: how its replicas are split, how many GPUs they take, how long users wait, what a token costs.

    >>> load = {"rate": 4, "prompt": 1000, "answer": 200}
    >>> answer = serve("h100-64-rail", {"kind": "serve", "model": "llama3-8b", "load": load})
    >>> answer.result.best.num_gpus
    1
    """
    described = job_of(job, served=True)
    if described.kind != "serve":
        raise UsageError(
            f"{described.name} is a job of kind {described.kind}.", hint="Add `kind: serve` and a `load:`."
        )
    assumed, _ = load_assumptions(Path(assumptions) if assumptions else None, dict(assume or {}))
    table = load_prices(Path(prices)) if prices else None
    return ServeAnswer(plan_serving(built(cluster), described, assumed, table, Meter(progress)), more)
