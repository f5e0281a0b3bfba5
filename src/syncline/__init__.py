"""syncline: plan, rehearse, run, check and watch the network side of distributed AI training.

    import syncline
    cluster = syncline.load("h100-64-rail")               # a preset, a file or a mapping
    answer = syncline.simulate(cluster, "allreduce", "1GiB")
    answer.time_s, answer.limiting_link                   # and answer.timeline, answer.to_json(), print(answer)
    syncline.plan(cluster, "llama3-70b").page("plan.html")

Every question is one function that returns a frozen answer. Names are loaded when first used; gradient synchronisation
is in `syncline.torch`, the only part that needs PyTorch.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from syncline.describe import rendering
from syncline.version import __version__

if TYPE_CHECKING:
    from syncline.errors import DescriptionError, SynclineError, UsageError
    from syncline.fabric import Fabric, load
    from syncline.finding import Finding
    from syncline.questions.answer import Answer
    from syncline.questions.audit import audit, audit_matrix
    from syncline.questions.calibrate import calibrate_collective, calibrate_step
    from syncline.questions.clusters.build import fabric_build
    from syncline.questions.cost import cost
    from syncline.questions.design import design
    from syncline.questions.diagnose import diagnose
    from syncline.questions.doctor import doctor
    from syncline.questions.explain import explain
    from syncline.questions.fabric import inventory
    from syncline.questions.nccl import advise, check_effect
    from syncline.questions.place import place
    from syncline.questions.plan import compare, plan
    from syncline.questions.preview import preview
    from syncline.questions.rehearse import rehearse
    from syncline.questions.scenario import scenario
    from syncline.questions.serve import serve
    from syncline.questions.share import share
    from syncline.questions.simulate import simulate
    from syncline.questions.simulated.buffers import buffers
    from syncline.questions.simulated.compare_algorithms import compare_algorithms
    from syncline.questions.simulated.packets import PacketQuestion
    from syncline.questions.simulated.slots import slots
    from syncline.questions.simulated.traffic import traffic
    from syncline.questions.step import step
    from syncline.questions.validate import validate
    from syncline.questions.within.volumes import transfer, volumes
    from syncline.timeline import Timeline
    from syncline.timeline.export import load as load_timeline
    from syncline.workload.job import Job
    from syncline.workload.read_job import load_job

#: Public name -> the module that holds it.
_WHERE = {
    "Answer": "questions.answer", "DescriptionError": "errors", "Fabric": "fabric", "Finding": "finding",
    "Job": "workload.job", "PacketQuestion": "questions.simulated.packets",
    "SynclineError": "errors", "Timeline": "timeline", "UsageError": "errors",
    "advise": "questions.nccl", "audit": "questions.audit", "audit_matrix": "questions.audit",
    "buffers": "questions.simulated.buffers",
    "calibrate_collective": "questions.calibrate", "calibrate_step": "questions.calibrate",
    "check_effect": "questions.nccl", "compare": "questions.plan",
    "compare_algorithms": "questions.simulated.compare_algorithms", "cost": "questions.cost",
    "design": "questions.design", "diagnose": "questions.diagnose", "doctor": "questions.doctor",
    "explain": "questions.explain", "fabric_build": "questions.clusters.build",
    "inventory": "questions.fabric", "load": "fabric",
    "load_job": "workload.read_job", "load_timeline": "timeline.export",
    "place": "questions.place", "plan": "questions.plan", "preview": "questions.preview",
    "rehearse": "questions.rehearse", "scenario": "questions.scenario", "serve": "questions.serve",
    "share": "questions.share",
    "simulate": "questions.simulate", "slots": "questions.simulated.slots",
    "step": "questions.step", "traffic": "questions.simulated.traffic", "transfer": "questions.within.volumes",
    "validate": "questions.validate", "volumes": "questions.within.volumes",
}  # fmt: skip
__all__ = [
    "Answer", "DescriptionError", "Fabric", "Finding", "Job", "PacketQuestion",
    "SynclineError", "Timeline", "UsageError", "__version__", "advise",
    "audit", "audit_matrix", "buffers", "calibrate_collective", "calibrate_step", "check_effect", "compare",
    "compare_algorithms", "cost", "design", "diagnose", "doctor", "explain", "fabric_build", "inventory", "load",
    "load_job",
    "load_timeline", "place", "plan", "preview", "rehearse", "scenario", "serve", "share", "simulate", "slots",
    "step", "traffic", "transfer", "validate", "volumes",
]  # fmt: skip


def _found(name: str) -> Any:
    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), "load" if name == "load_timeline" else name)


def __getattr__(name: str) -> Any:
    if name in _WHERE:
        value = globals()[name] = _found(name)
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Renderer:
    # What renders answers, loaded when first used. Answers get it from here, because `report` stands above them.
    def __getattr__(self, form: str) -> Any:
        from syncline.report import rendered

        return getattr(rendered, form)


rendering.current = _Renderer()


def __dir__() -> list[str]:
    return sorted(__all__)
