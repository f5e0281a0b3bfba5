"""What ranks do in the tests of codec="auto": real processes on loopback."""

from __future__ import annotations

import datetime
import os
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.ddp_cases import batch, distributed, gradients, network, owed, same_everywhere, true_mean

import syncline.torch
from syncline.errors import SynchronizationError
from syncline.program.choice import PLAIN, Price
from syncline.runtime import auto, pilot, probe

# Cases take its parts apart, which types would not let them.
AUTO: Any = auto
OPTIONS: dict[str, Any] = {"piece_bytes": 16384, "check_every": 0, "timeout_s": 60.0}


def steps(model: Any, rank: int, numbers: range) -> list[float]:
    """Train nothing: average gradients and return how far each is from the true mean."""
    errors = []
    for number in numbers:
        model.zero_grad()
        model(batch(rank, number)).square().sum().backward()
        expected = true_mean(network(), number, range(dist.get_world_size()))
        errors.append(float((gradients(model) - expected).norm() / expected.norm()))
    return errors


def settles(rank: int) -> dict[str, Any]:
    """Auto measures, tries and holds; every rank holds the same, and averages are right all the way."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, codec="auto", accuracy="safe", **OPTIONS)
    errors = steps(model, rank, range(24))
    state = handle.state_dict()
    other = distributed(network())
    again: Any = syncline.torch.synchronize(other, codec="auto", accuracy="safe", **OPTIONS)
    again.load_state_dict(state)
    resumed = again.pilot.codecs
    more = steps(other, rank, range(3))
    found = {
        "errors": errors, "more": more, "phase": handle.pilot.phase, "codecs": list(handle.pilot.codecs),
        "why": handle.why(), "summary": handle.summary(), "resumed": list(resumed), "step": state["step"],
        "predicted": sorted(handle.pilot.choice.table), "tried": sorted(handle.pilot.trials),
        "same": same_everywhere(gradients(model)),
    }  # fmt: skip
    handle.close()
    again.close()
    return found


def falls_back(rank: int) -> dict[str, Any]:
    """A codec that is slow in truth and cheap by its price: the model wants it, the trial finds out."""
    real, averaged = probe.prices, AUTO.AutoSynchronizer.average

    def wrong(names: Any, shapes: Any, device: Any) -> Any:
        return [Price(price.name, 0.0, 0.0) for price in real(names, shapes, device)]

    def slow(self: Any, index: int, *rest: Any) -> None:
        if self.codec_of(index) != PLAIN:
            import time

            time.sleep(0.03)
        averaged(self, index, *rest)

    link = probe.probe_link
    AUTO.prices = wrong
    AUTO.probe_link = lambda team: {**link(team), "rate_Bps": 1e4}
    # Plain must be tried: its bytes at the rate that is claimed would rule it out.
    hopeless, pilot.HOPELESS = pilot.HOPELESS, 0.0
    AUTO.AutoSynchronizer.average = slow
    try:
        model = distributed(network())
        handle: Any = syncline.torch.synchronize(model, codec="auto", **OPTIONS)
        steps(model, rank, range(18))
        found = {"phase": handle.pilot.phase, "codecs": list(handle.pilot.codecs), "why": handle.why()}
        wanted = handle.pilot.choice.name
        handle.close()
    finally:
        AUTO.prices, AUTO.probe_link = real, link
        AUTO.AutoSynchronizer.average, pilot.HOPELESS = averaged, hopeless
    return {**found, "wanted": wanted}


def pays(rank: int) -> dict[str, float]:
    """From a codec that keeps its error to plain: what was owed is paid, and nothing is lost."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, codec="auto", accuracy="aggressive", **OPTIONS)
    handle._fixed = True
    got = torch.zeros_like(gradients_like(model))
    expected = torch.zeros_like(got)
    for number, codec in enumerate(["sign", "sign", "sign", "topk:keep=0.01+int8", PLAIN, PLAIN]):
        if handle.pilot.codecs != (codec,):
            handle.pilot.codecs = (codec,)
            handle._buckets.clear()
        model.zero_grad()
        model(batch(rank, number)).square().sum().backward()
        got += gradients(model)
        expected += true_mean(network(), number, range(dist.get_world_size()))
    left = float(owed(handle, model.module).norm())
    handle.close()
    return {"error": float((got - expected).norm() / expected.norm()), "left": left}


def gradients_like(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def guards(rank: int) -> dict[str, Any]:
    """An average that is far from the dense one costs the codec its class."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, codec="auto", accuracy="safe", **OPTIONS)
    steps(model, rank, range(22))
    handle.pilot.codecs = ("int8",) * len(handle.pilot.codecs)
    handle._buckets.clear()
    every, AUTO.GUARD_STEPS = AUTO.GUARD_STEPS, 1
    limit, AUTO.GUARD_LIMIT = AUTO.GUARD_LIMIT, 1e-12
    try:
        steps(model, rank, range(3))
    finally:
        AUTO.GUARD_STEPS, AUTO.GUARD_LIMIT = every, limit
    found = {"accuracy": handle.pilot.accuracy, "notes": handle.pilot.notes[:1]}
    errors = steps(model, rank, range(2))
    handle.close()
    return {**found, "errors": errors}


def refuses(rank: int) -> list[str]:
    texts = []
    for options in ({"accuracy": "some"}, {"codec": "auto", "warmup": 3}, {"codec": "auto", "levels": (2,)}):
        try:
            syncline.torch.synchronize(distributed(network()), **options)
        except SynchronizationError as error:
            texts.append(error.message)
    return texts


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Run every case on one world."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=60))
    found = {case.__name__: case(rank) for case in (settles, falls_back, pays, guards, refuses)}
    dist.destroy_process_group()
    return found
