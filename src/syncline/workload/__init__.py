"""WHAT must be computed and sent: models, how they are split, and one step as a graph."""

from __future__ import annotations

from syncline.workload.job import Job
from syncline.workload.layer_list import LayerList
from syncline.workload.parallel import Parallel
from syncline.workload.shape import Shape
from syncline.workload.zoo import model, names

__all__ = ["Job", "LayerList", "Parallel", "Shape", "model", "names"]
