"""A lab run started from a saved plan: what of collectives, links and step has a prediction beside it, and how far off.

Four hosts under two leaves and two spines. `plan --save` writes the plan of a small GPT; the lab runs its gradients,
buckets and codec for real at a tenth of the rates, its arithmetic as time that passes; `watch --lab --expect` looks.
Then one uplink falls to a third of its rate, and the page's gap and its cost are read again.

    python benchmarks/watch_plan.py
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import threading
import time
from pathlib import Path
from statistics import median
from typing import Any

FOLDER = Path(__file__).resolve().parent
SCALE = 0.1
SETTLE_S, LOOK_S, FAULT_S = 15.0, 20.0, 15.0
CLUSTER = """
name: two-leaves
hosts: 4
host: {gpu: T4, gpus: 1, nics: 1, nic: i350, link: 1GbE}
network:
  topology: explicit
  switches:
    - {name: leaf-00, level: 1}
    - {name: leaf-01, level: 1}
    - {name: spine-00, level: 2}
    - {name: spine-01, level: 2}
  cables:
    - {a: host-00/nic-0, b: leaf-00, rate: 1Gbps}
    - {a: host-01/nic-0, b: leaf-00, rate: 1Gbps}
    - {a: host-02/nic-0, b: leaf-01, rate: 1Gbps}
    - {a: host-03/nic-0, b: leaf-01, rate: 1Gbps}
    - {a: leaf-00, b: spine-00, rate: 1Gbps}
    - {a: leaf-00, b: spine-01, rate: 1Gbps}
    - {a: leaf-01, b: spine-00, rate: 1Gbps}
    - {a: leaf-01, b: spine-01, rate: 1Gbps}
"""
JOB = """
model: {layers: 4, hidden: 128, heads: 4, vocab: 256}
batch: {global: 16, micro: 4, sequence: 256}
software: {framework: pytorch}
"""
FIX = "dp=4,tp=1,pp=1,zero=none,gradient_bytes=4,codec=plain"


def make_plan(folder: Path) -> Path:
    """Write cluster, job and the saved plan."""
    from syncline.questions.plan import plan

    (folder / "cluster.yaml").write_text(CLUSTER)
    (folder / "job.yaml").write_text(JOB)
    plan(str(folder / "cluster.yaml"), str(folder / "job.yaml"), fix=FIX).save(folder / "plan.json")
    return folder / "plan.json"


class Looks:
    """An agent's frames over a time, on a thread of its own."""

    def __init__(self, agent: Any) -> None:
        self.agent, self.frames = agent, []  # type: Any, list[Any]
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.wait(self.agent.options.tick_s):
            self.frames.append(self.agent.tick())

    def close(self) -> None:
        self._stop.set()
        self._thread.join()


def table(frames: list[Any], prediction: Any) -> dict[str, Any]:
    """Return measured beside predicted of every link that is read, every collective and the step."""
    last = frames[-1]
    rates = {
        name: median_mean([float(frame.load.rate_Bps[i]) for frame in frames])
        for i, name in enumerate(last.table.names)
    }
    links = {name: row(rate, prediction.rate_of(name)) for name, rate in rates.items()}
    kinds = {c.key: row(c.transfer_s, c.predicted_s, told=c.is_told) for c in last.job.collectives}
    step = row(median(s.step_s for s in last.job.steps[-10:]), prediction.step_s)
    exposed = row(median(s.exposed_s for s in last.job.steps[-10:]), prediction.exposed_s)
    every = [*links.values(), *kinds.values(), step, exposed]
    return {
        "links": links, "collectives": kinds, "step": step, "exposed": exposed,
        "num_rows": len(every), "num_without_prediction": sum(each["predicted"] is None for each in every),
    }  # fmt: skip


def median_mean(values: list[float]) -> float:
    """Return the mean over looks: what was predicted of a link is its mean over steps."""
    return sum(values) / len(values)


def row(measured: float, predicted: float | None, **more: Any) -> dict[str, Any]:
    """Return the two and their gap."""
    gap = None if not predicted else round(measured / predicted - 1, 3)
    return {"measured": round(measured, 6), "predicted": predicted and round(predicted, 6), "gap": gap, **more}


def run() -> dict[str, Any]:
    """Return the table of the clean run, and what changed with a slow uplink."""
    from syncline.fabric import load
    from syncline.lab import Lab
    from syncline.lab.registry import find_lab
    from syncline.report.text.check.watch import frame_lines
    from syncline.watch.lab_scene import LabScene
    from syncline.watch.setup import Wish, make_lab_agent

    with tempfile.TemporaryDirectory(prefix="watch-plan-") as name:
        folder = Path(name)
        saved = make_plan(folder)
        socket = folder / "spans.sock"
        with (
            Lab(load(folder / "cluster.yaml"), scale=SCALE) as lab,
            find_lab(lab.name) as visit,
            LabScene(visit) as scene,
        ):
            agent = make_lab_agent(Wish(host="lab", bursts=".*", expect=str(saved), spans_socket=str(socket)), scene)
            looks = Looks(agent)
            command = [sys.executable, str(FOLDER / "rig" / "planned_rank.py"), str(saved), str(SCALE), "100000"]
            job = lab.start(command, ranks_per_host=1, env={"SYNCLINE_WATCH": str(socket)})
            try:
                wait_for_steps(looks, job)
                time.sleep(SETTLE_S)
                begun = len(looks.frames)
                time.sleep(LOOK_S)
                clean = table(looks.frames[begun:], agent.options.prediction)
                clean["alerts"] = sorted({a["rule"] for frame in looks.frames[begun:] for a in frame.alerts})
                uplink = busiest_uplink(looks.frames[begun:])
                lab.fault(f"{uplink} rate 30% for {FAULT_S + 5}s")
                time.sleep(FAULT_S)
                slow = table(looks.frames[-40:], agent.options.prediction)
                told = frame_lines(looks.frames[-1], agent.options.prediction)
            finally:
                job.end()
                looks.close()
                agent.close()
            alerts = [(a["rule"], a["place"], a["cost_usd_per_hour"]) for a in looks.frames[-1].alerts]
            return {
                "scale": SCALE, "load_average": os.getloadavg()[0], "clean": clean,
                "slow_uplink": {"link": uplink, "step": slow["step"], "alerts": alerts, "said": told[1]},
            }  # fmt: skip


def busiest_uplink(frames: list[Any]) -> str:
    """Return the link between switches that carried most."""
    names = frames[-1].table.names
    uplinks = [i for i, text in enumerate(names) if "leaf" in text and "spine" in text]
    return str(names[max(uplinks, key=lambda i: sum(float(frame.load.rate_Bps[i]) for frame in frames))])


def wait_for_steps(looks: Looks, job: Any, patience_s: float = 120.0) -> None:
    """Return when the job has told of its first steps."""
    until = time.monotonic() + patience_s
    while not (looks.frames and len(looks.frames[-1].job.steps) >= 5):
        failed = [process for process in job.processes if process.exit_code is not None]
        if failed or time.monotonic() > until:
            raise RuntimeError(f"the job does not train: {failed[0].stderr[-1000:] if failed else 'too slow'}")
        time.sleep(0.2)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
