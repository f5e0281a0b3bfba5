"""Who a hung job waits for, and in which collective: from what flight recorders say is not finished.

Ranks of a group run the same collectives in the same order. A rank that has not entered the one the others wait in is
the one to look at; where all of them wait in the same one, the network between them is.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from syncline.describe.names import few
from syncline.timeline.collective import canonical
from syncline.watch.spans.event import Hang, PendingEvent


class Pending:
    """The unfinished collectives of every rank that dumped; a newer dump of a rank takes the place of its older one."""

    def __init__(self) -> None:
        self._by_rank: dict[int, dict[str, PendingEvent]] = {}

    def take(self, events: Iterable[PendingEvent]) -> None:
        """Take what one look at the dumps gave: of each rank and group the oldest that is not finished."""
        fresh: dict[int, dict[str, PendingEvent]] = {}
        for event in events:
            known = fresh.setdefault(event.rank, {}).get(event.group)
            if known is None or event.number < known.number:
                fresh[event.rank][event.group] = event
        self._by_rank.update(fresh)

    def clear(self) -> None:
        """Forget all: the job moves again."""
        self._by_rank.clear()

    def hangs(self, ranks: Iterable[int]) -> tuple[Hang, ...]:
        """Return what each group waits for; `ranks` are all that are known of the job."""
        if not self._by_rank:
            return ()
        groups = {group for own in self._by_rank.values() for group in own}
        everyone = sorted({*ranks, *self._by_rank})
        return tuple(
            _hang({r: own[group] for r, own in self._by_rank.items() if group in own}, everyone)
            for group in sorted(groups)
        )


def _hang(waits: Mapping[int, PendingEvent], everyone: list[int]) -> Hang:
    first = min(event.number for event in waits.values())
    last = max(event.number for event in waits.values())
    behind = sorted(rank for rank, event in waits.items() if event.number < last)
    absent = [rank for rank in everyone if rank not in waits]
    newest = next(event for event in waits.values() if event.number == last)
    name = f"{canonical(newest.name, newest.size_bytes, newest.group)} (number {last})"
    waiting = tuple(sorted(rank for rank, event in waits.items() if event.number == last))
    wait = _ranks(waiting, "waits", "wait")
    if absent and not behind:
        text = f"{_ranks(absent, 'has', 'have')} not entered {name}, in which {wait}"
        return Hang(tuple(absent), name, waiting, text)
    if behind:
        old = waits[behind[0]]
        held = f"{canonical(old.name, old.size_bytes, old.group)} (number {first})"
        text = f"{_ranks(behind, 'is', 'are')} still in {held} while {wait} in {name}"
        return Hang(tuple(behind), held, waiting, text)
    names = {event.name for event in waits.values()}
    if len(names) > 1:
        text = f"ranks call different collectives as number {last}: {', '.join(sorted(names)[:3])}"
        return Hang(tuple(sorted(waits)), name, (), text)
    text = f"all {len(waits)} ranks wait in {name}: the network between them, or a rank that writes no dumps"
    return Hang((), name, waiting, text)


def _ranks(ranks: Sequence[int], one: str, several: str) -> str:
    """Return ranks in a few words, with the verb that fits their number."""
    noun, verb = ("rank", one) if len(ranks) == 1 else ("ranks", several)
    return f"{noun} {few(ranks)} {verb}"
