"""The kernel's log: what it says of cards, cables, power and heat."""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.audit.expect import Expect
from syncline.audit.host import Host
from syncline.audit.rule import Check, Seen, rule
from syncline.finding import Action, Severity

FLAPS_IN_LOG = 5


def _lines(pattern: str, observed: str, expected: str = "no such line", at_least: int = 1) -> Check:
    """Return a check that reports the lines of the kernel log that match."""
    sought = re.compile(pattern)

    def check(host: Host, expect: Expect) -> Iterator[Seen]:
        found = [line for line in host.kernel_log if sought.search(line)]
        if len(found) >= at_least:
            yield Seen(
                "kernel log", f"{observed}: {len(found)} times", expected, tuple(line[:200] for line in found[-3:])
            )

    return check


rule(
    "kernel.log.xid",
    "the driver reports no Xid or SXid",
    severity=Severity.CRITICAL,
    action=Action.RESTART,
    needs=("nvidia",),
    meaning="The GPU or an NVSwitch had an error; jobs on it crash or hang.",
    fix="Look the number up: 48, 63, 64, 74, 79, 94, 95 and 119 mean drain the host, then reset or replace.",
    reference="NVIDIA Xid errors",
)(_lines(r"NVRM: Xid|SXid", "Xid"))

rule(
    "kernel.log.flaps",
    "the kernel saw links stay up",
    action=Action.INSPECT,
    meaning="A link goes down and up: each time collectives through it stall or fail.",
    fix="Swap optic and cable of the interface in the evidence; look at the switch port.",
    reference="azurehpc-health-checks check_ib_link_flapping",
)(_lines(r"lost carrier|[Ll]ink is Down|Link down|link down", "link down", f"fewer than {FLAPS_IN_LOG}", FLAPS_IN_LOG))

rule(
    "kernel.log.power",
    "cards get enough power from their slots",
    severity=Severity.CRITICAL,
    action=Action.INSPECT,
    meaning="The card runs with less power than it needs: optics stay off or the port slows down.",
    fix="Check the slot's power budget and auxiliary cable; update the card's firmware.",
    reference="gpud infiniband kmsg patterns",
)(_lines(r"insufficient power on the PCIe slot", "insufficient slot power"))

rule(
    "kernel.log.pcie",
    "no card is limited by its PCIe link",
    action=Action.INSPECT,
    needs=("metal",),
    meaning="The driver measured less PCIe bandwidth than the card can use.",
    fix="As pcie.link.width: reseat, check the slot and the BIOS.",
    reference="imbue cluster-health: limited PCIe bandwidth",
)(_lines(r"mlx5.*(?:limited by|limited PCIe)|(?:limited by|limited PCIe).*mlx5", "limited PCIe bandwidth"))

rule(
    "kernel.log.heat",
    "no optic or module is too hot",
    action=Action.INSPECT,
    meaning="A hot transceiver has bit errors and switches itself off.",
    fix="Check airflow and dust; clean or replace the module.",
    reference="gpud infiniband kmsg patterns",
)(_lines(r"Port module event.*High Temperature", "transceiver too hot"))

rule(
    "kernel.log.access_reg",
    "monitoring does not flood restricted cards",
    meaning="A tool polls a card that refuses: log floods and latency spikes. The monitoring is the cause.",
    fix="Exclude restricted PFs from the exporter (node_exporter, gpud) that polls them.",
    reference="node_exporter #3434, gpud #1164",
)(_lines(r"mlx5_cmd_out_err.*ACCESS_REG.*failed", "ACCESS_REG refused", "fewer than 20", 20))

rule(
    "kernel.log.hung_task",
    "no task was stuck in the kernel",
    action=Action.RESTART,
    meaning="A process waited for minutes inside the kernel: storage, a driver, or a dead peer.",
    fix="See which task and which call in the evidence; a reboot clears it.",
    reference="kernel hung_task detector",
)(_lines(r"blocked for more than \d+ seconds", "hung task"))
