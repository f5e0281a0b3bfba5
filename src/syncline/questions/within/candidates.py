"""The clusters that `syncline plan compare` sets beside each other: named, rented, or swept over a key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from syncline.describe.progress import Meter
from syncline.errors import UsageError
from syncline.fabric.change import changed
from syncline.planning.compare import fabric_with, hosts_of
from syncline.planning.cost.assumptions import Assumptions
from syncline.planning.cost.prices import Prices
from syncline.planning.decide.side_by_side import Candidate, ClusterComparison, side_by_side, swept_job, with_key
from syncline.questions.inputs import built
from syncline.sim.profile import SystemProfile
from syncline.sim.step.machine import machine_from_fabric
from syncline.workload.job import Job

MOST_GPU_HOUR_USD = 1e4


def loads(
    job: Job, clusters: tuple[str, ...], sweep: tuple[str, Sequence[object]] | None,
    fabrics: Sequence[tuple[str, str, str, int | None]],
) -> list[tuple[Candidate, Job]]:  # fmt: skip
    """Return the clusters of a serving job with the load on each: those named, values of a sweep, or fabrics."""
    if sweep is None and clusters:
        return [(_candidate(name), job) for name in clusters]
    if sweep is None:
        if fabrics and fabrics[0][3] is None:
            raise UsageError("a load is compared on clusters, or on fabrics of a number of GPUs.",
                             hint="Name clusters, or give `gpus` 128.")  # fmt: skip
        return [
            (Candidate(name, fabric_with(host, link, name, hosts_of(host, gpus or 0))), job)
            for name, host, link, gpus in fabrics
        ]
    if len(clusters) != 1:
        raise UsageError(f"a sweep takes one cluster, got {len(clusters)}.", hint="Name one, and one job.")
    key, values = sweep
    if key.startswith("job."):
        one = _candidate(clusters[0])
        path = key.split(".")[1:]
        return [
            (replace(one, name=f"{key} {value}", value=_plain(value)), with_key(job, path, value)) for value in values
        ]
    return [(candidate, job) for candidate in _swept(clusters[0], key, values)]


def _swept(named: str, key: str, values: Sequence[object]) -> list[Candidate]:
    one, name = _candidate(named), named.partition("@")[0]
    return [
        replace(one, name=f"{key} {value}", fabric=changed(name, key, value), value=_plain(value)) for value in values
    ]


def compared(
    job: Job,
    clusters: tuple[str, ...],
    sweep: tuple[str, Sequence[object]] | None,
    assumed: Assumptions,
    prices: Prices | None,
    measured: SystemProfile | None,
    meter: Meter,
) -> ClusterComparison:
    """Return the best plan of a training job on each cluster, or at each value of a sweep, side by side."""
    if sweep is None:
        made = _measured([_candidate(name) for name in clusters], measured, job)
        return _noted(side_by_side(job, made, assumptions=assumed, prices=prices, meter=meter), made, measured)
    if len(clusters) != 1:
        raise UsageError(f"a sweep takes one cluster, got {len(clusters)}.", hint="Name one, and one job.")
    key, values = sweep
    if key.startswith("job."):
        candidate = _measured([_candidate(clusters[0])], measured, job)[0]
        return swept_job(job, candidate, key, values, assumed, prices, meter)
    made = _swept(clusters[0], key, values)
    return side_by_side(job, _measured(made, measured, job), assumptions=assumed, prices=prices, swept=key, meter=meter)


def _measured(candidates: list[Candidate], measured: SystemProfile | None, job: Job) -> list[Candidate]:
    """Return the candidates with what was measured on their part; an error where that is none of theirs."""
    if measured is None:
        return candidates
    parts = [machine_from_fabric(one.fabric).gpu.name for one in candidates]
    if measured.gpu not in parts:
        measured.check(parts[0])
    constants = measured.constants(job)
    return [
        replace(one, constants=constants) if part == measured.gpu else one
        for one, part in zip(candidates, parts, strict=True)
    ]


def _noted(found: ClusterComparison, made: Sequence[Candidate], measured: SystemProfile | None) -> ClusterComparison:
    """Return a comparison that says which of its clusters a profile did not speak of."""
    others = [one.name for one in made if one.constants is None] if measured is not None else []
    if measured is None or not others:
        return found
    text = f"the profile was measured on {measured.gpu}; as the model ships: {', '.join(others)}"
    return replace(found, notes=(*found.notes, text))


def _candidate(named: str) -> Candidate:
    name, _, paid = named.partition("@")
    try:
        price = float(paid.removeprefix("$"))
    except ValueError:
        return Candidate(named, built(name), paid or None)
    if not 0 < price < MOST_GPU_HOUR_USD:
        raise UsageError(f'"{named}" asks for ${price:g} a GPU-hour.', hint="Write cluster.yaml@2.40, say.")
    return Candidate(named, built(name), gpu_hour_usd=price)


def _plain(value: object) -> float | str:
    return float(value) if isinstance(value, (int, float)) else str(value)
