"""The kernel's log: what it says of cards, cables, power and heat. One row of the table is one rule."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from syncline.audit.expect import Expect
from syncline.audit.rule import Check, Sight, rule
from syncline.finding import Action, Severity
from syncline.host.host import Host

FLAPS_IN_LOG = 5


@dataclass(frozen=True)
class LogPattern:
    """Lines of the log that mean something: what they look like, from how many on, and what to say of them."""

    id: str
    about: str
    pattern: str
    observed: str
    meaning: str
    fix: str
    reference: str
    severity: Severity = Severity.WARNING
    action: Action = Action.INSPECT
    needs: tuple[str, ...] = ()
    at_least: int = 1


LINES = (
    LogPattern("kernel.log.xid", "the driver reports no Xid or SXid", r"NVRM: Xid|SXid", "Xid",
         "The GPU or an NVSwitch had an error; jobs on it crash or hang.",
         "Look the number up: 48, 63, 64, 74, 79, 94, 95 and 119 mean drain the host, then reset or replace.",
         "NVIDIA Xid errors", Severity.CRITICAL, Action.RESTART, ("nvidia",)),
    LogPattern("kernel.log.flaps", "the kernel saw links stay up", r"lost carrier|[Ll]ink is Down|Link down|link down",
         "link down", "A link goes down and up: each time collectives through it stall or fail.",
         "Swap optic and cable of the interface in the evidence; look at the switch port.",
         "azurehpc-health-checks check_ib_link_flapping", at_least=FLAPS_IN_LOG),
    LogPattern("kernel.log.power", "cards get enough power from their slots", r"insufficient power on the PCIe slot",
         "insufficient slot power",
         "The card runs with less power than it needs: optics stay off or the port slows down.",
         "Check the slot's power budget and auxiliary cable; update the card's firmware.",
         "gpud infiniband kmsg patterns", Severity.CRITICAL),
    LogPattern("kernel.log.pcie", "no card is limited by its PCIe link",
         r"mlx5.*(?:limited by|limited PCIe)|(?:limited by|limited PCIe).*mlx5", "limited PCIe bandwidth",
         "The driver measured less PCIe bandwidth than the card can use.",
         "As pcie.link.width: reseat, check the slot and the BIOS.",
         "imbue cluster-health: limited PCIe bandwidth", needs=("metal",)),
    LogPattern("kernel.log.heat", "no optic or module is too hot", r"Port module event.*High Temperature",
         "transceiver too hot", "A hot transceiver has bit errors and switches itself off.",
         "Check airflow and dust; clean or replace the module.", "gpud infiniband kmsg patterns"),
    LogPattern("kernel.log.access_reg", "monitoring does not flood restricted cards",
         r"mlx5_cmd_out_err.*ACCESS_REG.*failed", "ACCESS_REG refused",
         "A tool polls a card that refuses: log floods and latency spikes. The monitoring is the cause.",
         "Exclude restricted PFs from the exporter (node_exporter, gpud) that polls them.",
         "node_exporter #3434, gpud #1164", action=Action.CONFIGURE, at_least=20),
    LogPattern("kernel.log.hung_task", "no task was stuck in the kernel", r"blocked for more than \d+ seconds",
         "hung task", "A process waited for minutes inside the kernel: storage, a driver, or a dead peer.",
         "See which task and which call in the evidence; a reboot clears it.", "kernel hung_task detector",
         action=Action.RESTART),
)  # fmt: skip


def _check(line: LogPattern) -> Check:
    """Return a check that reports the lines of the kernel log that match."""
    sought = re.compile(line.pattern)
    expected = "no such line" if line.at_least == 1 else f"fewer than {line.at_least}"

    def check(host: Host, expect: Expect) -> Iterator[Sight]:
        found = [text for text in host.kernel_log if sought.search(text)]
        if len(found) >= line.at_least:
            evidence = tuple(text[:200] for text in found[-3:])
            yield Sight("kernel log", f"{line.observed}: {len(found)} times", expected, evidence)

    return check


for _line in LINES:
    rule(
        _line.id,
        _line.about,
        meaning=_line.meaning,
        fix=_line.fix,
        reference=_line.reference,
        severity=_line.severity,
        action=_line.action,
        needs=_line.needs,
    )(_check(_line))
