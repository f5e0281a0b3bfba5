"""A design's search cut into shards: the fabrics of one kind of card each, looked at wherever there is a processor."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from syncline.describe.progress import Meter
from syncline.designing.choice import FabricChoice
from syncline.designing.point import Card, DesignPoint, DesignSearch, Limits
from syncline.designing.search import Designer, PlannedJob
from syncline.errors import UsageError
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.rayrun import imported, ray_tasks
from syncline.workload.job import Job


@dataclass(frozen=True)
class Shard:
    """Choices of one kind of card, what was planned of them before, and what they have to beat."""

    jobs: Sequence[tuple[Job, float]]
    limits: Limits
    assumptions: Assumptions | None
    choices: tuple[FabricChoice, ...]
    kept: dict[str, list[PlannedJob]]
    rivals: tuple[DesignPoint, ...]


@dataclass(frozen=True)
class ShardResult:
    """What was found in one shard."""

    num_choices: int
    found: DesignSearch
    kept: dict[str, list[PlannedJob]]
    ideals: dict[Card, float]


#: Runs a function on every task, somewhere, and yields what it returns as it comes.
Spread = Callable[[Callable[[Shard], ShardResult], Iterable[Shard]], Iterator[ShardResult]]


def spread_on(place: str | None) -> Spread | None:
    """Return how to run shards elsewhere: "ray" is a Ray cluster; None: in this process."""
    if place is None:
        return None
    if place != "ray":
        raise UsageError(f'`on` "{place}" is not known.', hint='"ray" spreads the search over a Ray cluster.')
    ray = imported()
    return lambda function, tasks: ray_tasks(ray, function, tasks)


def look_at(shard: Shard) -> ShardResult:
    """Search one shard."""
    designer = Designer(shard.jobs, shard.limits, shard.assumptions)
    designer.kept.update(shard.kept)
    found = designer.search(shard.choices, DesignSearch(points=list(shard.rivals)))
    found.points = [point for point in found.points if point not in shard.rivals]
    return ShardResult(len(shard.choices), found, designer.kept, designer.ideals)


def run_spread(
    designer: Designer, choices: Iterable[FabricChoice], spread: Spread, meter: Meter | None = None
) -> DesignSearch:
    """Search in shards; what was found is kept after each, and an interrupt ends the search with that."""
    designer.read()
    groups: dict[tuple[object, ...], list[FabricChoice]] = {}
    for choice in choices:
        groups.setdefault((choice.host, choice.num_hosts, choice.nics, choice.nic, choice.link), []).append(choice)
    whole = DesignSearch(num_choices=sum(len(group) for group in groups.values()))

    def shards() -> Iterator[Shard]:
        for group in groups.values():
            known = dict(designer.kept)
            yield Shard(designer.jobs, designer.limits, designer.assumptions, tuple(group), known, tuple(whole.points))

    meter = meter or Meter()
    meter.expect(whole.num_choices)
    try:
        for result in spread(look_at, shards()):
            designer.kept.update(result.kept)
            designer.ideals.update(result.ideals)
            _join(whole, result.found)
            designer.write()
            meter.advance(result.num_choices)
    except KeyboardInterrupt:
        whole.complete = False
    return whole


def _join(whole: DesignSearch, part: DesignSearch) -> None:
    for point in sorted(part.points, key=lambda point: point.usd_per_year):
        if not any(other.at_least(point) for other in whole.points):
            whole.points.append(point)
    whole.impossible |= part.impossible
    for limit, count in part.over.items():
        whole.miss(part.nearest[limit], count)
    whole.num_bounded += part.num_bounded
    whole.num_planned += part.num_planned
