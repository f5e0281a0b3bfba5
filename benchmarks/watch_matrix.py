"""Detection by depth: which fault of which depth is named where, how soon, and what else is named.

The demo's training (a ring over TCP, NumPy) on two labs: four hosts on two rails, and four hosts under two leaves and
two spines. Every cell lets one fault (or two) happen for six seconds and waits until alerts have cleared. A fault is
found when the rule it belongs to names a place of it; a false positive is a rule about links, rails or ranks that names
another.

    python benchmarks/watch_matrix.py [at-once] [rails] [spines] [phases] [clean]

`clean` is ten minutes without a fault, `phases` two with checkpoints and evaluations: nothing may be raised.
`rails:loss` is the cells of one kind, `rails:rate:1` of one depth; a word said twice is measured twice; `clean:120` is
so many seconds. `at-once` gives each word a lab and a process of its own, for machines with a core for every rank.
"""

from __future__ import annotations

import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any, NamedTuple

FOREIGN = r"""
import socket, sys, time
out = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
out.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 22)
end = time.monotonic() + float(sys.argv[2])
while time.monotonic() < end:
    for _ in range(30):
        out.sendto(bytes(8900), (sys.argv[1], 9))
    time.sleep(0.1)
"""
"""Somebody else's bursts: 0.27 MB ten times a second, a fifth of a rail."""
FAULT_S, CLEAR_S, WARM_S = 6.0, 25.0, 20.0
ASKED_S = 2.0
QUIET_S = {"phases": 120.0, "clean": 600.0}
SPINES: dict[str, Any] = {
    "name": "spines",
    "hosts": 4,
    "host": {"gpu": "T4", "gpus": 1, "nics": 1, "nic": "i350", "link": "1GbE"},
    "network": {
        "topology": "explicit",
        "switches": [{"name": f"{kind}-0{i}", "level": n} for n, kind in ((1, "leaf"), (2, "spine")) for i in (0, 1)],
        "cables": [
            *({"a": f"host-0{i}/nic-0", "b": f"leaf-0{i // 2}", "rate": "1Gbps"} for i in range(4)),
            *({"a": f"leaf-0{i}", "b": f"spine-0{j}", "rate": "1Gbps"} for i in (0, 1) for j in (0, 1)),
        ],
    },
}


class Cell(NamedTuple):
    """One fault: what happens, which rule must name it, and how deep it is, as people say it."""

    kind: str
    depth: str
    what: tuple[str, ...]
    rules: tuple[str, ...]


RATES, LOSSES, LATE = (90, 70, 50, 30, 20, 10, 5, 1), (0.01, 0.1, 1.0, 3.0, 10.0), (5, 10, 20, 50, 100, 300)


def cells(word: str) -> list[Cell]:
    """Return the cells of a lab, or those of one kind (and depth): `rails`, `rails:loss`, `rails:loss:0.1`."""
    where, kind, depth = [*word.split(":"), "", ""][:3]
    return [
        cell for cell in _all_cells(where) if kind in ("", cell.kind) and depth in ("", cell.depth.removesuffix(" %"))
    ]


def _all_cells(where: str) -> list[Cell]:
    slow, lossy = ("link.degraded",), ("link.loss",)
    if where == "spines":
        made = [Cell("rate", f"{p} %", (f"UPLINK rate {p}%",), slow) for p in (70, 50, 20, 10, 1)]
        return [*made, *(Cell("loss", f"{p} %", (f"UPLINK loss {p}%",), lossy) for p in (0.1, 1.0, 10.0))]
    made = [Cell("rate", f"{p} %", (f"host-0{1 + rail}:eth{rail} rate {p}%",), slow) for rail in (0, 1) for p in RATES]
    made += [
        Cell("loss", f"{p} %", (f"host-0{1 + rail}:eth{rail} loss {p}%",), lossy) for rail in (0, 1) for p in LOSSES
    ]
    made += [Cell("straggler", f"{p} %", (f"rank 2 {1 + p / 100}",), ("job.straggler",)) for p in LATE]
    made += [Cell("bursts", "20 % of a rail, ten a second", ("host-00 bursts host-02:eth1",), ("link.microburst",))]
    made += [Cell("down", "one cable", ("host-03:eth0 down",), ("link.down",))]
    two = ("host-01:eth0 rate 20%", "host-03:eth1 loss 3%")
    return [*made, Cell("two", "rate 20 %, loss 3 %", two, (*slow, *lossy)),
            Cell("two", "rate 30 % on both rails", ("host-01:eth0 rate 30%", "host-02:eth1 rate 30%"), slow),
            Cell("two", "rate 20 %, straggler 100 %", (two[0], "rank 3 2.0"), (*slow, "job.straggler"))]  # fmt: skip


