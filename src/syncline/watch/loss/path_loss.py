"""Which link loses, from which paths lose: the fewest devices that explain every lossy path, the heaviest first.

A connection that sends again tells only that something between its two ends loses. Where several paths lose, the end
that they share is the likely place; a path alone is laid at the door of its sender.
"""

from __future__ import annotations

from collections.abc import Mapping

LEAST_SHARE = 0.05
"""A path whose loss is below this share of the worst is noise beside it, not evidence."""
Path = tuple[str, str]
"""A device, and the address of a peer."""
Place = tuple[str, str]
"""A device, and "tx" or "rx"."""


def evident(lossy: Mapping[Path, float]) -> dict[Path, float]:
    """Return the paths that lose enough beside the worst to count."""
    top = max(lossy.values(), default=0.0)
    return {path: loss for path, loss in lossy.items() if loss > LEAST_SHARE * top > 0}


def culprits(lossy: Mapping[Path, float], owner: Mapping[str, str]) -> dict[Path, Place]:
    """Return the place that each lossy path loses at; `owner` has the device of each address."""
    left = {path: (path[0], owner.get(path[1], ""), loss) for path, loss in evident(lossy).items()}
    found: dict[Path, Place] = {}
    while left:
        blame: dict[str, tuple[int, float]] = {}
        for src, dst, loss in left.values():
            for device in (src, dst):
                count, total = blame.get(device, (0, 0.0))
                blame[device] = (count + 1, total + loss)
        blame.pop("", None)
        senders = {src for src, _, _ in left.values()}
        # Most paths, then most loss; a sender before a receiver where nothing else decides.
        worst = max(sorted(blame), key=lambda device: (*blame[device], device in senders))
        for path, (src, dst, _) in list(left.items()):
            if worst in (src, dst):
                found[path] = (worst, "tx" if src == worst else "rx")
                del left[path]
    return found
