"""Which link loses, from which paths lose: the fewest devices that explain every lossy path, the heaviest first.

A connection that sends again tells only that something between its two ends loses. Where several paths lose, the end
that they share is the likely place; a path alone is laid at the door of its sender.
"""

from __future__ import annotations

from collections.abc import Mapping

LEAST_SHARE = 0.05
"""A path whose rate is below this share of the worst is noise beside it, not evidence."""


def evident(lossy: Mapping[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """Return the paths that lose enough beside the worst to count."""
    top = max(lossy.values(), default=0.0)
    return {path: rate for path, rate in lossy.items() if rate > LEAST_SHARE * top > 0}


def attribute(lossy: Mapping[tuple[str, str], float], owner: Mapping[str, str]) -> dict[tuple[str, str], float]:
    """Return loss by (device, "tx" or "rx") from loss by (device, peer's address); `owner` has the device of each."""
    left = {(device, owner.get(peer, "")): rate for (device, peer), rate in evident(lossy).items()}
    found: dict[tuple[str, str], float] = {}
    while left:
        blame: dict[str, tuple[int, float]] = {}
        for (src, dst), rate in left.items():
            for device in (src, dst):
                count, total = blame.get(device, (0, 0.0))
                blame[device] = (count + 1, total + rate)
        blame.pop("", None)
        senders = {src for src, _ in left}
        # Most paths, then most loss; a sender before a receiver where nothing else decides.
        worst = max(sorted(blame), key=lambda device: (*blame[device], device in senders))
        for (src, dst), rate in list(left.items()):
            if worst in (src, dst):
                place = (worst, "tx" if src == worst else "rx")
                found[place] = found.get(place, 0.0) + rate
                del left[src, dst]
    return found
