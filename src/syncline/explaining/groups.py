"""Collectives of a step by operation, group and size: how fast they were and should be, and who came late."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from syncline.describe.model import Handle, handle
from syncline.errors import SynclineError
from syncline.explaining.attribution import StepAttribution
from syncline.explaining.matching import Matches, call_of, rows_of
from syncline.fabric.fabric import Fabric
from syncline.program import Placement, placement
from syncline.schedule import Kind
from syncline.sim.collective.price import price
from syncline.sim.nccl.describe import from_placement
from syncline.sim.nccl.measured import OPS, Series, bus_factor, op_name
from syncline.sim.profile import MeasuredCollective
from syncline.sim.swept import seen_in
from syncline.timeline.account.sweep import covered
from syncline.timeline.columns import Floats, Ints
from syncline.timeline.intervals import subtract
from syncline.timeline.recording.recording import CollectiveCall, Doing

Key = tuple[str, str, int, int]


@dataclass(frozen=True)
class CollectiveGroup:
    """One kind of collective in a step: times are of all its calls in the step, on the rank that is shown."""

    operation: str
    group: str
    ranks: int
    calls: float
    """In one step, on average."""
    size_bytes: float
    """Of one call, the largest buffer of a rank; 0 where the trace does not say."""
    algorithm: str
    """As the kernel is named; NCCL may run another algorithm under the name of its first."""
    total_s: float
    exposed_s: float
    call_s: float
    """Median of one call."""
    transfer_s: float | None
    """Median of one call without waiting for the last rank; None with one rank's trace."""
    busbw_Bps: float | None
    """Of the transfer where that is known, else of the call."""
    expected_s: float | None
    """What one call should take on the cluster; None without one."""
    expected_busbw_Bps: float | None
    expected_link: str
    late_s: float | None
    """Waiting for the last rank, in all calls of a step."""
    slow_s: float | None
    """Transfers beyond what the cluster should give, in all calls of a step."""
    waited_for: tuple[int, ...]
    """The ranks that came last most often."""
    members: Handle[tuple[int, ...]] = handle()


def groups_of(
    mine: StepAttribution, matches: Matches, place: int, fabric: Fabric | None
) -> tuple[CollectiveGroup, ...]:
    """Return the collectives of one rank by kind, those first whose time nothing hides."""
    recording, windows = mine.recording, mine.windows
    device, steps = recording.device, max(len(windows), 1)
    rows = rows_of(recording)
    rows = rows[(device.start_s[rows] < windows.end_s[-1]) & (device.end_s[rows] > windows.begin_s[0])]
    bare = exposed_s(mine, rows)
    by: dict[Key, list[int]] = defaultdict(list)
    for at, row in enumerate(rows.tolist()):
        call = call_of(recording, row)
        by[call.operation, call.group, call.ranks, int(call.size_bytes)].append(at)
    last = _last_of(matches)
    found = []
    for (operation, group, ranks, size), places in by.items():
        chosen = rows[places]
        call = call_of(recording, int(chosen[0]))
        took: Floats = device.end_s[chosen] - device.start_s[chosen]
        own = matches.transfer_s[place][chosen]
        known = own[~np.isnan(own)]
        transfer = float(np.median(known)) if len(known) else None
        late = float(np.nansum(took - own)) / steps if len(known) else None
        count = ranks or recording.world
        expected, link = expected_s(fabric, call, count) if fabric is not None else (None, "")
        one = transfer if transfer is not None else float(np.median(took))
        slow = None
        if expected is not None:
            each = np.where(np.isnan(own), took, own)
            slow = float(np.maximum(each - expected, 0.0).sum()) / steps
        algorithms = Counter(call_of(recording, row).algorithm for row in chosen.tolist())
        found.append(CollectiveGroup(
            operation, group, count, len(chosen) / steps, float(size), algorithms.most_common(1)[0][0],
            float(took.sum()) / steps, float(bare[places].sum()) / steps, float(np.median(took)), transfer,
            _busbw(operation, size, count, one), expected,
            _busbw(operation, size, count, expected) if expected else None, link, late, slow,
            _most_late(last, call, operation), members=call.members,
        ))  # fmt: skip
    return tuple(sorted(found, key=lambda one: (-one.exposed_s, -one.total_s)))


