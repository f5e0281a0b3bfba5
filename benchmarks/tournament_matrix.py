"""What does the tournament find in a lab? Rate, loss, MTU, a slow host, others' traffic and two faults at once.

Six hosts on one switch, 100 Gb/s scaled to what a machine carries. The ranks of one job play a tournament for each
case, with the command's own defaults, while faults are made and mended between. Found: some finding. Named: a finding's
place names the host of each fault. False alarms: findings of places that nothing was done to. One run a case: this is a
list of cases, not a rate. The lab has no delay: a link's latency is that of the machine.
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
CASES = (
    "",
    "host-04:eth0 mtu 1500",
    *(f"host-04:eth0 loss {share}%" for share in (0.05, 0.1, 0.5, 1, 2, 5, 10)),
    *(f"host-04:eth0 rate {share}%" for share in (90, 80, 50, 25, 10, 5)),
    "host-04:eth0 rate 50%; host-02:eth0 loss 1%",
    "host-04:eth0 loss 1%; host-02:eth0 loss 1%",
    "",
    "host-04 slow 20%",
    "host-01 -> host-04 traffic 50%",
    "",
)
LIMIT_S = 600.0


def run(cases: tuple[str, ...] = CASES) -> dict[str, Any]:
    """Return what was said of each case."""
    from syncline.fabric import load
    from syncline.lab.lab import Lab

    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "six.yaml").write_text(CLUSTER)
        with Lab(load(str(folder / "six.yaml"))) as lab:
            command = [sys.executable, str(Path(__file__).resolve()), "--rank", str(folder), str(len(cases))]
            job = lab.start(command, ranks_per_host=1)
            for number, text in enumerate(cases):
                made = [lab.fault(one.strip()) for one in text.split(";") if one.strip()]
                (folder / f"go-{number}").touch()
                rows.append(_judged(text, _wait(folder / f"said-{number}", LIMIT_S)))
                print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
                for fault in made:
                    lab.mend(fault)
                if "error" in rows[-1]:
                    break
            job.end()
    return _totals(rows)


def _totals(rows: list[dict[str, Any]]) -> dict[str, Any]:
    planted = [row for row in rows if row["fault"]]
    return {
        "hosts": 6,
        "faults": len(planted),
        "found": sum(row["found"] for row in planted),
        "named": sum(row["named"] for row in planted),
        "sound_runs": len(rows) - len(planted),
        "false_alarms": sum(row["false_alarms"] for row in rows),
        "load_of_the_last_minute": os.getloadavg()[0],
        "cases": rows,
    }


def _wait(path: Path, limit_s: float) -> dict[str, Any]:
    until = time.monotonic() + limit_s
    while not path.exists():
        if time.monotonic() > until:
            return {"error": f"no answer within {limit_s:.0f} s"}
        time.sleep(0.1)
    said: dict[str, Any] = json.loads(path.read_text())
    return said


def _judged(text: str, said: dict[str, Any]) -> dict[str, Any]:
    guilty = set(re.findall(r"host-\d\d", text))
    wanted = {one.strip().split()[0].split(":")[0] for one in text.split(";") if one.strip()}
    places = [finding["place"] for finding in said.get("findings", ())]
    return {
        "fault": text,
        "found": bool(places) and bool(text),
        "named": bool(text) and wanted <= {host for host in guilty for place in places if host in place},
        "false_alarms": sum(place != "all flows" and not any(host in place for host in guilty) for place in places),
        "findings": [
            f"{one['rule']} {one['place']}: {one['observed']} ({one['confidence']:.0%})"
            for one in said.get("findings", ())
        ],
        **{key: said[key] for key in ("noise", "seconds", "error") if key in said},
    }  # fmt: skip


def rank(folder: Path, num_cases: int) -> None:
    """Play a tournament for each case, as `syncline bench tournament` does, in the seat of one rank."""
    from syncline.bench.ranks.launched import launched
    from syncline.bench.ranks.paths import crossings_of, flow_bytes, lanes, names_of
    from syncline.bench.ranks.probe import packet_findings, work_findings
    from syncline.bench.tournament import run as play
    from syncline.bench.tournament_finding import findings
    from syncline.runtime.execute.pairs import PairTest
    from syncline.runtime.group import Group, meet

    launch = launched()
    store = meet(launch)
    with Group.join(launch, store=store) as group:
        crossings, placed = crossings_of(str(folder / "six.yaml"), None, None, launch.num_ranks)
        names = names_of(placed)
        test = PairTest(group, flow_bytes(crossings, placed))
        for number in range(num_cases):
            while group.rank == 0 and not (folder / f"go-{number}").exists():
                time.sleep(0.05)
            group.barrier()
            began = time.monotonic()
            found, noise = packet_findings(store, launch.rank, names, crossings.leaf), None
            if found == []:
                slow = work_findings(group, names)
                test.resent.clear()
                test.seconds.clear()
                result = play(crossings, test.play, lanes=lanes(placed)).judged(crossings, test.resent, test.seconds)
                found, noise = [*findings(result, names), *slow], result.attribution.noise
            if found is not None and group.rank == 0:
                said = {"findings": [one.to_json() for one in found], "noise": noise,
                        "seconds": round(time.monotonic() - began, 1)}  # fmt: skip
                part = folder / f"part-{number}"
                part.write_text(json.dumps(said))
                part.rename(folder / f"said-{number}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        rank(Path(sys.argv[2]), int(sys.argv[3]))
    else:
        print(json.dumps(run(tuple(sys.argv[1:]) or CASES), indent=1))
