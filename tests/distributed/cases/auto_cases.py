"""What ranks do in the tests of codec="auto": real processes on loopback."""

from __future__ import annotations

import datetime
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.training import batch, distributed, gradients, network, same_everywhere, true_mean

import syncline.torch
from syncline.codec.names import PLAIN
from syncline.errors import SynchronizationError
from syncline.runtime.auto import auto

# Cases take its parts apart, which types would not let them.
AUTO: Any = auto
OPTIONS: dict[str, Any] = {"piece_bytes": 16384, "check_every": 0, "timeout_s": 240.0}


def steps(model: Any, rank: int, numbers: range) -> list[float]:
    """Train nothing: average gradients and return how far each is from the true mean."""
    errors = []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    for number in numbers:
        model.zero_grad()
        model(batch(rank, number)).square().sum().backward()
        optimizer.step()
        expected = true_mean(network(), number, range(dist.get_world_size()))
        errors.append(float((gradients(model) - expected).norm() / expected.norm()))
    return errors


def settle(handle: Any, model: Any, rank: int, errors: list[float]) -> list[float]:
    """Go on until it holds: on a busy machine steps seem to change and it tries once more."""
    while handle.pilot.phase != "hold" and len(errors) < 200:
        errors += steps(model, rank, range(1))
    return errors


def settles(rank: int) -> dict[str, Any]:
    """Asked for nothing it measures, tries and holds; every rank holds the same; averages are right all the way."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, **OPTIONS)
    errors = settle(handle, model, rank, steps(model, rank, range(17)))
    state = handle.state_dict()
    other = distributed(network())
    again: Any = syncline.torch.synchronize(other, codec="auto", **OPTIONS)
    again.load_state_dict(state)
    resumed = again.pilot.codec
    more = steps(other, rank, range(3))
    found = {
        "errors": errors, "more": more, "phase": handle.pilot.phase, "codec": handle.pilot.codec,
        "why": handle.why(), "summary": handle.summary(), "resumed": resumed, "step": state["step"],
        "tried": sorted(handle.pilot.trials),
        "same": same_everywhere(gradients(model)),
    }  # fmt: skip
    handle.close()
    again.close()
    return found


def falls_back(rank: int) -> dict[str, Any]:
    """Where codecs are slow the trial finds out."""
    averaged = AUTO.AutoSynchronizer.average

    def slow(self: Any, order: Any) -> None:
        if order.step.codec != PLAIN:
            time.sleep(0.03)
        averaged(self, order)

    AUTO.AutoSynchronizer.average = slow
    try:
        model = distributed(network())
        handle: Any = syncline.torch.synchronize(model, **OPTIONS)
        settle(handle, model, rank, steps(model, rank, range(18)))
        found = {"phase": handle.pilot.phase, "codec": handle.pilot.codec, "why": handle.why()}
        handle.close()
    finally:
        AUTO.AutoSynchronizer.average = averaged
    return found


def answers(rank: int) -> dict[str, Any]:
    """What cannot be measured is a codec by name, and said; what cannot be had at all is refused."""
    found = {}
    for what, options in {
        "levels": {"levels": (2,)}, "named": {"codec": "int4"},
        "sent": {"send_Bps": 1e9},
    }.items():  # fmt: skip
        try:
            handle = syncline.torch.synchronize(distributed(network()), **options)  # type: ignore[arg-type]
            found[what] = handle.why()
            handle.close()
        except SynchronizationError as error:
            found[what] = error.message
    return found


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Run every case on one world."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=240))
    found = {case.__name__: case(rank) for case in (settles, falls_back, answers)}
    dist.destroy_process_group()
    return found
