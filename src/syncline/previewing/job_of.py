"""The job file of a captured script: its model's shape, its split and its batch, for the verbs that go on from it."""

from __future__ import annotations

from dataclasses import dataclass, replace

import yaml

from syncline.describe.plain import JsonObject, plain
from syncline.previewing.axes import ScriptSplit, axes_of
from syncline.previewing.model_of import attention_of, layer_list, samples_of, shape_of, step_kernels
from syncline.previewing.price import CUDNN_ATTENTION
from syncline.previewing.record import Capture
from syncline.sim.step.arithmetic.layers_cost import reached_efficiency
from syncline.sim.step.constants import default_constants
from syncline.sim.step.machine import Machine
from syncline.workload.read_job import load_job
from syncline.workload.shape import Shape

OPTIMIZERS = {"SGD": "sgd", "Adafactor": "adafactor", "Muon": "muon"}
PRECISIONS = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}


@dataclass(frozen=True)
class CapturedJob:
    """A job as a mapping, and what of it could not be read from the capture."""

    data: JsonObject
    unsure: tuple[str, ...] = ()

    def to_yaml(self, script: str) -> str:
        """Return the text of a job file."""
        head = [f"# What syncline preview saw of {script}.", *(f"# Not sure: {each}" for each in self.unsure)]
        return "\n".join(head) + "\n" + yaml.safe_dump(self.data, sort_keys=False, default_flow_style=None)


def job_of(captures: tuple[Capture, ...]) -> CapturedJob:
    """Return the job that captured ranks are of."""
    axes = axes_of(captures)
    shape = shape_of(captures, axes)
    unsure = [f"what {each} carry" for each in axes.unknown]
    if shape is None:
        unsure.append("the model is a list of layers, and data parallel: its parameters are no known transformer's")
    elif shape.moe is not None and shape.moe.top_k == 1:
        unsure.append("how many experts a token visits")
    listed = axes.zero.replace("hsdp", "fsdp")  # a list of layers is sharded over all ranks
    data: dict[str, object] = {
        "model": layer_list(captures, axes.tp) if shape is None else shape.model_dump(exclude_defaults=True),
        "gpus": captures[0].world,
        "parallel": _split(axes) if shape is not None else {"dp": captures[0].world, "zero": listed},
        "batch": _batch(captures, axes, shape),
        "precision": _precision(captures[0]),
        "recompute": "full" if _remade(captures[0]) else "none",
        "optimizer": OPTIMIZERS.get(str(captures[0].facts.get("optimizer", "")), "adam"),
        "gradient_bytes": axes.gradient_bytes,
        "compiled": _is_compiled(captures[0]),
        "software": {"framework": "megatron" if "megatron" in captures[0].facts.get("frameworks", "") else "pytorch"},
    }
    if axes.zero in ("fsdp", "hsdp", "3", "2", "1"):
        data["parameter_bytes"] = axes.parameter_bytes
    return CapturedJob(plain(data), tuple(unsure))


def reaching(job: CapturedJob, captures: tuple[Capture, ...], machine: Machine, kernels_s: float) -> CapturedJob:
    """Return the job with what its kernels were priced as: the part's attention, the efficiency of a list of layers."""
    data, model = dict(job.data), job.data["model"]
    if any("attention" in kernel.name for kernel, _ in step_kernels(captures[0])):
        data["attention"] = "cudnn" if machine.gpu.architecture in CUDNN_ATTENTION else "fa2"
    if isinstance(model, dict) and "layers" in model:
        found = reached_efficiency(load_job(job.data), machine, default_constants(), kernels_s)
        if found is not None and found < 1.0:
            data["model"] = {**model, "efficiency": float(f"{found:.3g}")}
    return replace(job, data=plain(data))


def _is_compiled(capture: Capture) -> bool:
    """Return whether most kernels of a forward are of compiled code: frameworks compile a helper here and there."""
    step = capture.ops[slice(*capture.steady[-1])]
    marks = [op.extra[0] for op in step if (op.kind, op.phase) == ("kernel", "forward") and isinstance(op.extra, list)]
    return sum(map(bool, marks)) > len(marks) / 2


def _split(axes: ScriptSplit) -> dict[str, object]:
    found: dict[str, object] = {"tp": axes.tp, "pp": axes.pp, "dp": axes.dp, "ep": axes.ep, "zero": axes.zero}
    if axes.tp > 1:
        found["sp"] = axes.sp
    if axes.zero == "hsdp":
        found["shard"] = axes.shard
    return {name: value for name, value in found.items() if value is False or value != 1}


def _batch(captures: tuple[Capture, ...], axes: ScriptSplit, shape: Shape | None) -> dict[str, int]:
    attention = attention_of(captures[0])
    if shape is None or attention is None:
        each = samples_of(captures[0])
        return {"global": each * captures[0].world, "micro": each}
    layers = -(-shape.num_attention_layers // axes.pp)
    rounds = max(1, round(attention.calls / layers))
    return {"global": attention.batch * rounds * axes.dp, "micro": attention.batch, "sequence": attention.tokens}


def _precision(capture: Capture) -> str:
    """Return the type that most of a step's products are in."""
    counts: dict[str, float] = {}
    for kernel, _ in step_kernels(capture):
        if kernel.flops and kernel.ins:
            kind = PRECISIONS.get(kernel.ins[-1][1], "fp8")
            counts["tf32" if kind == "fp32" and kernel.tf32 else kind] = counts.get(kind, 0.0) + kernel.flops
    return max(counts, key=lambda each: counts[each], default="bf16")


def _remade(capture: Capture) -> bool:
    """Whether the backward runs the forward of attention again."""
    back = [kernel.name for kernel, _ in step_kernels(capture, "backward")]
    return any("attention" in name and "backward" not in name for name in back)
