"""The small tables behind the sliders: what syncline says at every setting, computed once and kept.

python tools/site/table.py           writes docs/interactive/table.json
"""

from __future__ import annotations

import json
from itertools import product
from pathlib import Path
from typing import Any

import syncline
from syncline.bench.sweep import program_of
from syncline.planning.answer import make_plan
from syncline.program.placement import packed
from syncline.questions.inputs import job_of
from syncline.schedule import Kind
from syncline.sim.emulate.emulation import HostCosts, predict, script_of, wiring_of_fabric

ROOT = Path(__file__).resolve().parents[2]
PATH = ROOT / "docs" / "interactive" / "table.json"
MEASURED = ROOT / "benchmarks" / "results" / "rehearsal.json"
RATES = {"100GbE": 100, "200GbE": 200, "400GbE": 400, "800GbE": 800}
RATIOS = (1, 2, 4)
FAULTS = (1.0, 0.5, 0.25)
SIZES = tuple(4**k << 20 for k in range(6))
JOB = {"model": "gpt3-2.7b", "parallel": {"zero": "none"}, "batch": {"global": 512, "micro": 1, "sequence": 2048}}
MODELS = {
    "llama3-8b": {"model": "llama3-8b", "batch": {"global": 512, "sequence": 8192}},
    "llama3-70b": {"model": "llama3-70b", "batch": {"global": 1024, "sequence": 8192}},
    "gpt3-175b": {"model": "gpt3-175b", "batch": {"global": 1536, "sequence": 2048}},
}
HOSTS = (16, 32, 64)
PLAN_RATIOS = (1, 4)
LAB_RATES = ("1GbE", "10GbE", "25GbE")
LAB_HOSTS = (2, 4, 8, 16)
ALGORITHMS = ("ring", "halving-doubling", "direct", "tree")
LAB_SIZES = tuple(1 << k for k in range(18, 27, 2))


def cluster(rate: str, ratio: int, fault: float = 1.0, hosts: int = 32) -> dict[str, Any]:
    """Return hosts of eight H100 below leaf switches; `fault` is what one NIC has left of its rate."""
    found: dict[str, Any] = {"name": "sliders", "hosts": hosts, "host": {"model": "dgx-h100", "link": rate},
                             "network": f"leaf-spine {rate} {ratio}:1"}  # fmt: skip
    if fault < 1:
        found["faults"] = [{"device": "host-00/nic-0", "rate": f"{RATES[rate] * fault:g}Gbps"}]
    return found


def point(rate: str, ratio: int, fault: float) -> dict[str, Any]:
    """Return what syncline says of collectives and a step at one setting."""
    fabric = syncline.load(cluster(rate, ratio, fault))
    ring = [syncline.simulate(fabric, "allreduce", size, algorithm="ring") for size in SIZES]
    pairs = [
        syncline.simulate(fabric, "alltoall", size, level="analytic", algorithm="direct")
        for size in (SIZES[0], SIZES[-1])
    ]
    found = syncline.step(fabric, JOB)
    return {
        "rate": rate, "ratio": ratio, "fault": fault, "ring_s": [_short(row.time_s) for row in ring],
        "ring_link": ring[-1].limiting_link, "pairs_s": [_short(row.time_s) for row in pairs],
        "pairs_link": pairs[-1].limiting_link, "step_s": _short(found.step_time_s),
        "waiting_s": _short(found.to_json()["exposed_comm_s"]),
    }  # fmt: skip


def planned(model: str, hosts: int, rate: str, ratio: int) -> dict[str, Any]:
    """Return the best plan of one job at one setting, by closed forms."""
    found = make_plan(
        syncline.load(cluster(rate, ratio, hosts=hosts)), job_of(MODELS[model]), with_actions=False, with_run=False
    )
    best, tokens = found.best, found.best.tokens_per_step
    p50, p90 = (best.predicted.interval.p50, best.predicted.interval.p90)
    assert best.cost is not None
    return {
        "model": model, "hosts": hosts, "rate": rate, "ratio": ratio, "step_s": _short(best.predicted.step_time_s),
        "p50": [_short(end) for end in p50], "p90": [_short(end) for end in p90], "tokens": tokens,
        "mfu": _short(best.predicted.mfu), "usd": _short(1e6 * best.cost.cost_per_token_usd),
        "memory": _short(best.predicted.memory_bytes / 2**30), "split": best.decision.label,
        "parts": {name: _short(s) for name, s in best.predicted.parts_s.items() if s > 0.002 * best.predicted.step_time_s},
    }  # fmt: skip


def rehearsed(hosts: int, rate: str, algorithm: str) -> dict[str, Any]:
    """Return the times of an all-reduce between emulated hosts, with the host's costs as they were measured once."""
    placement = packed(syncline.load({
        "hosts": hosts, "host": {"gpu": "T4", "gpus": 1, "nics": 1, "nic": "i350", "link": rate}, "network": f"fat-tree {rate}",
    }))  # fmt: skip
    program, wiring, costs = (
        program_of(algorithm, Kind.ALL_REDUCE, placement, "gloo"),
        wiring_of_fabric(placement),
        _costs(),
    )
    times = [_short(predict(script_of(program, size, wiring), costs)) for size in LAB_SIZES]
    return {"hosts": hosts, "rate": rate, "algorithm": algorithm, "time_s": times}


def measured() -> list[dict[str, Any]]:
    """Return what the lab measured of those: four hosts of 1 GbE."""
    rows = json.loads(MEASURED.read_text("utf-8"))["flat"]["rows"]
    return [
        {"algorithm": row["algorithm"], "size": row["size_bytes"], "time_s": _short(row["measured_s"])}
        for row in rows
        if row["algorithm"] in ALGORITHMS and row["size_bytes"] in LAB_SIZES
    ]


def table() -> dict[str, Any]:
    """Return every setting."""
    plans = product(MODELS, HOSTS, RATES, PLAN_RATIOS)
    return {
        "sizes": SIZES, "rates": list(RATES), "ratios": RATIOS, "faults": FAULTS,
        "points": [point(*setting) for setting in product(RATES, RATIOS, FAULTS)],
        "plan": {"models": list(MODELS), "hosts": HOSTS, "rates": list(RATES), "ratios": PLAN_RATIOS,
                 "points": [planned(*setting) for setting in plans]},
        "lab": {"hosts": LAB_HOSTS, "rates": LAB_RATES, "algorithms": ALGORITHMS, "sizes": LAB_SIZES,
                "points": [rehearsed(*setting) for setting in product(LAB_HOSTS, LAB_RATES, ALGORITHMS)],
                "measured": measured()},
    }  # fmt: skip


def _costs() -> HostCosts:
    return HostCosts(**json.loads(MEASURED.read_text("utf-8"))["flat"]["costs"])


def _short(value: float) -> float:
    return float(f"{value:.5g}")


if __name__ == "__main__":
    lines = json.dumps(table(), separators=(",", ":"))
    for start in ('{"rate"', '{"model"', '{"hosts"', '{"algorithm"'):
        lines = lines.replace(start, "\n" + start)
    PATH.write_text(lines + "\n", "utf-8")
