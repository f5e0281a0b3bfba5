"""What NCCL would do on a described cluster: believed, chosen and expected times of its collectives.

system = from_fabric(load("h100-64-rail"), num_hosts=8, software={"nccl": "2.27"})
prediction = predict(system, "all_reduce", [2**20, 2**30])
"""

from __future__ import annotations

from syncline.sim.nccl.calibrate import SIX_SIZES, calibrate
from syncline.sim.nccl.calibration import NcclCalibration
from syncline.sim.nccl.describe import from_fabric, from_placement, from_spec
from syncline.sim.nccl.measured import Series, bus_factor, read_log
from syncline.sim.nccl.predict import IGNORES, NcclPrediction, predict
from syncline.sim.nccl.system import NcclSystem

__all__ = [
    "IGNORES",
    "SIX_SIZES",
    "NcclCalibration",
    "NcclPrediction",
    "NcclSystem",
    "Series",
    "bus_factor",
    "calibrate",
    "from_fabric",
    "from_placement",
    "from_spec",
    "predict",
    "read_log",
]  # fmt: skip
