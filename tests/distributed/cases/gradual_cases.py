"""What ranks do in the tests of bounded staleness, parameter servers and 1-bit optimizers."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.fsdp2 import HAS_FSDP2, fully_shard
from tests.distributed.cases.periodic_cases import LR, NUM_RANKS, SMALL, distance, sgd, start, train
from tests.distributed.cases.training import batch, distributed, gradients, network, same_everywhere, weights
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import syncline.torch
from syncline.errors import SynchronizationError

SERVED = ("fp32", "bf16", "int8", "int4", "sign", "topk:keep=0.05+int8")


def adam(model: nn.Module) -> torch.optim.AdamW:
    return torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=0.05)


def mean_gradient(model: nn.Module, step: int) -> torch.Tensor:
    """Return the mean gradient of all ranks at a model's weights."""
    model.zero_grad()
    for rank in range(NUM_RANKS):
        (model(batch(rank, step)).square().mean() / NUM_RANKS).backward()
    return gradients(model)


def stale(rank: int) -> dict[str, Any]:
    """The gradient of a step is applied K steps later, the same on every rank after every step."""
    result = {}
    for late in (0, 2):
        model = network()
        optimizer = syncline.torch.BoundedStaleness(sgd(model), model, late, "fp32", **SMALL)
        same = True
        for step in range(6):
            train(model, optimizer, rank, range(step, step + 1))
            same = same and same_everywhere(weights(model))
        book, own = network(), None
        own = sgd(book)
        pending = []
        for step in range(6):
            pending.append(mean_gradient(book, step))
            if len(pending) > late:
                nn.utils.vector_to_parameters(weights(book).clone(), book.parameters())
                _give(book, pending.pop(0))
                own.step()
        before = distance(weights(model), weights(book))
        optimizer.synchronize()
        for gradient in pending:
            _give(book, gradient)
            own.step()
        result[late] = {"error": before, "same": same, "after": distance(weights(model), weights(book))}
        optimizer.close()
    return result


