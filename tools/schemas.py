"""JSON schemas of what `--json` prints, one file a question: written from the answers to sample questions.

    python tools/schemas.py            writes docs/reference/schemas/
    python tools/schemas.py --check    says whether they are still true (the tests do this)

A key that only some samples have is optional; a key that no sample has is not allowed. So a schema changes when an
answer does, and the change shows in review.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import syncline
from syncline.describe.plain import plain
from syncline.questions.answer import Answer
from syncline.questions.phases import plan_phases

FOLDER = Path(__file__).resolve().parent.parent / "docs" / "reference" / "schemas"
CLUSTER = "h100-64-rail"
DECODE = {"kind": "decode", "model": "llama3-70b", "parallel": {"tp": 8}, "batch": {"global": 8}, "context": 4096}
DENSE = {"model": "llama3-70b", "batch": {"global": 1024, "sequence": 8192}, "parallel": {"tp": 8, "pp": 4}}
EXPERTS = {"model": "mixtral-8x7b", "batch": {"global": 512, "sequence": 4096}, "parallel": {"tp": 2, "pp": 2, "ep": 8}}
TINY = {"model": {"name": "tiny", "layers": 2, "hidden": 256, "heads": 4, "ffn": 1024, "vocab": 4096},
        "batch": {"global": 64, "sequence": 128}}  # fmt: skip
SMALL_RUN = {"model": "llama3-8b", "batch": {"global": 64, "sequence": 4096}}
ETHERNET = {"hosts": 8, "host": {"gpu": "H100", "gpus": 8, "nics": 2, "nic": "ConnectX-7", "link": "400GbE"},
            "network": {"topology": "leaf-spine", "link": "400GbE", "switch": "SN5600",
                        "hosts_per_leaf": 4}}  # fmt: skip
SMALL = {"model": "llama3-8b", "batch": {"global": 40, "sequence": 4096}}
BURST = {"compute": "20ms", "exchange": "1GB"}
SHARED = {
    "tenants": {"gold": 0.5},
    "jobs": [{"name": "a", "step": BURST, "hosts": 2, "tenant": "gold"}, {"name": "b", "step": BURST, "hosts": 2}],
    "traffic": [{"name": "storage", "from": "0", "to": "8", "rate": "50Gbps"}],
    "failures": [{"device": "host-00/nic-0", "at": "1s"}],
}
LOAD = {"rate": 4, "prompt": 1000, "answer": {"mean": 200, "p99": 800}}
SERVED = {"kind": "serve", "model": "llama3-8b", "load": LOAD, "slo": {"first_token": "1s"}}
PHASES = """
model: llama3-8b
start: 2027-01-15
budget: $1M
deadline: 40 days
phases:
  - {name: pre-training, tokens: 100B, batch: {global: 512, sequence: 8192}}
  - {name: reinforcement, steps: 9, gpus: 16, rollout: {prompts: 64, answers: 4, prompt: 500, answer: 1500, on: shared}}
