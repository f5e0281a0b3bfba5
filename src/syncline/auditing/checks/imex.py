"""IMEX on hosts whose NVLink domain spans hosts: channels, service, node map, connections, versions."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.describe.names import few
from syncline.finding import Action, Severity
from syncline.host.host import Host
from syncline.host.imex import CHANNELS, IMEX_CTL, NODES, ImexDomain, node_map, parse_imex

STATES = {
    "I": "not reachable", "N": "never connected", "R": "recovering", "D": "disconnected", "A": "authenticating",
    "!V!": "another version", "!M!": "another node map",
}  # fmt: skip


def domain(host: Host) -> ImexDomain:
    """Return what the service says of its domain."""
    text = host.root.command("imex-ctl", IMEX_CTL, quiet=True)
    if text is None:
        raise CannotTell(host.root.problems.get(f"`{' '.join(IMEX_CTL)}`", "nvidia-imex-ctl does not answer"))
    found = parse_imex(text)
    if found is None:
        raise CannotTell("nvidia-imex-ctl -N does not report the state of the domain")
    return found


def channel(host: Host, expect: Expect) -> Iterator[Sight]:
    names = [name for name in host.root.names(CHANNELS) if re.fullmatch(r"channel\d+", name)]
    if not names:
        yield Sight(f"/{CHANNELS}", "no channel", "channel0", (CHANNELS,))
        return
    listed = host.root.command("imex-channels", ("ls", "-l", f"/{CHANNELS}"), quiet=True) or ""
    closed = re.findall(r"^(c\S{9}).*(channel\d+)$", listed, re.MULTILINE)
    for mode, name in closed:
        if mode[7:9] != "rw":
            yield Sight(f"/{CHANNELS}/{name}", f"mode {mode}", "crw-rw-rw-", (f"ls -l /{CHANNELS}",))


def service(host: Host, expect: Expect) -> Iterator[Sight]:
    state = host.service("nvidia-imex")
    if state is None:
        domain(host)  # in a container systemd cannot be asked; a service that answers runs
    elif state != "active":
        yield Sight("nvidia-imex", state, "active", ("systemctl is-active nvidia-imex",))


def connected(host: Host, expect: Expect) -> Iterator[Sight]:
    if host.service("nvidia-imex") not in (None, "active"):
        return  # imex.service says it
    found = domain(host)
    down = [f"{node.address} {node.state}" for node in found.nodes if node.state != "READY"]
    pairs = [p for p in found.apart if p[2] != "!V!" and p[0] not in _down(found) and p[1] not in _down(found)]
    apart = [f"{a}-{b} {STATES.get(letter, letter)}" for a, b, letter in pairs]
    other_version = any(letter == "!V!" for _, _, letter in found.apart)  # imex.version says it
    if down or apart or (found.state != "UP" and not other_version):
        shown = f": {few([*down, *apart])}" if down or apart else ""
        yield Sight("", f"domain {found.state}{shown}", "UP, all READY and connected", ("nvidia-imex-ctl -N",))


def versions(host: Host, expect: Expect) -> Iterator[Sight]:
    if host.service("nvidia-imex") not in (None, "active"):
        return
    found = domain(host)
    apart = [f"{a}-{b}" for a, b, letter in found.apart if letter == "!V!"]
    known = [node for node in found.nodes if node.version]
    if not known:
        if apart:
            yield Sight("nvidia-imex", f"another version between {few(apart)}", "one version", ("nvidia-imex-ctl -N",))
        return
    usual = Counter(node.version for node in known).most_common(1)[0][0]
    odd = [f"{node.address} {node.version}" for node in known if node.version != usual]
    driver = host.smi.head.get("Driver Version", "")
    if odd:
        yield Sight("nvidia-imex", few(odd), f"{usual} on all {len(known)} hosts", ("nvidia-imex-ctl -N",))
    elif driver and not driver.startswith(usual):
        yield Sight(
            "nvidia-imex", f"version {usual}", f"the driver's {driver}", ("nvidia-imex-ctl -N", "nvidia-smi -q")
        )


def nodes(host: Host, expect: Expect) -> Iterator[Sight]:
    if not host.root.exists("etc/nvidia-imex"):
        return  # in a container the file is the host's
    listed = node_map(host)
    own = {address.split("/")[0] for interface in host.interfaces for address in interface.addresses}
    if not listed:
        yield Sight(f"/{NODES}", "lists no host", "one line for each host of the domain", (NODES,))
    elif own and not own & set(listed) and host.name not in listed:
        yield Sight(f"/{NODES}", f"{len(listed)} hosts, none of them this one", few(sorted(own)), (NODES,))


def _down(found: ImexDomain) -> set[int]:
    return {node.index for node in found.nodes if node.state != "READY"}


RULES = (
    AuditRule("imex.channel", "there is an IMEX channel that programs may open", channel,
        "GPU memory of other hosts cannot be mapped: NCCL says MNNVL 0, or p2p fails with Cuda failure 800.",
        "options nvidia NVreg_CreateImexChannel0=1 in modprobe.d; containers: pass the channel; chmod 666 the device.",
        "NVIDIA IMEX guide, IMEX channels; nccl #2186", needs="nvlink_domain", severity=Severity.CRITICAL),
    AuditRule("imex.service", "the IMEX service runs", service,
        "NVLink works inside this host only; traffic to the rest of the rack takes the network.",
        "systemctl enable --now nvidia-imex (of the driver's version), after its node map is written.",
        "NVIDIA IMEX guide", needs="nvlink_domain", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("imex.domain", "every host of the IMEX domain is ready and connected to every other", connected,
        "Jobs that span the unconnected hosts lose NVLink between them, or fail when they map memory.",
        "Start nvidia-imex on the hosts named, check that its port 50000 is open, then nvidia-imex-ctl -N.",
        "NVIDIA IMEX guide, command service; nccl #1301",
        needs="nvlink_domain", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("imex.version", "the IMEX services of a domain are of one version, the driver's", versions,
        "Services of different versions do not talk to each other.",
        "Install nvidia-imex of the driver's version on all hosts of the domain, and restart it.",
        "NVIDIA IMEX guide, version mismatch", needs="nvlink_domain", severity=Severity.CRITICAL),
    AuditRule("imex.nodes", "the node map of IMEX lists this host", nodes,
        "The service does not start, or joins another domain than the rack's.",
        f"List one address of each host of the NVLink domain in /{NODES}, the same file on all; restart nvidia-imex.",
        "NVIDIA IMEX guide, node configuration file", needs="nvlink_domain", severity=Severity.CRITICAL),
)  # fmt: skip
