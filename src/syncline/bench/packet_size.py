"""Do packets of full size arrive? Asked before any flow: a port that takes less stops TCP for a minute, then breaks it.

found = size_findings(lost, names, mtu_bytes, leaf)          # lost: (a, b) -> what did not come back
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from syncline.describe.guide import cite
from syncline.finding import Action, Finding, Severity
from syncline.host.packets import PacketLoss

MOST_PEERS = 64
"""With more hosts everyone asks those at distances of 1, 2, 4 and so on."""
_ALL, _FEW = 0.9, 0.5
_SHARE_OF_PAIRS = 0.75
"""A host is blamed when so many of the pairs it is in fail; a pair of two sound hosts fails for one of them only."""


def partners(index: int, count: int) -> list[int]:
    """Return whom one of so many hosts asks: everyone, or far fewer where there are many."""
    if count - 1 <= MOST_PEERS:
        return [other for other in range(count) if other != index]
    steps = [1 << power for power in range(count.bit_length()) if 1 << power < count]
    return sorted({(index + sign * step) % count for step in steps for sign in (1, -1)} - {index})


def size_findings(
    lost: Mapping[tuple[int, int], PacketLoss], names: Sequence[str], mtu_bytes: Sequence[int], leaf: Sequence[int]
) -> list[Finding]:
    """Return who is not reached at all, and between whom packets of full size are lost though small ones arrive."""
    worst: dict[tuple[int, int], PacketLoss] = {}
    for (a, b), seen in lost.items():
        pair, old = (min(a, b), max(a, b)), worst.get((min(a, b), max(a, b)), PacketLoss(0.0, 0.0))
        worst[pair] = PacketLoss(max(old.small, seen.small), max(old.large, seen.large))
    silent = {pair for pair, seen in worst.items() if seen.small >= _ALL}
    cut = {pair for pair, seen in worst.items() if seen.large >= _ALL and seen.small < _FEW}
    found = [_finding("silent", who, pairs, names, mtu_bytes) for who, pairs in _blamed(silent, worst, leaf, names)]
    return found + [_finding("size", who, pairs, names, mtu_bytes) for who, pairs in _blamed(cut, worst, leaf, names)]


def _blamed(
    bad: set[tuple[int, int]], asked: Mapping[tuple[int, int], PacketLoss], leaf: Sequence[int], names: Sequence[str]
) -> list[tuple[str, list[tuple[int, int]]]]:
    """Return hosts most of whose pairs fail, then leaves between which they fail, then what is left, with the pairs."""
    found: list[tuple[str, list[tuple[int, int]]]] = []
    left, pairs = set(bad), set(asked)
    while left:
        count, all_of = Counter(h for pair in left for h in pair), Counter(h for pair in pairs for h in pair)
        host, most = max(count.items(), key=lambda item: (item[1] / all_of[item[0]], item[1], -item[0]))
        second = max((n / all_of[h] for h, n in count.items() if h != host), default=0.0)
        if most < _SHARE_OF_PAIRS * all_of[host] or (len(pairs) > 1 and most < 2) or second == most / all_of[host]:
            break
        mine = sorted(pair for pair in left if host in pair)
        found.append((names[host], mine))
        left -= set(mine)
        pairs = {pair for pair in pairs if host not in pair}
    between: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for a, b in sorted(left):
        between.setdefault((min(leaf[a], leaf[b]), max(leaf[a], leaf[b])), []).append((a, b))
    for (one, other), rows in between.items():
        hosts = f"{names[rows[0][0]]} and {names[rows[0][1]]}"
        many = f"the leaf switches of {hosts}, and of {len(rows) - 1} more pairs"
        found.append((many if one != other and len(rows) > 1 else hosts, rows))
    return found


def _finding(
    kind: str, who: str, pairs: Sequence[tuple[int, int]], names: Sequence[str], mtu_bytes: Sequence[int]
) -> Finding:
    usual = Counter(mtu_bytes).most_common(1)[0][0]
    shown = tuple(f"{names[a]} <-> {names[b]}" for a, b in pairs[:4])
    if kind == "silent":
        return Finding(
            "bench.reach", Severity.CRITICAL, who, f"no packet comes back, in {len(pairs)} pairs", "every packet",
            shown, "hosts cannot talk to each other on these addresses: a job would wait, and then time out",
            "Look at link, address, VLAN, route and firewall (UDP and TCP, all ports, between all hosts of the job).",
            cite("method/bench"), Action.INSPECT, 0.9,
        )  # fmt: skip
    odd = [(name, size) for name, size in zip(names, mtu_bytes, strict=True) if size != usual]
    odd_mtus = [f"{name} has MTU {size:,}, most have {usual:,}" for name, size in odd[:4]]
    own = dict(odd).get(who)
    fix = (
        f"Set the interface of {who} to MTU {usual:,}, as the others have it."
        if own is not None
        else f"The hosts have MTU {usual:,}: raise that of the switch ports on the way, or lower the hosts'."
    )
    return Finding(
        "bench.mtu", Severity.CRITICAL, who,
        f"packets of {max(mtu_bytes[a] for pair in pairs for a in pair):,} bytes are lost, small ones arrive, in "
        f"{len(pairs)} pairs",
        "packets of the interface's MTU arrive", (*shown, *odd_mtus),
        "something on the way takes shorter packets than the hosts send: large messages hang, then time out",
        fix, cite("method/bench"), Action.CONFIGURE, 0.95,
    )  # fmt: skip
