"""What ranks do in the tests of what training must survive: each case is a world of its own."""

from __future__ import annotations

import logging
import os
import time
from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.failure_cases import attempt
from tests.distributed.cases.fsdp2 import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard
from tests.distributed.cases.training import (
    QUIET,
    SMALL,
    WIDTH,
    batch,
    distributed,
    gradients,
    network,
    start,
    true_mean,
    weights,
)
from torch import nn
from torch.distributed.device_mesh import init_device_mesh

import syncline.torch
from syncline.errors import SynclineError


class Kept(logging.Handler):
    """Keeps what was logged."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        logging.getLogger("syncline").addHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


class Words(nn.Module):
    """An embedding with sparse gradients, and a dense layer."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(4)
        self.table = nn.Embedding(50, 16, sparse=True)
        self.last = nn.Linear(16, 3)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.last(self.table(words).sum(1))
        return found


class Waves(nn.Module):
    """A complex weight."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.spectrum = nn.Parameter(torch.randn(WIDTH, 6, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (x.to(torch.complex64) @ self.spectrum).abs()


COMPLEX = ("plain", "fp32", "int8", "sign")


def words(rank: int, step: int) -> torch.Tensor:
    return torch.randint(0, 50, (8, 5), generator=torch.Generator().manual_seed(10 * step + rank))


def flat(gradient: torch.Tensor) -> torch.Tensor:
    dense = gradient.to_dense() if gradient.is_sparse else gradient
    return (torch.view_as_real(dense) if dense.is_complex() else dense).flatten().clone()


def whatever_ddp_takes(rank: int, port: int) -> dict[str, Any]:
    """Sparse and complex gradients; on, off and on again; a second handle."""
    start(rank, 2, port)
    return {
        "sparse": {codec: _apart(Words, words, rank, codec) for codec in ("plain", "int8", "sign", "auto")},
        "complex": {codec: _apart(Waves, batch, rank, codec) for codec in COMPLEX} if _ddp_takes_complex() else None,
        "again": _on_and_off(rank),
        "two": _two_models(rank),
        "norm": _sync_norm(rank),
        "refused": _refused(),
        "plain is DDP": _plain_is_ddp(rank),
    }


def _ddp_takes_complex() -> bool:
    """Whether plain DDP does on gloo: that of torch 2.4 cannot broadcast complex weights."""
    try:
        dist.broadcast(torch.zeros(1, dtype=torch.complex64), 0)
    except RuntimeError as error:
        return "scalar type" not in str(error)
    return True


def _apart(make: Any, draw: Any, rank: int, codec: str) -> list[float]:
    """Return how far the average of each parameter is from what plain DDP makes of it, in the third step."""
    found = []
    for given in (None, codec):
        model = distributed(make())
        handle = None if given is None else syncline.torch.synchronize(model, codec=given, **QUIET)
        for step in range(3):
            model.zero_grad()
            model(draw(rank, step)).square().sum().backward()
        found.append([flat(p.grad) for p in model.parameters() if p.grad is not None])
        if handle is not None:
            handle.close()
    return [float((got - true).norm() / true.norm()) for true, got in zip(*found, strict=True)]


def _on_and_off(rank: int) -> dict[str, Any]:
    """Return the error of each step: int8, then plain DDP, then int8 again, with and without bucket views."""
    result: dict[str, Any] = {}
    for views in (False, True):
        model = distributed(network(), gradient_as_bucket_view=views, static_graph=views)
        errors = []
        for step in range(9):
            if step in (0, 6):
                handle = syncline.torch.synchronize(model, codec="int8", **SMALL)
            if step == 3:
                handle.close()
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            true = true_mean(network(), step, range(2))
            errors.append(float((gradients(model) - true).norm() / true.norm()))
        second = attempt(lambda model=model: syncline.torch.synchronize(model, codec="int8", **SMALL))
        handle.close()
        result[str(views)] = {"errors": errors, "second": second}
    return result


def _two_models(rank: int) -> list[float]:
    """Two models with a handle each, in one process, stepping in turns."""
    models = [distributed(network(seed)) for seed in (0, 1)]
    handles = [syncline.torch.synchronize(model, codec="int8", **QUIET) for model in models]
    errors = []
    for seed, model in enumerate(models):
        model.zero_grad()
        model(batch(rank, 0)).square().sum().backward()
        true = true_mean(network(seed), 0, range(2))
        errors.append(float((gradients(model) - true).norm() / true.norm()))
    for handle in handles:
        handle.close()
    return errors


def _sync_norm(rank: int) -> float:
    """Return how far a model with SyncBatchNorm is from plain DDP; on the CPU torch has only its pass-through."""
    found = []
    for on in (False, True):
        torch.manual_seed(0)
        bare = nn.Sequential(nn.Linear(WIDTH, 8), nn.BatchNorm1d(8), nn.Linear(8, 2))
        model = distributed(bare)
        handle = syncline.torch.synchronize(model, codec="fp32", **QUIET) if on else None
        model(batch(rank, 0)).square().sum().backward()
        found.append(gradients(model))
        if handle is not None:
            handle.close()
    return float((found[1] - found[0]).norm() / found[0].norm())


def _refused() -> list[str]:
    """A misspelt option, and a model that has another hook."""
    said = [attempt(lambda: syncline.torch.synchronize(distributed(network()), codec="int8", chek_every=5))["text"]]
    model = distributed(network())
    model.register_comm_hook(None, other_hook)
    said.append(attempt(lambda: syncline.torch.synchronize(model, codec="int8"))["text"])
    return said


def other_hook(state: object, bucket: Any) -> Any:
    raise NotImplementedError


other_hook.__annotations__.clear()


def _plain_is_ddp(rank: int) -> dict[str, Any]:
    """Whether a model whose handle holds plain is bit-equal to DDP."""
    found = []
    for on in (False, True):
        model = distributed(network())
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        handle = syncline.torch.synchronize(model, codec="plain", **{**SMALL, "check_every": 50}) if on else None
        for step in range(120):
            optimizer.zero_grad()
            model(batch(rank, step)).square().sum().backward()
            optimizer.step()
        found.append(weights(model).clone())
    why, num_steps = handle.why(), handle.state_dict()["step"]
    handle.close()
    return {"equal": torch.equal(*found), "why": why, "step": num_steps}


def unequal(rank: int, port: int) -> dict[str, str]:
    """Rank 1 calls backward once more in step 2."""
    start(rank, 3, port)
    model = distributed(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    syncline.torch.synchronize(model, codec="int8", **SMALL)

    def train() -> None:
        for step in range(8):
            for _ in range(2 if (rank, step) == (1, 2) else 1):
                model(batch(rank, step)).square().sum().backward()
            optimizer.step()
            optimizer.zero_grad()

    return attempt(train)


def own_exception(rank: int, port: int) -> dict[str, str]:
    """Rank 2's data loader raises; the process ends as one of multiprocessing does, or says it in close()."""
    start(rank, 3, port)
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="int8", **SMALL)

    def train() -> None:
        try:
            for step in range(4):
                if (rank, step) == (2, 2):
                    raise ValueError("shard 17 of the data is not there")
                model.zero_grad()
                model(batch(rank, step)).square().sum().backward()
        finally:
            handle.close()

    if rank == 2:
        try:
            train()
        except ValueError as error:
            return {"class": "ValueError", "text": str(error)}
    return attempt(train)


