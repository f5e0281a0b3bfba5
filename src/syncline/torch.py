"""Gradient synchronisation for PyTorch: two lines to turn on, one to turn off.

import syncline.torch
handle = syncline.torch.synchronize(ddp_model)
...
handle.close()

`Executor` runs any proved schedule between ranks, measured: docs/guides/executor.md. Names are loaded when they are
first used, so that importing this module costs a training script nothing.
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
    from syncline.runtime.periodic.local_sgd import LocalSGD
    from syncline.runtime.periodic.one_bit import OneBitAdam, OneBitLamb
    from syncline.runtime.periodic.server import ParameterServer
    from syncline.runtime.periodic.staleness import BoundedStaleness
    from syncline.runtime.periodic.target import site_group
    from syncline.runtime.span_writer import phase
    from syncline.runtime.step_slots import StepSlots
    from syncline.runtime.sync.settings import Settings
    from syncline.runtime.sync.start import synchronize
    from syncline.runtime.sync.step import StepReport
    from syncline.runtime.sync.synchronizer import Synchronizer

_HOMES = {
    "BoundedStaleness": "syncline.runtime.periodic.staleness",
    "Checkpoints": "syncline.runtime.alive.checkpoint",
    "Crew": "syncline.runtime.periodic.crew",
    "DiLoCo": "syncline.runtime.periodic.diloco",
    "ElasticSynchronizer": "syncline.runtime.elastic.elastic",
    "Executor": "syncline.runtime.execute.executor",
    "LocalSGD": "syncline.runtime.periodic.local_sgd",
    "OneBitAdam": "syncline.runtime.periodic.one_bit",
    "OneBitLamb": "syncline.runtime.periodic.one_bit",
    "ParameterServer": "syncline.runtime.periodic.server",
    "Settings": "syncline.runtime.sync.settings",
    "StepReport": "syncline.runtime.sync.step",
    "StepSlots": "syncline.runtime.step_slots",
    "Synchronizer": "syncline.runtime.sync.synchronizer",
    "elastic": "syncline.runtime.elastic.start",
    "phase": "syncline.runtime.span_writer",
    "site_group": "syncline.runtime.periodic.target",
    "synchronize": "syncline.runtime.sync.start",
}

__all__ = [
    "BoundedStaleness",
    "Checkpoints",
    "Crew",
    "DiLoCo",
    "ElasticSynchronizer",
    "Executor",
    "LocalSGD",
    "OneBitAdam",
    "OneBitLamb",
    "ParameterServer",
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
    found = globals()[name] = getattr(import_module(_HOMES[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
