"""Steps of benchmarks/wire.py as the runtime's own Program prices them, from what their parts cost by themselves."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import numpy as np

from syncline.codec.names import scheme
from syncline.program.overlap import ExchangeCosts, How, RingCosts, SharedMachine, StageCosts, Work
from syncline.program.pieces import piece_bytes_on
from syncline.sim.emulate.emulated_step import predict_step
from syncline.sim.emulate.emulation import HostCosts, HostLinks

PAYLOAD = (9000 - 52) / (9000 + 14)
"""Of a full frame: what is not Ethernet, IP and TCP (with time stamps)."""
BYTE_S, MESSAGE_S, LATENCY_S = 0.75e-9, 2e-5, 5e-5
"""The processor's seconds of a byte through TCP, both ends, and of one message; a message's first byte is so late."""
ADD_S = 4e-10


@dataclass(frozen=True)
class Method:
    """What a step is taken with: "ddp", "compute", or a codec, then MiB of a piece, "early"."""

    codec: str
    piece_bytes: int = 0
    early: bool = False
    """Whether the optimizer updates a bucket's parameters as soon as it is averaged."""

    @classmethod
    def of(cls, text: str) -> Method:
        """Return the method that a text such as "int8/2/early" names."""
        codec, *words = text.split("/")
        pieces = [int(word) << 20 for word in words if word.isdigit()]
        return cls(codec, pieces[0] if pieces else 0, "early" in words)


def predict(row: dict[str, Any], known: dict[str, Any], num_ranks: int) -> None:
    """Put the predicted seconds of a step and their distance from the measured ones into a row."""
    method = Method.of(row["method"])
    codec = method.codec
    if codec == "compute":
        row["predicted_s"] = max(known["work_alone_s"])
        row["gap"] = row["predicted_s"] / row["median_s"] - 1
        return
    work = Work.from_json({**known["work" if codec == "ddp" else "fitted_work"], "by_bucket": method.early})
    rate = row["rate_bps"] / 8 * PAYLOAD if row["rate_bps"] else 1e12
    device = row.get("device", "cpu").partition(":")[0]
    machine = SharedMachine(float(os.cpu_count() or 1), BYTE_S, MESSAGE_S, computes_apart=device != "cpu")
    if device != "cpu" and codec != "ddp":
        # One interpreter a rank; all ranks are on one card, in turns unless MPS lets them share it.
        alone = not os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
        machine = SharedMachine(float(num_ranks), 0.0, MESSAGE_S, computes_apart=True, take_turns=alone)
    ways = [(_how(method, known, num_ranks, device), rate)]
    if codec == "ddp":
        # gloo passes a chunk from thread to thread (one receives, one adds and sends on): it is as slow as the slower
        # of the cable and these threads, whose rate is that of the backend alone, copies and sums included.
        ways.append((RingCosts(0.0), known["backend_Bps"]))
    costs = HostCosts(LATENCY_S, 0.0, 0.0, 0.0, 1.0)
    row["predicted_s"] = max(
        predict_step(work, how, _star(num_ranks, rate_Bps), machine, costs) for how, rate_Bps in ways
    )
    row["gap"] = row["predicted_s"] / row["median_s"] - 1


def _star(num_ranks: int, rate_Bps: float) -> HostLinks:
    paths = {(a, b): (2 * a, 2 * b + 1) for a in range(num_ranks) for b in range(num_ranks) if a != b}
    return HostLinks.of(np.full(2 * num_ranks, rate_Bps), paths, range(num_ranks))


def _how(method: Method, known: dict[str, Any], num_ranks: int, device: str) -> How:
    codec = method.codec
    if codec == "ddp":
        # The backend brings a bucket on a GPU to the host and back; a ring adds to all of it but the own part.
        return RingCosts(ADD_S + known.get("copy_s", 0.0) * num_ranks / max(1, num_ranks - 1))
    measured = {int(size): StageCosts(*seconds) for size, *seconds in known["codecs"].get(codec, ())}
    size = method.piece_bytes or piece_bytes_on(device)
    return ExchangeCosts(
        codec, scheme(codec), 0.0, 0.0, size, measured, known.get("post_s") or MESSAGE_S,
        on_device=device != "cpu",
    )  # fmt: skip
