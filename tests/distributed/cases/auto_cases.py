"""What ranks do in the tests of codec="auto": real processes on loopback."""

from __future__ import annotations

import datetime
import os
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.training import batch, distributed, gradients, network, owed, same_everywhere, true_mean

import syncline.torch
from syncline.codec.names import PLAIN
from syncline.errors import SynchronizationError
from syncline.program.choice import CodecPrice
from syncline.runtime.auto import auto, guard, pilot, probe

# Cases take its parts apart, which types would not let them.
AUTO: Any = auto
PROBE: Any = probe
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
    """Go on until it holds: on a busy machine the network seems to change and it tries once more."""
    while handle.pilot.phase != "hold" and len(errors) < 120:
        errors += steps(model, rank, range(1))
    return errors


def settles(rank: int) -> dict[str, Any]:
    """Asked for nothing it measures, tries and holds; every rank holds the same; averages are right all the way."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, **OPTIONS)
    errors = settle(handle, model, rank, steps(model, rank, range(17)))
    state = handle.state_dict()
    other = distributed(network())
    again: Any = syncline.torch.synchronize(other, codec="auto", accuracy="safe", **OPTIONS)
    again.load_state_dict(state)
    resumed = again.pilot.codec
    more = steps(other, rank, range(3))
    found = {
        "errors": errors, "more": more, "phase": handle.pilot.phase, "codec": handle.pilot.codec,
        "why": handle.why(), "summary": handle.summary(), "resumed": resumed, "step": state["step"],
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
        return [CodecPrice(price.name, 0.0, 0.0) for price in real(names, shapes, device)]

    def slow(self: Any, order: Any) -> None:
        if self.pilot.codec != PLAIN:
            import time

            time.sleep(0.03)
        averaged(self, order)

    link = probe.probe_link
    PROBE.prices = wrong
    # The wire alone decides, however busy the machine is.
    PROBE.probe_link = lambda team: {"rate_Bps": 100.0, "latency_s": 0.0, "byte_s": 0.0, "message_s": 0.0}
    # Plain must be tried: its bytes at the rate that is claimed would rule it out.
    hopeless, pilot.HOPELESS = pilot.HOPELESS, 0.0
    AUTO.AutoSynchronizer.average = slow
    try:
        model = distributed(network())
        handle: Any = syncline.torch.synchronize(model, codec="auto", **OPTIONS)
        settle(handle, model, rank, steps(model, rank, range(18)))
        found = {"phase": handle.pilot.phase, "codec": handle.pilot.codec, "why": handle.why()}
        wanted = handle.pilot.choice.codec
        handle.close()
    finally:
        PROBE.prices, PROBE.probe_link = real, link
        AUTO.AutoSynchronizer.average, pilot.HOPELESS = averaged, hopeless
    return {**found, "wanted": wanted}


def pays(rank: int) -> dict[str, float]:
    """From a codec that keeps its error to plain: what was owed is paid, and nothing is lost."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, codec="auto", accuracy="aggressive", **OPTIONS)
    handle._fixed = True
    got = torch.zeros_like(gradients_like(model))
    expected = torch.zeros_like(got)
    for number, codec in enumerate(["sign", "sign", "sign", "int4", PLAIN, PLAIN]):
        if handle.pilot.codec != codec:
            handle.pilot.codec = codec
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
    """An average that is far from the dense one costs the codec its class; before that one step was dense."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, codec="auto", accuracy="aggressive", **OPTIONS)
    steps(model, rank, range(24))
    kept = guard.GUARD_STEPS, guard.ERROR_LIMIT_OWING, guard.DENSE_SHARE
    guard.GUARD_STEPS, guard.ERROR_LIMIT_OWING, guard.DENSE_SHARE = 10, 1e-12, 1e9
    handle.pilot.codec = "sign"
    handle.pilot.phase, handle.pilot.checked = "hold", lambda step_s: False
    handle._buckets.clear()
    steps(model, rank, range(1))  # the next forward counts it
    handle._guard.rest()
    used = []
    try:
        for number in range(11):
            handle.observe(1.0)
            steps(model, rank, range(number, number + 1))
            used.append(handle.steps[-1].codec)
    finally:
        guard.GUARD_STEPS, guard.ERROR_LIMIT_OWING, guard.DENSE_SHARE = kept
    found = {"accuracy": handle.pilot.accuracy, "notes": handle.pilot.notes[-1], "used": used}
    errors = steps(model, rank, range(2))
    state = handle.state_dict()
    again: Any = syncline.torch.synchronize(distributed(network()), accuracy="aggressive", **OPTIONS)
    again.load_state_dict(state)
    handle.close()
    again.close()
    return {**found, "errors": errors, "resumed": again.pilot.accuracy}


def answers(rank: int) -> dict[str, Any]:
    """What cannot be measured is a codec by name, and said; what cannot be had at all is refused."""
    found = {}
    for what, options in {
        "levels": {"levels": (2,)}, "named": {"codec": "int4"},
        "sent": {"send_Bps": 1e9}, "some": {"accuracy": "some"},
    }.items():  # fmt: skip
        try:
            handle = syncline.torch.synchronize(distributed(network()), **options)  # type: ignore[arg-type]
            found[what] = handle.why()
            handle.close()
        except SynchronizationError as error:
            found[what] = error.message
    return found


def warms_up(rank: int) -> dict[str, Any]:
    """The first steps lose no more than int8 does, whatever the class; then it is measured."""
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, accuracy="aggressive", warmup=5, **OPTIONS)
    errors = steps(model, rank, range(5))
    before = handle.pilot.num_decisions, handle.pilot.codec
    steps(model, rank, range(5))
    after = handle.pilot.num_decisions
    handle.close()
    return {"errors": errors, "before": before, "after": after}


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Run every case on one world."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=2, timeout=datetime.timedelta(seconds=240))
    found = {case.__name__: case(rank) for case in (settles, falls_back, pays, guards, answers, warms_up)}
    dist.destroy_process_group()
    return found
