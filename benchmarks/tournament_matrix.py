"""What does the tournament find in a lab? Rate, loss, MTU, a slow host, others' traffic and two faults at once.

Six hosts on one switch, 100 Gb/s scaled to what a machine carries; the command is what a user types, with its own
defaults. Found: some finding beyond those of a sound network. Named: a finding's place names the host (of each fault).
False alarms: findings of places that nothing was done to. One run a fault: this is a list of cases, not a rate. The lab
has no delay: a link's latency is that of the machine.
"""

from __future__ import annotations

import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

CLUSTER = """name: six
hosts: 6
host: 1 x H100
network: {topology: leaf-spine, link: 100GbE, hosts_per_leaf: 6, spines: 1}
"""
SOUND = ("", "", "")
FAULTS = (
    *(f"host-04:eth0 rate {share}%" for share in (90, 80, 70, 50, 25, 5)),
    *(f"host-04:eth0 loss {share}%" for share in (0.05, 0.1, 0.5, 1, 2, 5, 10)),
    "host-04:eth0 mtu 1500",
    "host-04 slow 50%",
    "host-04 slow 20%",
    "host-01 -> host-04 traffic 50%",
    "host-04:eth0 rate 50%; host-02:eth0 loss 1%",
    "host-04:eth0 loss 1%; host-02:eth0 loss 1%",
    "host-04:eth0 rate 50%; host-02:eth0 rate 25%",
)
LIMIT_S = 600.0


def run(cases: tuple[str, ...] = (*SOUND, *FAULTS)) -> dict[str, Any]:
    """Return what was said of each case."""
    rows = [_case(text) for text in cases]
    planted = [row for row in rows if row["fault"]]
    return {
        "hosts": 6,
        "faults": len(planted),
        "found": sum(row["found"] for row in planted),
        "named": sum(row["named"] for row in planted),
        "false_alarms": sum(row["false_alarms"] for row in rows),
        "sound_runs": len(rows) - len(planted),
        "load_before": os.getloadavg()[0],
        "cases": rows,
    }


def _case(text: str) -> dict[str, Any]:
    from syncline.fabric import load
    from syncline.lab.lab import Lab

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "six.yaml"
        path.write_text(CLUSTER)
        command = [sys.executable, "-m", "syncline", "bench", "tournament", "--cluster", str(path), "--json"]
        with Lab(load(str(path))) as lab:
            faults = [one.strip() for one in text.split(";") if one.strip()]
            for fault in faults:
                lab.fault(fault)
            began = time.monotonic()
            done = lab.run(command, ranks_per_host=1, timeout_s=LIMIT_S)
            took = time.monotonic() - began
    if done.exit_code:
        return {"fault": text, "found": False, "named": False, "false_alarms": 0, "wall_s": round(took, 1),
                "error": done.ranks[0].stderr[-300:]}  # fmt: skip
    payload = json.loads(done.ranks[0].stdout)
    guilty = set(re.findall(r"host-\d\d", text))
    said = [(one["rule"], one["place"], one["observed"], one["confidence"]) for one in payload["findings"]]
    named = {host for host in guilty for _, place, _, _ in said if host in place}
    blamed = [place for _, place, _, _ in said if place != "all flows" and not any(host in place for host in guilty)]
    wanted = {fault.split()[0].split(":")[0] for fault in faults}
    return {
        "fault": text,
        "found": bool(said) and bool(faults),
        "named": bool(faults) and wanted <= named,
        "false_alarms": len(blamed),
        "findings": [f"{rule} {place}: {seen} ({sure:.0%})" for rule, place, seen, sure in said],
        "noise": payload.get("noise"),
        "wall_s": round(took, 1),
    }


if __name__ == "__main__":
    print(json.dumps(run(tuple(sys.argv[1:]) or (*SOUND, *FAULTS)), indent=1))
