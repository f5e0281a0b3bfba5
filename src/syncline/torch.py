"""Gradient synchronisation for PyTorch: two lines to turn on, one to turn off.

import syncline.torch
handle = syncline.torch.synchronize(ddp_model)
...
handle.close()

Three words are all there is to choose: nothing (what gradients travel in is measured), `codec=` (named), and `every=`
of `DiLoCo` (synchronise less often). `Executor` runs any proved schedule between ranks, measured:
docs/guides/executor.md. Names are loaded when they are first used, so that importing this module costs a training
script nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from syncline.runtime.alive.checkpoint import Checkpoints
    from syncline.runtime.elastic.elastic import ElasticSynchronizer
    from syncline.runtime.elastic.start import elastic
    from syncline.runtime.execute.executor import Executor
    from syncline.runtime.periodic.crew import Crew
    from syncline.runtime.periodic.diloco import DiLoCo
    from syncline.runtime.periodic.target import site_group
    from syncline.runtime.span_writer import phase
    from syncline.runtime.step_slots import StepSlots
    from syncline.runtime.sync.settings import Settings
    from syncline.runtime.sync.start import synchronize
    from syncline.runtime.sync.step import StepReport
    from syncline.runtime.sync.synchronizer import Synchronizer

_HOMES = {
    "Checkpoints": "alive.checkpoint",
    "Crew": "periodic.crew",
    "DiLoCo": "periodic.diloco",
    "ElasticSynchronizer": "elastic.elastic",
    "Executor": "execute.executor",
    "Settings": "sync.settings",
    "StepReport": "sync.step",
    "StepSlots": "step_slots",
    "Synchronizer": "sync.synchronizer",
    "elastic": "elastic.start",
    "phase": "span_writer",
    "site_group": "periodic.target",
    "synchronize": "sync.start",
}

__all__ = [
    "Checkpoints",
    "Crew",
    "DiLoCo",
    "ElasticSynchronizer",
    "Executor",
    "Settings",
    "StepReport",
    "StepSlots",
    "Synchronizer",
    "elastic",
    "phase",
    "site_group",
    "synchronize",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    loaded = globals()[name] = getattr(import_module(f"syncline.runtime.{_HOMES[name]}"), name)
    return loaded


def __dir__() -> list[str]:
    return sorted(__all__)
