"""Where packets are lost that no interface counts: paths that send again, laid on a link by paths and switches.

A connection that sends again tells only that something between its two ends loses. Paths that lose together are laid on
the end they share: the fewest devices that explain every lossy path, the heaviest first. A path that loses alone waits
for its switches: one that keeps packets names the link by which they came; where none does, they are lost on the path's
last cable.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Hashable, Mapping
from typing import Generic, TypeVar

from syncline.watch.counter import Growth
from syncline.watch.link_map import LinkMap
from syncline.watch.loss.switch_loss import SwitchLoss
from syncline.watch.metric import Key, Reading

LEAST_SHARE = 0.05
"""A path whose loss is below this share of the worst is noise beside it, not evidence."""
Path = tuple[str, str]
"""A device, and the address of a peer."""
Place = tuple[str, str]
"""A device, and "tx" or "rx"."""

RESENT = "tcp.path_retransmitted"
MEMORY_S = 3.0
"""How long a loss of a path, or of a switch, stands beside the next ones."""
PATIENCE_S = 1.25
"""What a switch keeps, and what another path loses, is known so long after a path sent again, or not at all."""
IMPATIENT_S = 0.05
"""What waits longer in a queue may be sent again without being lost."""
LEAST_SENT = 5e-4
"""A path that sends less than this share of a device's packets again loses none for sure: reports of duplicates, which
excuse what was sent again, are lost themselves."""
_COUNTED = ("net.tx_dropped", "net.rx_dropped", "net.qdisc_drops")
Name = TypeVar("Name", bound=Hashable)


class _Recent(Generic[Name]):
    """Counts of the last seconds, by name."""

    def __init__(self) -> None:
        self._rows: deque[tuple[float, Name, float]] = deque()

    def add(self, now_s: float, counts: Mapping[Name, float]) -> dict[Name, float]:
        """Take new counts; return the sums of what is remembered."""
        self._rows.extend((now_s, name, count) for name, count in counts.items())
        while self._rows and now_s - self._rows[0][0] > MEMORY_S:
            self._rows.popleft()
        sums: dict[Name, float] = {}
        for _, name, count in self._rows:
            sums[name] = sums.get(name, 0.0) + count
        return sums


class LostPackets:
    """Takes every reading; says how many packets a second were lost where."""

    def __init__(self, links: LinkMap) -> None:
        self._switches = SwitchLoss(links)
        self._totals: dict[Path, float] = {}
        self._waiting: set[str] = set()
        """Devices whose queues were long at the last reading."""
        self._lossy: _Recent[Path] = _Recent()
        self._kept: _Recent[str] = _Recent()
        self._sent: _Recent[str] = _Recent()
        self._held: dict[Path, tuple[float, float]] = {}
        """Since when, and how many, losses of a path wait to be laid somewhere."""
        self._before_s: float | None = None

    def update(
        self, reading: Reading, grown: Mapping[Key, Growth], now_s: float, owner: Mapping[str, str]
    ) -> dict[Place, float]:
        """Return packets lost a second by (device, "tx" or "rx"); `owner` has the device of each address."""
        fresh = self._fresh(reading, grown, owner)
        kept = self._switches.look(reading)
        sent = self._sent.add(now_s, {k.device: g.delta for k, g in grown.items() if k.metric == "net.tx_packets"})
        paths = self._lossy.add(now_s, fresh).items()
        lossy = evident({path: count for path, count in paths if count > LEAST_SENT * sent.get(path[0], 0.0)})
        keeps = {name: count for name, count in self._kept.add(now_s, kept or {}).items() if count > 0}
        for path, count in fresh.items():
            since_s, waiting = self._held.get(path, (now_s, 0.0))
            self._held[path] = (since_s, waiting + count)
        counted = any(growth.delta > 0 and key.metric in _COUNTED for key, growth in grown.items())
        ends = Counter(end for device, peer in lossy for end in (device, owner.get(peer, "")))
        together = culprits(lossy, owner)
        interval_s = now_s - self._before_s if self._before_s is not None else 0.0
        self._before_s = now_s
        lost: dict[Place, float] = {}
        for path, (since_s, count) in list(self._held.items()):
            if path not in lossy or counted:  # a queue that overflows has counted them already
                del self._held[path]
                continue
            is_alone = ends[path[0]] == ends[owner.get(path[1], "")] == 1
            place: Place | None = together[path]
            if kept is not None and (leaves := self._switches.leaves(path[0], owner.get(path[1], ""))) is not None:
                is_late = now_s - since_s >= PATIENCE_S
                place = self._place(path, owner, leaves, keeps, reading, is_alone=is_alone, is_late=is_late) or (
                    together[path] if not is_alone and (is_late or leaves[0] == leaves[1]) else None
                )
            if place is not None and interval_s > 0:
                lost[place] = lost.get(place, 0.0) + count / interval_s
                del self._held[path]
        return lost

    def _fresh(self, reading: Reading, grown: Mapping[Key, Growth], owner: Mapping[str, str]) -> dict[Path, float]:
        """Return what each path lost since the last reading, but for those that only wait long in a queue.

        An acknowledgement that waits makes its sender send again as a packet that waits does: both ways count.
        """
        before, totals, self._waiting = self._waiting, {}, set()
        for key, value in reading.items():
            if key.metric == RESENT:
                totals[key.device, key.part] = value
            elif key.metric in ("net.up", "net.backlog_bytes") and _waits(key, value, grown):
                self._waiting.add(key.device)
        fresh = {path: total - self._totals.get(path, total) for path, total in totals.items()}
        self._totals = totals
        return {
            path: count
            for path, count in fresh.items()
            if count > 0 and (before | self._waiting).isdisjoint(self._switches.queues(path[0], owner.get(path[1], "")))
        }

    def _place(
        self, path: Path, owner: Mapping[str, str], leaves: tuple[str, str], keeps: Mapping[str, float],
        reading: Reading, *, is_alone: bool, is_late: bool,
    ) -> Place | None:  # fmt: skip
        """Return where a path loses by what switches keep; None where that is not known (yet)."""
        (src, peer), (first, last) = path, leaves
        if first == last:
            if not is_alone or not is_late:
                return None
            return (src, "tx") if keeps.get(first, 0.0) > 0 else (owner[peer], "rx")
        if first in keeps:
            return (src, "tx")
        for name in sorted(set(keeps) - {first, last}, key=lambda name: -keeps[name]):
            if (place := self._switches.entrance(name, first, reading)) is not None:
                return place
        if last in keeps:
            return self._switches.entrance(last, "", reading)
        return (owner[peer], "rx") if is_alone and is_late else None


def _waits(key: Key, value: float, grown: Mapping[Key, Growth]) -> bool:
    """Tell whether packets wait so long to leave a device that their senders lose patience, or cannot leave it."""
    if key.metric == "net.up" or value <= 0:
        return not value and key.metric == "net.up"
    sent = grown.get(Key("net.tx_bytes", key.device))
    return sent is not None and value > IMPATIENT_S * sent.rate


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
