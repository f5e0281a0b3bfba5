"""Published systems, designed anew: their GPUs and a job are given, their fabric is withheld.

The published fabric is priced, planned and executed at flow level by the same model as the design's choice. A design
passes if it finds the published topology, or a fabric that costs no more a token; how much slower or faster it steps at
flow level stands beside. Of the front the cheapest point is taken whose step is within 2 % of the published fabric's.
Jobs are the published ones where there are any (GPT-3 on Selene and Eos, DeepSeek-V3 on its own), else stand-ins;
prices of Ethernet switches are recalled: this compares models, not purchases.
"""

from __future__ import annotations

import time
from typing import Any

from syncline.designing.choice import space
from syncline.designing.point import Limits
from syncline.designing.resilience import remains
from syncline.designing.search import Designer
from syncline.errors import SynclineError
from syncline.fabric import load
from syncline.planning.answer import make_plan
from syncline.planning.cost.owning import own
from syncline.workload.read_job import load_job

SYSTEMS = (
    ("dgx-h100-superpod", "dgx-h100", ("NDR", "400GbE"), "llama3-70b"),
    ("dgx-a100-superpod", "dgx-a100-320", ("HDR", "200GbE"), "llama3-70b"),
    ("selene", "dgx-a100", ("HDR", "200GbE"), "gpt3-175b"),
    ("deepseek-v3", "hgx-h800-8", ("NDR", "400GbE"), "deepseek-v3"),
    ("eos", "dgx-h100", ("NDR", "400GbE"), "gpt3-175b"),
    ("gb200-nvl72-pod", "gb200-nvl72", ("NDR", "400GbE"), "llama3-70b"),
)
"""Preset with its source, host, links looked at, and the job's model; the batch is two sequences a GPU."""

#: A step so much longer than on the published fabric is not called its equal; so many points of the front are run.
DEFENDED, LOOKED_AT = 0.02, 6


def run() -> dict[str, Any]:
    """Return both fabrics of every system."""
    rows = []
    for preset, host, links, model in SYSTEMS:
        try:
            rows.append(_row(preset, host, links, model))
        except SynclineError as error:  # a system that cannot be compared is a result too
            rows.append({"system": preset, "failed": error.message})
    done = [row for row in rows if "agrees" in row]
    return {"rows": rows, "systems": len(done), "agree": sum(row["agrees"] for row in done)}


def _row(preset: str, host: str, links: tuple[str, ...], model: str) -> dict[str, Any]:
    began = time.process_time()
    published = load(preset)
    job = load_job({"model": model, "batch": {"global": 2 * published.num_gpus, "sequence": 4096}})
    left = remains(published)
    designer = Designer([(job, 1.0)], Limits(after_one=left.after_one * 0.999))
    found = designer.run(space((host,), (published.num_gpus,), links))
    theirs = make_plan(published, job, with_actions=False).best.predicted
    place = 0
    for best in found.front()[:LOOKED_AT]:
        place += 1
        ours = make_plan(best.choice.build(), job, with_actions=False).best.predicted
        slower = ours.step_time_s / theirs.step_time_s - 1
        if slower < DEFENDED:
            break
    price = own(published)
    tokens = job.batch.global_ * job.batch.sequence
    year = 365.25 * 86_400
    token = price.usd_per_year / year * theirs.step_time_s / tokens
    found_token = best.usd_per_year / year * ours.step_time_s / tokens
    network = published.spec.network
    same = network is not None and network.topology == best.choice.topology
    return {
        "system": preset, "gpus": published.num_gpus, "model": model, "fabrics": found.num_choices,
        "planned": found.num_planned, "bounded": found.num_bounded, "cpu_s": round(time.process_time() - began, 1),
        "published": network.topology if network else "", "published_network_usd": price.network_usd,
        "published_step_s": theirs.step_time_s,
        "published_after_one": left.after_one, "published_usd_per_million_tokens": token * 1e6,
        "of_the_front": place, "found": best.choice.label, "found_network_usd": best.network_usd,
        "found_step_s": ours.step_time_s, "found_after_one": best.after_one,
        "found_usd_per_million_tokens": found_token * 1e6, "flow_slower": slower, "same_topology": same,
        "agrees": same or (found_token <= token * 1.0001),
        "verdict": verdict(same, found_token / token - 1, slower),
    }  # fmt: skip


def verdict(same: bool, dearer: float, slower: float) -> str:
    """Say in words what was found."""
    figures = f"a token {abs(dearer):.1%} {'dearer' if dearer > 0 else 'cheaper'}, a step {slower:+.1%} at flow level"
    if same:
        return f"the published topology; {figures}"
    return f"another one, {'defended' if dearer <= 1e-4 and slower < DEFENDED else 'not defended'}: {figures}"
