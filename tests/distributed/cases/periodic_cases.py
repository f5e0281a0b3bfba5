"""What ranks do in the tests of periodic methods: each case is one function, run on every rank of one world."""

from __future__ import annotations

import datetime
import io
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.fsdp2 import HAS_FSDP2, fully_shard
from tests.distributed.cases.training import batch, distributed, gradients, network, same_everywhere, weights
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import syncline.torch
from syncline.errors import SynchronizationError

NUM_RANKS = 4
LR = 0.05
SMALL: dict[str, Any] = {"piece_bytes": 16384, "timeout_s": 240.0}
LOCAL = {**SMALL, "codec": "fp32", "outer_lr": 1.0, "momentum": 0.0}
"""The outer step takes the average itself: local SGD."""
CODECS = ("fp32", "bf16", "int8", "int4", "sign", "powersgd:rank=2")


def sgd(model: nn.Module) -> torch.optim.SGD:
    return torch.optim.SGD(model.parameters(), lr=LR, momentum=0.9)


def train(model: nn.Module, optimizer: Any, rank: int, steps: range) -> None:
    for step in steps:
        optimizer.zero_grad()
        model(batch(rank, step)).square().mean().backward()
        optimizer.step()


def distance(one: torch.Tensor, other: torch.Tensor) -> float:
    return float((one - other).norm() / other.norm())


class Textbook:
    """DiLoCo on all ranks at once in one process: plain arithmetic on lists of weights."""

    def __init__(self, every: int, outer_lr: float, momentum: float, num_ranks: int = NUM_RANKS) -> None:
        self.models = [network() for _ in range(num_ranks)]
        self.optimizers = [sgd(model) for model in self.models]
        self.agreed = weights(network())
        self.velocity = torch.zeros_like(self.agreed)
        self._every, self._lr, self._momentum = every, outer_lr, momentum

    def run(self, num_steps: int) -> torch.Tensor:
        for step in range(num_steps):
            for rank, (model, optimizer) in enumerate(zip(self.models, self.optimizers, strict=True)):
                train(model, optimizer, rank, range(step, step + 1))
            if (step + 1) % self._every == 0:
                self.round()
        return self.agreed

    def round(self) -> None:
        mean = torch.stack([weights(model) for model in self.models]).mean(0)
        gradient = self.agreed - mean
        self.velocity = self._momentum * self.velocity + gradient
        self.agreed = self.agreed - self._lr * (gradient + self._momentum * self.velocity)
        for model in self.models:
            nn.utils.vector_to_parameters(self.agreed.clone(), model.parameters())


def every_step_is_ddp(rank: int) -> dict[str, Any]:
    """Local SGD every step with plain SGD is what DDP does."""
    plain = distributed(network())
    train(plain, torch.optim.SGD(plain.parameters(), lr=LR), rank, range(5))
    model = network()
    optimizer = syncline.torch.DiLoCo(
        torch.optim.SGD(model.parameters(), lr=LR), model, 1, fragments=1, delay=0, **LOCAL
    )
    train(model, optimizer, rank, range(5))
    optimizer.close()
    return {"error": distance(weights(model), weights(plain)), "same": same_everywhere(weights(model))}


def textbook(rank: int) -> dict[str, Any]:
    """DiLoCo in float32, not streamed, is the update of the paper."""
    model = network()
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 3, "fp32", fragments=1, delay=0, **SMALL)
    train(model, optimizer, rank, range(9))
    expected = Textbook(3, 0.7, 0.9).run(9)
    optimizer.close()
    return {"error": distance(weights(model), expected), "same": same_everywhere(weights(model))}


def streamed(rank: int) -> dict[str, Any]:
    """Fragments are launched one after the other and land `delay` steps later; nothing of a local step is lost."""
    model = network()
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 6, fragments=3, delay=2, **LOCAL)
    fragments = [shared.fragment for shared in optimizer._shared]
    launched: list[list[int]] = [[] for _ in fragments]
    landed: list[list[int]] = [[] for _ in fragments]
    for step in range(14):
        train(model, optimizer, rank, range(step, step + 1))
        for k, shared in enumerate(optimizer._shared):
            if shared.flight is not None and shared.flight.step == step + 1:
                launched[k].append(step + 1)
            if shared.num_rounds > len(landed[k]):
                landed[k].append(step + 1)
    agreed = torch.cat([shared.agreed for shared in optimizer._shared])
    before = weights(model).clone()
    staleness = optimizer.staleness
    optimizer.synchronize()
    mean = _mean(before)
    result = {
        "launched": launched, "landed": landed, "staleness": staleness, "agreed": same_everywhere(agreed),
        "apart": not same_everywhere(before), "same": same_everywhere(weights(model)),
        "mean": distance(weights(model), mean),
    }  # fmt: skip
    optimizer.close()
    return result


