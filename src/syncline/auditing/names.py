"""Names across hosts: does everyone who knows a host by name find it where it is?

A report tells a host's own addresses and what it takes names for: from its hosts file, from its resolver for its own
name, and with --peers from its resolver for every other host. An address that the named host does not have sends
connections elsewhere or nowhere; two hosts with one address take each other's packets.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence

from syncline.auditing.report import HostReport
from syncline.describe.names import few
from syncline.finding import Action, Finding, Severity

_MEANING = "torchrun and MPI hand hosts' names around: ranks connect to another host or to nothing, and hang."
_FIX = "Give the name one address in DNS, or the same line in /etc/hosts of every host; mend the host that is named."


def bad_names(reports: Sequence[HostReport]) -> list[Finding]:
    """Return findings on names that lead elsewhere or nowhere, and on addresses that two hosts have."""
    known = _by_name(reports)
    own = {report.host: frozenset(report.addresses) for report in reports if report.addresses}
    return [*_twice(own), *_elsewhere(reports, known, own), *_nowhere(reports, known)]


def _by_name(reports: Sequence[HostReport]) -> dict[str, str]:
    """Return host by name, long and short; a short name that two hosts share tells neither."""
    shorts = Counter(report.host.partition(".")[0] for report in reports)
    short = {report.host.partition(".")[0]: report.host for report in reports}
    return {name: host for name, host in short.items() if shorts[name] == 1} | {r.host: r.host for r in reports}


def _twice(own: Mapping[str, frozenset[str]]) -> Iterator[Finding]:
    owners: dict[str, list[str]] = defaultdict(list)
    for host, addresses in own.items():
        for address in addresses:
            owners[address].append(host)
    shared: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for address, hosts in sorted(owners.items()):
        if len(hosts) > 1:
            shared[tuple(sorted(hosts))].append(address)
    for both, common in shared.items():
        yield Finding(
            "cluster.address.twice", Severity.CRITICAL, few(both), f"all have {few(common)}", "one host each",
            ("addresses",), "Packets for one host reach the other: connections break or go to the wrong rank.",
            "Give each host its own address; look for a cloned image or two DHCP servers.", action=Action.CONFIGURE,
            confidence=0.9,
        )  # fmt: skip


def _elsewhere(
    reports: Sequence[HostReport], known: Mapping[str, str], own: Mapping[str, frozenset[str]]
) -> Iterator[Finding]:
    wrong: dict[tuple[str, str], tuple[str, ...]] = {}
    right: set[str] = set()
    for asker, named, addresses in _answers(reports, known):
        if addresses and named in own:
            if own[named].isdisjoint(addresses):
                wrong[asker, named] = addresses
            else:
                right.add(named)
    for blamed, pairs in _blamed(set(wrong), right):
        asker, named = pairs[0]
        owner = next((host for host, addresses in own.items() if not addresses.isdisjoint(wrong[pairs[0]])), "")
        text = f"{asker} takes {named} to be at {wrong[asker, named][0]}" + (f", which is {owner}" if owner else "")
        more = f", and {len(pairs) - 1} more like it" if len(pairs) > 1 else ""
        yield _finding(
            "cluster.name.address", blamed, text + more, f"an address of {named} ({few(sorted(own[named]))})"
        )


def _nowhere(reports: Sequence[HostReport], known: Mapping[str, str]) -> Iterator[Finding]:
    answers = {(asker, named): addresses for asker, named, addresses in _answers(reports, known)}
    right = {named for (_, named), addresses in answers.items() if addresses}
    lost = {pair for pair, addresses in answers.items() if not addresses}
    # Without a name server the hosts file is all a host has.
    alone = [report.host for report in reports if report.names and "name servers" not in report.facts]
    lost |= {(asker, named) for asker in alone for named in right if asker != named and (asker, named) not in answers}
    for blamed, pairs in _blamed(lost, right):
        asker, named = pairs[0]
        more = f", nor {len(pairs) - 1} more" if len(pairs) > 1 else ""
        yield _finding("cluster.name.unknown", blamed, f"{asker} does not find {named} by name{more}", "an address")


def _answers(reports: Sequence[HostReport], known: Mapping[str, str]) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield who takes which other host to be where."""
    for report in reports:
        for name, addresses in report.names.items():
            named = known.get(name)
            if named is not None and named != report.host:
                yield report.host, named, tuple(addresses)


def _blamed(pairs: set[tuple[str, str]], right: set[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Put each bad pair under the host named where nobody finds it, else under the one who asks."""
    groups: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for asker, named in sorted(pairs):
        groups[asker if named in right else named].append((asker, named))
    yield from groups.items()


def _finding(rule: str, place: str, observed: str, expected: str) -> Finding:
    return Finding(rule, Severity.CRITICAL, place, observed, expected, ("names", "addresses"), _MEANING, _FIX,
                   "pytorch #150532 #73656", action=Action.CONFIGURE, confidence=0.9)  # fmt: skip
