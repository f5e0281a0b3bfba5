"""Two and three real training jobs on one thin line: predicted slowdown against measured, in phase and interleaved.

Each job has a rank on either side of a 40 Mb/s line in the lab and averages its gradients over it with syncline.torch.
Every job runs alone first; then all together in slots that make them send at the same time, and in the slots that
`syncline.share` chose. Computation is a wait, so that the processors of this machine do not limit it. The prediction
is blind: it knows the rates of the lab, TCP's headers, the wait and the bytes.
"""

from __future__ import annotations

import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from syncline.fabric import Fabric, load
from syncline.lab import Lab
from syncline.placing.allocation import from_list
from syncline.sharing.interleave import PHASES, SLACK, mean_slowdown, periods, steer
from syncline.sharing.jobs_file import StatedStep
from syncline.sharing.pattern import measured_pattern
from syncline.sharing.together import Party, Slots
from syncline.sim.flow.expand import Share
from syncline.sim.step.executed.footprint import Rails

LINE, ACCESS = "40Mbps", "400Mbps"
PAYLOAD = 1448 / 1514
STEPS, SETTLE = 9, 3
RANK = Path(__file__).resolve().parent / "rig" / "share_rank.py"


@dataclass(frozen=True)
class Case:
    """Jobs that share the line: what each computes and exchanges a step."""

    name: str
    compute_s: tuple[float, ...]
    exchange_bytes: tuple[int, ...]
    across: bool = True
    """Whether the jobs cross the line; else each stays on its side, and only its own ports limit it."""
    micro: int = 0
    """Micro-batches of a real model a step (benchmarks/share_real.py); 0: computation is a wait."""
    batch: int = 256
    line: str = LINE

    def hosts(self, job: int) -> tuple[int, int]:
        """Return the two hosts of a job."""
        num = len(self.compute_s)
        return (job, num + job) if self.across else (2 * job, 2 * job + 1)


CASES = (
    Case("two, 38 % sending: interleaving removes the contention", (0.4, 0.4), (1_200_000, 1_200_000)),
    Case("three, 25 % sending", (0.6, 0.6, 0.6), (960_000, 960_000, 960_000)),
    Case("two, 83 % sending: the line is full most of the time", (0.1, 0.1), (2_400_000, 2_400_000)),
    Case("two, 38 % sending, no link in common", (0.4, 0.4), (1_200_000, 1_200_000), across=False),
)


def fabric(case: Case) -> Fabric:
    """Return hosts on two sides of one line."""
    num_jobs, access = len(case.compute_s), ACCESS if case.across else case.line
    sides = [(f"host-{number:02d}", "leaf-00" if number < num_jobs else "leaf-01") for number in range(2 * num_jobs)]
    cables = [{"a": f"{host}/nic-0", "b": leaf, "rate": access} for host, leaf in sides]
    return load({
        "name": "line", "hosts": 2 * num_jobs,
        "host": {"gpu": "T4", "gpus": 1, "nics": 1, "nic": "i350", "link": "1GbE"},
        "network": {
            "topology": "explicit",
            "switches": [{"name": "leaf-00", "level": 1}, {"name": "leaf-01", "level": 1}],
            "cables": [*cables, {"a": "leaf-00", "b": "leaf-01", "rate": case.line}],
        },
    })  # fmt: skip


def party(case: Case) -> Party:
    """Return the jobs on the links of the lab, as far as the prediction knows them."""
    built = fabric(case)
    rails = Rails.of(built, PAYLOAD, PAYLOAD, "static")
    patterns = tuple(
        measured_pattern(built, rails, from_list(built, ",".join(map(str, case.hosts(job)))),
                         StatedStep.model_validate({"compute": f"{compute}s", "exchange": size}))
        for job, (compute, size) in enumerate(zip(case.compute_s, case.exchange_bytes, strict=True))
    )  # fmt: skip
    return Party(rails, patterns, tuple(Share() for _ in patterns))


def predicted(case: Case) -> dict[str, Any]:
    """Return alone, in phase and interleaved steps, and the slots of both."""
    jobs = party(case)
    found = steer(jobs)
    alone = found.alone_s
    free = tuple(Slots() for _ in alone)
    together = jobs.run(free, alone).step_s  # all begin at once, and stay so
    held = tuple(Slots(0.0, step * SLACK) for step in together)
    in_phase = jobs.run(held, alone).step_s
    slots = found.slots if found.how == "slots" else spread(alone)
    apart = jobs.run(slots, alone).step_s
    return {
        "steering": found.how, "alone_s": alone, "in_phase_s": in_phase, "in_phase_slots": held,
        "interleaved_s": apart, "interleaved_slots": slots,
        "gain": 1 - mean_slowdown(apart, alone) / mean_slowdown(in_phase, alone),
    }  # fmt: skip


def spread(alone_s: tuple[float, ...]) -> tuple[Slots, ...]:
    """Return slots with jobs evenly apart, for what the prediction would not steer."""
    each = periods(alone_s) or tuple(max(alone_s) for _ in alone_s)
    return tuple(Slots(number / len(each) * period, period * SLACK) for number, period in enumerate(each))


