"""How should a run of several phases be split on a cluster, when does it end, and what does it cost in all?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from syncline.describe.plain import JsonObject
from syncline.describe.progress import Meter, Progress
from syncline.planning.cost.assumptions import load_assumptions
from syncline.planning.cost.prices import load_prices
from syncline.planning.phase.phases import PlannedRun, plan_run
from syncline.questions.answer import PDF, Answer, Output, page_output
from syncline.questions.inputs import Cluster, built
from syncline.workload.phases import has_phases, load_run


@dataclass(frozen=True, eq=False)
class RunAnswer(Answer):
    """The phases of a run with their plans, and one bill."""

    schema_name: ClassVar[str] = "plan-phases"
    outputs: ClassVar[Mapping[str, Output]] = {
        **page_output("Write the report: one page to forward."),
        "pdf": PDF,
    }

    result: PlannedRun = field(repr=False)

    def to_json(self) -> JsonObject:
        return self.result.to_json()


def plan_phases(
    cluster: Cluster,
    job: str | Path,
    *,
    assumptions: str | Path | None = None,
    assume: Mapping[str, object] | None = None,
    prices: str | Path | None = None,
    progress: Progress | None = None,
) -> RunAnswer:
    """Plan a job file that has `phases`: each phase's split and network needs, one calendar and one bill."""
    assumed, _ = load_assumptions(Path(assumptions) if assumptions else None, dict(assume or {}))
    table = load_prices(Path(prices)) if prices else None
    return RunAnswer(plan_run(built(cluster), load_run(job), assumed, table, Meter(progress)))


__all__ = ["RunAnswer", "has_phases", "plan_phases"]
