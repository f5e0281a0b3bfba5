"""A design study: the front of fabrics, how they grow, and storage beside them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from syncline.describe.model import reported
from syncline.describe.progress import Meter
from syncline.designing.choice import FabricChoice
from syncline.designing.growth import FabricGrowth, growths_like
from syncline.designing.point import DesignPoint, DesignSearch
from syncline.designing.reasons import ranked
from syncline.designing.search import Designer
from syncline.designing.shards import Spread, run_spread
from syncline.designing.storage import StorageDesign, storage_beside
from syncline.errors import PlanError


@dataclass(frozen=True)
class Switching:
    """What optical circuits that move twice within a step could gain, at most."""

    label: str
    reconfiguration_s: float
    step_s: float
    gain_at_most_s: float

    @reported
    def pays(self) -> bool:
        """Whether the most that can be gained is more than both moves cost."""
        return self.gain_at_most_s > 2 * self.reconfiguration_s


@dataclass(frozen=True)
class DesignStudy:
    """Everything about the fabrics for some jobs."""

    front: tuple[DesignPoint, ...]
    search: DesignSearch
    growth: tuple[FabricGrowth, ...] | None = None
    """Fabrics that can grow to the later size, cheapest first; None: no later size was given."""
    cannot_grow: Mapping[str, str] = field(default_factory=dict)
    storage: StorageDesign | None = None
    switching: tuple[Switching, ...] = ()


def study(
    designer: Designer, choices: Iterable[FabricChoice], *, later: Sequence[int] = (),
    with_storage: bool = False, spread: Spread | None = None, meter: Meter | None = None,
) -> DesignStudy:  # fmt: skip
    """Search fabrics and judge the best of them; an interrupt ends it with what there is.

    `later` are numbers of GPUs to which the fabric shall grow without recabling. `spread` runs shards of the search
    elsewhere.
    """
    meter = meter or Meter()
    search = run_spread(designer, choices, spread, meter) if spread else designer.run(choices, meter)
    front = ranked(search.front())
    if not front:
        raise _nothing_left(search)
    result = DesignStudy(front, search, switching=_switching(front, designer))
    meter.expect(int(with_storage))
    try:
        if later:
            growth, cannot = growths_like(front[0].choice, front[0].num_gpus, later, meter)
            result = replace(result, growth=growth, cannot_grow=cannot)
        if with_storage:
            result = replace(result, storage=storage_beside(front[0], designer.jobs))
            meter.advance()
    except KeyboardInterrupt:
        search.complete = False
    return result


def grid_study(designer: Designer, choices: Iterable[FabricChoice], meter: Meter | None = None) -> DesignStudy:
    """Plan and execute every alternative that was asked for."""
    search = DesignSearch()
    try:
        designer.every(choices, search, meter)
    except KeyboardInterrupt:
        search.complete = False
    if not search.points:
        raise _nothing_left(search)
    return DesignStudy(ranked(search.points), search)


def _nothing_left(search: DesignSearch) -> PlanError:
    if not search.complete:
        return PlanError(
            f"interrupted before one of {search.num_choices:,} fabrics was planned.",
            hint="Start it again; a state file keeps what was planned from one run to the next.",
        )
    why = [
        f"{count:,} break the {name}; the nearest {search.nearest[name].words}." for name, count in search.over.items()
    ]
    return PlanError(
        f"none of {search.num_choices:,} fabrics will do.", detail=" ".join(why) or "None could be built.",
        hint="Raise the limit, or ask for other GPUs, hosts or links.",
    )  # fmt: skip


def _switching(front: Sequence[DesignPoint], designer: Designer) -> tuple[Switching, ...]:
    """Return what circuits that move within a step could gain at most, for fabrics that have circuits.

    No arrangement of circuits is faster than a network that is nowhere narrower than the cards.
    """
    tokens = [job.batch.global_ * job.batch.sequence for job, _ in designer.jobs]
    rows = []
    for point in front:
        if point.choice.pods:
            step_s = point.s_per_token * sum(tokens) / len(tokens)
            most_s = step_s * (1 - designer.ideal_s(point) / point.s_per_token)
            moved_s = float(point.choice.build().facts["reconfiguration_s"])
            rows.append(Switching(point.choice.label, moved_s, step_s, max(most_s, 0.0)))
    return tuple(rows)