def on_arrival(rank: int) -> dict[str, Any]:
    """Without a fixed delay fragments land when they come, at the latest when they are due again."""
    model = network()
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 4, "int8", **SMALL)
    train(model, optimizer, rank, range(12))
    staleness = optimizer.staleness
    optimizer.synchronize()
    result = {"staleness": staleness, "same": same_everywhere(weights(model)), "bytes": optimizer.wire_bytes}
    optimizer.close()
    return result


def codecs(rank: int) -> dict[str, Any]:
    """Every family of codec carries outer gradients, and all replicas agree to the bit."""
    result = {}
    plain = Textbook(2, 0.7, 0.9).run(4)
    for codec in CODECS:
        model = network()
        optimizer = syncline.torch.DiLoCo(sgd(model), model, 2, codec, fragments=1, delay=0, **SMALL)
        train(model, optimizer, rank, range(4))
        moved = plain - weights(network())
        error = float((weights(model) - plain).norm() / moved.norm())
        result[codec] = {"error": error, "same": same_everywhere(weights(model)), "bytes": optimizer.wire_bytes}
        optimizer.close()
    return result


def resumed(rank: int) -> dict[str, Any]:
    """Saved while fragments are under way and loaded in a new process, training goes on bit for bit."""

    def new() -> tuple[nn.Module, Any]:
        model = network()
        return model, syncline.torch.DiLoCo(sgd(model), model, 4, "sign", fragments=3, delay=2, **SMALL)

    model, optimizer = new()
    train(model, optimizer, rank, range(9))
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    train(model, optimizer, rank, range(9, 17))
    file.seek(0)
    saved = torch.load(file, weights_only=True)
    second, again = new()
    second.load_state_dict(saved["model"])
    again.load_state_dict(saved["optimizer"])
    train(second, again, rank, range(9, 17))
    result = {
        "equal": torch.equal(weights(model), weights(second)), "step": again.num_steps,
        "under_way": sorted(saved["optimizer"]["under_way"]), "refused": _refused(again, saved["optimizer"]),
    }  # fmt: skip
    optimizer.close()
    again.close()
    return result


def hierarchy(rank: int) -> dict[str, Any]:
    """DDP every step inside sites of two, DiLoCo across: what two large workers would do."""
    model = distributed(network(), process_group=syncline.torch.site_group(2))
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 3, "fp32", fragments=1, delay=0, **SMALL)
    train(model, optimizer, rank, range(6))
    book = Textbook(3, 0.7, 0.9, num_ranks=2)
    for step in range(6):
        for site, (worker, own) in enumerate(zip(book.models, book.optimizers, strict=True)):
            own.zero_grad()
            for member in (2 * site, 2 * site + 1):
                (worker(batch(member, step)).square().mean() / 2).backward()
            own.step()
        if step % 3 == 2:
            book.round()
    result = {"error": distance(weights(model), book.agreed), "same": same_everywhere(weights(model)),
              "sync_left_on": model.require_backward_grad_sync, "bytes": optimizer.wire_bytes}  # fmt: skip
    optimizer.close()
    return result


def replaces_ddp(rank: int) -> dict[str, Any]:
    """Over the ranks of DDP itself, DDP's averaging rests until the method is closed."""
    model = distributed(network())
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 3, "fp32", fragments=1, delay=0, **SMALL)
    train(model, optimizer, rank, range(3))
    expected = Textbook(3, 0.7, 0.9).run(3)
    error = distance(weights(model), expected)
    optimizer.close()
    optimizer.inner.zero_grad()
    model(batch(rank, 9)).square().mean().backward()
    return {"error": error, "averages_again": same_everywhere(gradients(model))}


