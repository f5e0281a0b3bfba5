"""What ranks do in the tests of FSDP2."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.ddp_cases import WIDTH, batch, network, start, true_mean
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import syncline.torch
from syncline.errors import SynclineError

OPTIONS: dict[str, Any] = {"check_every": 0, "timeout_s": 60.0}


def sharded(mesh: Any) -> Any:
    model: Any = network()
    for layer in (model[0], model[2]):
        fully_shard(layer, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def whole_gradient(model: Any) -> torch.Tensor:
    return torch.cat([p.grad.full_tensor().flatten() for p in model.parameters()])


def train(model: Any, rank: int, steps: range) -> torch.Tensor:
    for step in steps:
        model.zero_grad()
        model(batch(rank, step)).square().sum().backward()
    return whole_gradient(model)


def error(got: torch.Tensor, step: int, ranks: range) -> float:
    expected = true_mean(network(), step, ranks)
    return float((got - expected).norm() / expected.norm())


def do_all(rank: int, port: int) -> dict[str, Any]:
    """Train sharded models under several codecs, and across replicas."""
    start(rank, 4, port)
    mesh = init_device_mesh("cpu", (4,))
    result: dict[str, Any] = {}
    for codec in ("fp32", "int8", "bf16", "sign"):
        model = sharded(mesh)
        handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
        result[codec] = error(train(model, rank, range(3)), 2, range(4))
        report = handle.steps[-1].report(1.0)
        result[f"{codec} bytes"] = (report.wire_bytes, report.dense_bytes, len(handle.steps[-1].ready))
        handle.close()
        result[f"{codec} off"] = error(train(model, rank, range(3, 4)), 3, range(4))
    result["owes"] = _conserves(mesh, rank)
    result["replicas"] = _replicas(rank)
    try:
        syncline.torch.synchronize(sharded(mesh), codec="powersgd:rank=1")
    except SynclineError as problem:
        result["low rank"] = str(problem)
    try:
        syncline.torch.synchronize(sharded(mesh), nan="skip")
    except SynclineError as problem:
        result["skip"] = str(problem)
    result["nan"] = _not_finite(mesh, rank)
    dist.barrier()
    return result


def _conserves(mesh: Any, rank: int) -> float:
    """What came and what is owed, over some steps; the last layer has padding, which is sent and then dropped."""
    even = 2 * (WIDTH * WIDTH + WIDTH)
    model = sharded(mesh)
    handle: Any = syncline.torch.synchronize(model, codec="sign", **OPTIONS)
    got, expected = torch.zeros(0), torch.zeros(0)
    for step in range(3):
        came = train(model, rank, range(step, step + 1))[:even]
        true = true_mean(network(), step, range(4))[:even]
        got = came if step == 0 else got + came
        expected = true if step == 0 else expected + true
    saved = handle.state_dict()["residuals"]
    owing = sum(float(saved[f"{layer} (4 shards)"].sum()) for layer in (0, 2))
    handle.close()
    return abs(float(got.sum()) + owing - float(expected.sum())) / float(expected.abs().sum())


def _replicas(rank: int) -> float:
    """Two hosts of two: shards inside a host, encoded averages across."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("across", "inside"))
    model = sharded(mesh["inside"])
    handle = syncline.torch.synchronize(model, codec="int8", replicas=mesh["across"].get_group(), **OPTIONS)
    got = train(model, rank, range(3))
    handle.close()
    return error(got, 2, range(4))


def _not_finite(mesh: Any, rank: int) -> str:
    model = sharded(mesh)
    syncline.torch.synchronize(model, codec="int8", **OPTIONS)
    x = batch(rank, 0)
    if rank == 3:
        x[0, WIDTH - 1] = float("inf")
    try:
        model(x).square().sum().backward()
    except SynclineError as problem:
        return str(problem)
    return ""
