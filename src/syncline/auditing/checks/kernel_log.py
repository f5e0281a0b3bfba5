"""The kernel's log, read by the engine that `diagnose` uses: each finding keeps the name that it has there."""

from __future__ import annotations

from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule
from syncline.finding import Finding
from syncline.host.host import Host
from syncline.logs.engine import judge_lines

_HYPERVISORS = frozenset({"kernel.pcie.limited", "kernel.pcie.bar"})
"""What a virtual machine sees of PCIe is not its own: the hypervisor's host decides."""


def kernel_log(host: Host, expect: Expect) -> Iterator[Finding]:
    """Yield what the kernel reports of cards, cables, memory, power and heat."""
    for finding in judge_lines(host.kernel_log, "kernel log").findings:
        if not (host.virtual_by and finding.rule in _HYPERVISORS):
            yield finding


RULES = (
    AuditRule("kernel.log", "the kernel reports nothing wrong of cards, cables, memory, power or heat",
        kernel_log,
        "The kernel saw something fail.",
        "See the finding.",
        "the rules of `syncline diagnose --list`"),
)  # fmt: skip
