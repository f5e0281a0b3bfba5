"""Schemas are those of the answers' classes; answers keep them, and can be compared, copied and pickled."""

from __future__ import annotations

import copy
import importlib.util
import json
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import jsonschema
import pytest
from tests.auditing.samples import HOSTS

import syncline
from syncline.auditing.audit import audit
from syncline.auditing.capture import capture
from syncline.auditing.matrix import compare
from syncline.describe.plain import json_text
from syncline.host.root import Root
from syncline.questions.answer import Answer
from syncline.questions.audit import AuditAnswer, audit_rules
from syncline.questions.discover import discover
from syncline.questions.simulate import alltoallv
from syncline.questions.within.phases import plan_phases

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = "h100-64-rail"
FEW_HOSTS = {"hosts": 4, "host": "dgx-h100", "network": "rail-optimized NDR"}
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
EXAMPLES = ROOT / "examples"
PREVIEWED = ["torchrun", "--nnodes", "2", "--nproc-per-node", "8", str(EXAMPLES / "preview" / "ddp.py")]

Ask = Callable[[], Answer]


def tool() -> ModuleType:
    spec = importlib.util.spec_from_file_location("schemas", ROOT / "tools" / "schemas.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def questions() -> dict[str, tuple[Ask, ...]]:
    """Return the sample questions, by the name of their schema."""
    small: Any = {"ranks": 16}
    return {
        "simulate": (
            lambda: syncline.simulate(CLUSTER, "allreduce", "1MiB..2MiB", seeds=2, **small),
            lambda: syncline.simulate(CLUSTER, "alltoall", "1MiB", level="analytic", **small),
            lambda: syncline.simulate(CLUSTER, "allreduce", "1MiB", algorithm="nccl"),
            lambda: alltoallv(CLUSTER, [[0, "1MiB"], [0, 0]]),
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
        "simulate-compare": (lambda: syncline.compare_algorithms(CLUSTER, "allreduce", "1KiB..1MiB", **small),),
        "step": (
            lambda: syncline.step(CLUSTER, DENSE),
            lambda: syncline.step(CLUSTER, EXPERTS, level="flow"),
            lambda: syncline.step(ETHERNET, TINY, level="packet"),
            _profiled,
        ),
        "explain": (_explained,),
        "calibrate-step": (lambda: syncline.calibrate_step(CLUSTER, DENSE, measured="14s"),),
        "preview": (lambda: syncline.preview(CLUSTER, PREVIEWED, captured=EXAMPLES / "preview" / "captured"),),
        "step-decode": (lambda: syncline.step(CLUSTER, DECODE),),
        "step-volumes": (lambda: syncline.volumes(EXPERTS, gpus=64), lambda: syncline.volumes(DENSE, gpus=512)),
        "transfer": (lambda: syncline.transfer(size="1GiB", rate="100Gbps"),),
        "plan": (
            lambda: syncline.plan(FEW_HOSTS, SMALL_RUN, fix="tp=8,pp=1", workers=1),
            lambda: syncline.plan(FEW_HOSTS, SMALL_RUN, fix="tp=8,pp=2", objective="pareto", workers=1),
        ),
        "plan-serve": (
            lambda: syncline.serve(FEW_HOSTS, SERVED),
            lambda: syncline.serve(FEW_HOSTS, SERVED | {"slo": {}}),
        ),
        "plan-compare-serve": (lambda: syncline.compare(SERVED, clusters=["h100-64-rail", "h100-64-rail@rent"]),),
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
            lambda: syncline.design(SMALL_RUN, gpus=64, links=("NDR",)),
            lambda: syncline.design(SMALL_RUN, gpus=64, links=("NDR",), later=512, storage=True),
        ),
        "discover": (_discovered,),
        "audit": (lambda: _audited("plain-vm"), lambda: _audited("dgx-h100", "plain-vm")),
        "audit-rules": (audit_rules,),
        "nccl": (lambda: syncline.advise(CLUSTER, ranks=16),),
        "diagnose": (lambda: syncline.diagnose(str(ROOT / "tests" / "diagnosis" / "incidents.yaml")),),
        "doctor": (lambda: syncline.doctor(str(ROOT / "tests" / "diagnosis" / "incidents.yaml"), cluster=CLUSTER),),
    }  # fmt: skip


def _audited(*names: str) -> Answer:
    """Return the audit of captured hosts."""
    reports = tuple(audit(Root.of(HOSTS[name]().tree())) for name in names)
    return AuditAnswer(reports, compare(reports) if len(reports) > 1 else None)


def _explained() -> Answer:
    """Return a traced step on a cluster."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        args = {"Collective name": "allreduce", "In msg nelems": 1 << 20, "dtype": "Float", "Group size": 8}
        kernel = {"ph": "X", "cat": "kernel", "name": "gemm", "ts": 0, "dur": 90}
        path.write_text(json.dumps([kernel, kernel | {"name": "ncclDevKernel_AllReduce", "ts": 90, "args": args}]))
        return syncline.explain([path], cluster=CLUSTER)


def _phased() -> Answer:
    """Return a run of two phases, which only a file has."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.yaml"
        path.write_text(PHASES)
        return plan_phases(CLUSTER, path)


def _discovered() -> Answer:
    """Return what is there, of a captured host."""
    with tempfile.TemporaryDirectory() as folder:
        capture(Root.of(HOSTS["dgx-h100"]().tree()), Path(folder) / "tree")
        return discover(Path(folder) / "cluster.yaml", roots=[Path(folder) / "tree"])


def _profiled() -> Answer:
    """Return a step with what was measured on its system."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "profile.yaml"
        syncline.calibrate_step(CLUSTER, DENSE, measured="14s").save(path)
        return syncline.step(CLUSTER, DENSE, profile=path)


@pytest.mark.parametrize("name", sorted(questions()))
def test_answers_keep_their_schema(name: str) -> None:
    for ask in questions()[name]:
        answer = ask()
        assert type(answer).schema_name == name
        if type(answer).to_json is not Answer.to_json:
            pytest.skip("this JSON does not derive from fields yet")
        jsonschema.validate(json.loads(json_text(answer.to_json())), type(answer).schema())
        assert copy.copy(answer) == answer
        assert pickle.loads(pickle.dumps(answer)) == answer


def test_schemas_on_disk_are_those_of_the_classes() -> None:
    schemas = tool()
    assert schemas.written() == {path.name: path.read_text("utf-8") for path in schemas.FOLDER.glob("*.json")}


def test_a_schema_refuses_a_missing_and_an_unknown_key() -> None:
    answer = syncline.transfer(size="1GiB", rate="100Gbps")
    found = answer.to_json()
    for wrong in ({"unknown": 1, **found}, {key: found[key] for key in list(found)[1:]}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(wrong, type(answer).schema())
