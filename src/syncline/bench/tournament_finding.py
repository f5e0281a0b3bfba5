"""What a tournament found, for people: one finding a part, the two directions of one cable together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

from syncline.bench.attribute import Suspect
from syncline.bench.incidence import PartKind, SuspectPart
from syncline.bench.loss import LossSuspect
from syncline.bench.tournament import Result
from syncline.describe import units
from syncline.describe.guide import cite
from syncline.finding import Action, Finding, Severity

LEAST_TYPICAL = 0.7
BAD_LOSS = 0.005
"""From this share on packets lost are what is wrong, and critical; less may also be a queue that overflows."""


_ADVICE = {
    PartKind.HOST_TX: ("the host sends slowly to everybody", "Look at its NIC, cable, PCIe width and load."),
    PartKind.HOST_RX: ("the host receives slowly from everybody", "Look at the port, cable and optic towards it."),
    PartKind.LINK: ("only flows over this cable are slow", "Look at its counters, optics and speed."),
    PartKind.CABLE: ("flows over this cable are slow both ways", "Look at the cable, its optics and both ports."),
    PartKind.UPLINKS: ("all that leaves the leaf is slow", "Look at the leaf's uplinks: some down, or oversubscribed."),
    PartKind.DOWNLINKS: ("all that enters the leaf is slow", "Look at the links from the spines to the leaf."),
    PartKind.LEAF: ("every flow over the leaf is slow", "Look at the leaf switch: errors, buffers, flow control."),
    PartKind.SPINE: ("every flow over the spine is slow", "Look at the spine switch, or take it out of the hash."),
}  # fmt: skip


def findings(result: Result, names: Sequence[str]) -> list[Finding]:
    """Return the suspects as findings; the two directions of one cable become one finding."""
    slow = [(_finding(result, one, back, names), one.part) for one, back in _both_ways(result.attribution.suspects)]
    lossy = [(_lossy(result, one, back, names), one, back) for one, back in _both_ways(result.losses)]
    found = []
    for finding, part in slow:
        same = [row for row in lossy if row[1].part.links & part.links or (row[2] and row[2].part.links & part.links)]
        lossy = [row for row in lossy if row not in same]
        found.append(_slow_by_loss(finding, same[0][0], same[0][1].share) if same else finding)
    found += [finding for finding, _, _ in lossy]
    if result.uneven is not None and not found:
        found += [_uneven(result, one, back, names) for one, back in _both_ways(result.uneven.suspects)]
    return [*found, *_all_slow(result), *_all_lossy(result)]


S = TypeVar("S", Suspect, LossSuspect)


def _both_ways(suspects: Sequence[S]) -> list[tuple[S, S | None]]:
    """Return the suspects, each with the one that is the other direction of its cable."""
    left, found = list(suspects), []
    while left:
        one = left.pop(0)
        back = next((other for other in left if _reverse(one.part, other.part)), None)
        if back is not None:
            left.remove(back)
        found.append((one, back))
    return found


def _reverse(one: SuspectPart, other: SuspectPart) -> bool:
    """Whether two parts are the two directions of one cable."""
    return len(one.links) == 1 and other.links == frozenset(link ^ 1 for link in one.links)


def _lossy(result: Result, one: LossSuspect, back: LossSuspect | None, names: Sequence[str]) -> Finding:
    rule, place = one.part.kind.value, one.part.name
    flows = one.flows if back is None else (*one.flows, *(row for row in back.flows if row not in one.flows))
    if back is not None:
        rule = "cable" if one.part.kind is PartKind.LINK else "host"
        place = f"{place} and back"
    worst = sorted(flows, key=lambda row: -result.resent[row].share)
    evidence = [
        f"{names[result.matches[row].src]} -> {names[result.matches[row].dst]}: {result.resent[row].again:,} of "
        f"{result.resent[row].sent:,} packets sent again"
        for row in worst[:4]
    ]
    if one.among and back is None:
        evidence.append(f"cannot be told from {', '.join(part.name for part in one.among[:4])}")
    share = max(one.share, back.share if back else 0.0)
    return Finding(
        f"bench.loss.{rule}", Severity.CRITICAL if share >= BAD_LOSS else Severity.WARNING, place,
        f"{_percent(share)} of packets sent again, in {len(flows)} flows", "none, as flows that do not cross it",
        tuple(evidence), "packets that cross it are lost; a collective waits for each of them to be sent again",
        "Look at error counters at both ends, then cable, optic and port; on RoCE also at flow control and buffers.",
        cite("method/bench"), Action.INSPECT, round(1 - math.exp(-(one.gain + (back.gain if back else 0.0)) / 8), 3),
    )  # fmt: skip


def _slow_by_loss(slow: Finding, lossy: Finding, share: float) -> Finding:
    """Return one finding of two about one part: it is slow because it loses packets, or loses some since it is slow."""
    if share < BAD_LOSS:
        return replace(slow, evidence=(*slow.evidence, f"{lossy.observed}: {lossy.evidence[0]}"))
    return replace(
        lossy, observed=f"{lossy.observed}; {slow.observed}", severity=max(slow.severity, lossy.severity),
        evidence=(*lossy.evidence[:2], *slow.evidence[:2]),
    )  # fmt: skip


def _uneven(result: Result, suspect: Suspect, back: Suspect | None, names: Sequence[str]) -> Finding:
    """Return that a part's repetitions differ: nobody counted packets, so loss is a guess."""
    usual = _finding(result, suspect, back, names)
    return replace(
        usual, rule=usual.rule.replace("bench.slow", "bench.uneven"), severity=Severity.WARNING,
        observed=f"{100 * suspect.factor:.0f} % of the expected rate on average, though the best repetition is well",
        meaning="flows over it stall now and then: packets are lost, or other traffic comes and goes",
        fix="Look at its error and retransmission counters; repeat with more --repeats.",
        confidence=round(0.7 * usual.confidence, 3),
    )  # fmt: skip


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def _all_slow(result: Result) -> list[Finding]:
    """Return a finding when even flows that nothing is wrong with get much less than the links allow."""
    factor = result.attribution.typical_factor
    if factor >= LEAST_TYPICAL:
        return []
    return [Finding(
        "bench.slow.everything", Severity.WARNING, "all flows", f"{100 * factor:.0f} % of what the links allow",
        "about 95 %", (),
        "every pair is slow alike: the hosts' own work, a description that is too fast, or the one switch they share",
        "Measure one pair with nothing else running; check MTU, CPU load and the rates in the cluster file.",
        cite("method/bench"), Action.CONFIGURE, 0.5,
    )]  # fmt: skip


