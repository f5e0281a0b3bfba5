"""A step model moved to one system by what was measured there: multipliers with their uncertainty.

    found = calibrate(StepCalibration(), case, Observation(step_s=4.6))
    found.multipliers, found.own, found.constants(own=found.own)

A trace tells parts of a step apart: the most probable multipliers under Gaussian priors on their logarithms (MAP), by
Gauss-Newton. One time tells only that the whole is off: it is `own`, the log of what is left beside the multipliers.
What of it other jobs share is `sim/profile.py`'s to say. A second run starts from what the first left.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace

import numpy as np
import numpy.typing as npt

from syncline.errors import SimulationError
from syncline.sim.step.case import Case
from syncline.sim.step.constants import Constants, default_constants
from syncline.sim.step.cost import StepCost, step_cost

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Multipliers:
    """Factors on time; 1 is the model as it ships."""

    products: float = 1.0  # matrix products
    attention: float = 1.0
    memory: float = 1.0  # passes over memory: norms, casts, residuals, the optimizer's loss
    exchange: float = 1.0  # what tensor, context, expert and data exchanges take on the wire, hidden or not
    host: float = 1.0  # launching layers, routing tokens, the fixed time of a step

    @staticmethod
    def of_logs(logs: Sequence[float] | Floats) -> Multipliers:
        """Return the multipliers whose logarithms these are."""
        return Multipliers(*(float(np.exp(value)) for value in logs))

    @property
    def logs(self) -> Floats:
        return np.asarray(np.log(np.array(list(asdict(self).values()))))

    def on(self, constants: Constants) -> Constants:
        """Return constants with which the same formulas take that much longer."""
        fitted, held = constants.fitted, constants.held
        slow = 1 / self.exchange
        return replace(
            constants,
            fitted=replace(
                fitted, e_gemm=fitted.e_gemm / self.products, e_attn=fitted.e_attn / self.attention,
                # Unfused attention is products of its own: it follows attention, not the large products.
                c_att=fitted.c_att * self.products / self.attention, c_mem=fitted.c_mem * self.memory,
                e_nvl=fitted.e_nvl * slow, e_net=fitted.e_net * slow, t_host=fitted.t_host * self.host,
            ),
            held=replace(
                held, launch_eager_s=held.launch_eager_s * self.host, launch_fused_s=held.launch_fused_s * self.host,
                step_s=held.step_s * self.host, pause_s=held.pause_s * self.host,
                tp_call_s=held.tp_call_s * self.exchange, library=held.library * self.exchange,
                ring_hop_s=held.ring_hop_s * self.exchange, per_doubling=held.per_doubling * self.exchange,
            ),
        )  # fmt: skip


NAMES = tuple(f.name for f in fields(Multipliers))
#: Width of the prior of each logarithm: how much systems of one description differ in it.
SIGMA = Multipliers(products=0.08, attention=0.20, memory=0.20, exchange=0.30, host=0.60)


#: How well a step repeats, in log units.
STEP_NOISE = 0.03
#: The same of a part of a step that a trace tells; kernels are sorted by name, and a trace slows the host.
PART_NOISE = {"products": 0.06, "attention": 0.10, "memory": 0.15, "exchange": 0.20}
#: A measured step that is so many times the predicted one is another job or another unit.
PLAUSIBLE = 4.0
_STEP = 0.02


@dataclass(frozen=True)
class Observation:
    """What was measured of one job: its step, and where a trace tells them, parts of it on one rank."""

    step_s: float
    parts_s: dict[str, float] = field(default_factory=dict)  # by the multiplier that they set


@dataclass(frozen=True, eq=False)
class StepCalibration:
    """Multipliers and the covariance of their logarithms; the priors where nothing was measured yet."""

    multipliers: Multipliers = field(default_factory=Multipliers)
    covariance: Floats = field(default_factory=lambda: np.diag(np.array(list(asdict(SIGMA).values())) ** 2))
    own: float = 0.0  # log of what the run measured last is off by beside the multipliers

    def constants(self, own: float = 0.0) -> Constants:
        """Return the constants of this system; `own` is what one run's whole step is off by beside them."""
        return Multipliers.of_logs(self.multipliers.logs + own).on(default_constants())

    def sigma(self) -> dict[str, float]:
        """Return how sure each multiplier is: one standard deviation of its logarithm."""
        return dict(zip(NAMES, np.sqrt(np.diag(self.covariance)).tolist(), strict=True))


def calibrate(before: StepCalibration, case: Case, seen: Observation) -> StepCalibration:
    """Return the calibration that a measured step adds to one before it."""
    base = default_constants()
    names = tuple(name for name in PART_NOISE if seen.parts_s.get(name, 0.0) > 0)
    if not names:
        left = 0.0
        for _ in range(8):  # what a step takes once does not grow with the others
            left += float(np.log(seen.step_s) - _logs(case, before.multipliers.logs + left, base, ())[0])
        return replace(before, own=left)
    noise = np.array([STEP_NOISE, *(PART_NOISE[name] for name in names)])
    wanted = np.log([seen.step_s, *(seen.parts_s[name] for name in names)])
    start = before.multipliers.logs
    prior = np.linalg.inv(before.covariance)
    x = start
    for _ in range(12):
        slopes = _jacobian(case, x, base, names) / noise[:, None]
        off = (_logs(case, x, base, names) - wanted) / noise
        move = np.linalg.solve(slopes.T @ slopes + prior, -(slopes.T @ off + prior @ (x - start)))
        x = x + np.clip(move, -0.7, 0.7)
        if np.abs(move).max() < 1e-6:
            break
    slopes = _jacobian(case, x, base, names) / noise[:, None]
    left = float(wanted[0] - _logs(case, x, base, names)[0])
    return StepCalibration(Multipliers.of_logs(x), np.linalg.inv(slopes.T @ slopes + prior), left)


def check_plausible(measured_s: float, predicted_s: float) -> None:
    """Raise where a measured step cannot be that of the job: a wrong unit, batch or file."""
    ratio = measured_s / predicted_s
    if 1 / PLAUSIBLE < ratio < PLAUSIBLE:
        return
    times = f"{ratio:,.3g} times" if ratio > 1 else f"1/{1 / ratio:,.3g} of"
    raise SimulationError(
        f"the measured step of {measured_s:.4g} s is {times} the {predicted_s:.4g} s predicted for this job.",
        detail="Multipliers stand for libraries and links, which never differ that much.",
        hint="Check the unit, the global batch, the number of GPUs and the split in the job file.",
    )


def _logs(case: Case, x: Floats, base: Constants, parts: tuple[str, ...]) -> Floats:
    constants = Multipliers.of_logs(x).on(base)
    cost = step_cost(case, constants)
    found = [float(cost.total), *(_part_s(case, constants, cost, name) for name in parts)]
    return np.log(np.maximum(found, 1e-12))


def _part_s(case: Case, constants: Constants, cost: StepCost, name: str) -> float:
    """Return what a step spends on one kind of work on one rank; compute is linear in each of its multipliers."""
    if name == "exchange":
        return float(cost.exposed)
    twice = Multipliers(**{name: 2.0}).on(constants)
    return float(step_cost(case, twice).compute - cost.compute)


def _jacobian(case: Case, x: Floats, base: Constants, parts: tuple[str, ...]) -> Floats:
    at_x = _logs(case, x, base, parts)
    columns = []
    for index in range(len(x)):
        moved = x.copy()
        moved[index] += _STEP
        columns.append((_logs(case, moved, base, parts) - at_x) / _STEP)
    return np.stack(columns, axis=1)
