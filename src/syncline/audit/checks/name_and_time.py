"""Can peers find this host by name, and do their clocks agree?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from syncline.audit.expect import Expect
from syncline.audit.host import Host
from syncline.audit.rule import CannotTell, Seen, rule
from syncline.finding import Action, Severity

MAX_OFFSET_S = 0.010
GOOD_CLOCKS = ("tsc", "kvm-clock", "arch_sys_counter", "hyperv_clocksource_tsc_page", "timebase", "xen")


@rule(
    "name.resolves",
    "the host's own name leads to an address that peers can reach",
    meaning="torchrun publishes this name: peers connect to themselves or to nothing, and hang at the rendezvous.",
    fix="Give the name its fabric or management address in DNS or /etc/hosts; or torchrun --local-addr.",
    reference="pytorch #150532 #73656",
)
def resolves(host: Host, expect: Expect) -> Iterator[Seen]:
    name = host.name
    text = host.root.command("getent-hosts", ("getent", "ahosts", name), quiet=True)
    addresses = re.findall(r"^(\S+)\s+STREAM", text or "", re.MULTILINE) or re.findall(
        r"^([0-9a-f.:]+)\s", text or "", re.MULTILINE
    )
    if not addresses:
        addresses = _from_hosts_file(host, name)
    if not addresses and text is None and host.root.text("etc/hosts") is None:
        raise CannotTell("neither getent nor /etc/hosts tells an address of this host")
    loop = [a for a in addresses if a.startswith("127.") or a == "::1"]
    if not addresses:
        yield Seen(name, "does not resolve", "an address of this host", ("getent ahosts", "etc/hosts"))
    elif len(loop) == len(addresses):
        yield Seen(
            name, f"resolves to {loop[0]}", "an address that other hosts can reach", ("getent ahosts", "etc/hosts")
        )


@rule(
    "time.sync",
    "the clock is synchronised",
    meaning="Logs and traces of hosts cannot be put in one order; certificates and leases may fail.",
    fix="Run chrony (or PTP) against the site's time servers.",
    reference="chronyc(1), timedatectl(1)",
)
def sync(host: Host, expect: Expect) -> Iterator[Seen]:
    tracking = host.root.command("chronyc-tracking", ("chronyc", "-n", "tracking"), quiet=True)
    if tracking and "Leap status" in tracking:
        offset = re.search(r"System time\s*:\s*([\d.]+) seconds", tracking)
        status = re.search(r"Leap status\s*:\s*(.+)", tracking)
        if status and "Not synchronised" in status.group(1):
            yield Seen("clock", "chrony: not synchronised", "synchronised", ("chronyc tracking",))
        elif offset and float(offset.group(1)) > MAX_OFFSET_S:
            yield Seen(
                "clock",
                f"{float(offset.group(1)) * 1e3:.1f} ms off",
                f"within {MAX_OFFSET_S * 1e3:.0f} ms",
                ("chronyc tracking",),
            )
        return
    shown = host.root.command("timedatectl", ("timedatectl", "show"), quiet=True)
    state = re.search(r"^NTPSynchronized=(yes|no)", shown or "", re.MULTILINE)
    if state is None:
        raise CannotTell("neither chronyc nor timedatectl answers")
    if state.group(1) == "no":
        yield Seen("clock", "not synchronised (timedatectl)", "synchronised", ("timedatectl show",))


@rule(
    "time.source",
    "the kernel reads time from the processor",
    severity=Severity.WARNING,
    action=Action.RESTART,
    meaning="Each time stamp takes microseconds instead of nanoseconds: profilers and proxies slow down.",
    fix="tsc=reliable on the kernel command line after checking why the kernel gave tsc up; reboot.",
    reference="gcm clocksource check",
)
def source(host: Host, expect: Expect) -> Iterator[Seen]:
    base = "sys/devices/system/clocksource/clocksource0"
    current = host.root.text(f"{base}/current_clocksource")
    if current is None:
        raise CannotTell("the current clock source cannot be read")
    if current not in GOOD_CLOCKS:
        yield Seen("clock", f"source {current}", "tsc", (f"{base}/current_clocksource",))


def _from_hosts_file(host: Host, name: str) -> list[str]:
    rows = [line.partition("#")[0].split() for line in (host.root.text("etc/hosts") or "").splitlines()]
    return [row[0] for row in rows if name in row[1:]]
