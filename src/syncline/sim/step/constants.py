"""The constants of the step model: a dozen that were fitted, and those held at what kernels and papers say.

`data/training_constants.yaml` has their values, what they were fitted on and how well they are known.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt

from syncline.describe.own_data import own_data

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class StepConstants:
    """The fitted constants (`docs/method/training.md`)."""

    e_gemm: float = 0.90  # of the sustained rate that large matrix products reach
    e_attn: float = 0.75  # of it that fused attention reaches
    r_tri: float = 0.45  # a Triton kernel's attention against cuDNN's
    c_att: float = 0.75  # unfused attention's products against the large ones
    c_mem: float = 1.0  # times what passes over memory move
    c_eag: float = 1.3  # times that where code is neither compiled nor fused
    e_nvl: float = 0.75  # of the scale-up rate
    exposed_tp: float = 0.40  # of tensor-parallel exchanges that overlap
    e_net: float = 0.80  # of the network rate
    exposed_ep: float = 0.60  # of experts' dispatch and combine
    half_speed_rows: float = 128.0  # tokens of an expert at which its products run at half speed
    t_host: float = 4e-3  # seconds of the host to route the tokens of a layer


#: Width of the log-normal prior at each start value.
SIGMA = StepConstants(
    e_gemm=0.05, e_attn=0.15, r_tri=0.4, c_att=0.2, c_mem=0.3, c_eag=0.3, e_nvl=0.15, exposed_tp=0.4, e_net=0.15,
    exposed_ep=0.4, half_speed_rows=0.7, t_host=0.7,
)  # fmt: skip


@dataclass(frozen=True)
class FixedConstants:
    """Constants that no row can set, each from a kernel measurement or a paper."""

    out_share: float = 0.8  # of an output pass over memory that a matrix product does not hide
    tail: float = 0.05  # of a wave that the last one costs
    gap_s: float = 2e-6  # between two kernels
    c_sm: float = 0.30  # compute lost per second of communication beside it
    step_s: float = 0.020  # of the host and what a step waits for besides, in published steps of seconds
    # ... and at most this share of the step: nine scripts on an H200, 3 to 64 ms a step, lose 0.4 to 3.4 ms
    # (`research/preview/h200.json`).
    step_share: float = 0.05
    per_doubling: float = 0.003  # FSDP, per doubling of hosts
    # A step ends with its slowest rank. Their speeds differ by `skew` (a normal spread: the slowest of n lies sqrt(2 ln
    # n) of it behind), and each may be held up for a while (exponential: the longest of n pauses lasts `pause_s` ln n).
    # Counted from 64 ranks on, since all constants were fitted to runs of that size. Set on the slopes inside published
    # series that only add replicas: MaxText on TPU v5e, dgxc-benchmarking, LoRA in MLPerf.
    skew: float = 0.015
    pause_s: float = 0.003
    attention_ramp: float = 400.0
    backward_attention: float = 1.15
    least_exposed: float = 0.12
    tp_call_s: float = 8e-6
    launch_eager_s: float = 1.0e-3  # to launch one layer, forward and backward: some 180 kernels of 5 to 6 us
    launch_fused_s: float = 0.4e-3  # the same compiled, or with fused kernels as in Megatron
    ring_hop_s: float = 2e-6  # skew that each rank beyond the domain adds to a layer's gather or scatter
    # Times what the library takes by itself (`sim/collective`): the residual of a step's exchanges. Published runs
    # leave none: their mean error is 5.80 % with 0.9, 5.73 % with 1.0, 5.72 % with 1.1 and 5.76 % with 1.2. A profile
    # moves it.
    library: float = 1.0


@dataclass(frozen=True)
class Constants:
    """Everything the formulas need besides the case."""

    fitted: StepConstants = StepConstants()
    held: FixedConstants = FixedConstants()

    def moved(self, logs: Floats) -> Constants:
        """Return constants with each fitted one multiplied by exp of its entry."""
        names = [f.name for f in fields(StepConstants)]
        values = {n: float(getattr(self.fitted, n) * np.exp(v)) for n, v in zip(names, logs, strict=True)}
        return replace(self, fitted=StepConstants(**values))


def document() -> Any:
    """Return the file of constants."""
    return own_data("sim", "data/training_constants.yaml")


@cache
def default_constants() -> Constants:
    """Return the constants that ship."""
    return Constants(StepConstants(**document()["fitted"]))


@cache
def left_out_constants() -> dict[str, Constants]:
    """Return the constants fitted without each source, by source."""
    return {name: Constants(StepConstants(**values)) for name, values in document().get("left_out", {}).items()}
