"""A placement in words."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.describe import units
from syncline.describe.hostlist import compress
from syncline.questions.place import PlaceAnswer, Replacement

MOST_HOSTS = 16


def text(answer: PlaceAnswer, width: int) -> Iterator[str]:
    """Yield where ranks go and what that gains."""
    time = units.show_time
    given = answer.allocation.hosts
    yield f"{answer.job} on {answer.gpus:,} GPUs of {answer.cluster}, {len(given)} hosts given: {compress(given)}"
    yield ""
    yield f"  step, placed           {time(answer.step_time_s)}  ({_known(answer)})"
    if not answer.proved:
        yield f"  no order can beat      {time(answer.bound_s)}  (at most {answer.gap:.1%} is left to gain)"
    yield f"  step, scheduler order  {time(answer.scheduler_s)}  {_gain(answer.gain)}"
    yield f"  step, packed order     {time(answer.packed_s)}  {_gain(answer.gain_over_packed)}"
    if answer.remap is not None:
        yield _remap(answer.remap, answer.step_time_s)
    yield ""
    yield "  communication in the step    scheduler     placed  limited by"
    for each in answer.collectives:
        name = each.name.replace("reduce-scatter + all-gather", "rs+ag").replace("all-gather + reduce-scatter", "tp")
        yield f"    {name:24} {time(each.scheduler_s):>10} {time(each.placed_s):>10}  {each.limiting_link}"
    yield ""
    yield from _hosts(answer)
    yield f"flow level; ignores {', '.join(answer.ignores)}"


def _known(answer: PlaceAnswer) -> str:
    tried = answer.executed_orders
    if answer.proved and answer.step_time_s <= answer.bound_s and tried > 1:
        return f"the best: {tried} orders executed, and none can beat it"
    if answer.proved:
        return "there is no other arrangement" if tried == 1 else f"best of all {tried} arrangements"
    return "no swap of hosts promises more" if tried == 1 else f"best of {tried} orders executed"


def _gain(gain: float) -> str:
    return "(the same)" if abs(gain) < 5e-4 else f"(placing saves {gain:.1%})"


def _remap(remap: Replacement, step_s: float) -> str:
    in_place, best, here = map(units.show_time, (remap.in_place_s, remap.best_s, step_s))
    words = f"{remap.moved_units} hosts get other ranks" if remap.moved_units else "no other host moves"
    return f"  replaced in place      {in_place}, all hosts free to move {best}; here {words} ({here})"


def _hosts(answer: PlaceAnswer) -> Iterator[str]:
    ranks_of: dict[str, list[int]] = {}
    for seat in answer.ranks:
        ranks_of.setdefault(seat.host, []).append(seat.rank)
    yield "  ranks"
    for host, ranks in list(ranks_of.items())[:MOST_HOSTS]:
        whole = ranks[-1] - ranks[0] + 1 == len(ranks)
        shown = f"{ranks[0]}-{ranks[-1]}" if whole and len(ranks) > 1 else ",".join(map(str, ranks))
        yield f"    {shown:>11}  {host}"
    if len(ranks_of) > MOST_HOSTS:
        yield f"    ... {len(ranks_of) - MOST_HOSTS} hosts more: --out FOLDER or --json has them all"
    if answer.idle_hosts:
        yield f"    idle: {compress(answer.idle_hosts)}"
