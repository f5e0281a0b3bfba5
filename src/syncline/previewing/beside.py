"""A preview beside `step` of the job file that it writes: both their parts, and why they differ where they do.

beside = beside_step(SeenStep(step_time_s, kernels_s, exposed_s, memory), step(fabric, load_job(job.data)))
beside.time_s["kernels"], beside.why          # (preview's, step's), words for each part that differs
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from syncline.previewing.holders import PeakMemory
from syncline.sim.step.step import StepResult
from syncline.workload.shape import Shape

TELLING, LEAST_S = 0.02, 1e-9
"""A part is explained where it differs by so much of the whole; less than a nanosecond is nothing."""
STATES = ("parameters", "gradients", "optimizer state", "buffers")
LIBRARIES = "cuBLAS workspaces"
LONGER = {
    "kernels": "`step` prices kernels as whole published runs reach them, which is less than a kernel's own rate",
    "exposed": "`step` hides communication by its kind; the preview runs the script's own streams and waits",
    "host and rest": "`step` adds what every published step has beside its kernels",
}
SHORTER = {
    "kernels": "the script runs operators that its model's shape does not name: casts, copies, sums by themselves",
    "exposed": "the script waits for communication that `step` takes to be hidden",
    "host and rest": "the host launches one kernel after another; `step` has no host",
}
MORE = {
    "parameters and states": "`step` counts 16 bytes a parameter, or what the job states; the script holds less",
    "activations": "`step` counts what a layer of this shape keeps for its backward; the script keeps less",
    "states and activations": "`step` counts two gathered layers and a layer's gradients; the script held less",
    "libraries": "`step` adds communication buffers and fragmentation, which the allocator does not count",
}
LESS = {
    "parameters and states": "the script holds copies beside its parameters, gradients and optimizer state",
    "activations": "the script keeps tensors that `step` does not count: casts, DDP's buckets, the loss's input",
    "states and activations": "the script keeps tensors that `step` does not count: casts, the loss's input",
    "libraries": "`step` does not count cuBLAS's workspaces",
}
OF_LIST = "a list of layers has its layers' outputs alone: no indices of pooling, no inputs, no copies"
OF_COMPILED = "compiled code frees what it fuses and makes some of it again; `step` counts what a layer keeps"


@dataclass(frozen=True)
class SeenStep:
    """What a preview says of a step."""

    step_time_s: float
    kernels_s: float
    exposed_s: float
    memory: PeakMemory
    compiled: bool = False


@dataclass(frozen=True)
class BesideStep:
    """The preview's and `step`'s numbers for one job, part by part."""

    step_time_s: tuple[float, float]
    memory_bytes: tuple[float, float]
    time_s: dict[str, tuple[float, float]]
    held_bytes: dict[str, tuple[float, float]]
    why: tuple[str, ...]


def beside_step(seen: SeenStep, priced: StepResult) -> BesideStep:
    """Return a preview beside the price of its own job file, with the reasons for what differs."""
    time_s = _times(seen, priced)
    held = _held(seen.memory, priced.memory_bytes, together=bool(priced.job.parallel.sharded_params))
    whole_s = (seen.step_time_s, priced.step_time_s)
    whole = (float(seen.memory.peak_bytes), priced.memory_bytes["total"])
    listed = not isinstance(priced.job.model, Shape)
    activations = OF_COMPILED if seen.compiled else OF_LIST if listed else LESS["activations"]
    fewer = {**LESS, "activations": activations, **({"states and activations": OF_COMPILED} if seen.compiled else {})}
    why = (*_why(time_s, whole_s[0], LONGER, SHORTER), *_why(held, whole[0], MORE, fewer))
    return BesideStep(whole_s, whole, time_s, held, why)


def _times(seen: SeenStep, priced: StepResult) -> dict[str, tuple[float, float]]:
    kernels = sum(priced.parts_s.get(part, 0.0) for part in ("compute", "optimizer", "codec"))
    rest = priced.step_time_s - kernels - priced.exposed_comm_s
    own = seen.step_time_s - seen.kernels_s - seen.exposed_s
    return {
        "kernels": (seen.kernels_s, kernels),
        "exposed": (seen.exposed_s, priced.exposed_comm_s),
        "host and rest": (own if own > LEAST_S else 0.0, rest if rest > LEAST_S else 0.0),
    }


def _held(memory: PeakMemory, priced: Mapping[str, float], *, together: bool) -> dict[str, tuple[float, float]]:
    """Return what holds the memory; gathered parameters are temporaries to one and parameters to the other."""
    by = {each.label: float(each.size_bytes) for each in memory.holders}
    states = sum(by.get(name, 0.0) for name in STATES)
    other = by.get(LIBRARIES, 0.0)
    stated = sum(priced.get(name, 0.0) for name in ("parameters", "gradients", "optimizer"))
    kept = priced.get("activations", 0.0) + priced.get("logits", 0.0)
    libraries = (other, priced["total"] - stated - kept)
    if together:
        return {"states and activations": (memory.peak_bytes - other, stated + kept), "libraries": libraries}
    activations = (memory.peak_bytes - states - other, kept)
    return {"parameters and states": (states, stated), "activations": activations, "libraries": libraries}


def _why(
    parts: Mapping[str, tuple[float, float]], whole: float, more: Mapping[str, str], less: Mapping[str, str]
) -> list[str]:
    """Return a reason for every part in which `step` says more or less than the preview."""
    found = []
    for name, (seen, priced) in parts.items():
        if abs(priced - seen) > TELLING * whole:
            found.append(f"{name}: {(more if priced > seen else less)[name]}")
    return found
