"""Why an executed step and its closed form differ: what of each kind of traffic they disagree on, largest first.

Compute is the same in both. What is left are three causes, which follow from the numbers of the two:

* **shared links**: a kind of traffic took longer than it takes alone, because others crossed the same link (packets:
  because they queued there, and their senders were told to slow down);
* **another rate**: alone on the fabric it takes longer (or shorter) than the closed form's rate says;
* **waiting**: stages wait for each other in an order that the closed form does not have.
"""

from __future__ import annotations

from syncline.describe import units
from syncline.sim.step.collectives import wire_times
from syncline.sim.step.executed.execute import StepRun
from syncline.sim.step.step import StepResult

WORTH_SAYING = 0.15
"""Gap of the two levels from which its causes are named."""
_SMALL = 0.2
"""Of a gap, what a cause must be to be named."""


def causes(result: StepResult, executed: StepRun) -> tuple[str, ...]:
    """Return what makes an executed step differ from its closed form; nothing where they are close."""
    gap = executed.step_time_s - result.step_time_s
    if abs(gap) <= WORTH_SAYING * result.step_time_s:
        return ()
    reasons: list[tuple[float, str]] = []
    for kind, (closed, words) in _closed(result).items():
        mine = [one for one in executed.collectives if one.name.split(" ")[0] in words]
        took, alone = sum(one.total_s for one in mine), sum(one.alone_s for one in mine)
        apart = took - closed
        if mine and apart * gap > 0 and abs(apart) > _SMALL * abs(gap):
            link = max(mine, key=lambda one: one.total_s).limiting_link or "its calls"
            reasons.append((abs(apart), _explained(kind, (closed, took, alone), link, executed.packets is not None)))
    if not reasons:
        waits = "stages wait for each other" if result.job.parallel.pp > 1 else "exchanges wait for the compute before"
        reasons.append((abs(gap), f"{waits} in an order that the closed form does not have"))
    return tuple(text for _, text in sorted(reasons, key=lambda row: -row[0]))


def _explained(kind: str, times: tuple[float, float, float], link: str, packets: bool) -> str:
    """Return in words why one kind of traffic took another time than its closed form."""
    closed, took, alone = (units.show_time(each) for each in times)
    if times[1] - times[2] < abs(times[1] - times[0]) / 2:
        return f"{kind}: the closed form has {closed} on the wire, the fabric needs {alone} ({link})"
    why = f"queues and rate control at {link}" if packets else f"they share {link}"
    return f"{kind} take {took}, {alone} alone and {closed} by the closed form: {why}"


def _closed(result: StepResult) -> dict[str, tuple[float, tuple[str, ...]]]:
    """Return what closed forms have on the wire by kind of traffic, and the first words of its executed names."""
    case, whole = result.case, wire_times(result)
    assert case is not None
    return {
        "tensor exchanges": (whole["tp"], ("tensor",)),
        "context exchanges": (whole["cp"], ("context",)),
        "expert exchanges": (whole["ep"], ("expert",)),
        "activations between stages": (whole["pp"] * float(case.p2p_exposed), ("send",)),
        "gathered parameters": (whole["dp"], ("fsdp",) if case.fsdp else ()),
        "gradients and parameters": (whole["dp"], () if case.fsdp else ("gradients", "parameters")),
    }
