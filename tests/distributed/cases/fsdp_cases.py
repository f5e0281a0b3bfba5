"""What ranks do in the tests of FSDP2."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from tests.distributed.cases.fsdp2 import fully_shard
from tests.distributed.cases.training import WIDTH, batch, carried_by, network, start, true_mean
from torch.distributed.device_mesh import init_device_mesh

import syncline.torch
from syncline.errors import SynclineError
from syncline.timeline import SpanKind

OPTIONS: dict[str, Any] = {"check_every": 0, "timeout_s": 240.0, "warmup": 0}


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
    result: dict[str, Any] = {"rank": rank}
    for codec in ("fp32", "int8", "bf16", "sign"):
        model = sharded(mesh)
        handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
        result[codec] = error(train(model, rank, range(3)), 2, range(4))
        report = handle.steps[-1].report(1.0)
        result[f"{codec} bytes"] = (report.wire_bytes, report.dense_bytes, len(handle.steps[-1].ready))
        handle.close()
        result[f"{codec} off"] = error(train(model, rank, range(3, 4)), 3, range(4))
    planes = init_device_mesh("cpu", (2, 2), mesh_dim_names=("across", "inside"))
    result["native"] = {codec: _as_lanes(mesh, rank, codec) for codec in ("fp32", "int8", "sign")}
    result["owes"] = _conserves(mesh, rank, "sign")
    result["owes low rank"] = _conserves(mesh, rank, "powersgd:rank=2")
    result["replicas"] = _replicas(planes, rank)
    result["low rank"] = _replicas(planes, rank, codec="powersgd:rank=2")
    result["accumulate"] = _accumulates(mesh, rank)
    result["warm up"] = _warms_up(mesh, rank)
    result["skip"] = _skips(mesh, rank, 3)
    result["skip across"] = _skips(planes, rank, 3)
    result["scaler"] = _scales(mesh, rank)
    result["refused"] = _refused(mesh, planes)
    handle = syncline.torch.synchronize(sharded(mesh))
    result["unasked"] = handle.why()
    handle.close()
    result["nan"] = _not_finite(mesh, rank)
    dist.barrier()
    return result


def _as_lanes(mesh: Any, rank: int, codec: str) -> tuple[bool, int]:
    """Whether the native wire's lanes give the bits of messages over gloo; and the spans of encoding that were seen."""
    gradients, spans = [], 0
    for carrier in ("point-to-point", "native"):
        model = sharded(mesh)
        with carried_by(carrier):
            handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
        gradients.append(train(model, rank, range(2)))
        spans = sum(kind is SpanKind.ENCODE for _, _, _, kind, *_ in handle.steps[-1].spans)
        handle.close()
    return torch.equal(*gradients), spans


def _accumulates(mesh: Any, rank: int) -> tuple[float, int]:
    """Return the error of the sum of two backward passes, and how often it was synchronised."""
    model = sharded(mesh)
    handle = syncline.torch.synchronize(model, codec="int8", **OPTIONS)
    model.zero_grad()
    for step in range(2):
        model.set_requires_gradient_sync(step == 1)
        model(batch(rank, step)).square().sum().backward()
    expected = true_mean(network(), 0, range(4)) + true_mean(network(), 1, range(4))
    found = float((whole_gradient(model) - expected).norm() / expected.norm())
    handle.close()
    return found, len(handle.steps)


def _warms_up(mesh: Any, rank: int) -> list[str]:
    model = sharded(mesh)
    handle = syncline.torch.synchronize(model, codec="sign", **{**OPTIONS, "warmup": 1})
    train(model, rank, range(2))
    handle.close()
    return [step.codec for step in handle.steps]


def _weights(model: Any) -> torch.Tensor:
    return torch.cat([p.detach().full_tensor().flatten() for p in model.parameters()])


def _skips(mesh: Any, rank: int, bad_rank: int) -> list[bool]:
    """Return whether weights changed at a step with an overflow on one rank, and at the next without one."""
    model = sharded(mesh)
    handle = syncline.torch.synchronize(model, codec="int4", nan="skip", **OPTIONS)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    changed = []
    for step in range(2):
        x = batch(rank, step)
        if rank == bad_rank and step == 0:
            x[0, 0] = float("inf")
        before = _weights(model)
        optimizer.zero_grad()
        model(x).square().sum().backward()
        optimizer.step()
        changed.append(not torch.equal(before, _weights(model)))
    skipped = [step.skipped for step in handle.steps]
    handle.close()
    return [*changed, *skipped, bool(torch.isfinite(_weights(model)).all())]


def _scales(mesh: Any, rank: int) -> tuple[list[float], float, float]:
    """Return the scale after each step (the second overflows on one rank), and what is owed before and after it."""
    model = sharded(mesh)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    handle: Any = syncline.torch.synchronize(model, codec="int4", scaler=scaler, **OPTIONS)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    scales, owed = [], []
    for step in range(3):
        x = batch(rank, step)
        if rank == 1 and step == 1:
            x[0, 0] = float("inf")
        optimizer.zero_grad()
        loss = model(x).square().sum()
        # Layers above the first do not overflow, and have sent what they owed.
        parts = handle.state_dict(local=True)["residuals"].items()
        owed.append(sum(float(part.abs().sum()) for name, part in parts if name[0] == "0"))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
    handle.close()
    return scales, owed[1], owed[2]


def _refused(mesh: Any, planes: Any) -> list[str]:
    asked: list[tuple[Any, dict[str, Any]]] = [
        (planes["inside"], {"replicas": planes["across"].get_group()}),
        (mesh, {"levels": (2,)}),
    ]
    said = []
    for over, options in asked:
        try:
            syncline.torch.synchronize(sharded(over), codec="int8", **options)
        except SynclineError as problem:
            said.append(str(problem))
    return said


def _conserves(mesh: Any, rank: int, codec: str) -> float:
    """What came and what is owed, over some steps; the last layer has padding, which is sent and then dropped."""
    even = 2 * (WIDTH * WIDTH + WIDTH)
    model = sharded(mesh)
    handle: Any = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
    got, expected = torch.zeros(0), torch.zeros(0)
    for step in range(3):
        came = train(model, rank, range(step, step + 1))[:even]
        true = true_mean(network(), step, range(4))[:even]
        got = came if step == 0 else got + came
        expected = true if step == 0 else expected + true
    saved = handle.state_dict()["residuals"]
    owing = sum(float(part.sum()) for name, part in saved.items() if name[0] in "02")
    handle.close()
    return abs(float(got.sum()) + owing - float(expected.sum())) / float(expected.abs().sum())


def _replicas(planes: Any, rank: int, codec: str = "int8") -> tuple[float, bool]:
    """Two hosts of two: shards inside a host, encoded averages across; also whether what is owed can be saved."""
    model = sharded(planes)
    handle = syncline.torch.synchronize(model, codec=codec, **OPTIONS)
    got = train(model, rank, range(3))
    owes = any(float(part.abs().sum()) > 0 for part in handle.state_dict()["residuals"].values())
    handle.close()
    return error(got, 2, range(4)), owes


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