def _all_lossy(result: Result) -> list[Finding]:
    """Return a finding when flows lose packets wherever they go."""
    sent, again = (sum(getattr(one, name) for one in result.resent) for name in ("sent", "again"))
    if result.losses or not sent or again < BAD_LOSS * sent:
        return []
    return [Finding(
        "bench.loss.everything", Severity.WARNING, "all flows", f"{_percent(again / sent)} of packets sent again",
        "next to none", (f"{again:,} of {sent:,} packets",),
        "every pair loses packets alike: the one switch they share, queues that overflow, or hosts too busy to receive",
        "Look at the drop counters of the switches and of the hosts' interfaces; measure one pair alone.",
        cite("method/bench"), Action.INSPECT, 0.6,
    )]  # fmt: skip


def _finding(result: Result, suspect: Suspect, back: Suspect | None, names: Sequence[str]) -> Finding:
    meaning, fix = _ADVICE[suspect.part.kind]
    rule, place, confidence, flows = suspect.part.kind.value, suspect.part.name, suspect.confidence, suspect.flows
    if back is not None:
        rule = "cable" if suspect.part.kind is PartKind.LINK else "host"
        place = f"{suspect.part.name} and back"
        meaning, fix = _ADVICE[PartKind.CABLE]
        confidence, flows = min(confidence, back.confidence), (*flows, *(f for f in back.flows if f not in flows))
    slow = sorted(flows, key=lambda row: result.measured_Bps[row] / result.expected_Bps[row])
    evidence = [
        f"{names[result.matches[row].src]} -> {names[result.matches[row].dst]}: "
        f"{units.show_rate(result.measured_Bps[row])} of {units.show_rate(result.expected_Bps[row])}"
        for row in slow[:4]
    ]
    if suspect.among:
        others = ", ".join(part.name for part in suspect.among[:4])
        why = "every flow here crosses both" if result.paths_known else "the paths that the hash takes are not known"
        evidence.append(f"cannot be distinguished from {others}: {why}")
    healthy = result.attribution.typical_factor
    return Finding(
        f"bench.slow.{rule}", Severity.CRITICAL if suspect.factor < 0.5 else Severity.WARNING,
        place,
        f"{100 * suspect.factor * healthy:.0f} % of the expected rate, in {len(flows)} flows",
        f"{100 * healthy:.0f} %, as flows that do not cross it", tuple(evidence), meaning, fix, cite("method/bench"),
        Action.INSPECT, confidence,
    )  # fmt: skip