class Watch:
    """The agent's alerts as they come and go; it looks at its own pace, on a thread of its own."""

    def __init__(self, demo: Any) -> None:
        self.demo, self.raised = demo, []  # type: Any, list[tuple[float, str, str]]
        self.up: set[tuple[str, str]] = set()
        self.frame: Any = None
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=demo.agent.run, args=(self._stop,)),
            threading.Thread(target=self._follow),
        ]
        for thread in self._threads:
            thread.start()

    def _follow(self) -> None:
        while not self._stop.wait(0.02):
            frame = self.demo.agent.hub.frame
            if frame is None or frame is self.frame:
                continue
            self.frame = frame
            now = {(a.rule, a.place) for a in frame.alerts}
            self.raised += [(frame.mono_s, *key) for key in sorted(now - self.up)]
            self.up = now

    def calm(self, patience_s: float = CLEAR_S) -> None:
        """Wait until nothing about links, rails or ranks is up, and some seconds more, in which a past is learnt."""
        until = time.monotonic() + patience_s
        while any(is_place(rule) for rule, _ in self.up) and time.monotonic() < until:
            time.sleep(0.1)
        time.sleep(4.0)

    def close(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()


def is_place(rule: str) -> bool:
    """Tell whether a rule names a place of trouble, and not what the job feels of it."""
    return rule.startswith(("link.", "rail.")) or rule == "job.straggler"


def places(lab: Any, what: str) -> set[str]:
    """Return the links or ranks that a fault is at."""
    if what.startswith("rank "):
        return {" ".join(what.split()[:2])}
    target = what.partition(" ")[0] if " -> " not in what else " ".join(what.split()[:3])
    names = set(lab.blueprint.link_names.values())
    if " -> " in target:
        return {target}
    if " bursts " in what:
        src, _, dst = what.split()
        host, _, port = dst.partition(":")
        nic = f"nic-{port.removeprefix('eth')}"
        return {n for n in names if f"{src}/{nic} ->" in n or n.endswith(f"-> {host}/{nic}")}
    host, _, port = target.partition(":")
    return {name for name in names if f"{host}/nic-{port.removeprefix('eth')}" in name}


def happen(demo: Any, what: str) -> None:
    """Let one fault begin; it ends by itself."""
    if what.startswith("rank "):
        _, rank, times = what.split()
        mark = demo.folder / f"slow-{rank}"
        mark.write_text(times)
        threading.Timer(FAULT_S, mark.unlink).start()
    elif " bursts " in what:
        src, _, dst = what.split()
        host, _, port = dst.partition(":")
        demo.lab.spawn(src, [sys.executable, "-c", FOREIGN, demo.lab.address(host, port), str(FAULT_S)])
    else:
        demo.lab.fault(f"{what} for {FAULT_S}s")


def judge(demo: Any, watch: Watch, cell: Cell) -> dict[str, Any]:
    """Return what became of one cell."""
    watch.calm()
    begun, old = time.monotonic(), len(watch.raised)
    for what in cell.what:
        happen(demo, what)
    time.sleep(FAULT_S + 1.0)
    rows = [(at - begun, rule, place) for at, rule, place in watch.raised[old:]]
    wanted = [(places(demo.lab, what), what) for what in cell.what]
    every = set().union(*(found for found, _ in wanted))
    first = [min((at for at, rule, place in rows if rule in cell.rules and place in found), default=None)
             for found, _ in wanted]  # fmt: skip
    wrong = sorted({f"{rule} {place}" for _, rule, place in rows if is_place(rule) and not matches(place, every)})
    return {
        "kind": cell.kind, "depth": cell.depth, "fault": "; ".join(cell.what),
        "named_after_s": [None if at is None else round(at, 2) for at in first], "false_positives": wrong,
        "load_average": round(os.getloadavg()[0], 1),
    }  # fmt: skip


def matches(place: str, every: set[str]) -> bool:
    """Tell whether an alert is of the place of a fault: its link, its rail, or its rank."""
    rails = {f"rail {name.partition('nic-')[2][:1]}" for name in every}
    return place in every or place in rails


def matrix(word: str) -> list[dict[str, Any]]:
    """Return the cells that a word names, in one lab."""
    from syncline.watch.demonstration.lab import CLUSTER, LabDemo
    from syncline.watch.prediction import Prediction

    where = word.partition(":")[0]
    with LabDemo(SPINES if where == "spines" else CLUSTER, Prediction()) as demo:
        watch = Watch(demo)
        try:
            time.sleep(WARM_S)
            uplink = busiest(watch) if where == "spines" else ""
            found = []
            for cell in cells(word):
                named = cell._replace(what=tuple(text.replace("UPLINK", uplink) for text in cell.what))
                found.append({"lab": where, **judge(demo, watch, named)})
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
            return found
        finally:
            watch.close()


def quiet(seconds: float, *, phases: bool) -> dict[str, Any]:
    """Return every alert of a run without a fault; with phases it saves every 40 steps and evaluates every 100."""
    from syncline.watch.demonstration.lab import LabDemo

    with LabDemo() as demo:
        watch = Watch(demo)
        try:
            time.sleep(10.0)
            if phases:
                (demo.folder / "phases").touch()
            told, begun, first = set(), time.monotonic(), watch.frame.job.steps[-1].step
            loads = []
            while time.monotonic() < begun + seconds:
                time.sleep(0.2)
                told.add(watch.frame.job.phase)
                loads.append(os.getloadavg()[0])
            steps = watch.frame.job.steps[-1].step - first
        finally:
            watch.close()
        return {
            "seconds": seconds, "num_steps": steps, "phases_told": sorted(told - {""}),
            "alerts": [[round(at - begun, 1), rule, place] for at, rule, place in watch.raised],
            "load_average": [round(min(loads), 1), round(statistics.mean(loads), 1), round(max(loads), 1)],
        }  # fmt: skip


def busiest(watch: Watch) -> str:
    """Return the link between switches that carries most."""
    names, rate = watch.frame.table.names, watch.frame.load.rate_Bps
    between = [i for i, name in enumerate(names) if "spine" in name]
    return str(names[max(between, key=lambda i: float(rate[i]))])


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return how many were found, how soon, and what was wrong, by kind."""
    made: dict[str, Any] = {}
    for kind in dict.fromkeys(row["kind"] for row in rows):
        own = [row for row in rows if row["kind"] == kind]
        times = [at for row in own for at in row["named_after_s"]]
        seen = [at for at in times if at is not None]
        made[kind] = {
            "faults": len(times), "named": len(seen), "within_2_s": sum(at <= ASKED_S for at in seen),
            "median_s": round(statistics.median(seen), 2) if seen else None, "worst_s": max(seen, default=None),
            "not_named": [row["depth"] for row in own if None in row["named_after_s"]],
            "false_positives": sum(len(row["false_positives"]) for row in own),
        }  # fmt: skip
    return made


def delay() -> str:
    """Return why delays are not in the matrix here, or nothing."""
    if shutil.which("tc") is None:
        return "not asked: tc is not installed"
    asked = subprocess.run(["unshare", "-rn", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
                           capture_output=True, text=True, check=False)  # fmt: skip
    return "" if asked.returncode == 0 else f"this kernel adds no delay to a link: {asked.stderr.strip()[:80]}"


def measure(word: str) -> dict[str, Any]:
    """Return the rows of a lab, or a run without a fault."""
    name, _, seconds = word.partition(":")
    if name in QUIET_S:
        return {"runs": {word: quiet(float(seconds or QUIET_S[name]), phases=name == "phases")}, "cells": []}
    return {"runs": {}, "cells": matrix(word)}


def apart(words: list[str]) -> list[dict[str, Any]]:
    """Return what each word's own process measured, all at the same time."""
    command = [sys.executable, __file__]
    started = [subprocess.Popen([*command, word], stdout=subprocess.PIPE, text=True) for word in words]
    return [json.loads(process.communicate()[0]) for process in started]


def run(words: list[str] | None = None) -> dict[str, Any]:
    """Return the matrix."""
    wanted = [word for word in words or [] if word != "at-once"] or ["rails", "spines", "phases", "clean"]
    parts = apart(wanted) if "at-once" in (words or []) else [measure(word) for word in wanted]
    rows = [row for part in parts for row in part["cells"]]
    runs = [part["runs"] for part in parts if part["runs"]]
    asked = "named within 2 s, rates from 10 % and stragglers from 10 % upward"
    return {"runs": {k: v for each in runs for k, v in each.items()}, "asked": asked, "by_kind": summary(rows),
            "delay": delay() or "no fault of the lab", "cells": rows}  # fmt: skip


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parent))
    print(json.dumps(run(sys.argv[1:]), indent=2))