def late(rank: int, port: int) -> dict[str, Any]:
    """Rank 1 is busy for several times what is named as silence; nobody ends, and it is named."""
    start(rank, 3, port)
    kept = Kept()
    model = distributed(network())
    handle = syncline.torch.synchronize(model, codec="int8", watch_s=1.0, **SMALL)

    def train() -> None:
        for step in range(6):
            if (rank, step) == (1, 4):
                time.sleep(4.0)
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    result: dict[str, Any] = attempt(train)
    handle.close()
    return {**result, "log": kept.lines}


def sharded_root(rank: int, port: int) -> dict[str, Any]:
    """FSDP2 in every form: a root without parameters, 2-D, mixed precision, another codec in each."""
    start(rank, 4, port)
    mesh = init_device_mesh("cpu", (4,))
    planes = init_device_mesh("cpu", (2, 2), mesh_dim_names=("across", "inside"))
    half = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    result: dict[str, Any] = {"bare": _fsdp_error(rank, mesh, bare=True), "half": _fsdp_error(rank, mesh, policy=half)}
    result["offload"] = _fsdp_error(rank, mesh, offload=CPUOffloadPolicy(pin_memory=False))
    for codec in ("fp32", "int8", "powersgd:rank=4"):
        result[f"2-D {codec}"] = _fsdp_error(rank, planes, codec=codec)
    result["2-D again"] = _fsdp_error(rank, planes, again=True)
    result["skip"] = _fsdp_error(rank, planes, nan="skip")
    return result


