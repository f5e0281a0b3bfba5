"""Gradient synchronisation for PyTorch: two lines to turn on, one to turn off.

import syncline.torch
handle = syncline.torch.synchronize(ddp_model, codec="int8")
...
handle.close()
"""

from __future__ import annotations

from syncline.runtime.settings import Settings
from syncline.runtime.start import synchronize
from syncline.runtime.step import StepReport
from syncline.runtime.synchronizer import Synchronizer

__all__ = ["Settings", "StepReport", "Synchronizer", "synchronize"]