def turns(case: Case, known: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the turns with their times and the slots of every job in them."""
    num, at, found = len(case.compute_s), 1.0, []
    plans = [(f"alone {job}", {job: Slots()}, known["alone_s"][job]) for job in range(num)]
    plans.append(("in phase", dict(enumerate(known["in_phase_slots"])), max(known["in_phase_s"])))
    plans.append(("interleaved", dict(enumerate(known["interleaved_slots"])), max(known["interleaved_s"])))
    for name, slots, step_s in plans:
        found.append({"name": name, "begin": at, "slots": slots})
        at += (STEPS + 1) * step_s * 1.5 + 1.5
    return found


def measure(case: Case, known: dict[str, Any]) -> dict[str, Any]:
    """Run the jobs in the lab and return the mean step of every job in every turn."""
    num, plan = len(case.compute_s), turns(case, known)
    with tempfile.TemporaryDirectory() as text, Lab(fabric(case), scale=1.0) as lab:
        folder, ranks = Path(text), []
        for job in range(num):
            mine = [
                {"name": turn["name"], "begin": turn["begin"], "compute": case.compute_s[job],
                 "steps": STEPS if job in turn["slots"] else 0,
                 "period": turn["slots"][job].period_s if job in turn["slots"] else 0.0,
                 "offset": turn["slots"][job].offset_s if job in turn["slots"] else 0.0}
                for turn in plan
            ]  # fmt: skip
            told = {"floats": case.exchange_bytes[job] // 4, "turns": mine, "micro": case.micro, "batch": case.batch}
            (folder / f"job-{job}.json").write_text(json.dumps(told))
            ranks += [_rank(lab, folder, job, rank, case.hosts(job)) for rank in (0, 1)]
        _wait_ready(ranks)
        (folder / "start.tmp").write_text(repr(time.time()))
        (folder / "start.tmp").rename(folder / "start")
        for process in ranks:
            process.wait(600)
        return _steps(ranks, num)


def _rank(lab: Lab, folder: Path, job: int, rank: int, hosts: tuple[int, int]) -> Any:
    names = [f"host-{host:02d}" for host in hosts]
    env = {
        "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": "0", "MASTER_ADDR": lab.address(names[0]),
        "MASTER_PORT": str(29500 + job), "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    return lab.spawn(names[rank], [sys.executable, str(RANK), str(folder), f"job-{job}"], env=env)


def _wait_ready(ranks: list[Any]) -> None:
    deadline = time.monotonic() + 300
    while not all("ready" in process.lines["stdout"] for process in ranks):
        if time.monotonic() > deadline or any(process.exit_code for process in ranks):
            errors = ["\n".join(process.lines["stderr"][-5:]) for process in ranks]
            raise RuntimeError(f"the ranks did not start: {errors}")
        time.sleep(0.05)


def _steps(ranks: list[Any], num: int) -> dict[str, Any]:
    found: dict[str, Any] = {
        "alone_s": [0.0] * num,
        "in_phase_s": [0.0] * num,
        "interleaved_s": [0.0] * num,
        "late_s": 0.0,
        "work": [],
    }
    for job in range(num):
        for line in ranks[2 * job].lines["stdout"]:
            if not line.startswith("{"):
                continue
            row = json.loads(line)
            step = statistics.mean(np.diff(row["ends"][SETTLE - 1 :]).tolist())
            key = "alone" if row["turn"].startswith("alone") else row["turn"].replace(" ", "_")
            found[f"{key}_s"][job] = step
            found["late_s"] = max(found["late_s"], row["late_s"])
            if "cpu_s" in row:
                found["work"].append({"job": job, "turn": row["turn"], "cpu_s": row["cpu_s"], "losses": row["losses"]})
    return found


def run() -> dict[str, Any]:
    """Return predicted and measured slowdowns of every case, and the largest error."""
    rows, errors = [], []
    for case in CASES:
        known = predicted(case)
        seen = measure(case, known)
        row: dict[str, Any] = {"case": case.name, "steering": known["steering"], "predicted_gain": known["gain"],
                               "predicted_alone_s": list(known["alone_s"]), "measured_alone_s": seen["alone_s"],
                               "late_s": seen["late_s"]}  # fmt: skip
        for turn in ("in_phase", "interleaved"):
            said = [a / b for a, b in zip(known[f"{turn}_s"], known["alone_s"], strict=True)]
            was = [a / b for a, b in zip(seen[f"{turn}_s"], seen["alone_s"], strict=True)]
            row |= {f"{turn}_predicted": said, f"{turn}_measured": was}
            errors += [a / b - 1 for a, b in zip(said, was, strict=True)]
        row["measured_gain"] = 1 - sum(row["interleaved_measured"]) / sum(row["in_phase_measured"])
        rows.append(row)
    return {
        "line": LINE, "steps": STEPS - SETTLE, "phases": PHASES, "cases": rows,
        "slowdowns": len(errors), "worst_error": float(max(map(abs, errors))),
        "median_error": float(np.median(np.abs(errors))),
    }  # fmt: skip
