"""Do names lead where they should: this host's own, and those of the job's other hosts?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.describe.hostlist import expand
from syncline.describe.names import few
from syncline.errors import SynclineError
from syncline.finding import Severity
from syncline.host.host import Host
from syncline.host.lookup import ask, is_local

MAX_PEERS = 64
_REFERENCE = "pytorch #150532 #73656"
_NAME = re.compile(r"\w[\w.-]{0,252}")
_FILES = ("getent ahosts", "etc/hosts", "etc/nsswitch.conf")


def own_name(host: Host) -> tuple[str, ...] | None:
    """Return what the host's own name leads to: through the resolver, else by its hosts file; None where neither tells.

    A hosts file alone can say yes but not no: another source may know the name.
    """
    found = ask(host.root, host.name, key="getent-hosts")
    if found is None:
        return host.lookup.files.get(host.name) if host.lookup.files else None
    return found


def peer_names(host: Host) -> list[str]:
    """Return the names of the job's other hosts, as the launcher's variables tell them."""
    variables = host.environment
    listed = variables.get("SLURM_JOB_NODELIST") or variables.get("SLURM_NODELIST") or ""
    try:
        names = expand(listed) if listed else []
    except SynclineError:
        names = []
    master = variables.get("MASTER_ADDR", "")
    names += [master] if any(letter.isalpha() for letter in master) and ":" not in master else []
    others = (name for name in dict.fromkeys(names) if name not in (host.name, "localhost"))
    return [name for name in others if _NAME.fullmatch(name)][:MAX_PEERS]


def num_hosts(host: Host) -> int:
    """Return over how many hosts the job runs, as its launcher tells; 0 where nobody says."""
    variables = host.environment
    if variables.get("SLURM_NNODES", "").isdecimal():
        return int(variables["SLURM_NNODES"])
    for all_, here in (("WORLD_SIZE", "LOCAL_WORLD_SIZE"), ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE")):
        if variables.get(all_, "").isdecimal() and variables.get(here, "").isdecimal():
            return -(-int(variables[all_]) // max(1, int(variables[here])))
    return 0


def resolved_names(host: Host) -> dict[str, tuple[str, ...]]:
    """Return what this host takes names for, its own and those of others, to be held against where they are."""
    asked = {name: ask(host.root, name, key=f"getent-peer-{name}") for name in peer_names(host)}
    own = own_name(host)
    known = {name: found for name, found in asked.items() if found is not None}
    return host.lookup.others | known | ({host.name: own} if own is not None else {})


def resolves(host: Host, expect: Expect) -> Iterator[Sight]:
    hosts, addresses = num_hosts(host), own_name(host)
    severity = Severity.CRITICAL if hosts > 1 else None
    if addresses is None:
        raise CannotTell("neither getent nor /etc/hosts gives an address for this host")
    if not addresses:
        yield Sight(host.name, "does not resolve", "an address of this host", _FILES, severity)
    elif all(map(is_local, addresses)) and hosts != 1:
        yield Sight(host.name, f"resolves to {addresses[0]}", "an address that other hosts can reach", _FILES, severity)


def own_address(host: Host, expect: Expect) -> Iterator[Sight]:
    own = host.own_addresses
    elsewhere = [address for address in own_name(host) or () if not is_local(address)]
    if own and elsewhere and not own.intersection(elsewhere):
        yield Sight(
            host.name, f"resolves to {few(elsewhere)}", f"one of {few(sorted(own))}", (*_FILES, "ip address"),
            confidence=0.8,
        )  # fmt: skip


def sources(host: Host, expect: Expect) -> Iterator[Sight]:
    files = {address for address in host.lookup.files.get(host.name, ()) if not is_local(address)}
    if not files or not host.lookup.servers or "dns" not in host.lookup.order:
        return
    by_dns = [a for a in ask(host.root, host.name, key="getent-dns", only="dns") or () if not is_local(a)]
    if by_dns and files.isdisjoint(by_dns):
        yield Sight(
            host.name, f"{few(sorted(files))} in /etc/hosts, {few(by_dns)} by DNS", "one address",
            ("etc/hosts", "getent -s dns ahosts"),
        )  # fmt: skip


def order(host: Host, expect: Expect) -> Iterator[Sight]:
    sources = host.lookup.order
    if host.lookup.files and "files" not in sources:
        yield Sight("etc/nsswitch.conf", f"hosts: {' '.join(sources)}", "hosts: files ...", ("etc/nsswitch.conf",))


def peers(host: Host, expect: Expect) -> Iterator[Sight]:
    answers = {name: ask(host.root, name, key=f"getent-peer-{name}") for name in peer_names(host)}
    known = host.lookup.files
    lost = [name for name, found in answers.items() if found == () and name not in known]
    if lost:
        yield Sight(few(lost), "does not resolve here", "an address", ("getent ahosts", "etc/hosts"))
    if any(found is None and name not in known for name, found in answers.items()):
        raise CannotTell("getent cannot look up the job's other hosts")


RULES = (
    AuditRule("name.resolves", "the host's own name leads to an address that peers can reach", resolves,
        "torchrun publishes this name: peers connect to themselves or to nothing, and hang at the rendezvous.",
        "Give the name its fabric or management address in DNS or /etc/hosts; or torchrun --local-addr.",
        _REFERENCE),
    AuditRule("name.own_address", "the host's own name leads to an address that the host has", own_address,
        "The name leads to another host, or to none: peers connect there and wait.",
        "Correct the name's address in /etc/hosts or DNS; after a change of address both keep the old one.",
        _REFERENCE),
    AuditRule("name.sources", "/etc/hosts and DNS agree on the host's own name", sources,
        "This host and its peers resolve the name to different addresses, and one side waits in vain.",
        "Remove the name from /etc/hosts, or give it the address that DNS has.",
        _REFERENCE),
    AuditRule("name.order", "names are looked up in /etc/hosts", order,
        "What /etc/hosts says of peers is not used, nor its line for localhost.",
        "hosts: files dns, in /etc/nsswitch.conf.",
        "nsswitch.conf(5)"),
    AuditRule("name.peers", "the names of the job's other hosts resolve here", peers,
        "Ranks on this host cannot connect to hosts that they know by name.",
        "Add the names to DNS, or to /etc/hosts of every host.",
        _REFERENCE, needs="environment", severity=Severity.CRITICAL),
)  # fmt: skip
