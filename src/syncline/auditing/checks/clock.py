"""Is the clock right, and quick to read?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.auditing.expect import Expect
from syncline.auditing.rule import AuditRule, CannotTell, Sight
from syncline.finding import Action
from syncline.host.host import Host

MAX_OFFSET_S = 0.010
GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "xen")


def sync(host: Host, expect: Expect) -> Iterator[Sight]:
    tracking = host.root.command("chronyc-tracking", ("chronyc", "-n", "tracking"), quiet=True)
    if tracking and "Leap status" in tracking:
        offset = re.search(r"System time\s*:\s*([\d.]+) seconds", tracking)
        status = re.search(r"Leap status\s*:\s*(.+)", tracking)
        if status and "Not synchronised" in status.group(1):
            yield Sight("clock", "chrony: not synchronised", "synchronised", ("chronyc tracking",))
        elif offset and (off_s := float(offset.group(1))) > MAX_OFFSET_S:
            limit = f"within {MAX_OFFSET_S * 1e3:.0f} ms"
            yield Sight("clock", f"{off_s * 1e3:.1f} ms off", limit, ("chronyc tracking",))
        return
    shown = host.root.command("timedatectl", ("timedatectl", "show"), quiet=True)
    state = re.search(r"^NTPSynchronized=(yes|no)", shown or "", re.MULTILINE)
    if state is None:
        raise CannotTell("neither chronyc nor timedatectl answers")
    if state.group(1) == "no":
        yield Sight("clock", "not synchronised (timedatectl)", "synchronised", ("timedatectl show",))


def source(host: Host, expect: Expect) -> Iterator[Sight]:
    base = "sys/devices/system/clocksource/clocksource0"
    current = host.root.text(f"{base}/current_clocksource")
    if current is None:
        raise CannotTell("the current clock source cannot be read")
    if current not in GOOD_CLOCKS:
        yield Sight("clock", f"source {current}", "tsc", (f"{base}/current_clocksource",))


RULES = (
    AuditRule("time.sync", "the clock is synchronised", sync,
        "Logs and traces of hosts cannot be put in one order; certificates and leases may fail.",
        "Run chrony (or PTP) against the site's time servers.",
        "chronyc(1), timedatectl(1)"),
    AuditRule("time.source", "the kernel reads time from the processor", source,
        "Each time stamp takes microseconds instead of nanoseconds: profilers and proxies slow down.",
        "tsc=reliable on the kernel command line after checking why the kernel gave tsc up; reboot.",
        "gcm clocksource check", action=Action.RESTART),
)  # fmt: skip