def exposed_s(mine: StepAttribution, rows: Ints) -> Floats:
    """Return how much of each collective no kernel and no copy of its rank hides; what two share, the first has."""
    device = mine.recording.device
    work = device.doing != Doing.COLLECTIVE
    busy = covered(device.start_s[work], device.end_s[work])
    bare = subtract(covered(device.start_s[rows], device.end_s[rows]), busy)
    found = np.zeros(len(rows))
    owner = np.searchsorted(device.start_s[rows], bare.start_s, side="right") - 1
    for part, at in enumerate(owner.tolist()):
        while at > 0 and device.end_s[rows[at]] <= bare.start_s[part]:
            at -= 1
        found[at] += bare.end_s[part] - bare.start_s[part]
    return found


def _busbw(operation: str, size: float, ranks: int, took_s: float) -> float | None:
    name = op_name(operation)
    if not size or took_s <= 0 or ranks < 2 or name not in OPS:
        return None
    return size * bus_factor(name, ranks) / took_s


def expected_s(fabric: Fabric, call: CollectiveCall, ranks: int) -> tuple[float | None, str]:
    """Return what a collective should take on a fabric, rank r on GPU r, and with which algorithm; None if unknown."""
    name = op_name(call.operation)
    if name not in OPS or not call.size_bytes or ranks < 2:
        return None, ""
    try:
        found = price(Kind(name), round(call.size_bytes), _placed(fabric, call.members or tuple(range(ranks)))).nccl
    except (SynclineError, IndexError):
        return None, ""
    return (None, "") if found is None else (found.time_s, found.algorithm)


def _placed(fabric: Fabric, members: tuple[int, ...]) -> Placement:
    """Return ranks on the GPUs of their numbers; on the first GPUs where the fabric is smaller."""
    if max(members) >= fabric.num_gpus:
        members = tuple(range(len(members)))
    return placement.given(fabric, [int(fabric.gpus[rank]) for rank in members])


def measured_sweeps(groups: Sequence[CollectiveGroup], fabric: Fabric, source: str) -> tuple[MeasuredCollective, ...]:
    """Return what the transfers of a step say of a fabric's collectives, for a profile.

    One rank's trace says nothing: it does not tell a transfer from waiting for the last rank.
    """
    points: dict[tuple[str, tuple[int, ...]], list[tuple[float, float]]] = defaultdict(list)
    for one in groups:
        name = op_name(one.operation)
        if one.expected_s is not None and one.transfer_s:
            points[name, one.members or tuple(range(one.ranks))].append((one.size_bytes, one.transfer_s * 1e6))
    found = []
    for (name, members), sizes in points.items():
        system = from_placement(_placed(fabric, members))
        seen = seen_in(system, Series.of(name, sizes))
        found.append(MeasuredCollective(name, system.num_ranks, system.num_hosts, source, seen))
    return tuple(found)


def _last_of(matches: Matches) -> Mapping[tuple[object, str], Counter[int]]:
    found: dict[tuple[object, str], Counter[int]] = defaultdict(Counter)
    for instance, rank in matches.last.items():
        found[instance[1], str(instance[2])][rank] += 1
    return found


def _most_late(
    last: Mapping[tuple[object, str], Counter[int]], call: CollectiveCall, operation: str
) -> tuple[int, ...]:
    counts = last.get((call.members or call.group, operation))
    if not counts:
        return ()
    most = counts.most_common(1)[0][1]
    return tuple(sorted(rank for rank, count in counts.items() if count >= 0.8 * most))[:4]