def stale_codecs(rank: int) -> dict[str, Any]:
    """Compressed and late, on DDP, saved and loaded half-way: equal to the run that was not."""
    model = distributed(network())
    optimizer = syncline.torch.BoundedStaleness(sgd(model), model, 2, "sign", **SMALL)
    train(model, optimizer, rank, range(5))
    saved = _stored({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, rank, range(5, 9))
    second = network()
    again = syncline.torch.BoundedStaleness(sgd(second), second, 2, "sign", **SMALL)
    second.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(second, again, rank, range(5, 9))
    result = {"equal": torch.equal(weights(model), weights(second)), "same": same_everywhere(weights(model))}
    optimizer.close()
    again.close()
    return result


def synchronous_server(rank: int) -> dict[str, Any]:
    """Two servers step with the mean of all gradients: what DDP does, in any codec nearly so."""
    plain = distributed(network())
    train(plain, sgd(plain), rank, range(5))
    moved = weights(plain) - weights(network())
    result = {}
    for codec in SERVED:
        model = network()
        optimizer = syncline.torch.ParameterServer(sgd(model), model, 2, codec=codec, **SMALL)
        train(model, optimizer, rank, range(5))
        error = float((weights(model) - weights(plain)).norm() / moved.norm())
        result[codec] = {"error": error, "same": same_everywhere(weights(model)), "bytes": optimizer.wire_bytes}
        optimizer.close()
    return result


def asynchronous_server(rank: int) -> dict[str, Any]:
    """Each push is a step; the loss falls, staleness is bounded, and a synchronisation makes replicas equal."""
    model = network()
    optimizer = syncline.torch.ParameterServer(
        torch.optim.SGD(model.parameters(), lr=LR), model, 2, "asynchronous", "int8", staleness=1, **SMALL
    )
    first = float(model(batch(rank, 50)).square().mean())
    train(model, optimizer, rank, range(8))
    optimizer.synchronize()
    last = float(model(batch(rank, 50)).square().mean())
    version = None if optimizer._server is None else optimizer._server.version
    result = {"same": same_everywhere(weights(model)), "fell": last < first, "version": version}
    optimizer.close()
    return result


def served_state(rank: int) -> dict[str, Any]:
    """A server's weights, its optimizer's momentum and what it owes come back."""

    def new() -> tuple[nn.Module, Any]:
        model = network()
        return model, syncline.torch.ParameterServer(sgd(model), model, 2, codec="sign", **SMALL)

    model, optimizer = new()
    train(model, optimizer, rank, range(4))
    saved = _stored({"model": model.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, rank, range(4, 8))
    second, again = new()
    second.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(second, again, rank, range(4, 8))
    result = {"equal": torch.equal(weights(model), weights(second))}
    optimizer.close()
    again.close()
    return result


def broken_server(rank: int) -> dict[str, str]:
    """A gradient that is no number raises on every rank, by name."""
    model = network()
    optimizer = syncline.torch.ParameterServer(sgd(model), model, 2, **SMALL)
    model(batch(rank, 0)).square().mean().backward()
    if rank == 3:
        model[4].bias.grad[1] = float("inf")
    try:
        optimizer.step()
    except SynchronizationError as error:
        return {"raised": f"{type(error).__name__}: {error.message}"}
    return {"raised": ""}


def warm_up(rank: int) -> dict[str, Any]:
    """While it warms up 1-bit Adam is Adam; afterwards it stays near, in a thirtieth of the bytes."""
    plain = distributed(network())
    reference = adam(plain)
    model = network()
    optimizer = syncline.torch.OneBitAdam(adam(model), model, warmup=6, **SMALL)
    train(plain, reference, rank, range(6))
    train(model, optimizer, rank, range(6))
    warm, warm_bytes = distance(weights(model), weights(plain)), optimizer.wire_bytes
    same = True
    for step in range(6, 12):
        train(plain, reference, rank, range(step, step + 1))
        train(model, optimizer, rank, range(step, step + 1))
        same = same and same_everywhere(weights(model))
    saved = 1 - (optimizer.wire_bytes - warm_bytes) / warm_bytes
    losses = [float(m(batch(9, 99)).square().mean()) for m in (network(), plain, model)]
    optimizer.close()
    return {"warm": warm, "saved": saved, "same": same, "losses": losses}


def frozen_exact(rank: int) -> dict[str, Any]:
    """In float32, after warm-up: Adam with the variance left as it was."""
    model, book = network(), network()
    optimizer = syncline.torch.OneBitAdam(adam(model), model, 3, "fp32", **SMALL)
    train(model, optimizer, rank, range(7))
    m, v = torch.zeros_like(weights(book)), torch.zeros_like(weights(book))
    x = weights(book).clone()
    for step in range(7):
        nn.utils.vector_to_parameters(x.clone(), book.parameters())
        g = mean_gradient(book, step)
        m = 0.9 * m + 0.1 * g
        v = v if step >= 3 else 0.999 * v + 0.001 * g * g
        scale = (v / (1 - 0.999 ** min(step + 1, 3))).sqrt() + 1e-8
        x = x * (1 - 2e-3 * 0.05) - 2e-3 * m / (1 - 0.9 ** (step + 1)) / scale
    optimizer.close()
    return {"error": distance(weights(model), x)}


def one_bit_state(rank: int) -> dict[str, Any]:
    """Saved after the freeze, 1-bit LAMB on DDP goes on bit for bit."""

    def new() -> tuple[nn.Module, Any]:
        model = distributed(network())
        return model, syncline.torch.OneBitLamb(adam(model), model, warmup=3, **SMALL)

    model, optimizer = new()
    first = float(model.module(batch(9, 99)).square().mean())
    train(model, optimizer, rank, range(5))
    saved = _stored({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()})
    train(model, optimizer, rank, range(5, 9))
    second, again = new()
    second.module.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(second, again, rank, range(5, 9))
    last = float(model.module(batch(9, 99)).square().mean())
    result = {"equal": torch.equal(weights(model), weights(second)), "same": same_everywhere(weights(model)),
              "fell": last < first}  # fmt: skip
    optimizer.close()
    again.close()
    return result


def sharded(rank: int) -> dict[str, Any]:
    """FSDP2 inside sites of two and each method across, between ranks with the same shard: as without shards."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("site", "shard"))
    made: dict[str, Callable[[nn.Module, Any], Any]] = {
        "stale": lambda m, group: syncline.torch.BoundedStaleness(sgd(m), m, 1, "fp32", group=group, **SMALL),
        "served": lambda m, group: syncline.torch.ParameterServer(sgd(m), m, 1, codec="fp32", group=group, **SMALL),
        "one-bit": lambda m, group: syncline.torch.OneBitAdam(adam(m), m, 2, "fp32", group=group, **SMALL),
    }
    result: dict[str, Any] = {}
    for name, make in made.items():
        found = []
        for shards in (True, False):
            model = network()
            if shards:
                fully_shard(model, mesh=mesh["shard"])
            optimizer = make(model, mesh["site"].get_group() if shards else None)
            train(model, optimizer, rank, range(5))
            optimizer.synchronize()
            whole = [p.detach().full_tensor() if shards else p.detach() for p in model.parameters()]
            found.append(torch.cat([p.flatten() for p in whole]))
            optimizer.close()
        result[name] = {"error": distance(*found), "same": same_everywhere(found[0])}
    model = network()
    fully_shard(model, mesh=mesh["shard"])
    try:
        syncline.torch.OneBitLamb(adam(model), model, group=mesh["site"].get_group())
    except SynchronizationError as error:
        result["lamb"] = error.message
    return result


def disagreements(rank: int) -> dict[str, str]:
    """Another staleness, mode or warm-up on one rank raises on all."""

    def text(make: Callable[[nn.Module], Any]) -> str:
        try:
            make(network()).close()
        except SynchronizationError as error:
            return f"{type(error).__name__}: {error.message}"
        return ""

    odd = rank == 1
    return {
        "staleness": text(lambda m: syncline.torch.BoundedStaleness(sgd(m), m, 2 if odd else 1, **SMALL)),
        "mode": text(
            lambda m: syncline.torch.ParameterServer(sgd(m), m, 1, "asynchronous" if odd else "synchronous", **SMALL)
        ),
        "warmup": text(lambda m: syncline.torch.OneBitAdam(adam(m), m, 9 if odd else 8, **SMALL)),
        "method": text(lambda m: (syncline.torch.OneBitLamb if odd else syncline.torch.OneBitAdam)(adam(m), m)),
    }


def _give(model: nn.Module, gradient: torch.Tensor) -> None:
    low = 0
    for parameter in model.parameters():
        parameter.grad = gradient[low : low + parameter.numel()].view_as(parameter).clone()
        low += parameter.numel()


def _stored(value: Any) -> Any:
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


CASES: tuple[Callable[[int], dict[Any, Any]], ...] = (
    stale, stale_codecs, synchronous_server, asynchronous_server, served_state, broken_server, warm_up, frozen_exact,
    one_bit_state, *((sharded,) if HAS_FSDP2 else ()), disagreements,
)  # fmt: skip


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Run every case in one world and return what each found."""
    start(rank, NUM_RANKS, port)
    results = {}
    for case in CASES:
        results[case.__name__] = case(rank)
    dist.destroy_process_group()
    return results


def save_one_bit(rank: int, port: int, folder: str) -> dict[str, Any]:
    """Train 1-bit Adam on four ranks, write a checkpoint after the freeze, and go on for three steps."""
    start(rank, NUM_RANKS, port)
    model = network()
    optimizer = syncline.torch.OneBitAdam(adam(model), model, warmup=3, **SMALL)
    train(model, optimizer, rank, range(6))
    syncline.torch.Checkpoints(folder).save(6, model, optimizer)
    return _one_bit_end(rank, model, optimizer)


def resume_one_bit(rank: int, port: int, folder: str, num_ranks: int) -> dict[str, Any]:
    """Go on from what four ranks have written."""
    start(rank, num_ranks, port)
    model = network(seed=9)
    optimizer = syncline.torch.OneBitAdam(adam(model), model, warmup=3, **SMALL)
    step, _ = syncline.torch.Checkpoints(folder).restore(model, optimizer)
    return {"step": step, **_one_bit_end(rank, model, optimizer)}


def _one_bit_end(rank: int, model: nn.Module, optimizer: Any) -> dict[str, Any]:
    """Return what is there after six steps, and the weights after three more."""
    owed = optimizer.state_dict()["exchange"]["residuals"]
    kept = [value for state in optimizer.inner.state.values() for value in (state["exp_avg"], state["exp_avg_sq"])]
    found = {
        "weights": weights(model).tolist(), "frozen": optimizer.frozen,
        "owed": torch.cat([owed[name].flatten() for name in sorted(owed)]).tolist(),
        "moments": torch.cat([value.flatten() for value in kept]).tolist(),
    }  # fmt: skip
    train(model, optimizer, rank, range(6, 9))
    found |= {"end": weights(model).tolist(), "same": same_everywhere(weights(model))}
    optimizer.close()
    dist.destroy_process_group()
    return found
