"""Gradient synchronisation for PyTorch: two lines to turn on, one to turn off.

import syncline.torch
handle = syncline.torch.synchronize(ddp_model)
...
handle.close()

`Executor` runs any proved schedule between ranks, measured: docs/guides/executor.md.
"""

from __future__ import annotations

from syncline.runtime.checkpoint import Checkpoints
from syncline.runtime.executor import Executor
from syncline.runtime.periodic.crew import Crew
from syncline.runtime.periodic.diloco import DiLoCo
from syncline.runtime.periodic.local_sgd import LocalSGD
from syncline.runtime.periodic.one_bit import OneBitAdam, OneBitLamb
from syncline.runtime.periodic.server import ParameterServer
from syncline.runtime.periodic.staleness import BoundedStaleness
from syncline.runtime.periodic.target import site_group
from syncline.runtime.settings import Settings
from syncline.runtime.start import synchronize
from syncline.runtime.step import StepReport
from syncline.runtime.synchronizer import Synchronizer

__all__ = [
    "BoundedStaleness",
    "Checkpoints",
    "Crew",
    "DiLoCo",
    "Executor",
    "LocalSGD",
    "OneBitAdam",
    "OneBitLamb",
    "ParameterServer",
    "Settings",
    "StepReport",
    "Synchronizer",
    "site_group",
    "synchronize",
]
