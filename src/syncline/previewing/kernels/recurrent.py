"""A recurrent layer as cuDNN runs it: inputs of all steps in one product, then a small product and the cell a step.

The backward has a product for the gradient of the inputs and one for that of each weight over all steps, and the steps
again. Directions and layers run one after the other. Constants were read from profiles of a GRU in 16 bits and an LSTM
in TF32 on an H200.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from syncline.previewing.record import KernelCall

GATES = {0: 1, 1: 1, 2: 4, 3: 3}  # by cuDNN's mode: ReLU, tanh, LSTM, GRU
STEP_S = {False: 4e-6, True: 6e-6}  # of the kernels of one step that do next to nothing, forward and backward
HOST_STEP_S = 13e-6  # of the host, which launches every step
SMALL = 0.1  # of the rate of products that those of one step reach


@dataclass(frozen=True)
class Recurrent:
    """What of a call counts."""

    steps: int
    """Of all layers and directions."""
    step_flops: float
    """Of the product of one step, forward."""
    input_flops: float
    """Of the products of the inputs, forward."""
    backward: bool

    @property
    def flops(self) -> float:
        """The operations: a backward has twice those of a forward."""
        return (2.0 if self.backward else 1.0) * (self.input_flops + self.steps * self.step_flops)


def is_recurrent(kernel: KernelCall) -> bool:
    """Whether a kernel is a recurrent layer of cuDNN or its backward."""
    return "_cudnn_rnn" in kernel.name


def read(kernel: KernelCall) -> Recurrent:
    """Return what counts of a recurrent layer or of its backward."""
    backward = "backward" in kernel.name
    args: list[Any] = kernel.args
    mode, hidden, _, layers, batch_first = args[10:15] if backward else args[6:11]
    first, second = args[0]["shape"][:2]
    length, batch = (second, first) if batch_first else (first, second)
    runs = layers * (2 if args[17 if backward else 13] else 1)
    inputs = [weight["shape"] for weight in args[1][:: args[2]]]
    return Recurrent(
        steps=runs * length,
        step_flops=2.0 * batch * hidden * GATES[mode] * hidden,
        input_flops=sum(2.0 * batch * length * wide * deep for wide, deep in inputs),
        backward=backward,
    )


def host_s(kernel: KernelCall) -> float:
    """Return what the host takes to launch the steps."""
    return read(kernel).steps * HOST_STEP_S


def seconds(kernel: KernelCall, rate: float) -> float:
    """Return what a recurrent layer takes at the best rate of the matrix units."""
    found = read(kernel)
    whole = found.input_flops * (2 if found.backward else 1)
    small = found.step_flops * (2 if found.backward else 1) / (SMALL * rate)
    return whole / rate + found.steps * (STEP_S[found.backward] + small)