def fsdp_model(mesh: Any, bare: bool = False, policy: Any = None, offload: Any = None) -> Any:
    model: Any = network()
    wanted = {"mesh": mesh, "mp_policy": policy, "offload_policy": offload}
    options = {name: value for name, value in wanted.items() if value is not None}
    for layer in [m for m in model if isinstance(m, nn.Linear)][: 3 if bare else 2]:
        fully_shard(layer, **options)
    return fully_shard(model, **options)


def _fsdp_error(
    rank: int, mesh: Any, codec: str = "int8", bare: bool = False, policy: Any = None, offload: Any = None,
    again: bool = False, **more: Any,
) -> dict[str, Any]:  # fmt: skip
    model = fsdp_model(mesh, bare, policy, offload)
    options = {"check_every": 0, "timeout_s": 60.0, "warmup": 0, "watch_s": 0.0, **more}
    handle = syncline.torch.synchronize(model, codec=codec, **options)
    if again:
        handle.close()
        handle = syncline.torch.synchronize(model, codec=codec, **options)
    errors = []
    for step in range(4):
        if step == 3:
            sent = handle.steps[-1].report(1.0)
            handle.close()
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        got = torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()])
        true = true_mean(network(), step, range(4))
        errors.append(float((got - true).norm() / true.norm()))
    return {"errors": errors[:3], "off": errors[3], "sent": sent.wire_bytes, "dense": sent.dense_bytes}


def fsdp_loss(rank: int, port: int, how: str) -> dict[str, Any]:
    """Rank 3 of a 2-D mesh is killed, or stopped, in step 2; who is left raises, with its name."""
    start(rank, 4, port)
    planes = init_device_mesh("cpu", (2, 2), mesh_dim_names=("across", "inside"))
    model = fsdp_model(planes)
    options = {"check_every": 0, "timeout_s": 60.0, "warmup": 0, "watch_s": 2.0, "wait_s": 3.0}
    syncline.torch.synchronize(model, codec="int8", **options)

    def train() -> None:
        for step in range(4):
            if (rank, step) == (3, 2):
                stop(how)
            model.zero_grad()
            model(batch(rank, step)).square().sum().backward()

    return attempt(train)


def stop(how: str) -> None:
    if how == "hung":
        time.sleep(20.0)
        return
    os._exit(9)


def sites(rank: int, port: int) -> dict[str, Any]:
    """DDP inside a site and DiLoCo across, at its default delay: after which steps the site's replicas were equal."""
    start(rank, 4, port)
    site = syncline.torch.site_group(2)
    model = distributed(network(), process_group=site)
    inner = torch.optim.SGD(model.parameters(), lr=0.01)
    optimizer = syncline.torch.DiLoCo(inner, model, every=6, fragments=3, timeout_s=60.0)
    equal, landed = [], []
    for step in range(40):
        if rank % 2:
            time.sleep(0.003)  # one rank of each site is later than the other
        optimizer.zero_grad()
        model(batch(rank, step)).square().sum().backward()
        optimizer.step()
        both = [torch.empty_like(weights(model)) for _ in range(2)]
        dist.all_gather(both, weights(model).clone(), group=site)
        equal.append(torch.equal(*both))
        landed.append(tuple(optimizer.staleness))
    optimizer.close()
    return {"equal": equal.count(True), "landed": len(set(landed))}


def refusal(error: SynclineError) -> str:
    return str(error)
