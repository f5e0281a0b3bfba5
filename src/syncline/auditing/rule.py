"""A rule: one stable id, one question about a host, and what the answer means.

    def mtu(host: Host, expect: Expect) -> Iterator[Sight]:
        for interface in host.fabric_interfaces:
            if interface.mtu < wanted:
                yield Sight(interface.name, f"MTU {interface.mtu}", f"{wanted}", (f"{interface.folder}/mtu",))

    RULES = (AuditRule("net.mtu", "fabric interfaces have the fabric's MTU", mtu, meaning, fix, reference), ...)

A check yields what it saw, nothing where all is well, and raises `CannotTell` where it has no way to know.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from syncline.auditing.expect import Expect
from syncline.finding import Action, Finding, Place, Severity
from syncline.host.gpu import nvlink_domains
from syncline.host.host import Host


class CannotTell(Exception):  # noqa: N818
    """The rule has no source to answer from; the text says what is missing."""


@dataclass(frozen=True)
class Sight:
    """One thing a rule saw. `severity`, `fix` and `confidence` override the rule's own."""

    place: str
    observed: str
    expected: str = ""
    evidence: tuple[str, ...] = ()
    severity: Severity | None = None
    fix: str = ""
    confidence: float = 1.0


Check = Callable[[Host, Expect], Iterable[Sight | Finding]]
"""A check yields what it saw, or findings of another engine as they are."""


@dataclass(frozen=True)
class AuditRule:
    """One check with its words."""

    id: str
    about: str
    check: Check
    meaning: str
    fix: str
    reference: str
    needs: str = ""
    """Names of `CAPABILITIES`, with spaces between them, without which the question does not arise."""
    severity: Severity = Severity.WARNING
    action: Action = Action.CONFIGURE

    def finding(self, host: str, seen: Sight | Finding) -> Finding:
        """Return what was seen as a finding of a host."""
        if isinstance(seen, Finding):
            place = Place(host, seen.place.removeprefix(host).strip())
            return replace(seen, place=str(place), places=(place,))
        severity, place = self.severity if seen.severity is None else seen.severity, Place(host, seen.place)
        return Finding(
            self.id, severity, str(place), seen.observed, seen.expected, seen.evidence, self.meaning,
            seen.fix or self.fix, self.reference, self.action, seen.confidence, places=(place,),
        )  # fmt: skip

    def unknown(self, host: str, reason: str, evidence: tuple[str, ...] = ()) -> Finding:
        """Return that the rule could not be checked, and why."""
        meaning, fix = "This could not be checked.", _remedy(reason)
        return Finding(self.id, Severity.UNKNOWN, host, reason, self.about, evidence, meaning, fix, self.reference)


CAPABILITIES: dict[str, tuple[str, Callable[[Host, Expect], bool]]] = {
    "described": ("no cluster description was given", lambda _, expect: bool(expect.source)),
    "gpu": ("no GPU on the PCI bus", lambda host, _: bool(host.gpus)),
    "nvidia": ("no NVIDIA GPU on the PCI bus", lambda host, _: any(gpu.pci.vendor == 0x10DE for gpu in host.gpus)),
    "nvlink_domain": ("no NVLink domain across hosts", lambda host, _: bool(nvlink_domains(host.gpus))),
    "nvswitch": ("no NVSwitch on the PCI bus", lambda host, _: any(device.is_nvswitch for device in host.pci)),
    "rdma": ("no RDMA device", lambda host, _: bool(host.ports)),
    "infiniband": ("no InfiniBand port", lambda host, _: any(port.is_infiniband for port in host.fabric_ports)),
    "roce": ("no RoCE port", lambda host, _: any(port.is_roce for port in host.fabric_ports)),
    "mlx": ("no ConnectX card", lambda host, _: any(port.is_connectx for port in host.ports)),
    "efa": ("no EFA device", lambda host, _: any(port.driver == "efa" for port in host.ports)),
    "interface": ("no network interface but loopback", lambda host, _: any(not i.is_loopback for i in host.interfaces)),
    "fabric_interface": ("no interface that training traffic would use", lambda host, _: bool(host.fabric_interfaces)),
    "sockets": ("collectives would use RDMA, not sockets", lambda host, _: not host.ports),
    "own_tcp": ("a lab sets TCP as it needs it", lambda host, _: "SYNCLINE_LAB_SCALE" not in host.environment),
    "vm": ("not a virtual machine", lambda host, _: bool(host.virtual_by)),
    "metal": ("a virtual machine: the hypervisor's host decides", lambda host, _: not host.virtual_by),
    "numa": ("one NUMA node only", lambda host, _: host.num_numa > 1),
    "pci": ("no PCI bus to be seen", lambda host, _: bool(host.pci.devices)),
    "perftest": ("ib_write_bw (perftest) is not installed", lambda *_: shutil.which("ib_write_bw") is not None),
    "dcgm": ("dcgmi (DCGM) is not installed", lambda *_: shutil.which("dcgmi") is not None),
    "ipmi": ("ipmitool is not installed", lambda *_: shutil.which("ipmitool") is not None),
    "environment": ("no NCCL or Gloo variable is set", lambda host, _: bool(host.environment)),
}


def odd_ones(values: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """Return the value that most have, and those who have another."""
    usual = Counter(values.values()).most_common(1)[0][0] if values else ""
    return usual, {name: value for name, value in values.items() if value != usual}


def _remedy(reason: str) -> str:
    if "ermission" in reason or "not permitted" in reason or "needs root" in reason:
        return "Run the audit as root once, or on a capture that root made."
    if "not installed" in reason:
        return "Install the tool that is named, or check by hand."
    return "See the evidence; check by hand."
