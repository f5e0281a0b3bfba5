"""What ranks do in the tests of failures: each case is a world of its own, for most of them end it."""

from __future__ import annotations

import os
from itertools import pairwise
from typing import Any

import torch
from tests.distributed.cases.training import (
    SMALL,
    WIDTH,
    batch,
    carried_by,
    distributed,
    gradients,
    network,
    start,
    weights,
)

import syncline.torch
from syncline.errors import SynclineError
from syncline.runtime.wire.message import Slot


def attempt(work: Any) -> dict[str, str]:
    """Return the error that the work raises, by class and text."""
    try:
        work()
    except SynclineError as error:
        return {"class": type(error).__name__, "text": str(error)}
    return {"class": "", "text": ""}


def not_finite(rank: int, port: int, policy: str) -> dict[str, Any]:
    """Rank 2 has a NaN in step 1, in one weight."""
    start(rank, 4, port)
    model = distributed(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    handle = syncline.torch.synchronize(model, codec="sign", nan=policy, **SMALL)
    history = [weights(model).clone()]

    def train() -> None:
        for step in range(3):
            optimizer.zero_grad()
            loss = model(batch(rank, step)).square().sum()
            if step == 1 and rank == 2:
                loss = loss + model.module[2].weight[5, 7] * float("nan")
            loss.backward()
            optimizer.step()
            history.append(weights(model).clone())

    error = attempt(train)
    moved = [bool((a != b).any()) for a, b in pairwise(history)]
    saved = handle.state_dict()["residuals"] if policy != "raise" else {}
    finite = all(bool(torch.isfinite(part).all()) for part in saved.values())
    return {**error, "moved": moved, "finite": finite, "skipped": [s.skipped for s in handle.steps]}


def other_codec(rank: int, port: int) -> dict[str, str]:
    start(rank, 3, port)
    codec = "int4" if rank == 2 else "int8"
    return attempt(lambda: syncline.torch.synchronize(distributed(network()), codec=codec, **SMALL))


def other_names(rank: int, port: int) -> dict[str, str]:
    """The same shapes under another name: DDP does not see it."""
    start(rank, 3, port)
    model: torch.nn.Module = network()
    if rank == 1:
        model = torch.nn.ModuleDict({str(i): layer for i, layer in enumerate(network())})
        model["04"] = model.pop("4")
        model.forward = lambda x: x  # type: ignore[method-assign]
    return attempt(lambda: syncline.torch.synchronize(distributed(model), codec="int8", **SMALL))


def codec_changed_later(rank: int, port: int) -> dict[str, str]:
    """One rank means something else by its bytes from step 2 on."""
    start(rank, 3, port)
    model = distributed(network())
    handle: Any = syncline.torch.synchronize(model, codec="bf16", **SMALL)

    def train() -> None:
        for step in range(4):
            if step == 2 and rank == 1:
                object.__setattr__(handle.settings, "codec", "fp16")
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    return attempt(train)


def cut_short(rank: int, port: int) -> dict[str, str]:
    """One message of rank 1 loses its end on the way, which gloo does not tell."""
    start(rank, 3, port)
    model = distributed(network())
    with carried_by("point-to-point"):
        handle: Any = syncline.torch.synchronize(model, codec="int8", **SMALL)
    send = handle.links.team.send

    def train() -> None:
        for step in range(4):
            if step == 2 and rank == 1:
                handle.links.team.send = lambda tensor, peer, tag: send(tensor[:-100], peer, tag)
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    return attempt(train)


def dead(rank: int, port: int) -> dict[str, str]:
    """Rank 2 is gone in step 2."""
    start(rank, 3, port)
    model = distributed(network())
    syncline.torch.synchronize(model, codec="int8", **SMALL)

    def train() -> None:
        for step in range(4):
            if step == 2 and rank == 2:
                return
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    result = attempt(train)
    if rank == 2:
        result = {"class": "gone", "text": ""}
    return result


def encoder_fails(rank: int, port: int) -> dict[str, str]:
    """An encoder that raises on one rank stops all of them."""
    start(rank, 3, port)
    model = distributed(network())
    with carried_by("point-to-point"):
        syncline.torch.synchronize(model, codec="int8", **SMALL)

    def train() -> None:
        for step in range(4):
            if step == 2 and rank == 0:
                Slot.seal = broken  # type: ignore[method-assign,assignment]
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    return attempt(train)


def broken(*_: object, **__: object) -> None:
    Slot.seal = SEAL  # type: ignore[method-assign]
    from syncline.errors import CodecError

    raise CodecError("this encoder is broken.")


SEAL = Slot.seal


def apart(rank: int, port: int) -> dict[str, str]:
    """A weight of rank 1 changes behind everybody's back."""
    start(rank, 4, port)
    model = distributed(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    handle = syncline.torch.synchronize(model, codec="int8", **{**SMALL, "check_every": 2})

    def train() -> None:
        for step in range(6):
            if step == 3 and rank == 1:
                with torch.no_grad():
                    model.module[2].weight[0, WIDTH - 1] += 1e-6
            optimizer.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            optimizer.step()

    result = attempt(train)
    result["step"] = str(handle.steps[-1].number)
    return result


def three_levels(rank: int, port: int) -> dict[str, Any]:
    """Two ranks a host, two hosts a site, two sites."""
    start(rank, 8, port)
    from tests.distributed.cases.training import owed, same_everywhere, true_mean

    result = {}
    for codec in ("fp32", "int8", "sign"):
        model = distributed(network())
        handle = syncline.torch.synchronize(model, codec=codec, levels=(2, 2), **SMALL)
        got, expected = torch.zeros_like(weights(model)), torch.zeros_like(weights(model))
        for step in range(3):
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            got += gradients(model)
            expected += true_mean(network(), step, range(8))
        if handle.settings.keeps_error(handle.settings.codec):
            got += owed(handle, model.module)
        report = handle.steps[-1].report(1.0)
        result[codec] = {
            "conserved": float((got - expected).norm() / expected.norm()), "same": same_everywhere(gradients(model)),
            "across": report.wire_bytes, "inside": report.inside_bytes,
        }  # fmt: skip
        handle.close()
    os.environ.pop("LOCAL_WORLD_SIZE", None)
    return result