"""
SHORT = {"compute": "1ms", "exchange": "1MB"}
ARRIVING = [{"name": "a", "step": SHORT, "hosts": "0-1"}, {"name": "b", "step": SHORT, "hosts": "2-3", "arrives": "1s"}]
EXAMPLES = FOLDER.parents[2] / "examples"
PREVIEWED = ["torchrun", "--nnodes", "2", "--nproc-per-node", "8", str(EXAMPLES / "preview" / "ddp.py")]
#: Objects whose keys are names of parts, models, links: any key, values of one kind.
OPEN = frozenset({
    "gpu_models", "switches_by_tier", "nvlink_domains_by_gpus", "cables_by_kind", "oversubscription", "facts",
    "assumed", "comm_bytes", "kernels_s", "lost_by", "asked", "extra_s", "usd_per_year_by", "share_by",
    "systems", "ecmp_width", "skipped", "over_limit",
    "measured_parts_s",
})  # fmt: skip

Ask = Callable[[], Answer]


def questions() -> dict[str, tuple[Ask, ...]]:
    """Return the sample questions, by the name of their schema."""
    small = {"ranks": 16}
    return {
        "simulate": (
            lambda: syncline.simulate(CLUSTER, "allreduce", "1MiB..2MiB", seeds=2, **small),
            lambda: syncline.simulate(CLUSTER, "alltoall", "1MiB", level="analytic", **small),
            lambda: syncline.simulate(CLUSTER, "allreduce", "1MiB", algorithm="nccl"),
            lambda: syncline.simulate(CLUSTER, "allreduce", "64KiB", level="packet", **small),
        ),
        "simulate-buffers": (
            lambda: syncline.buffers(CLUSTER, "incast:4:64KiB", transport="dctcp"),
            lambda: syncline.buffers(CLUSTER, "incast:4:64KiB", transport="roce"),
        ),
        "simulate-slots": (
            lambda: syncline.slots(CLUSTER, "incast:4:64KiB"),
            lambda: syncline.slots(CLUSTER, "incast:4:64KiB",
                                   packets=syncline.PacketQuestion(buffer="8MB", background="0.1")),
        ),
        "compare-algorithms": (lambda: syncline.compare_algorithms(CLUSTER, "allreduce", "1KiB..1MiB", **small),),
        "step": (
            lambda: syncline.step(CLUSTER, DENSE),
            lambda: syncline.step(CLUSTER, EXPERTS, level="flow"),
            lambda: syncline.step(ETHERNET, TINY, level="packet"),
            _profiled,
        ),
        "calibrate-step": (lambda: syncline.calibrate_step(CLUSTER, DENSE, measured="14s"),),
        "preview": (lambda: syncline.preview(CLUSTER, PREVIEWED, captured=EXAMPLES / "preview" / "captured"),),
        "step-decode": (lambda: syncline.step(CLUSTER, DECODE),),
        "volumes": (lambda: syncline.volumes(EXPERTS, gpus=64), lambda: syncline.volumes(DENSE, gpus=512)),
        "transfer": (lambda: syncline.transfer(size="1GiB", rate="100Gbps"),),
        "plan": (
            lambda: syncline.plan(CLUSTER, DENSE, fix="tp=8,pp=4", workers=1),
            lambda: syncline.plan(CLUSTER, "llama3-70b", fix="tp=8,pp=8", objective="pareto", workers=1),
        ),
        "plan-serve": (lambda: syncline.serve(CLUSTER, SERVED), lambda: syncline.serve(CLUSTER, SERVED | {"slo": {}})),
        "plan-phases": (_phased,),
        "place": (
            lambda: syncline.place(CLUSTER, DENSE | {"gpus": 32}, hosts="0-3,8"),
            lambda: syncline.place(CLUSTER, SMALL, hosts="0-3,40", replace="host-40=host-41"),
        ),
        "share": (
            lambda: syncline.share(CLUSTER, SHARED),
            lambda: syncline.share(CLUSTER, {"jobs": ARRIVING}, level="packet"),
        ),
        "cost": (
            lambda: syncline.cost(CLUSTER),
            lambda: syncline.cost(CLUSTER, step_time="2s", tokens_per_step="4M", steps=250_000, budget="2M",
                                  upgrade_price="500k", upgrade_step_time="1.9s"),
        ),
        "fabric-show": (lambda: syncline.inventory(CLUSTER), lambda: syncline.inventory("tpu-v4-pod")),
        "fabric-build": (lambda: syncline.fabric_build(CLUSTER), lambda: syncline.fabric_build(ETHERNET)),
        "design": (
            lambda: syncline.design(SMALL_RUN, gpus=64, links=("NDR",), checked=0),
            lambda: syncline.design(SMALL_RUN, gpus=64, links=("NDR",), checked=0, later=512, storage=True),
        ),
        "advise": (lambda: syncline.advise(CLUSTER, ranks=16),),
    }  # fmt: skip


def _phased() -> Answer:
    """Return a run of two phases, which only a file has."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(PHASES)
        return plan_phases(CLUSTER, path)


def _profiled() -> Answer:
    """Return a step with what was measured on its system."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.yaml"
        syncline.calibrate_step(CLUSTER, DENSE, measured="14s").save(path)
        return syncline.step(CLUSTER, DENSE, profile=path)


def schema_of(values: Sequence[Any], key: str = "") -> dict[str, Any]:
    """Return the schema that all of these values keep."""
    kinds = sorted({_kind(value) for value in values})
    if "integer" in kinds and "number" in kinds:
        kinds.remove("integer")
    found: dict[str, Any] = {"type": kinds[0] if len(kinds) == 1 else kinds}
    objects = [value for value in values if isinstance(value, dict)]
    lists = [item for value in values if isinstance(value, list) for item in value]
    if objects and key in OPEN:
        inner = [item for value in objects for item in value.values()]
        found["additionalProperties"] = schema_of(inner) if inner else True
    elif objects:
        names = list(dict.fromkeys(name for value in objects for name in value))
        found["properties"] = {
            name: schema_of([value[name] for value in objects if name in value], name) for name in names
        }
        found["required"] = [name for name in names if all(name in value for value in objects)]
        found["additionalProperties"] = False
    if "array" in kinds:
        found["items"] = schema_of(lists, key) if lists else {}
    return found


def written(name: str, asks: Sequence[Ask]) -> str:
    """Return the schema file of a question."""
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": f"syncline {name}"}
    return json.dumps(head | schema_of([plain(ask().to_json()) for ask in asks]), indent=1) + "\n"


def _kind(value: Any) -> str:
    names = {bool: "boolean", int: "integer", float: "number", str: "string", dict: "object", list: "array"}
    return "null" if value is None else names[type(value)]


def main() -> None:
    """Write the schemas, or say which are no longer true."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    FOLDER.mkdir(parents=True, exist_ok=True)
    stale = []
    for name, asks in questions().items():
        text, path = written(name, asks), FOLDER / f"{name}.json"
        if not check:
            path.write_text(text)
        elif not path.exists() or path.read_text() != text:
            stale.append(path.name)
    if stale:
        sys.exit(f"not what answers look like any more: {', '.join(stale)}; run python tools/schemas.py")


if __name__ == "__main__":
    main()
