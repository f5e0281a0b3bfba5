"""Five multipliers that a measured step puts on the model's times, and how far each is expected to be from 1.

    Multipliers(exchange=1.3).on(default_constants())       # the constants of a machine whose exchanges take 1.3 times

They are what differs between two systems of the same description: how well the libraries multiply, which attention
kernel runs, what passes over memory cost, what the network and the scale-up links give, and what the host takes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields, replace

import numpy as np
import numpy.typing as npt

from syncline.sim.step.constants import Constants

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
                tp_call_s=held.tp_call_s * self.exchange,
                ring_hop_s=held.ring_hop_s * self.exchange, per_doubling=held.per_doubling * self.exchange,
            ),
        )  # fmt: skip


NAMES = tuple(f.name for f in fields(Multipliers))
#: Width of the prior of each logarithm: how much systems of one description differ in it.
SIGMA = Multipliers(products=0.08, attention=0.20, memory=0.20, exchange=0.30, host=0.60)