def sharded(rank: int) -> dict[str, Any]:
    """FSDP2 inside sites of two, DiLoCo across between ranks that hold the same shard."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("site", "shard"))
    model = network()
    fully_shard(model, mesh=mesh["shard"])
    try:
        syncline.torch.DiLoCo(sgd(model), model)
        refused = ""
    except SynchronizationError as error:
        refused = error.message
    optimizer = syncline.torch.DiLoCo(
        sgd(model), model, 2, "int8", fragments=1, delay=0, group=mesh["site"].get_group(), **SMALL
    )
    train(model, optimizer, rank, range(4))
    whole = torch.cat([p.detach().full_tensor().flatten() for p in model.parameters()])
    optimizer.close()
    return {"same": same_everywhere(whole), "refused": refused, "moved": distance(whole, weights(network()))}


def disagreements(rank: int) -> dict[str, str]:
    """Another momentum, period, codec or start on one rank raises on all."""

    def text(make: Callable[[nn.Module], Any], seed: int = 0) -> str:
        model = network(seed)
        try:
            make(model).close()
        except SynchronizationError as error:
            return f"{type(error).__name__}: {error.message}"
        return ""

    odd = rank == 2
    diloco = syncline.torch.DiLoCo
    return {
        "momentum": text(lambda m: diloco(sgd(m), m, 4, momentum=0.5 if odd else 0.9, **SMALL)),
        "every": text(lambda m: diloco(sgd(m), m, 5 if odd else 4, **SMALL)),
        "codec": text(lambda m: diloco(sgd(m), m, 4, "int4" if odd else "int8", **SMALL)),
        "levels": text(lambda m: diloco(sgd(m), m, 4, levels=(2,) if odd else None, **SMALL)),
        "start": text(lambda m: diloco(sgd(m), m, 4, **SMALL), seed=int(odd)),
    }


def broken(rank: int) -> dict[str, str]:
    """A weight that is no number on one rank raises on every rank, by name."""
    model = network()
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 1, fragments=1, delay=0, **LOCAL)
    if rank == 1:
        model[2].bias.data[3] = float("nan")
    try:
        optimizer.step()
    except SynchronizationError as error:
        return {"raised": f"{type(error).__name__}: {error.message}"}
    return {"raised": ""}


def _mean(own: torch.Tensor) -> torch.Tensor:
    total = own.clone()
    dist.all_reduce(total)
    return total / NUM_RANKS


def _refused(optimizer: Any, state: dict[str, Any]) -> str:
    try:
        optimizer.load_state_dict({**state, "method": "local-sgd"})
    except SynchronizationError as error:
        return error.message
    return ""


CASES: tuple[Callable[[int], dict[str, Any]], ...] = (
    every_step_is_ddp, textbook, streamed, on_arrival, codecs, resumed, hierarchy, replaces_ddp,
    *((sharded,) if HAS_FSDP2 else ()), disagreements, broken,
)  # fmt: skip


def start(rank: int, size: int, port: int) -> None:
    patience = datetime.timedelta(seconds=240)
    store = dist.TCPStore("127.0.0.1", port, size, rank == 0, timeout=patience)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=patience)


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Run every case in one world and return what each found."""
    start(rank, NUM_RANKS, port)
    results = {}
    for case in CASES:
        results[case.__name__] = case(rank)
    dist.destroy_process_group()
    return results


def save_some(rank: int, port: int, folder: str) -> dict[str, Any]:
    """Train DiLoCo on four ranks and write a checkpoint in the middle of a period."""
    start(rank, NUM_RANKS, port)
    model = network()
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 4, "sign", fragments=3, **SMALL)
    train(model, optimizer, rank, range(10))
    syncline.torch.Checkpoints(folder).save(10, model, optimizer)
    state = optimizer.state_dict()
    optimizer.close()
    dist.destroy_process_group()
    return {"weights": weights(model).tolist(), **outer_state(state)}


def resume_with_fewer(rank: int, port: int, folder: str) -> dict[str, Any]:
    """Go on with three ranks from what four have written."""
    start(rank, NUM_RANKS - 1, port)
    model = network(seed=9)
    nn.utils.vector_to_parameters(weights(network()), model.parameters())
    optimizer = syncline.torch.DiLoCo(sgd(model), model, 4, "sign", fragments=3, **SMALL)
    step, _ = syncline.torch.Checkpoints(folder).restore(model, optimizer)
    result = {"step": step, "weights": weights(model).tolist(), **outer_state(optimizer.state_dict())}
    train(model, optimizer, rank, range(step, step + 4))
    optimizer.synchronize()
    result["same"] = same_everywhere(weights(model))
    optimizer.close()
    dist.destroy_process_group()
    return result


def outer_state(state: dict[str, Any]) -> dict[str, Any]:
    def flat(parts: dict[str, torch.Tensor]) -> list[float]:
        return torch.cat([parts[name].flatten() for name in sorted(parts)]).tolist()

    return {"agreed": flat(state["agreed"]), "momentum": flat(state["momentum"]),
            "owed": flat(state["exchange"]["residuals"])}  # fmt: skip
