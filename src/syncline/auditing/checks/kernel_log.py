"""The kernel's log: what it reports of cards, cables, power and heat. One row of the table is one rule."""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, Check, Sight
from syncline.finding import Action, Severity
from syncline.host.host import Host

FLAPS_IN_LOG = 5


def lines(pattern: str, observed: str, at_least: int = 1) -> Check:
    """Return a check that reports the lines of the kernel log that match, where there are enough of them."""
    wanted = re.compile(pattern)
    expected = "no such line" if at_least == 1 else f"fewer than {at_least}"

    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        matches = [text for text in host.kernel_log if wanted.search(text)]
        if len(matches) >= at_least:
            evidence = tuple(text[:200] for text in matches[-3:])
            yield Sight("kernel log", f"{observed}: {len(matches)} times", expected, evidence)

    return check


RULES = (
    AuditRule("kernel.log.xid", "the driver reports no Xid or SXid",
        lines(r"NVRM: Xid|SXid", "Xid"),
        "The GPU or an NVSwitch had an error; jobs on it crash or hang.",
        "Look the number up: 48, 63, 64, 74, 79, 94, 95 and 119 mean drain the host, then reset or replace.",
        "NVIDIA Xid errors", needs="nvidia", severity=Severity.CRITICAL, action=Action.RESTART),
    AuditRule("kernel.log.flaps", "the kernel saw links stay up",
        lines(r"lost carrier|[Ll]ink is Down|Link down|link down", "link down", at_least=FLAPS_IN_LOG),
        "A link goes down and up: each time collectives through it stall or fail.",
        "Swap optic and cable of the interface in the evidence; look at the switch port.",
        "azurehpc-health-checks check_ib_link_flapping", action=Action.INSPECT),
    AuditRule("kernel.log.power", "cards get enough power from their slots",
        lines(r"insufficient power on the PCIe slot", "insufficient slot power"),
        "The card runs with less power than it needs: optics stay off or the port slows down.",
        "Check the slot's power budget and auxiliary cable; update the card's firmware.",
        "gpud infiniband kmsg patterns", severity=Severity.CRITICAL, action=Action.INSPECT),
    AuditRule("kernel.log.pcie", "no card is limited by its PCIe link",
        lines(r"mlx5.*(?:limited by|limited PCIe)|(?:limited by|limited PCIe).*mlx5", "limited PCIe bandwidth"),
        "The driver measured less PCIe bandwidth than the card can use.",
        "As pcie.link.width: reseat, check the slot and the BIOS.",
        "imbue cluster-health: limited PCIe bandwidth", needs="metal", action=Action.INSPECT),
    AuditRule("kernel.log.heat", "no optic or module is too hot",
        lines(r"Port module event.*High Temperature", "transceiver too hot"),
        "A hot transceiver has bit errors and switches itself off.",
        "Check airflow and dust; clean or replace the module.",
        "gpud infiniband kmsg patterns", action=Action.INSPECT),
    AuditRule("kernel.log.access_reg", "monitoring does not flood restricted cards",
        lines(r"mlx5_cmd_out_err.*ACCESS_REG.*failed", "ACCESS_REG refused", at_least=20),
        "A tool polls a card that refuses: log floods and latency spikes. The monitoring is the cause.",
        "Exclude restricted PFs from the exporter (node_exporter, gpud) that polls them.",
        "node_exporter #3434, gpud #1164", action=Action.CONFIGURE),
    AuditRule("kernel.log.hung_task", "no task was stuck in the kernel",
        lines(r"blocked for more than \d+ seconds", "hung task"),
        "A process waited for minutes inside the kernel: storage, a driver, or a dead peer.",
        "See which task and which call in the evidence; a reboot clears it.",
        "kernel hung_task detector", action=Action.RESTART),
)  # fmt: skip
